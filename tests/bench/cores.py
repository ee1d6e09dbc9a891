"""Times `ferry convert`, `reshard` and `verify` against as many processes of cp and cat as the machine has cores, in one run, and
prints the ratios of their speeds.

    cores.py FERRY WORK [--layers 36] [--optimizer-layers 4] [--repeat 3] [--memory SIZE] [--threads N] [--warm] [--other FERRY]
             [--parts convert reshard verify]

WORK is an empty folder on the file system to be measured, with room for five times the checkpoint (tmpfs: mount one that is large
enough). Makes two checkpoints there with make_checkpoint.py (needs PyTorch): weights alone for convert, and weights with optimizer state
for reshard. Each repetition times, in turn:

  ferry       convert to files of 5 GB, to two files, to 34 files; reshard to 8 rank files; verify of the last
  same files  cp (cat) of the very files that ferry wrote (reads), a process a file, as many at once as there are cores
  all cores   cp of as many equal files as there are cores, of the same bytes together, all at once (verify: dd of as many equal ranges)

`--other` is another build to time in the same turns. What was written is removed before each turn. `--warm` touches all free memory once at
first (warm.py). "peak" is the largest resident set of ferry, pages of files in memory that are mapped included."""
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
parser.add_argument('--layers', type=int, default=36)
parser.add_argument('--optimizer-layers', type=int, default=4)
parser.add_argument('--hidden', type=int, default=4096)
parser.add_argument('--repeat', type=int, default=3)
parser.add_argument('--memory')
parser.add_argument('--threads', type=int, default=0)
parser.add_argument('--warm', action='store_true')
parser.add_argument('--other')
parser.add_argument('--parts', nargs='+', default=['convert', 'reshard', 'verify'])
a = parser.parse_args()
cores = len(os.sched_getaffinity(0))
run, run_with_state, out, kept, parts = (os.path.join(a.work, name) for name in ('run', 'state', 'out', 'kept', 'parts'))
programs = {'ferry': a.ferry} | ({'other': a.other} if a.other else {})


def clean(path):
    """Removes a folder, its files by several processes."""
    subprocess.run(f'find {path} -type f -print0 2>/dev/null | xargs -0 -r -P {cores} -n 1 rm -f; rm -rf {path}', shell=True, check=True)


def files_of(folder):
    return [os.path.join(root, name) for root, _, names in os.walk(folder) for name in sorted(names)]


def size_of(folder):
    return sum(os.path.getsize(f) for f in files_of(folder))


def seconds_of(commands, at_once):
    """Runs all commands, `at_once` at a time: seconds that they take, and the largest resident set in MiB."""
    begin, running, waiting, peak = time.monotonic(), {}, list(commands), 0
    while running or waiting:
        while waiting and len(running) < at_once:
            command = waiting.pop(0)
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            running[child.pid] = child
        pid, status, usage = os.wait4(-1, 0)
        child = running.pop(pid)
        child.returncode = status
        peak = max(peak, usage.ru_maxrss / 1024)
        if status:
            sys.exit(f'{child.args} failed with status {status}')
    return time.monotonic() - begin, peak


