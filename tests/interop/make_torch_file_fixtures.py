"""Writes tests/fixtures/torch_file: one state in both of torch.save's file forms, and the XXH3-128 of its tensors by name.

    make_torch_file_fixtures.py OUT_FOLDER"""
import argparse
import collections
import json
import sys

import torch
import xxhash


def state():
    torch.manual_seed(1)
    weight = torch.randn(6, 4)
    shared = torch.arange(10, dtype=torch.int64)
    model = collections.OrderedDict(weight=weight, transposed=weight.t(), part=weight[2:4, 1:3],
                                    bias=torch.randn(5).to(torch.bfloat16), empty=torch.empty(0, 3), scalar=torch.tensor(2.5))
    return {'model': model, 'args': argparse.Namespace(num_layers=2, name='x'), 'iteration': 7,
            'optimizer': {'state': {0: {'exp_avg': torch.ones(3), 'step': 5}, 1: {'exp_avg': shared[:4]}},
                          'param_groups': [{'lr': 0.1, 'params': [0, 1]}]},
            'flat': {(torch.bfloat16, torch.float32): {'param': shared[4:]}},
            'tuple': (torch.zeros(2, dtype=torch.bool), None)}


def tensors(value, name=''):
    if isinstance(value, torch.Tensor):
        yield name, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, inner in items:
        yield from tensors(inner, f'{name}.{key}' if name else str(key))


if __name__ == '__main__':
    folder = sys.argv[1]
    torch.save(state(), f'{folder}/zip.pt')
    torch.save(state(), f'{folder}/legacy.pt', _use_new_zipfile_serialization=False)
    truth = {name: {'dtype': str(t.dtype).removeprefix('torch.'), 'shape': list(t.shape),
                    'xxh3_128': xxhash.xxh3_128_hexdigest(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())}
             for name, t in tensors(state())}
    with open(f'{folder}/truth.json', 'w') as f:
        json.dump(truth, f, indent=0)
        f.write('\n')
