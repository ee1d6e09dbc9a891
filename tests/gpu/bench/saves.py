"""Measures what an asynchronous save costs a run on one GPU, and how fast it is loaded again.

    saves.py FERRY WORK [--layers 28] [--rounds 2] [--warm GIB] [--no-torch]

A Llama-shaped model trains in bf16 with fp32 copies and AdamW on made-up tokens and saves once with --async-save; 28 layers are 1.57
billion parameters, 22 GB. This and plain writes take turns, --rounds of each, as disks are not equally fast all the time. WORK is an empty folder on the disk to be measured. Printed are: how much longer than the others the step is
in which the memory is copied aside; how much longer the steps are until all is on disk; how long that takes, compared with as many threads
that pwrite() as many bytes into files of the same sizes and fsync() them; and the time of loading it into the GPU's memory, compared with
torch.distributed.checkpoint's of the same tensors. What was loaded has to go on with the losses of the run that saved it. Files are in the page cache for both. --warm touches so much memory before, where the
host of a virtual machine gives memory as it is used."""
import argparse
import concurrent.futures
import glob
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('--layers', type=int, default=28)
parser.add_argument('--before', type=int, default=14, help='steps before the save')
parser.add_argument('--rounds', type=int, default=2)
parser.add_argument('--warm', type=int, default=0)
parser.add_argument('--no-torch', action='store_true')
a = parser.parse_args()
run = os.path.join(a.work, 'run')
BLOCK = 8 << 20
cores = len(os.sched_getaffinity(0))


def warm():
    """Touches memory, by several processes."""
    each = (a.warm << 30) // 8
    touch = f'import mmap; mmap.mmap(-1, {each}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)'
    for process in [subprocess.Popen([sys.executable, '-c', touch]) for _ in range(8)]:
        process.wait()


