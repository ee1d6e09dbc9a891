"""Holds ferry's reading and writing of Megatron-LM's fsdp_dtensor and torch_dcp against PyTorch, Megatron Core and transformers.

    check_fsdp.py FERRY PEERS [NAME...]      PEERS: a folder of run folders, of which those with a plain PyTorch DCP are checked

Each run's tensors are read by PyTorch and brought under the names of torch_dist here, by rules of their own: what ferry makes of the run at LAYOUTS has
the same, bit by bit, masters and moments included, and where Megatron-FSDP wrote, the model in the type that it computes in. Parameter groups, scheduler
and random number states are those of the run. Written as fsdp_dtensor, by way of torch_dist, it has the keys, tensors and objects that the run has.
Megatron Core, where it is installed, computes the logits that transformers computes of what ferry converts. Prints a line each; exit 1 on a difference."""
import argparse
import os
import re
import subprocess
import sys
import tempfile

os.environ.setdefault('TORCHDYNAMO_DISABLE', '1')  # Megatron Core's fused functions are compiled else, which takes longer than they do
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import numpy as np
import torch
from checkpoints import Report, call, differences, digests, is_plain_dcp, iteration_folder, load, reshard
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import BytesStorageMetadata

LAYOUTS = ['', '--tp 2 --pp 2', '--pp 2 --optimizer dp_reshardable', '--to torch --tp 2']
BAR = 8e-6


class Stub:
    """Stands for a class that the installed Megatron Core does not have."""

    def __init__(self, *values):
        self.values = values

    def __eq__(self, other):
        return vars(self) == vars(other)


def tolerant(read):
    """What `read` gives, with stubs for classes that it does not find."""
    while True:
        try:
            return read()
        except BaseException as error:  # PyTorch's reader wraps what it meets in one of these
            missing = re.search(r"Can't get attribute '(\w+)' on <module '([\w.]+)'", str(error))
            if not missing:
                raise
            setattr(sys.modules[missing[2]], missing[1], type(missing[1], (Stub,), {'__module__': missing[2]}))


def state_of(folder):
    """The state dict as PyTorch puts it together again."""
    with tempfile.TemporaryDirectory() as work:
        tolerant(lambda: dcp_to_torch_save(folder, f'{work}/all.pt'))
        return tolerant(lambda: torch.load(f'{work}/all.pt', weights_only=False))


def without_wrappers(name):
    return re.sub(r'^(module\.)+', '', name)


def joined(tensors):
    """Gate and up as one."""
    result = {name: tensor for name, tensor in tensors.items() if not re.search(r'\.linear_fc1\..*_[wv]$', name)}
    for name in tensors:
        if name not in result and name.endswith('_w'):
            result[name[:-2]] = torch.cat([tensors[name], tensors[name[:-2] + '_v']])
    return result


def stacked(tensors):
    """As torch_dist names and shapes them: for models whose layers are alike."""
    layers, result = {}, {}
    mixture = any('.mlp.router.' in name for name in tensors)
    for name, tensor in tensors.items():
        found = re.match(r'decoder\.layers\.(\d+)\.(.*)', name)
        if not found:
            result[name] = tensor
            continue
        suffix = found[2].replace('input_layernorm.', 'self_attention.linear_qkv.layer_norm_')
        if not mixture:
            suffix = suffix.replace('pre_mlp_layernorm.', 'mlp.linear_fc1.layer_norm_')
        expert = re.match(r'mlp\.experts\.(linear_fc\d\.\w+?)(\d+)$', suffix) or re.match(r'mlp\.experts\.local_experts\.()(\d+)\.(.*)', suffix)
        if expert:
            suffix = 'mlp.experts.experts.' + (expert[1] or expert[3])
        layers.setdefault(suffix, {}).setdefault(int(found[1]), {})[int(expert[2]) if expert else None] = tensor
    for suffix, of_layers in layers.items():
        parts = []
        for layer in range(len(of_layers)):
            experts = of_layers[layer]
            parts.append(experts[None] if None in experts else torch.stack([experts[e] for e in range(len(experts))]))
        result['decoder.layers.' + suffix] = torch.stack(parts)
    return result


