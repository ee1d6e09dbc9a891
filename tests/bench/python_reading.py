"""How quickly Python reads with ferry, next to safetensors, PyTorch and cp, all in one run.

    PYTHONPATH=build/python/python python tests/bench/python_reading.py FOLDER [--gigabytes 4] [--files 900]

FOLDER is made, and removed at the end; in memory (/dev/shm) no disk is measured. Each figure is the best of --rounds, which alternate.
Needs PyTorch, NumPy and safetensors.

    model   all tensors of a safetensors file, mapped; and with a byte of each page touched     ferry.safe_open, safetensors.safe_open
    run     all tensors of a torch_dist run of two ranks into tensors that are there            Checkpoint.load, dcp.load
    stream  all tensors of that run in Hugging Face's names, as bytes a second                  Model.stream, cp of its files
    one     one tensor of a run of many files: open, get_tensor"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import time

import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import save_file

import ferry

parser = argparse.ArgumentParser()
parser.add_argument('folder', type=pathlib.Path)
parser.add_argument('--gigabytes', type=float, default=4)
parser.add_argument('--files', type=int, default=900)
parser.add_argument('--rounds', type=int, default=3)
parser.add_argument('--only', nargs='*', default=['model', 'run', 'stream', 'one'])
a = parser.parse_args()
here = pathlib.Path(__file__).resolve().parent
layers = max(1, round((a.gigabytes * 1e9 - 0.52e9) / 0.436e9))  # of Llama's 8B, in bf16


def best(*functions):
    """Seconds of each, the best of some rounds."""
    seconds = [[] for _ in functions]
    for _ in range(a.rounds):
        for function, mine in zip(functions, seconds):
            start = time.perf_counter()
            function()
            mine.append(time.perf_counter() - start)
    return [min(mine) for mine in seconds]


def show(what, ours, theirs, bytes_, peer):
    print(f'{what:34} ferry {ours:8.4f} s ({bytes_ / ours / 1e9:7.1f} GB/s)  {peer} {theirs:8.4f} s  ratio {theirs / ours:6.2f}', flush=True)


def touch(tensor):
    return tensor.view(-1).view(torch.uint8)[::4096].sum() if tensor.numel() else 0


def model():
    path = a.folder / 'model.safetensors'
    shapes = {'embed': (32000, 4096)}
    for layer in range(layers):
        shapes |= {f'{layer}.{name}': shape for name, shape in dict(
            q=(4096, 4096), k=(1024, 4096), v=(1024, 4096), o=(4096, 4096), gate=(14336, 4096), up=(14336, 4096), down=(4096, 14336),
            norm=(4096,), norm2=(4096,)).items()}
    save_file({name: torch.ones(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}, path)
    size = path.stat().st_size

    def read(opener, use):
        with opener(path, framework='pt') as file:
            for name in file.keys():
                use(file.get_tensor(name))

    show('model, mapped', *best(lambda: read(ferry.safe_open, id), lambda: read(safe_open, id)), size, 'safetensors')
    show('model, touched', *best(lambda: read(ferry.safe_open, touch), lambda: read(safe_open, touch)), size, 'safetensors')

    def load():
        with ferry.open(path) as checkpoint:
            checkpoint.load(framework='pt')

    show('model, load()', *best(load, lambda: read(safe_open, id)), size, 'safetensors')
    path.unlink()


def make_run():
    out = a.folder / 'run'
    if not out.exists():
        subprocess.run([sys.executable, here / 'make_checkpoint.py', out, '--layers', str(layers)], check=True)
    return out


def run():
    path = make_run()
    with ferry.open(path) as checkpoint:
        names = list(checkpoint)
        state = {name: torch.empty(checkpoint[name].shape, dtype=torch.bfloat16) for name in names}
    size = sum(tensor.nbytes for tensor in state.values())
    folder = next(path.glob('iter_*'))

    def ours():
        with ferry.open(path) as checkpoint:
            checkpoint.load(into=state)

    def theirs():
        dcp.load(state, storage_reader=dcp.FileSystemReader(folder), no_dist=True)

    show('run into tensors', *best(ours, theirs), size, 'dcp.load')


def stream():
    path = make_run()
    with ferry.open(path) as checkpoint:
        size = sum(tensor.nbytes for tensor in checkpoint.values())
    files = sorted(next(path.glob('iter_*')).glob('__[01]_0.distcp'))

    def ours():
        with ferry.open(path) as checkpoint:
            for _ in checkpoint.hf().stream(framework='pt'):
                pass

    def theirs():
        subprocess.run(['cp', *files, a.folder / 'copy'], check=True)

    (a.folder / 'copy').mkdir()
    show('stream in Hugging Face names', *best(ours, theirs), size, 'cp')
    shutil.rmtree(a.folder / 'copy')


def one():
    path = a.folder / 'many'
    ranks = {f'layer{i}.weight': torch.ones(64, 64) for i in range(a.files)}
    dcp.save(ranks, storage_writer=dcp.FileSystemWriter(path / 'all', single_file_per_rank=False, sync_files=False), no_dist=True)
    count = len(list((path / 'all').glob('*.distcp')))

    def ours():
        with ferry.open(path / 'all') as checkpoint:
            checkpoint.get_tensor(f'layer{a.files // 2}.weight', 'pt')

    seconds, = best(ours)
    print(f'one tensor of {count} files            ferry {seconds * 1e3:8.1f} ms', flush=True)


a.folder.mkdir(parents=True)
try:
    for each in a.only:
        {'model': model, 'run': run, 'stream': stream, 'one': one}[each]()
finally:
    shutil.rmtree(a.folder)
