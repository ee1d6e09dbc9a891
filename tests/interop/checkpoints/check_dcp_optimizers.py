"""Holds convert --optimizer of PyTorch's distributed checkpoints, whose optimizers name their parameters, against what two ranks of FSDP 2 saved with the programs' own code.
Moments are made of the weights (-0.5 w, w * w), so that each follows from its weight; the weights are those that convert gives of the Hugging Face folder.

  flattened     {"model", "optimizer"} of PyTorch, a key a parameter and member (flatten_optimizer_state_dict)
  application   {"app": {"model", "optim"}} of PyTorch, groups by number
  accelerate    pytorch_model_fsdp_0/ and optimizer_0/ of accelerate.utils.fsdp_utils; gathered: pytorch_model_fsdp.bin and optimizer.bin
  next to hf    the optimizer of accelerate.utils.fsdp_utils in either form, in a Hugging Face folder, as Trainer leaves it with FULL_STATE_DICT
  in memory     as application, of the parameters that transformers' module has: experts of a layer in one tensor
  torchtitan    its own names, the model's outermost, by its own get_flat_optim_state_dict; llama and qwen3_moe
Called by check_foreign.py."""
import importlib.util, os, shutil, sys
from types import ModuleType
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from checkpoints import call, load
from check_torchtitan import adapter_of, only_the_adapters
from safetensors.torch import load_file
from tiny_models import make_model

STEP = 7


class Tree(torch.nn.Module):
    """Parameters under dotted names, as a model of that program has them."""
    def __init__(self, tensors):
        super().__init__()
        for name, tensor in tensors.items():
            *path, leaf = name.split('.')
            at = self
            for part in path:
                if part not in at._modules: at.add_module(part, torch.nn.Module())
                at = at._modules[part]
            at.register_parameter(leaf, torch.nn.Parameter(tensor.clone()))


def sharded_model(tensors):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model = fully_shard(Tree(tensors), mesh=init_device_mesh('cpu', (2,)))
    named = list(model.named_parameters())
    groups = [dict(params=[(n, p) for n, p in named if (p.dim() > 1) == decayed], weight_decay=0.1 if decayed else 0.0) for decayed in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    for _, p in named: optimizer.state[p] = dict(step=torch.tensor(float(STEP)), exp_avg=p.detach() * -0.5, exp_avg_sq=p.detach() * p.detach())
    return model, optimizer


def titan_flat_state(optimizer):
    root = importlib.util.find_spec('torchtitan').submodule_search_locations[0]
    for package in ('', '.components', '.components.optimizer'):
        module = ModuleType('torchtitan' + package)
        module.__path__ = [root + package.replace('.', '/')]
        sys.modules['torchtitan' + package] = module
    from torchtitan.components.optimizer.utils import get_flat_optim_state_dict
    return get_flat_optim_state_dict(optimizer)


def save_accelerate(rank, out, model, optimizer, case):
    os.environ.update(ACCELERATE_USE_CPU='1', LOCAL_RANK=str(rank), MASTER_ADDR='127.0.0.1', MASTER_PORT=os.environ.get('FERRY_TEST_PORT', '29578'), RANK=str(rank), WORLD_SIZE='2')
    from accelerate import PartialState
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import save_fsdp_model, save_fsdp_optimizer
    state = PartialState(cpu=True, backend='gloo')
    state.is_fsdp2 = True
    gathered = case.endswith('gathered')
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type='FULL_STATE_DICT' if gathered else 'SHARDED_STATE_DICT', cpu_offload=False)
    if case.startswith('accelerate'): save_fsdp_model(plugin, state, model, out)
    save_fsdp_optimizer(plugin, state, optimizer, model, out)


