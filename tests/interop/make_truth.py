"""Writes tests/fixtures/truth/NAME.json: shape, dtype and XXH3-128 of every tensor that PyTorch reads from a torch_dist folder.

    make_truth.py FOLDER OUT.json      FOLDER: an iteration folder with .metadata
The C++ tests compare ferry's reading of a checkpoint with the truth of its twin that Megatron-LM saved again."""
import json
import sys

import torch
import torch.distributed.checkpoint as dcp
import xxhash
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata


def load(folder):
    entries = FileSystemReader(folder).read_metadata().state_dict_metadata
    tensors = {k: torch.empty(v.size, dtype=v.properties.dtype)
               for k, v in entries.items() if isinstance(v, TensorStorageMetadata)}
    dcp.load(tensors, storage_reader=FileSystemReader(folder), no_dist=True)
    return tensors


def raw_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


if __name__ == '__main__':
    folder, out = sys.argv[1:3]
    truth = {name: {'dtype': str(t.dtype).removeprefix('torch.'), 'shape': list(t.shape),
                    'xxh3_128': xxhash.xxh3_128_hexdigest(raw_bytes(t))}
             for name, t in sorted(load(folder).items())}
    with open(out, 'w') as f:
        json.dump(truth, f, indent=0)
        f.write('\n')
