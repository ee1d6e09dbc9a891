"""Writes a Llama-shaped torch_dist run folder of any size, as Megatron-LM lays it out, for the benchmarks.

    make_checkpoint.py OUT --layers 8 [--hidden 4096 --ffn 14336 --heads 32 --groups 8 --vocab 32000 --tp 2] [--optimizer]

The model's tensors hold random bf16 numbers. Optimizer state (fully_reshardable, fp32) is described in the metadata and stored in
files of the right size that are holes: it is there to be skipped, not to be read. With --optimizer it holds numbers, too. Needs PyTorch and
NumPy; memory use is a few tensors."""
import argparse
import io
import os
import pickle
import uuid
import zlib
from argparse import Namespace

import numpy as np
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex,
                                                   StorageMeta, TensorProperties, TensorStorageMetadata)

parser = argparse.ArgumentParser()
parser.add_argument('out')
for name, default in dict(layers=8, hidden=4096, ffn=14336, heads=32, groups=8, vocab=32000, tp=2).items():
    parser.add_argument(f'--{name}', type=int, default=default)
parser.add_argument('--optimizer', action='store_true')
a = parser.parse_args()
head = a.hidden // a.heads
folder = os.path.join(a.out, 'iter_0000100')
os.makedirs(folder)

pool = torch.from_numpy(np.random.default_rng(0).standard_normal(1 << 25, dtype=np.float32)).to(torch.bfloat16)


def random(elements, name, offset):
    """A run of the pool that begins somewhere else for each tensor, and where the weight does for its fp32 master: `verify` compares them."""
    of = f'{name.removeprefix("optimizer.state.param.")} {offset}'
    begin = zlib.crc32(of.encode()) % (1 << 18) * 64
    end = begin + elements
    return pool[begin:end] if end <= len(pool) else pool.repeat(-(-end // len(pool)))[begin:end]


tensors, storage = {}, {}
files = [open(f'{folder}/__{r}_0.distcp', 'wb') for r in range(a.tp)]
optimizer_files = [open(f'{folder}/__{a.tp + r}_0.distcp', 'wb') for r in range(a.tp)]


def put(name, shape, dtype, offset, size, rank):
    """Stores one chunk of a tensor in a rank's file."""
    entry = tensors.setdefault(name, TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size(shape), []))
    entry.chunks.append(ChunkStorageMetadata(torch.Size(offset), torch.Size(size)))
    elements = int(np.prod(size))
    if dtype == torch.float32 and not a.optimizer:  # a hole
        f, length = optimizer_files[rank], elements * 4 + 1024
        begin = f.tell()
        f.truncate(begin + length)
        f.seek(begin + length)
    else:
        f = (optimizer_files if dtype == torch.float32 else files)[rank]
        begin = f.tell()
        torch.save(random(elements, name, offset).to(dtype).view(size).clone(), f)
        length = f.tell() - begin
    storage[MetadataIndex(name, torch.Size(offset))] = _StorageInfo(os.path.basename(f.name), begin, length)


def add(name, shape, split, pieces=1):
    """One model tensor with its optimizer state. `split`: its tensor-parallel axis or None; `pieces`: parts of a fused one."""
    parts = [('', torch.bfloat16)] + [(f'optimizer.state.{s}.', torch.float32) for s in ('param', 'exp_avg', 'exp_avg_sq')]
    for prefix, dtype in parts:
        stacked = '.layers.' in name
        for layer in range(a.layers if stacked else 1):
            lead, head_of = ([layer], [1]) if stacked else ([], [])
            for rank in range(a.tp if split is not None else 1):
                for piece in range(pieces):
                    offset, size = [0] * len(shape), list(shape)
                    if split is not None:
                        size[split] = shape[split] // (a.tp * pieces)
                        offset[split] = (piece * a.tp + rank) * size[split]
                    put(prefix + name, ([a.layers] if stacked else []) + list(shape), dtype, lead + offset, head_of + size, rank)


layer = 'decoder.layers.'
add('embedding.word_embeddings.weight', [a.vocab, a.hidden], 0)
add(layer + 'self_attention.linear_qkv.layer_norm_weight', [a.hidden], None)
add(layer + 'self_attention.linear_qkv.weight', [(a.heads + 2 * a.groups) * head, a.hidden], 0)
add(layer + 'self_attention.linear_proj.weight', [a.hidden, a.hidden], 1)
add(layer + 'mlp.linear_fc1.layer_norm_weight', [a.hidden], None)
add(layer + 'mlp.linear_fc1.weight', [2 * a.ffn, a.hidden], 0, 2)
add(layer + 'mlp.linear_fc2.weight', [a.hidden, a.ffn], 1)
add('decoder.final_layernorm.weight', [a.hidden], None)
add('output_layer.weight', [a.vocab, a.hidden], 0)

args = Namespace(num_layers=a.layers, hidden_size=a.hidden, ffn_hidden_size=a.ffn, num_attention_heads=a.heads,
                 group_query_attention=True, num_query_groups=a.groups, kv_channels=head, seq_length=4096,
                 max_position_embeddings=4096, position_embedding_type='rope', rotary_base=10000, rotary_percent=1.0,
                 normalization='RMSNorm', layernorm_epsilon=1e-5, swiglu=True, untie_embeddings_and_output_weights=True,
                 add_bias_linear=False, add_qkv_bias=False, vocab_size=a.vocab, padded_vocab_size=a.vocab,
                 tensor_model_parallel_size=a.tp, pipeline_model_parallel_size=1, world_size=a.tp, iteration=100,
                 bf16=True, fp16=False, params_dtype=torch.bfloat16, init_method_std=0.02, use_distributed_optimizer=True)
common = {'args': args, 'iteration': 100, 'checkpoint_version': 3.0,
          'content_metadata': {'distrib_optim_sharding_type': 'fully_reshardable'},
          'optimizer': {'optimizer': {'param_groups': [{'wd_mult': m, 'lr_mult': 1.0, 'lr': 1e-3, 'step': 100} for m in (1.0, 0.0)]},
                        'param_state_sharding_type': 'fully_reshardable'}}
key = 'common_state/shard_0_1'
blob = io.BytesIO()
torch.save([common], blob)
storage[MetadataIndex(key)] = _StorageInfo('__0_0.distcp', files[0].tell(), len(blob.getvalue()))
files[0].write(blob.getvalue())
tensors[key] = BytesStorageMetadata()

for f in files + optimizer_files:
    f.close()
with open(f'{folder}/.metadata', 'wb') as f:
    pickle.dump(Metadata(tensors, None, storage, StorageMeta(folder, str(uuid.uuid4())), '1.0.0'), f)
with open(f'{folder}/metadata.json', 'w') as f:
    f.write('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
with open(os.path.join(a.out, 'latest_checkpointed_iteration.txt'), 'w') as f:
    f.write('100')
