"""Writes tests/fixtures/truth/NAME.json: shape, dtype and XXH3-128 of every tensor that PyTorch reads from a torch_dist folder.

    make_truth.py FOLDER OUT.json      FOLDER: an iteration folder with .metadata
The tests compare ferry's reading of a checkpoint with the truth of its twin that Megatron-LM saved again."""
import json
import sys

from checkpoints import digests, load

if __name__ == '__main__':
    folder, out = sys.argv[1:3]
    with open(out, 'w') as f:
        json.dump(dict(sorted(digests(load(folder)).items())), f, indent=0)
        f.write('\n')