def rank_main(rank, case, source, out):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=os.environ.get('FERRY_TEST_PORT', '29578'))
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=2)
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
    model, optimizer = sharded_model(torch.load(source))
    if case.startswith(('accelerate', 'next to hf')): save_accelerate(rank, out, model, optimizer, case)
    elif case == 'torchtitan':
        dcp.save(get_model_state_dict(model) | dict(optimizer=titan_flat_state(optimizer), train_state=dict(step=STEP), lr_scheduler=dict(last_epoch=STEP)), checkpoint_id=out)
    elif case == 'flattened':
        dcp.save(dict(model=get_model_state_dict(model), optimizer=get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))),
                 checkpoint_id=out)
    else: dcp.save(dict(app=dict(model=get_model_state_dict(model), optim=get_optimizer_state_dict(model, optimizer))), checkpoint_id=out)
    dist.barrier()
    dist.destroy_process_group()


def check_dcp_optimizers(ferry, work, report, moment_problems, differences):
    from transformers import AutoConfig, AutoModelForCausalLM
    cases = [('flattened', 'llama'), ('application', 'qwen3_moe')]
    cases += [('in memory', 'mixtral'), ('in memory', 'deepseek_v3')]
    if importlib.util.find_spec('accelerate'):
        cases += [('accelerate', 'llama'), ('accelerate gathered', 'qwen3'), ('next to hf', 'qwen3_moe'), ('next to hf gathered', 'llama')]
    if 'torchtitan' in sys.modules or importlib.util.find_spec('torchtitan'):
        only_the_adapters()
        cases += [('torchtitan', 'llama'), ('torchtitan', 'qwen3_moe')]
    for case, family in cases:
        def wrong():
            base = f'{work}/named_{case.replace(" ", "_")}_{family}'
            hf, out = base + '_hf', base
            make_model(hf, family)
            tensors = {n: t.float() for n, t in load_file(f'{hf}/model.safetensors').items()}
            if case == 'torchtitan': tensors = adapter_of(family, AutoConfig.from_pretrained(hf)).from_hf(tensors)
            if case == 'in memory': tensors = AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32).state_dict()
            if case.startswith('next to hf'): shutil.copytree(hf, out)
            torch.save(tensors, base + '.pt')
            mp.spawn(rank_main, (case, base + '.pt', out), nprocs=2)
            call(ferry, 'convert', out, base + '_run', '--to', 'torch_dist', '--optimizer', '--config', hf, '--dtype', 'fp32')
            found = load(f'{base}_run/iter_{STEP:07}')
            yield from moment_problems(found)
            call(ferry, 'convert', hf, base + '_alone', '--to', 'torch_dist', '--dtype', 'fp32')
            yield from differences({n: t for n, t in found.items() if not n.startswith('optimizer.')}, load(f'{base}_alone/release'))
            if case == 'accelerate' or os.path.exists(f'{out}/.metadata'):  # and as it is: all that PyTorch loads of the source
                call(ferry, 'reshard', out, base + '_dcp', '--to', 'dcp', '--dp', '3')
                parts = [f'{out}/pytorch_model_fsdp_0', f'{out}/optimizer_0'] if case == 'accelerate' else [out]
                yield from differences(load(base + '_dcp'), {n: t for part in parts for n, t in load(part).items()})
        report.add(f'optimizer by name, {case} {family}', wrong())


def make_fixture(out, source):
    """OUT: what torchtitan leaves of one layer of the tiny Llama in SOURCE, and its config.json."""
    import json
    from transformers import AutoConfig
    only_the_adapters()
    tensors = {n: t.float() for n, t in load_file(f'{source}/model.safetensors').items() if '.layers.' not in n or '.layers.0.' in n}
    config = AutoConfig.from_pretrained(source)
    config.num_hidden_layers = 1
    os.makedirs(os.path.dirname(out), exist_ok=True)
    torch.save(adapter_of('llama', config).from_hf(tensors), out + '.pt')
    shutil.rmtree(out, ignore_errors=True)
    mp.spawn(rank_main, ('torchtitan', out + '.pt', out), nprocs=2)
    os.remove(out + '.pt')
    raw = json.load(open(f'{source}/config.json'))
    with open(f'{out}/config.json', 'w') as f: json.dump(raw | dict(num_hidden_layers=1), f, indent=1)


if __name__ == '__main__': make_fixture(*sys.argv[1:])
