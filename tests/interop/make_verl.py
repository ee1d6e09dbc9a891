"""Writes checkpoints of verl's FSDP workers with verl's own FSDPCheckpointManager, on CPU processes (gloo), after a step of AdamW.

Usage: make_verl.py OUT MODEL     (MODEL: a Hugging Face folder; OUT/NAME/global_step_1/actor is a rank folder each)
  fsdp2      two ranks, FSDP 2: every parameter is a DTensor, sharded along its first axis; one has fewer rows than ranks
  hsdp       four ranks, FSDP 2 over a mesh ("ddp", "fsdp") of 2 x 2
  fsdp1      two ranks, FSDP 1, one flat parameter a layer
OUT/NAME.safetensors is all of it as PyTorch gathers it (full_tensor). Needs torch, transformers and verl (with ray, tensordict, datasets, codetiming, hydra-core beside it)."""
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file

CASES = {'fsdp2': (2, (2,), ('fsdp',)), 'hsdp': (4, (2, 2), ('ddp', 'fsdp')), 'fsdp1': (2, (2,), ('fsdp',))}


def wrapped(model, case, mesh):
    if case == 'fsdp1':
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        layers = {type(model.model.layers[0])}
        return FSDP(model, device_mesh=mesh, device_id=torch.device('cpu'), use_orig_params=True, auto_wrap_policy=ModuleWrapPolicy(layers))
    from torch.distributed.fsdp import fully_shard
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def rank_main(rank, out, source, case):
    world, shape, names = CASES[case]
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29571', RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=world)
    from torch.distributed.device_mesh import init_device_mesh
    from transformers import AutoModelForCausalLM
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
    from omegaconf import OmegaConf
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    model = wrapped(model, case, init_device_mesh('cpu', shape, mesh_dim_names=names))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.arange(16).reshape(1, 16) + rank
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    contents = OmegaConf.create(dict(save_contents=['model', 'optimizer', 'extra'], load_contents=['model', 'optimizer', 'extra']))
    manager = FSDPCheckpointManager(model=model, optimizer=optimizer, lr_scheduler=None, processing_class=None, checkpoint_config=contents)
    manager.save_checkpoint(os.path.join(out, case, 'global_step_1/actor'), global_step=1)
    if case != 'fsdp1':  # what PyTorch itself makes of the parts
        whole = {name: getattr(tensor, 'full_tensor', lambda: tensor)().contiguous() for name, tensor in model.state_dict().items()}
        states = optimizer.state_dict()['state'].values()
        for name, state in zip([n for n, _ in model.named_parameters()], states):
            whole |= {f'optimizer.state.{kind}.{name}': state[kind].full_tensor().contiguous() for kind in ('exp_avg', 'exp_avg_sq')}
        if rank == 0: save_file(whole, os.path.join(out, case + '.safetensors'))
    dist.destroy_process_group()


if __name__ == '__main__':
    for name in sys.argv[3:] or CASES:
        mp.spawn(rank_main, (sys.argv[1], sys.argv[2], name), nprocs=CASES[name][0])
