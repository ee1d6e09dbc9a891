"""Times `ferry verify` against `cat FILES > /dev/null` of the same warm files, in one run, and prints the ratio of their speeds.

    verify.py FERRY FOLDER [--repeat 9] [--threads N ...]

FOLDER is a checkpoint of any format without damage: one that ferry wrote (all bytes under digests), or any other (CRC-32s of zip records;
verify then reads less than cat does, and the ratio counts what it read). Each repetition times cat and verify in turn, after one
reading of all files; `--threads` gives the numbers of threads to time."""
import argparse
import json
import os
import statistics
import subprocess
import time

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('folder')
parser.add_argument('--repeat', type=int, default=9)
parser.add_argument('--threads', type=int, nargs='*', default=[0])
a = parser.parse_args()
files = [os.path.join(root, name) for root, _, names in os.walk(a.folder) for name in names]


def timed(command, **options):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)
    return time.monotonic() - begin


cat = ['sh', '-c', 'cat "$@" > /dev/null', 'sh', *files]
size = sum(os.path.getsize(f) for f in files)
timed(cat)
for threads in a.threads:
    verify = [a.ferry, 'verify', a.folder] + (['--threads', str(threads)] if threads else [])
    report = json.loads(subprocess.run(verify + ['--json'], check=True, capture_output=True).stdout)
    times = [(timed(cat), timed(verify)) for _ in range(a.repeat)]
    c, v = (statistics.median(column) for column in zip(*times))
    print(f'{size / 1e9:.2f} GB, {report["covered_bytes"] / 1e9:.2f} GB under checksums ({report["digests"]} digests, '
          f'{report["crc32s"]} CRC-32s, {report["sha256s"]} SHA-256s), {threads or "all"} threads of {os.cpu_count()} cores')
    print(f'cat {c:.3f} s ({size / c / 1e9:.2f} GB/s), verify {v:.3f} s ({report["covered_bytes"] / v / 1e9:.2f} GB/s), '
          f'verify / cat {report["covered_bytes"] / v / (size / c):.2f}x')
    print('    cat    ' + ' '.join(f'{t:.2f}' for t, _ in times) + '\n    verify ' + ' '.join(f'{t:.2f}' for _, t in times))