def states_of(state):
    """{kind: {parameter: tensor}}, of which `param` are the masters."""
    optimizer, model = state['optimizer'], joined({without_wrappers(name): tensor for name, tensor in state['model'].items() if torch.is_tensor(tensor)})
    kinds = {}
    if 'param_to_group_meta' in optimizer:
        for name, states in optimizer['state'].items():
            for kind, tensor in states.items():
                kinds.setdefault(kind, {})[without_wrappers(name)] = tensor
        return {'param': model, **{kind: joined(tensors) for kind, tensors in kinds.items()}}
    decayed = [name for name, tensor in model.items() if tensor.dim() > 1]
    groups = [decayed, [name for name in model if name not in decayed]]
    for names, members, masters in zip(groups, [g['params'] for g in optimizer['optimizer']['param_groups']], optimizer['fp32_from_fp16_params']):
        for name, number, master in zip(names, members, masters, strict=True):
            states = optimizer['optimizer']['state']
            for kind, tensor in states[number if number in states else str(number)].items():
                kinds.setdefault(kind, {})[name] = tensor
            kinds.setdefault('param', {})[name] = master
    return kinds


def expected_of(state):
    model = joined({without_wrappers(name): tensor for name, tensor in state['model'].items() if torch.is_tensor(tensor)})
    tensors = {name: tensor.bfloat16() if state['args'].bf16 else tensor for name, tensor in stacked(model).items()}
    for kind, of_parameters in states_of(state).items():
        tensors |= {f'optimizer.state.{kind}.{name}': tensor for name, tensor in stacked(of_parameters).items()}
    return digests(tensors)


def common_problems(folder, state):
    """The common state of a torch_dist checkpoint that Core 0.16 is to load."""
    common = tolerant(lambda: torch.load(f'{folder}/common.pt', weights_only=False))
    if common['opt_param_scheduler'] != state['opt_param_scheduler']:
        yield 'another scheduler'
    metas = state['optimizer'].get('param_to_group_meta')
    expected = list(metas.values()) if metas else [{k: v for k, v in g.items() if k != 'params'} for g in state['optimizer']['optimizer']['param_groups']]
    found = common['optimizer']['optimizer']['param_groups']
    for group in found:
        if group not in expected:
            yield f'parameter group {group} is not of the run'
    if len(found) != len({tuple(sorted((k, str(v)) for k, v in meta.items())) for meta in expected}):
        yield f'{len(found)} parameter groups'


def reshard_problems(ferry, run, options, state, work):
    folder = reshard(ferry, run, f'{work}/out{abs(hash(options))}', options)
    if '--to torch' in options or 'dp_reshardable' in options:
        folder = reshard(ferry, os.path.dirname(folder), f'{work}/back{abs(hash(options))}', '--tp 1 --pp 1 --dp 1')
    yield from differences(digests(load(folder)), expected_of(state))


def same(a, b):
    if torch.is_tensor(a):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return (a == b).all()
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def writing_problems(ferry, run, folder, state, work):
    reshard(ferry, run, f'{work}/between', '')
    written = reshard(ferry, f'{work}/between', f'{work}/written', '--to fsdp_dtensor')
    metadata = [FileSystemReader(path).read_metadata() for path in (written, folder)]
    tensors = [{key for key, entry in one.state_dict_metadata.items() if not isinstance(entry, BytesStorageMetadata) and not key.startswith('rng_state')}
               for one in metadata]
    if 'param_to_group_meta' in state['optimizer']:
        yield from (f'{key}: on one side only' for key in sorted(tensors[0] ^ tensors[1]))
        yield from differences(digests(load_only(written, tensors[0])), digests(load_only(folder, tensors[1])))
        found = state_of(written)
        for member in ('iteration', 'checkpoint_version', 'opt_param_scheduler', 'num_floating_point_operations_so_far', 'rng_state'):
            if member in state and not same(found[member], state[member]):
                yield f'{member} is another'
        if not same(found['optimizer']['param_to_group_meta'], state['optimizer']['param_to_group_meta']):
            yield 'other parameter groups'
    found = expected_of(state_of(written))
    yield from differences(found, expected_of(state))


