"""Writes tests/fixtures/dcp/*: checkpoints as PyTorch itself saves them, and the truth beside them.

    make_dcp_fixtures.py FIXTURES      needs torch (2.11 was used), safetensors, xxhash
Two processes, on CPU. NAME.json holds dtype, shape and XXH3-128 of every tensor."""
import argparse
import copy
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
import xxhash
from torch.distributed._shard.sharded_tensor.metadata import TensorProperties as OldTensorProperties
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

RANKS = 2


def full(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def flatten(state, path=()):
    for key, value in state.items():
        if isinstance(value, dict):
            yield from flatten(value, path + (str(key),))
        elif torch.is_tensor(value):
            yield '.'.join(path + (str(key),)), full(value)


def write_truth(path, state):
    tensors = dict(flatten(state))  # gathers: every rank must come here
    if dist.get_rank() != 0:
        return
    truth = {name: {'dtype': str(t.dtype).removeprefix('torch.'), 'shape': list(t.shape), 'xxh3_128': xxhash.xxh3_128_hexdigest(
        t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())} for name, t in sorted(tensors.items())}
    path.write_text(json.dumps(truth, indent=0) + '\n')


class Model(torch.nn.Module):
    """5 rows over two ranks: 3 and 2. One row: nothing on rank 1."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(8, 6)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(6, 5), torch.nn.Linear(5, 1)])

    def forward(self, tokens):
        return self.layers[1](self.layers[0](self.embedding(tokens)))


def model_and_optimizer(mesh):
    torch.manual_seed(1)
    model = Model()
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model(torch.tensor([1, 2, 7])).sum().backward()
    optimizer.step()
    return get_state_dict(model, optimizer)


def sharded(mesh):
    torch.manual_seed(2)
    return {'w.rows': distribute_tensor(torch.randn(6, 4).bfloat16(), mesh, [Shard(0)]),
            'w.columns': distribute_tensor(torch.randn(3, 10), mesh, [Shard(1)]),
            'w.copies': distribute_tensor(torch.arange(5), mesh, [Replicate()])}


def fresh(folder):
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()
    return str(folder)


def rewrite_metadata(folder, change):
    path = folder / '.metadata'
    with open(path, 'rb') as f:
        metadata = pickle.load(f)
    with open(path, 'wb') as f:
        pickle.dump(change(metadata), f, protocol=2)


def as_before_2_3(metadata):
    """No version, no storage_meta; properties of the class's first home; no planner_data."""
    for storage in metadata.state_dict_metadata.values():
        if hasattr(storage, 'properties'):
            storage.properties = OldTensorProperties(dtype=storage.properties.dtype)
    for field in ('version', 'storage_meta', 'planner_data'):
        del metadata.__dict__[field]
    return metadata


def as_megatron_0_15(metadata):
    """The subclass with mcore_data that Megatron Core 0.15 pickles."""
    module = types.ModuleType('megatron.core.dist_checkpointing.strategies.torch')
    module.MCoreMetadata = type('MCoreMetadata', (type(metadata),), {'__module__': module.__name__})
    for name in ('megatron', 'megatron.core', 'megatron.core.dist_checkpointing', 'megatron.core.dist_checkpointing.strategies'):
        sys.modules[name] = types.ModuleType(name)
    sys.modules[module.__name__] = module
    megatron = module.MCoreMetadata(**vars(metadata))
    megatron.mcore_data = {name: {} for name in metadata.state_dict_metadata}
    return megatron


def work(rank, fixtures):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29517')
    dist.init_process_group('gloo', rank=rank, world_size=RANKS)
    mesh = init_device_mesh('cpu', (RANKS,))
    folder = fixtures / 'dcp'
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)  # the path is part of the metadata
    root = pathlib.Path('.')

    model, optimizer = model_and_optimizer(mesh)
    state = {'model': model, 'optimizer': optimizer, 'train_state': {'step': 5, 'name': 'run'}}
    dcp.save(copy.copy(state), checkpoint_id=fresh(root / 'fsdp'))
    write_truth(root / 'fsdp.json', state)

    state = sharded(mesh)
    write_truth(root / 'sharded.json', state)
    dcp.save({**state, 'note': 'bytes'}, storage_writer=FileSystemWriter(fresh(root / 'safetensors'), serialization_format=SerializationFormat.SAFETENSORS))
    dcp.save(dict(state), storage_writer=HuggingFaceStorageWriter(fresh(root / 'hf_shards'), save_distributed=True))
    # As Megatron-LM's torch_dcp and fsdp_dtensor formats: arguments and iteration are byte objects.
    arguments = argparse.Namespace(num_layers=2, tensor_model_parallel_size=1, pipeline_model_parallel_size=1, context_parallel_size=1, world_size=2)
    dcp.save({'args': arguments, 'iteration': 7, 'model': dict(state)}, checkpoint_id=fresh(root / 'torch_dcp'))
    for name, change in (('old', as_before_2_3), ('mcore', as_megatron_0_15)):
        dcp.save({**state, 'note': 'bytes'}, storage_writer=FileSystemWriter(fresh(root / name), thread_count=2))
        if rank == 0:
            rewrite_metadata(root / name, change)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    torch.multiprocessing.spawn(work, (pathlib.Path(sys.argv[1]).resolve(),), nprocs=RANKS)
