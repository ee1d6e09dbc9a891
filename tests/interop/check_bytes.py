"""Compares what ferry reads with what PyTorch reads, every byte of every tensor.

    check_bytes.py FERRY PEERS [NAME...]      PEERS: a folder of run folders, as tests/fixtures/megatron

For each run folder with .metadata: `ferry convert --to safetensors --raw --optimizer` against PyTorch's own DCP reader (names, dtypes,
shapes, bytes). For each NAME with a NAME_as_full beside it, or with another run that holds the same state: `ferry convert --to
safetensors --optimizer` (the logical view: optimizer state as one entry a parameter) against PyTorch's reading of the twin that
Megatron-LM saved. And for every one whose parameters have fp32 masters: each master, rounded, is the parameter, bit for bit.
Prints a line each; exit 1 on a difference."""
import glob
import os
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings('ignore')
from make_truth import load  # noqa: E402
from safetensors import safe_open  # noqa: E402


# Runs of one training state that different programs or formats wrote.
MASTER = 'optimizer.state.param.'
SAME_STATE = {'swiss_llama_tp2pp2': 'llama_tp2pp2_full', 'llama_legacy_tp2_nodo': 'llama_tp2dp2_dpr_as_full'}


def read_ferry(ferry, run, *flags):
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, 'out')
        subprocess.run([ferry, 'convert', run, out, '--to', 'safetensors', '--optimizer', *flags], check=True, capture_output=True)
        tensors = {}
        for path in sorted(glob.glob(f'{out}/*.safetensors')):
            with safe_open(path, framework='pt') as f:
                tensors.update({name: f.get_tensor(name) for name in f.keys()})
        return tensors


def differences(found, expected):
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            yield f'{name}: ferry does not have it'
        elif name not in expected:
            yield f'{name}: PyTorch does not have it'
        elif (found[name].dtype, found[name].shape) != (expected[name].dtype, expected[name].shape):
            yield f'{name}: {found[name].dtype} {tuple(found[name].shape)} instead of {expected[name].dtype} {tuple(expected[name].shape)}'
        elif bytes_of(found[name]) != bytes_of(expected[name]):
            yield f'{name}: bytes differ'


def bytes_of(tensor):
    import torch
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def main():
    ferry, peers = sys.argv[1:3]
    names = sys.argv[3:] or sorted(os.path.basename(os.path.dirname(p)) for p in glob.glob(f'{peers}/*/latest_checkpointed_iteration.txt'))
    failed = 0

    def report(name, what, found, expected):
        nonlocal failed
        wrong = list(differences(found, expected))
        failed += bool(wrong)
        size = sum(t.numel() * t.element_size() for t in found.values())
        print(f'{name}: {what}: {len(found)} tensors, {size} bytes: ' + ('equal' if not wrong else f'{len(wrong)} differ'), flush=True)
        for line in wrong[:5]:
            print(f'    {line}')

    for name in names:
        run = os.path.join(peers, name)
        folder = glob.glob(f'{run}/iter_*')[0]
        if os.path.exists(f'{folder}/.metadata'):
            report(name, 'as stored', read_ferry(ferry, run, '--raw'), load(folder))
        twin = glob.glob(f'{peers}/{SAME_STATE.get(name, name + "_as_full")}/iter_*')
        logical = read_ferry(ferry, run)
        if twin:
            report(name, 'as its twin', logical, load(twin[0]))
        masters = {k.removeprefix(MASTER): t for k, t in logical.items() if k.startswith(MASTER)}
        if masters:
            models = {k: logical[k] for k in masters}
            report(name, 'masters', {k: t.to(models[k].dtype) for k, t in masters.items()}, models)
    print(f'{len(names)} checkpoints, {failed} failed')
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
