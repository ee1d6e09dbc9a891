"""Times `ferry convert` against cp and against the Python path, in one run, and prints the ratios.

    convert.py FERRY WORK [--layers 8] [--tp 2] [--repeat 5] [--memory 512MiB ...] [--warm] [--python-convert SCRIPT --python PYTHON]

WORK is a folder on the file system to measure (a memory file system and a disk each want their own run). Makes the checkpoint there
with make_checkpoint.py (needs --python with PyTorch) unless WORK/run exists. Each repetition times, in turn: cp of the converted
files and fsync; ferry convert. Files that are written are removed before each timing. Peak memory is the child's maximum resident set."""
import argparse
import glob
import os
import shutil
import statistics
import subprocess
import sys
import time

from warm import touch_free_memory

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('--layers', type=int, default=8)
parser.add_argument('--tp', type=int, default=2)
parser.add_argument('--repeat', type=int, default=5)
parser.add_argument('--memory', nargs='*', default=['512MiB'])
parser.add_argument('--python', default=sys.executable)
parser.add_argument('--python-convert', help='the script to compare with: SCRIPT TORCH_DIST_FOLDER OUT HEADS GROUPS HEAD_DIM')
parser.add_argument('--warm', action='store_true', help='touch all free memory before each timing (warm.py)')
a = parser.parse_args()
run, out, copy = (os.path.join(a.work, name) for name in ('run', 'hf', 'copy'))


def timed(command):
    """Seconds and peak resident MiB of one command, which must succeed."""
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f'{command} failed:\n{output.decode()}')
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def clean(path):
    shutil.rmtree(path, ignore_errors=True)


def ready():
    """Nothing of the last timing is left to be written; memory is as --warm says."""
    os.sync()
    if a.warm:
        touch_free_memory()


os.makedirs(a.work, exist_ok=True)
if not os.path.exists(run):
    subprocess.run([a.python, f'{here}/make_checkpoint.py', run, '--layers', str(a.layers), '--tp', str(a.tp)], check=True)
clean(out)
convert = [a.ferry, 'convert', run, out, '--to', 'hf']
timed(convert)
size = sum(os.path.getsize(f) for f in glob.glob(f'{out}/*'))
kept = os.path.join(a.work, 'reference')
clean(kept)
os.rename(out, kept)
print(f'{size / 1e9:.2f} GB of output, TP{a.tp}, {a.layers} layers, {os.cpu_count()} cores')

for memory in a.memory:
    cp_times, ferry_times, peaks = [], [], []
    for _ in range(a.repeat):
        clean(copy), clean(out)
        ready()
        cp_times.append(timed(['sh', '-c', f'cp -r {kept} {copy} && sync {copy}/*'])[0])
        clean(copy)
        ready()
        seconds, peak = timed(convert + ['--memory', memory])
        ferry_times.append(seconds)
        peaks.append(peak)
    cp, ferry = statistics.median(cp_times), statistics.median(ferry_times)
    print(f'--memory {memory}: cp + fsync {cp:.2f} s ({size / cp / 1e9:.2f} GB/s), ferry {ferry:.2f} s ({size / ferry / 1e9:.2f} GB/s), '
          f'ferry / cp {ferry / cp:.2f}, peak {max(peaks):.0f} MiB', flush=True)
    print('    cp    ' + ' '.join(f'{t:.2f}' for t in cp_times) + '\n    ferry ' + ' '.join(f'{t:.2f}' for t in ferry_times))

if a.python_convert:
    clean(copy), clean(out)
    ready()
    folder = glob.glob(f'{run}/iter_*')[0]
    seconds, peak = timed(['sh', '-c', f'{a.python} {a.python_convert} {folder} {copy} 32 8 128 && sync {copy}/*'])
    clean(copy)
    print(f'Python + fsync: {seconds:.2f} s, peak {peak:.0f} MiB; {seconds / ferry:.1f} x ferry')
clean(out), clean(kept), clean(copy)
