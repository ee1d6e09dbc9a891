"""Writes the distributed checkpoint of a 405B run as far as planning reads it: real metadata and objects, tensors that are holes.

    make_metadata_405b.py OUT [--layers N] [--tp N] [--pp N] [--dp N]

Llama 3.1 405B by Megatron-LM on 16,384 ranks (TP8 PP16 DP128), Adam, optimizer state as dp_reshardable (flat buckets, several on the
first stage). OUT becomes a run folder. Needs PyTorch; takes a minute and, holes aside, some 200 MB of disk."""
import argparse
import io
import math
import os
import pickle
import uuid

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
                                                   TensorProperties, TensorStorageMetadata)

parser = argparse.ArgumentParser()
parser.add_argument('out')
for option, size in (('--layers', 126), ('--tp', 8), ('--pp', 16), ('--dp', 128)):
    parser.add_argument(option, type=int, default=size)
flags = parser.parse_args()
TP, PP, DP, LAYERS = flags.tp, flags.pp, flags.dp, flags.layers
HIDDEN, FFN, QKV, VOCABULARY = 16384, 53248, 18432, 129024
FRAME = 1200  # bytes of an item's zip directory and headers

folder = os.path.join(flags.out, 'iter_0001000')
os.makedirs(folder)
entries, storage, ends, blobs = {}, {}, {}, []


def place(index, rank, length, blob=None):
    """One item at the end of a rank's file."""
    path = f'__{rank}_0.distcp'
    storage[index] = _StorageInfo(path, ends.get(path, 0), length)
    if blob is not None:
        blobs.append((path, ends.get(path, 0), blob))
    ends[path] = ends.get(path, 0) + length


def add_object(name, rank, value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    entries[name] = BytesStorageMetadata()
    place(MetadataIndex(name), rank, len(buffer.getvalue()), buffer.getvalue())


def add_tensor(name, shape, dtype, chunks):
    """`chunks`: (offset, size, rank) each."""
    stored = []
    for offset, size, rank in chunks:
        offset, size = torch.Size(offset), torch.Size(size)
        stored.append(ChunkStorageMetadata(offset, size))
        place(MetadataIndex(name, offset, len(stored) - 1), rank, math.prod(size) * dtype.itemsize + FRAME)
    entries[name] = TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size(shape), stored)


def rank_of(tp, dp, pp):
    return tp + TP * (dp + DP * pp)


def stage_layers(pp):
    """Embedding and loss count as a layer each."""
    each = (LAYERS + 2) // PP
    first = max(pp * each - 1, 0)
    return range(first, min((pp + 1) * each - 1, LAYERS))


# Parameters of a layer in order of registration: name, shape, axis that tensor parallelism cuts.
LAYER = [('self_attention.linear_proj.weight', (HIDDEN, HIDDEN), 1), ('self_attention.linear_qkv.layer_norm_weight', (HIDDEN,), None),
         ('self_attention.linear_qkv.weight', (QKV, HIDDEN), 0), ('mlp.linear_fc1.layer_norm_weight', (HIDDEN,), None),
         ('mlp.linear_fc1.weight', (2 * FFN, HIDDEN), 0), ('mlp.linear_fc2.weight', (HIDDEN, FFN), 1)]


def model_tensors():
    """Each piece on one of the ranks that hold it."""
    for name, axis in (('embedding.word_embeddings.weight', 0), ('output_layer.weight', PP - 1)):
        rows = VOCABULARY // TP
        add_tensor(name, (VOCABULARY, HIDDEN), torch.bfloat16, [((tp * rows, 0), (rows, HIDDEN), rank_of(tp, 0, axis)) for tp in range(TP)])
    add_tensor('decoder.final_layernorm.weight', (HIDDEN,), torch.bfloat16, [((0,), (HIDDEN,), rank_of(0, 1, PP - 1))])
    for number, (name, shape, axis) in enumerate(LAYER):
        chunks = []
        for pp in range(PP):
            for layer in stage_layers(pp):
                dp = (layer * len(LAYER) + number) % DP
                if axis is None:
                    chunks.append(((layer, 0), (1,) + shape, rank_of(0, dp, pp)))
                    continue
                parts = 2 if name.endswith('fc1.weight') else 1  # gate and up apart
                size = list(shape)
                size[axis] //= TP * parts
                for part in range(parts):
                    for tp in range(TP):
                        offset = [layer, 0, 0]
                        offset[1 + axis] = (part * TP + tp) * size[axis]
                        chunks.append((offset, [1] + size, rank_of(tp, dp, pp)))
        add_tensor('decoder.layers.' + name, (LAYERS,) + shape, torch.bfloat16, chunks)