def load_only(folder, names):
    return {name: tensor for name, tensor in load(folder).items() if name in names}


def logits_problems(ferry, run, state, work):
    """Megatron Core's own model, filled by its modules' names."""
    import make_core_checkpoints as core
    call(ferry, 'convert', run, f'{work}/hf', '--to', 'hf')
    # In a process of its own: the former changes PyTorch itself.
    subprocess.run([sys.executable, os.path.abspath(__file__), '--logits', f'{work}/hf', str(core.TOKENS[0]), str(core.TOKENS[1])], check=True, stderr=subprocess.DEVNULL)
    computed = np.load(f'{work}/hf/logits.npz')
    ours = torch.from_numpy(computed['logits'])
    # What the model is; not how the run computed it (bf16, fused kernels). Grouped experts need a GPU.
    args = argparse.Namespace(**{**core.BASE_ARGS, **{name: getattr(state['args'], name) for name in core.BASE_ARGS if hasattr(state['args'], name)}})
    for name in ('num_experts', 'moe_router_topk', 'moe_ffn_hidden_size', 'moe_router_score_function', 'moe_router_pre_softmax'):
        setattr(args, name, getattr(state['args'], name, None))
    args.bf16, args.params_dtype = False, torch.float32
    model = core.build(args).float().eval()
    weights = joined({without_wrappers(name): tensor.float() for name, tensor in state['model'].items() if torch.is_tensor(tensor)})
    weights = {re.sub(r'experts\.(linear_fc\d\.\w+?)(\d+)$', r'experts.local_experts.\2.\1', name.replace('self_attention.linear_qkv.layer_norm_', 'input_layernorm.')): tensor
               for name, tensor in weights.items()}
    missing = model.load_state_dict(weights, strict=False)
    left = [name for name in missing.missing_keys + missing.unexpected_keys if not name.endswith('_extra_state')]
    if left:
        yield f'Megatron Core has no place, or no value, for {left[:4]}'
    with torch.no_grad():
        theirs = core.all_logits(model, computed['tokens'])[0]
    columns = min(ours.shape[-1], theirs.shape[-1])
    distance = float((ours[..., :columns] - theirs[..., :columns]).abs().max() / theirs.abs().mean())
    print(f'    logits differ by {distance:.1e} of their mean size')
    if not distance <= BAR:
        yield f'logits differ by {distance:.1e} of their mean size'


def compute_logits(folder, *shape):
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager').eval()
    tokens = torch.randint(0, model.config.vocab_size, tuple(map(int, shape)), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        np.savez(f'{folder}/logits.npz', tokens=tokens.numpy(), logits=model(tokens).logits.numpy())


def has_core():
    try:
        from megatron.core import parallel_state
    except ImportError:
        return False
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=os.environ.get('FERRY_TEST_PORT', '29587'))
    torch.distributed.init_process_group('gloo', rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    return True


def main():
    if sys.argv[1] == '--logits':
        return compute_logits(*sys.argv[2:])
    ferry, peers = sys.argv[1:3]
    core = has_core()
    if not core:
        import megatron_stubs  # noqa: F401  to read its classes
    report = Report()
    for name in sys.argv[3:] or sorted(os.listdir(peers)):
        run = f'{peers}/{name}'
        if not os.path.isdir(run):
            continue
        folder = run if os.path.exists(f'{run}/.metadata') else iteration_folder(run)
        if not is_plain_dcp(folder):
            continue
        state = state_of(folder)
        with tempfile.TemporaryDirectory() as work:
            for layout in LAYOUTS:
                report.add(f'{name}: {layout or "as it is"}', reshard_problems(ferry, run, layout, state, work))
            report.add(f'{name}: groups and scheduler', common_problems(reshard(ferry, run, f'{work}/core', '--core-release 0.16'), state))
            report.add(f'{name}: written as fsdp_dtensor', writing_problems(ferry, run, folder, state, work))
            if core:
                report.add(f'{name}: logits', logits_problems(ferry, run, state, work))
    report.end()


if __name__ == '__main__':
    main()