def start(*words):
    """ferry train, and a list of (time, line) that grows as it prints."""
    shape = (f'--num-layers {a.layers} --hidden-size 2048 --ffn-hidden-size 5632 --num-attention-heads 16 --swiglu --disable-bias-linear '
             '--normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --seq-length 2048 '
             '--max-position-embeddings 2048 --attention-dropout 0 --hidden-dropout 0 --bf16 --vocab-size 32000').split()
    rest = ('--mock-data --tokenizer-type NullTokenizer --micro-batch-size 4 --global-batch-size 16 --lr 1e-4 --eval-iters 0 '
            '--log-interval 1 --device cuda').split()
    process = subprocess.Popen([a.ferry, 'train', *shape, *rest, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []

    def read():
        for line in process.stdout:
            lines.append((time.monotonic(), line))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return process, lines, thread


def iterations(lines):
    found = {}
    for at, line in lines:
        match = re.search(r'iteration +(\d+)/', line)
        if match:
            found[int(match[1])] = at
    return found


def losses(lines):
    found = {}
    for _, line in lines:
        match = re.search(r'iteration +(\d+)/.* lm loss: (\S+)', line)
        if match:
            found[int(match[1])] = match[2]
    return found


def save():
    process, lines, _ = start('--train-iters', '100000', '--async-save', '--save', run, '--save-interval', str(a.before))
    tracker = os.path.join(run, 'latest_checkpointed_iteration.txt')
    while not os.path.exists(tracker):
        if process.poll() is not None:
            sys.exit(''.join(line for _, line in lines))
        time.sleep(0.002)
    committed = time.monotonic()
    while a.before + 2 not in iterations(lines) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    at = iterations(lines)
    first = a.before
    gap = {i: at[i] - at[i - 1] for i in at if i - 1 in at}
    plain = statistics.median(gap[i] for i in range(4, first + 1))
    during = [gap[i] for i in gap if i > first + 1]
    print(f'a step: {1000 * plain:.1f} ms; the one in which memory is copied: {1000 * (gap[first + 1] - plain):+.1f} ms')
    if during:
        print(f'steps during the write: {statistics.median(during) / plain:.3f} of that ({len(during)}; '
              f'the longest {max(during) / plain:.3f})')
    print('  ms: ' + ' '.join(f'{1000 * gap[i]:.0f}' for i in sorted(gap)))
    return committed - at[first], losses(lines)


def plain_write(sizes):
    """The same sizes, by as many threads as there are cores."""
    folder = os.path.join(a.work, 'plain')
    os.makedirs(folder)
    source = memoryview(os.urandom(64 << 20))
    begin = time.monotonic()
    files = {}
    work = []
    for i, size in enumerate(sizes):
        files[i] = os.open(os.path.join(folder, str(i)), os.O_CREAT | os.O_RDWR)
        work += [(i, at, min(BLOCK, size - at)) for at in range(0, size, BLOCK)]

    def write(item):
        number, at, count = item
        begin = at % (56 << 20)
        os.pwrite(files[number], source[begin:begin + count], at)

    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        list(pool.map(write, work))
        list(pool.map(os.fsync, files.values()))
    for file in files.values():
        os.close(file)
    seconds = time.monotonic() - begin
    shutil.rmtree(folder)
    return seconds


def words(seconds):
    return ' and '.join(f'{one:.2f}' for one in seconds)


def load(expected):
    process, lines, thread = start('--load', run, '--train-iters', '100000')
    while process.poll() is None and len(losses(lines)) < 3:
        time.sleep(0.01)
    process.kill()
    process.wait()
    thread.join()
    begin = next((at for at, line in lines if 'loading checkpoint from' in line), None)
    end = next((at for at, line in lines if 'successfully loaded' in line), None)
    if end is None:
        sys.exit(''.join(line for _, line in lines))
    for iteration, loss in losses(lines).items():
        if iteration != a.before + 2 and expected.get(iteration, loss) != loss:  # that line is an average of two
            sys.exit(f'iteration {iteration}: a loss of {loss} where the run that saved it had {expected[iteration]}')
    return end - begin


TORCH = r'''
import sys, time, torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
metadata = dcp.FileSystemReader(sys.argv[1]).read_metadata().state_dict_metadata
state = {name: torch.ones(tuple(t.size), dtype=t.properties.dtype, device="cuda") for name, t in metadata.items()
         if isinstance(t, TensorStorageMetadata)}
torch.cuda.synchronize()
begin = time.monotonic()
dcp.load(state, checkpoint_id=sys.argv[1])
torch.cuda.synchronize()
print(time.monotonic() - begin, sum(t.numel() * t.element_size() for t in state.values()))
'''

if a.warm:
    warm()
os.makedirs(a.work, exist_ok=True)
saves, writes = [], []
for _ in range(max(1, a.rounds)):
    if os.path.exists(run):
        shutil.rmtree(run)
    on_disk, expected = save()
    saves.append(on_disk)
    folder = max(glob.glob(os.path.join(run, 'iter_*')))
    sizes = sorted((os.path.getsize(name) for name in glob.glob(folder + '/*')), reverse=True)
    size = sum(sizes)
    os.sync()
    writes.append(plain_write(sizes))
print(f'{size / 1e9:.2f} GB in {len(sizes)} files on disk after {words(saves)} s ({size * len(saves) / sum(saves) / 1e9:.2f} GB/s); plain pwrite and fsync by '
      f'{cores} threads {words(writes)} s: {sum(writes) / sum(saves):.2f} of its speed', flush=True)
seconds = [load(expected) for _ in range(2)]
print(f'load: {words(seconds)} s ({size / min(seconds) / 1e9:.1f} GB/s)', flush=True)
if not a.no_torch:
    result = subprocess.run([sys.executable, '-c', TORCH, folder], capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr)
    torch_seconds, torch_bytes = map(float, result.stdout.split()[-2:])
    print(f'torch.distributed.checkpoint: {torch_seconds:.2f} s for {torch_bytes / 1e9:.2f} GB; ferry {torch_seconds / seconds[-1]:.1f} x as fast')