def up(value, multiple):
    return -(-value // multiple) * multiple


def buckets(pp):
    """The buckets of one rank: (length, unpadded length, bounds of parameters) each."""
    local = [math.prod(shape) // (TP if axis is not None else 1) for _, shape, axis in LAYER]
    sizes = ([VOCABULARY // TP * HIDDEN] if pp == 0 else []) + local * len(stage_layers(pp))
    if pp == PP - 1:
        sizes += [HIDDEN, VOCABULARY // TP * HIDDEN]
    limit = max(40_000_000, 1_000_000 * DP) if pp == 0 else None
    found, bounds, begin = [], [], 0
    for number, size in enumerate(reversed(sizes)):
        begin = up(begin, 64)
        end = begin + size
        bounds += [begin, end]
        begin = end
        if number + 1 == len(sizes) or (limit and end >= limit):
            found.append((up(end, math.lcm(DP, 128)), end, bounds))
            bounds, begin = [], 0
    return found


def optimizer():
    groups = [{'wd_mult': float(decay), 'lr_mult': 1.0, 'is_expert_parallel': False, 'is_decoupled_lr': False, 'lr': 1e-4,
               'betas': (0.9, 0.95), 'eps': 1e-8, 'weight_decay': 0.1 * decay, 'step': 1000} for decay in (1, 0)]
    dtypes = (torch.bfloat16, torch.float32)
    for pp in range(PP):
        of_stage = buckets(pp)
        for tp in range(TP):
            group = f'optimizer.distributed.dp_group_idx_{tp + TP * pp}.'
            add_object(group + 'optimizer/shard_0_1', rank_of(tp, 0, pp), [{'param_groups': groups}])
            for name, part in (('per_bucket_numel', 0), ('per_bucket_numel_unpadded', 1)):
                add_object(group + name + '/shard_0_1', rank_of(tp, 0, pp), [[{dtypes: [bucket[part] for bucket in of_stage]}]])
            for number, (length, unpadded, bounds) in enumerate(of_stage):
                part = length // DP
                cuts = sorted({0, unpadded, *bounds, *range(part, unpadded, part)})
                chunks = [((begin,), (end - begin,), rank_of(tp, begin // part, pp)) for begin, end in zip(cuts, cuts[1:])]
                for state in ('param', 'exp_avg', 'exp_avg_sq'):
                    add_tensor(f'{group}gbuf_idx_0.dtype_{dtypes}.bucket_idx_{number}.{state}', (unpadded,), torch.float32, chunks)


def objects():
    args = argparse.Namespace(
        num_layers=LAYERS, hidden_size=HIDDEN, ffn_hidden_size=FFN, num_attention_heads=128, num_query_groups=8, group_query_attention=True,
        tensor_model_parallel_size=TP, pipeline_model_parallel_size=PP, context_parallel_size=1, expert_model_parallel_size=1,
        expert_tensor_parallel_size=TP, world_size=TP * PP * DP, data_parallel_size=DP, account_for_embedding_in_pipeline_split=True,
        account_for_loss_in_pipeline_split=True, swiglu=True, bf16=True, untie_embeddings_and_output_weights=True, vocab_size=128256,
        padded_vocab_size=VOCABULARY, make_vocab_size_divisible_by=128, use_distributed_optimizer=True, overlap_grad_reduce=True,
        accumulate_allreduce_grads_in_fp32=True, transformer_impl='transformer_engine', seed=1234, iteration=1000,
        dist_ckpt_optim_fully_reshardable=False, ckpt_format='torch_dist', consumed_train_samples=1000 * 2048)
    metadata = {'distrib_optim_sharding_type': 'dp_reshardable', 'singleton_local_shards': False, 'chained_optim_avoid_prefix': True}
    add_object('common_state/shard_0_1', 0, [{
        'args': args, 'checkpoint_version': 3.0, 'iteration': 1000, 'optimizer': {'param_state_sharding_type': 'dp_reshardable'},
        'opt_param_scheduler': {'max_lr': 1e-4, 'num_steps': 1000 * 2048}, 'num_floating_point_operations_so_far': 1e21,
        'content_metadata': metadata}])
    state = torch.zeros(16, dtype=torch.uint8)
    for pp in range(PP):
        for tp in range(TP):
            rng = {'torch_rng_state': torch.zeros(5056, dtype=torch.uint8), 'cuda_rng_state': state,
                   'rng_tracker_states': {'data-parallel-rng': state, 'model-parallel-rng': state, 'expert-parallel-rng': state}}
            add_object(f'rng_state/shard_{pp}.{tp}_{PP}.{TP}', rank_of(tp, 0, pp), [[rng]])
    for layer in range(LAYERS):
        pp = next(pp for pp in range(PP) if layer in stage_layers(pp))
        for module in ('self_attention.linear_proj', 'self_attention.linear_qkv', 'mlp.linear_fc1', 'mlp.linear_fc2'):
            add_object(f'decoder.layers.{module}._extra_state/shard_{layer}_{LAYERS}', rank_of(0, 0, pp), [None])
    for rank in range(TP * PP * DP):
        add_object(f'rerun_state_machine_state/shard_{rank}_{TP * PP * DP}', rank, [{'mode': 'disabled'}])


if (LAYERS + 2) % PP:
    parser.error(f'{LAYERS} layers, embedding and loss cannot be split over {PP} stages')
objects()
model_tensors()
optimizer()
for path, end in ends.items():
    with open(f'{folder}/{path}', 'wb') as f:
        f.truncate(end)
for path, offset, blob in blobs:
    with open(f'{folder}/{path}', 'r+b') as f:
        f.seek(offset)
        f.write(blob)
with open(f'{folder}/metadata.json', 'w') as f:
    f.write('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
with open(f'{folder}/.metadata', 'wb') as f:
    pickle.dump(Metadata(entries, None, storage, StorageMeta(folder, str(uuid.uuid4())), '1.0.0'), f)
with open(f'{flags.out}/latest_checkpointed_iteration.txt', 'w') as f:
    f.write('1000')
print(f'{len(entries)} entries, {len(storage)} items in {len(ends)} files, {sum(ends.values()) / 1e12:.2f} TB, '
      f'{os.path.getsize(folder + "/.metadata") / 1e6:.1f} MB of metadata')
