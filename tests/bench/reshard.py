"""Times `ferry reshard` against cp of the same bytes.

    reshard.py FERRY WORK [--layers 5 --hidden 2048 --repeat 3 --memory 512MiB] [--warm]      WORK: an empty folder on the file system to be measured

Makes a Llama-shaped run with its optimizer state, TP2 PP2, once as fully_reshardable and once as dp_reshardable, and times, by turns:
cp -r and sync of the run; ferry reshard to TP4; and of the flat buckets ferry reshard to fully_reshardable at the same layout. Prints medians,
ratios and the largest resident memory. What was written is removed before each turn."""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time

from warm import touch_free_memory

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('--layers', type=int, default=5)
parser.add_argument('--hidden', type=int, default=2048)
parser.add_argument('--repeat', type=int, default=3)
parser.add_argument('--memory', default='512MiB')
parser.add_argument('--warm', action='store_true', help='touch all free memory before each timing (warm.py)')
a = parser.parse_args()
made, full, flat, out = (os.path.join(a.work, name) for name in ('made', 'full', 'flat', 'out'))


def timed(command):
    """Seconds and resident MiB of a command and of the sync after it."""
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run(['sync', '-f', a.work], check=True)
    if a.warm:
        touch_free_memory()
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    subprocess.run(['sync', '-f', a.work], check=True)
    if status:
        sys.exit(f'{command} failed')
    return time.monotonic() - start, usage.ru_maxrss / 1024


def reshard(source, *options):
    return [a.ferry, 'reshard', source, out, '--memory', a.memory, *options]


script = os.path.join(os.path.dirname(__file__), 'make_checkpoint.py')
subprocess.run([sys.executable, script, made, '--layers', str(a.layers), '--hidden', str(a.hidden), '--ffn', str(3 * a.hidden), '--heads', '16',
                '--vocab', '16000', '--optimizer'], check=True)
subprocess.run([a.ferry, 'reshard', made, full, '--tp', '2', '--pp', '2', '--decoder-first-pipeline-num-layers', str(a.layers // 2)],
               check=True, stdout=subprocess.DEVNULL)
shutil.rmtree(made)
size = sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(full) for name in names)
tasks = {'cp': ['cp', '-r', full, out], 'TP2 PP2 -> TP4': reshard(full, '--tp', '4', '--pp', '1')}
times = {name: [] for name in tasks}
memory = {}
for turn in range(a.repeat):
    for name, command in tasks.items():
        seconds, memory[name] = timed(command)
        times[name].append(seconds)
shutil.rmtree(out)
subprocess.run([a.ferry, 'reshard', full, flat, '--optimizer', 'dp_reshardable'], check=True, stdout=subprocess.DEVNULL)
shutil.rmtree(full)
flat_tasks = {'cp of dp_reshardable': ['cp', '-r', flat, out], 'dp_reshardable -> fully_reshardable': reshard(flat)}
times.update({name: [] for name in flat_tasks})
for turn in range(a.repeat):
    for name, command in flat_tasks.items():
        seconds, memory[name] = timed(command)
        times[name].append(seconds)
shutil.rmtree(out)
shutil.rmtree(flat)
print(f'{size / 1e9:.2f} GB, --memory {a.memory}, median of {a.repeat}')
for name, each in times.items():
    median = statistics.median(each)
    base = statistics.median(times['cp of dp_reshardable' if 'dp_' in name else 'cp'])
    print(f'{name:36} {median:6.2f} s  {size / median / 1e9:5.2f} GB/s  {median / base:5.2f}x cp  {memory[name]:5.0f} MiB')
