"""Holds what the example program saved from memory against PyTorch: every value, byte for byte.

    check_memory.py ASYNC_SAVE      the program built from examples/async_save
"""
import os
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.distributed.checkpoint as dcp
from checkpoints import raw_bytes
from torch.distributed.checkpoint import FileSystemReader

ROWS, COLUMNS = 1000, 256


def expected(iteration):
    elements = numpy.arange(ROWS * COLUMNS, dtype=numpy.int64)
    weight = (elements % 1000).astype(numpy.float32) / numpy.float32(8) + numpy.float32(iteration)
    return {'layer.weight': torch.from_numpy(weight.reshape(ROWS, COLUMNS)), 'counts': torch.arange(ROWS) * iteration}


def check(folder, iteration):
    right = expected(iteration)
    found = FileSystemReader(folder).read_metadata().state_dict_metadata
    assert set(found) == set(right), set(found)
    state = {name: torch.full_like(tensor, -1) for name, tensor in right.items()}
    dcp.load(state, checkpoint_id=folder)
    for name, tensor in right.items():
        assert tuple(found[name].size) == tuple(tensor.shape) and found[name].properties.dtype == tensor.dtype, name
        assert raw_bytes(state[name]) == raw_bytes(tensor), name


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as work:
        run = os.path.join(work, 'run')
        for steps, ranks in ((10, 2), (5, 3), (15, 1)):  # each goes on where the last one was
            subprocess.run([program, run, str(steps), str(ranks)], check=True)
        for iteration in (5, 10, 15, 20, 25, 30):
            check(os.path.join(run, f'iter_{iteration:07}'), iteration)
    print('saved from memory: PyTorch reads all of 6 checkpoints')


if __name__ == '__main__':
    main()
