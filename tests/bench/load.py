"""Times PyTorch's own load of a checkpoint that ferry saved, and ferry's in the same run.

    load.py BENCH_SAVE CHECKPOINT [--repeat 3] [--threads N]

BENCH_SAVE is build/release/tests/bench/bench_save; CHECKPOINT what `bench_save WORK --keep` left: WORK/run/iter_0000001. The file is warm and
the tensors' memory has been touched before, for both."""
import argparse
import re
import statistics
import subprocess
import time

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader

parser = argparse.ArgumentParser()
parser.add_argument('bench')
parser.add_argument('checkpoint')
parser.add_argument('--repeat', type=int, default=3)
parser.add_argument('--threads', type=int, default=0)
a = parser.parse_args()

metadata = FileSystemReader(a.checkpoint).read_metadata().state_dict_metadata
state = {name: torch.ones(tuple(t.size), dtype=t.properties.dtype) for name, t in metadata.items()}
size = sum(t.numel() * t.element_size() for t in state.values())
seconds = []
for i in range(a.repeat + 1):
    begin = time.monotonic()
    dcp.load(state, checkpoint_id=a.checkpoint)
    if i:  # the first warms the files
        seconds.append(time.monotonic() - begin)
torch_seconds = statistics.median(seconds)
del state
output = subprocess.run([a.bench, '--load', a.checkpoint, '--repeat', str(a.repeat), '--threads', str(a.threads)], check=True,
                        capture_output=True, text=True).stdout
ferry_seconds = float(re.search(r'load\(\)\s+([\d.]+) s', output).group(1))
print(f'{size / 1e9:.2f} GB: PyTorch {torch.__version__} {torch_seconds:.2f} s ({size / torch_seconds / 1e9:.2f} GB/s); '
      f'ferry {torch_seconds / ferry_seconds:.1f} x as fast')
print(output, end='')
