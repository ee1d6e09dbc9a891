"""Writes tests/fixtures/fsdp/*: checkpoints in Megatron-LM's formats of PyTorch's own state dicts, and the truth beside them.

    make_fsdp_fixtures.py FIXTURES RUN      needs torch (2.11 was used), megatron-core (0.16.1), xxhash; RUN: an iteration folder that Megatron-FSDP wrote

Two processes on the CPU save through PyTorch's DCP. Megatron-FSDP itself needs a GPU: keys, halves, groups and objects follow its source
(megatron/core/transformer/fsdp_dtensor_checkpoint.py, core/optimizer/distrib_optimizer.py) and RUN, of which the arguments, scheduler and random
number states are. Which rows a rank has is uneven, as Megatron-FSDP cuts its flat buffers, and told by Megatron's own
update_uneven_dtensor_chunk_metadata. NAME.json holds dtype, shape and XXH3-128 of every tensor as a torch_dist checkpoint names it."""
import io
import json
import os
import pathlib
import pickle
import shutil
import sys
import types

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checkpoints import digests
from megatron.core.distributed.fsdp.src.megatron_fsdp.uneven_dtensor import update_uneven_dtensor_chunk_metadata
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

LAYERS, HIDDEN, FFN, VOCAB, EXPERTS = 2, 8, 12, 16, 2
DENSE = dict(num_layers=LAYERS, hidden_size=HIDDEN, ffn_hidden_size=FFN, num_attention_heads=2, num_query_groups=1, kv_channels=4,
             padded_vocab_size=VOCAB, vocab_size=14, world_size=2)
MIXTURE = dict(DENSE, num_experts=EXPERTS, moe_router_topk=2, moe_ffn_hidden_size=FFN, moe_layer_freq=1, moe_grouped_gemm=True,
               transformer_impl='transformer_engine')


