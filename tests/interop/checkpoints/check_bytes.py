"""Compares what ferry reads with what PyTorch reads, every byte of every tensor.

    check_bytes.py FERRY PEERS [NAME...]      PEERS: a folder of run folders, as tests/fixtures/megatron

For each run folder with .metadata: `ferry convert --to safetensors --raw --optimizer` against PyTorch's own DCP reader (names, dtypes,
shapes, bytes). For each run whose state is known, from the twin that Megatron-LM saved: `ferry convert --to safetensors --optimizer` (the
logical view: optimizer state as one entry a parameter) against PyTorch's reading of that. And for every one whose parameters have fp32
masters: each master, rounded, is the parameter, bit for bit. Prints a line each; exit 1 on a difference."""
import glob
import json
import os
import subprocess
import sys
import tempfile

from checkpoints import Report, call, differences, digests, iteration_folder, load, model_of, run_names, truth_of
from safetensors import safe_open

MASTER = 'optimizer.state.param.'


def read_ferry(ferry, run, *flags):
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, 'out')
        call(ferry, 'convert', run, out, '--to', 'safetensors', '--optimizer', *flags)
        tensors = {}
        for path in sorted(glob.glob(f'{out}/*.safetensors')):
            with safe_open(path, framework='pt') as f:
                tensors.update({name: f.get_tensor(name) for name in f.keys()})
        return tensors


def optimizer_problem(ferry, run):
    """Why ferry leaves the optimizer's state out; empty where it does not."""
    return json.loads(subprocess.run([ferry, 'inspect', run, '--json'], capture_output=True, text=True, check=True).stdout)['optimizer'].get('problem') or ''


def main():
    ferry, peers = sys.argv[1:3]
    report = Report()

    def add(what, found, expected):
        size = sum(t.numel() * t.element_size() for t in found.values())
        report.add(f'{what}: {len(found)} tensors, {size} bytes', differences(digests(found), expected))

    for name in sys.argv[3:] or run_names(peers):
        run = os.path.join(peers, name)
        folder = iteration_folder(run)
        if os.path.exists(f'{folder}/.metadata'):
            add(f'{name}: as stored', read_ferry(ferry, run, '--raw'), digests(load(folder)))
        logical = read_ferry(ferry, run)
        truth = truth_of(peers, name)
        left_out = optimizer_problem(ferry, run)
        if truth and left_out:  # of layers that are not a plain GPT model's, which inspect says
            add(f'{name}: model, as its twin ({left_out})', model_of(logical), model_of(truth))
        elif truth:
            add(f'{name}: as its twin', logical, truth)
        masters = {k.removeprefix(MASTER): t for k, t in logical.items() if k.startswith(MASTER)}
        if masters:
            models = {k: logical[k] for k in masters}
            add(f'{name}: masters', {k: t.to(models[k].dtype) for k, t in masters.items()}, digests(models))
    report.end()


if __name__ == '__main__':
    main()