def cut(folder, count):
    """Ranges of the folder's files that have about the same bytes: `count` lists of (file, first MiB, MiB)."""
    left = [(f, 0, -(-os.path.getsize(f) >> 20)) for f in files_of(folder)]
    share, lists = -(-sum(mebibytes for _, _, mebibytes in left) // count), []
    for _ in range(count):
        lists.append([])
        room = share
        while left and room:
            f, first, mebibytes = left[0]
            part = min(room, mebibytes)
            lists[-1].append((f, first, part))
            room -= part
            left[0] = (f, first + part, mebibytes - part)
            if part == mebibytes:
                left.pop(0)
    return lists


def read_ranges(ranges):
    """A shell's command that prints them."""
    return '; '.join(f'dd if={f} bs=256K iflag=skip_bytes,count_bytes skip={first << 20} count={mebibytes << 20} 2>/dev/null'
                     for f, first, mebibytes in ranges)


def make_parts():
    """The bytes of what is kept in as many equal files as there are cores."""
    clean(parts)
    os.makedirs(parts)
    make = [['sh', '-c', f'({read_ranges(ranges)}) > {parts}/{i}'] for i, ranges in enumerate(cut(kept, cores))]
    seconds_of(make, cores)


def measure(name, commands, files, writes):
    """Prints a line a program: medians of what the turns took. `commands` makes the command of one program."""
    times, peaks = {}, {}

    def turn(kind, what, at_once):
        if writes:
            clean(out)
            if kind not in programs:
                os.makedirs(out)
        seconds, peak = seconds_of(what, at_once)
        times.setdefault(kind, []).append(seconds)
        peaks[kind] = max(peak, peaks.get(kind, 0))

    total = size_of(files)
    for _ in range(a.repeat):
        for kind, program in programs.items():
            turn(kind, [commands(program)], 1)
        if writes:
            turn('same files', [['cp', f, f'{out}/{i}'] for i, f in enumerate(files_of(files))], cores)
            turn('all cores', [['cp', f, out] for f in files_of(parts)], cores)
        else:
            turn('same files', [['sh', '-c', f'cat {f} > /dev/null'] for f in files_of(files)], cores)
            turn('all cores', [['sh', '-c', f'({read_ranges(ranges)}) > /dev/null'] for ranges in cut(files, cores)], cores)
    rate = {kind: total / statistics.median(each) / 1e9 for kind, each in times.items()}
    for kind in programs:
        print(f'{name:24} {kind:6} {total / 1e9:6.2f} GB {rate[kind]:6.2f} GB/s | same files {rate["same files"]:6.2f} GB/s, '
              f'ratio {rate[kind] / rate["same files"]:5.2f} | all cores {rate["all cores"]:6.2f} GB/s, '
              f'ratio {rate[kind] / rate["all cores"]:5.2f} | peak {peaks[kind]:.0f} MiB')
    print('    ' + '; '.join(f'{kind} ' + ' '.join(f'{t:.2f}' for t in each) for kind, each in times.items()), flush=True)


def keep(command):
    """Runs a command once, untimed, and keeps what it writes."""
    clean(kept), clean(out)
    seconds_of([command], 1)
    os.rename(out, kept)


os.makedirs(a.work, exist_ok=True)
if a.warm:
    touch_free_memory()
script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'make_checkpoint.py')
shape = ['--hidden', str(a.hidden), '--ffn', str(a.hidden * 7 // 2), '--heads', str(a.hidden // 128), '--tp', '2']


def make(folder, *options):
    if not os.path.exists(folder):
        subprocess.run([sys.executable, script, folder, *shape, *options], check=True)


common = (['--memory', a.memory] if a.memory else []) + (['--threads', str(a.threads)] if a.threads else [])
print(f'{cores} cores, {" ".join(common) or "default options"}, medians of {a.repeat}', flush=True)


def convert(*options):
    return lambda ferry: [ferry, 'convert', run, out, '--to', 'hf', *options, *common]


if 'convert' in a.parts:
    make(run, '--layers', str(a.layers))
    keep(convert()(a.ferry))
    total = size_of(kept)
    make_parts()
    measure('convert, 5 GB files', convert(), kept, True)
    for count in (2, 34):
        few = convert('--max-shard-size', f'{total * 105 // 100 // count + (1 << 20)}')
        keep(few(a.ferry))
        measure(f'convert, {sum(f.endswith(".safetensors") for f in files_of(kept))} files', few, kept, True)
    shutil.rmtree(run)


def reshard(ferry):
    return [ferry, 'reshard', run_with_state, out, '--tp', '8', '--pp', '1', *common]


clean(kept), clean(parts)
make(run_with_state, '--layers', str(a.optimizer_layers), '--optimizer')
keep(reshard(a.ferry))
make_parts()
if 'reshard' in a.parts:
    measure('reshard, 8 ranks', reshard, kept, True)
clean(run_with_state), clean(parts), clean(out)
if 'verify' in a.parts:
    measure('verify', lambda ferry: [ferry, 'verify', kept, *common], kept, False)
    measure('verify --no-masters', lambda ferry: [ferry, 'verify', kept, '--no-masters', *common], kept, False)
clean(kept)