def parameters(experts):
    """{module's name: tensor}, in the order of the state dict, of a Llama with norms as modules of their own, or of a Mixtral with Transformer Engine's."""
    tensors = {'embedding.word_embeddings.weight': (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        norm = 'self_attention.linear_qkv.layer_norm_weight' if experts else 'input_layernorm.weight'
        of_layer = {norm: (HIDDEN,), 'self_attention.linear_proj.weight': (HIDDEN, HIDDEN), 'self_attention.linear_qkv.weight': (16, HIDDEN),
                    'pre_mlp_layernorm.weight': (HIDDEN,)}
        if experts:
            of_layer['mlp.router.weight'] = (experts, HIDDEN)
            of_layer |= {f'mlp.experts.linear_fc1.weight{e}': (2 * FFN, HIDDEN) for e in range(experts)}
            of_layer |= {f'mlp.experts.linear_fc2.weight{e}': (HIDDEN, FFN) for e in range(experts)}
        else:
            of_layer |= {'mlp.linear_fc1.weight': (2 * FFN, HIDDEN), 'mlp.linear_fc2.weight': (HIDDEN, FFN)}
        tensors |= {f'decoder.layers.{layer}.{name}': shape for name, shape in of_layer.items()}
    tensors |= {'decoder.final_layernorm.weight': (HIDDEN,), 'output_layer.weight': (VOCAB, HIDDEN)}
    return {name: torch.randn(shape) * 0.2 for name, shape in tensors.items()}


def stacked(tensors):
    """The same as a torch_dist checkpoint names and shapes it."""
    result = {}
    for name, tensor in tensors.items():
        parts = name.split('.')
        at = ()
        if parts[0] == 'decoder' and parts[1] == 'layers':
            at = (int(parts.pop(2)),)
        name = '.'.join(parts).replace('layers.input_layernorm.', 'layers.self_attention.linear_qkv.layer_norm_')
        if 'experts' in name:
            digits = name[-1]
            name = name[:-1].replace('mlp.experts.', 'mlp.experts.experts.')
            at += (int(digits),)
        elif not any('.mlp.router.' in other for other in tensors):
            name = name.replace('pre_mlp_layernorm.', 'mlp.linear_fc1.layer_norm_')
        extents = (LAYERS, EXPERTS)[:len(at)]
        if at:
            result.setdefault(name, torch.empty(extents + tensor.shape, dtype=tensor.dtype))[at] = tensor
        else:
            result[name] = tensor
    return result


def uneven(tensor, mesh, first_rows):
    """A tensor of which rank 0 has the first rows, and rank 1 the rest."""
    rows = [slice(0, first_rows), slice(first_rows, None)][dist.get_rank()]
    sharded = DTensor.from_local(tensor[rows].clone(), mesh, [Shard(0)], run_check=False, shape=tensor.shape, stride=tensor.stride())
    update_uneven_dtensor_chunk_metadata(sharded)
    return sharded


def split(tensors):
    """Gate and up apart, as `weight_w` and `weight_v`, at the end of the dict."""
    gated = {name: tensor for name, tensor in tensors.items() if '.linear_fc1.' in name}
    result = {name: tensor for name, tensor in tensors.items() if name not in gated}
    for name, tensor in gated.items():
        result[f'{name}_w'], result[f'{name}_v'] = tensor.chunk(2)
    return result


def group_of(name, tensor):
    decay = 1.0 if tensor.dim() > 1 else 0.0
    return dict(is_expert_parallel=False, wd_mult=decay, lr=0.001, step=7)


class Unknown:
    """Of a class that is not installed."""

    def __init__(self, *values):
        pass

    def __setstate__(self, state):
        pass


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return Unknown


def load_object(run, key):
    metadata = dcp.FileSystemReader(run).read_metadata()
    item = next(item for index, item in metadata.storage_data.items() if index.fqn == key)
    with open(f'{run}/{item.relative_path}', 'rb') as file:
        file.seek(item.offset)
        return torch.load(io.BytesIO(file.read(item.length)), weights_only=False, pickle_module=types.SimpleNamespace(__name__='pickle',
            Unpickler=Unpickler, load=lambda file, **options: Unpickler(file, **options).load(), loads=pickle.loads))


def args_of(run, **changes):
    """The run's arguments, those of Megatron's own classes left out."""
    args = load_object(run, 'args')
    plain = (int, float, str, bool, type(None), torch.dtype)
    for name, value in list(vars(args).items()):
        if not isinstance(value, plain) and not (isinstance(value, list) and all(isinstance(item, plain) for item in value)):
            delattr(args, name)
    for name, value in changes.items():
        setattr(args, name, value)
    return args


def common(run, args):
    scheduler = {key.split('.', 1)[1]: load_object(run, key) for key in keys_of(run) if key.startswith('opt_param_scheduler.')}
    return {'args': args, 'checkpoint_version': 3.0, 'iteration': 7, 'opt_param_scheduler': scheduler, 'num_floating_point_operations_so_far': 12345}


def keys_of(run):
    return dcp.FileSystemReader(run).read_metadata().state_dict_metadata


def fsdp_dtensor(run, mesh, experts, changes):
    model = parameters(experts)
    states = {kind: {name: torch.rand_like(tensor) for name, tensor in model.items()} for kind in ('exp_avg', 'exp_avg_sq')}
    # Cuts in the middle of a half, at an end of one, and inside small tensors.
    cut = lambda tensors: {name: uneven(tensor, mesh, (0, 3, 5, tensor.shape[0])[i % 4]) for i, (name, tensor) in enumerate(split(tensors).items())}
    wrapped = 'module.module.module.'
    by_name = {}
    for kind, tensors in states.items():
        for name, tensor in cut(tensors).items():
            by_name.setdefault(wrapped + name, {})[kind] = tensor
    optimizer = {'state': by_name, 'param_to_group_meta': {wrapped + name: group_of(name, tensor) for name, tensor in model.items()}}
    state = common(run, args_of(run, **changes))
    state['model'] = {'module.' + name: tensor for name, tensor in cut(model).items()}
    state['optimizer'] = optimizer
    rng = {'random_rng_state': (3, tuple(range(5)), None), 'torch_rng_state': torch.arange(16, dtype=torch.uint8), 'rng_tracker_states': {}}
    state['rng_state'] = {'(0, 0)': [rng]}
    truth = stacked(model)
    for kind, tensors in states.items():
        truth |= {f'optimizer.state.{kind}.{name}': tensor for name, tensor in stacked(tensors).items()}
    return state, truth


def torch_dcp(run, mesh, changes):
    """--use-torch-fsdp2: state by number, counted through the groups; fp32 copies by group."""
    model = parameters(0)
    even = lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)])
    groups = [[name for name, tensor in model.items() if (tensor.dim() > 1) == decayed] for decayed in (True, False)]
    numbers = {name: i for i, name in enumerate(groups[0] + groups[1])}
    states = {kind: {name: torch.rand_like(tensor) for name, tensor in model.items()} for kind in ('exp_avg', 'exp_avg_sq')}
    state = common(run, args_of(run, ckpt_format='torch_dcp', use_megatron_fsdp=False, use_custom_fsdp=False, use_torch_fsdp2=True,
                                use_distributed_optimizer=False, **changes))
    state['model'] = {name: even(tensor.bfloat16()) for name, tensor in model.items()} | {'decoder.layers.0.self_attention.linear_qkv._extra_state': None}
    state['optimizer'] = {
        'optimizer': {
            'state': {number: {kind: even(states[kind][name]) for kind in states} for name, number in numbers.items()},
            'param_groups': [dict(group_of(names[0], model[names[0]]), params=[numbers[name] for name in names]) for names in groups]},
        'fp32_from_fp16_params': [[even(model[name]) for name in names] for names in groups]}
    rng = {'random_rng_state': (3, tuple(range(5)), None), 'torch_rng_state': torch.arange(16, dtype=torch.uint8), 'rng_tracker_states': {}}
    state['rng_state'] = [rng]
    truth = {name: tensor.bfloat16() for name, tensor in stacked(model).items()}
    for kind, tensors in {'param': model, **states}.items():
        truth |= {f'optimizer.state.{kind}.{name}': tensor for name, tensor in stacked(tensors).items()}
    return state, truth


def main(rank, fixtures, run):
    dist.init_process_group('gloo', rank=rank, world_size=2)
    mesh = init_device_mesh('cpu', (2,))
    folder = pathlib.Path(fixtures) / 'fsdp'
    if rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    dist.barrier()
    for seed, (name, make) in enumerate({'dense': lambda: fsdp_dtensor(run, mesh, 0, DENSE), 'mixture': lambda: fsdp_dtensor(run, mesh, EXPERTS, MIXTURE),
                                         'torch_dcp': lambda: torch_dcp(run, mesh, DENSE)}.items()):
        torch.manual_seed(seed)
        state, truth = make()
        dcp.save(state, checkpoint_id=str(folder / name))
        if rank == 0:
            (folder / f'{name}.json').write_text(json.dumps(dict(sorted(digests(truth).items())), indent=0) + '\n')
        dist.barrier()


if __name__ == '__main__':
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=os.environ.get('MASTER_PORT', '29511'))
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    torch.multiprocessing.spawn(main, args=tuple(sys.argv[1:3]), nprocs=2)
