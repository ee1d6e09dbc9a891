"""Times `ferry data merge` against cp of the same files, both until all is on disk, in one run, and prints the ratio of their speeds.

    merge_tokens.py FERRY WORK [--parts 4] [--size 512] [--repeat 5]

WORK is an empty folder on the disk to be measured, with room for twice PARTS x SIZE MiB. "cp" is one process of cp and one of sync of the files that it wrote, as ferry
calls fsync too. What was written is removed before each turn; inputs are in the page cache."""
import argparse
import os
import shutil
import statistics
import struct
import subprocess
import time

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('--parts', type=int, default=4)
parser.add_argument('--size', type=int, default=512)
parser.add_argument('--repeat', type=int, default=5)
a = parser.parse_args()
DOCUMENT = 4096  # tokens of two bytes
os.makedirs(a.work, exist_ok=True)


def write_part(prefix):
    documents = (a.size << 20) // (2 * DOCUMENT)
    block = os.urandom(1 << 20)
    with open(prefix + '.bin', 'wb') as f:
        for _ in range(a.size):
            f.write(block)
    with open(prefix + '.idx', 'wb') as f:
        f.write(b'MMIDIDX\0\0' + struct.pack('<QBQQ', 1, 8, documents, documents + 1))
        f.write(struct.pack('<i', DOCUMENT) * documents)
        f.write(b''.join(struct.pack('<q', 2 * DOCUMENT * i) for i in range(documents)))
        f.write(b''.join(struct.pack('<q', i) for i in range(documents + 1)))
        os.fsync(f.fileno())


def seconds(commands):
    subprocess.run(['rm', '-rf', out], check=True)
    os.makedirs(out)
    os.sync()
    begin = time.monotonic()
    for command in commands:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


prefixes, out = [os.path.join(a.work, f'part_{i}') for i in range(a.parts)], os.path.join(a.work, 'out')
for prefix in prefixes:
    write_part(prefix)
files = [prefix + kind for prefix in prefixes for kind in ('.bin', '.idx')]
copied = [os.path.join(out, os.path.basename(f)) for f in files]
programs = {'cp': [['cp', *files, out], ['sync', *copied]], 'ferry': [[a.ferry, 'data', 'merge', *prefixes, '-o', os.path.join(out, 'whole')]]}
times = {name: [] for name in programs}
for _ in range(a.repeat):
    for name, commands in programs.items():
        times[name].append(seconds(commands))
shutil.rmtree(out)
size = sum(map(os.path.getsize, files)) / 1e9
for name, values in times.items():
    print(f'{name}: {size / statistics.median(values):.2f} GB/s ({", ".join(f"{value:.2f}" for value in values)} s)')
print(f'ferry data merge {statistics.median(times["cp"]) / statistics.median(times["ferry"]):.2f}x of cp; shortest of each {min(times["cp"]) / min(times["ferry"]):.2f}x')
