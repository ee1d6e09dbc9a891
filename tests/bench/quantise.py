"""Times `ferry convert` from bf16 to each quantised form and back against cp of the larger side, the bf16, in one run.

    quantise.py FERRY WORK [--gigabytes 1] [--repeat 5] [--memory 256MiB] [--threads 2] [FORM ...]

WORK is a folder on the file system to measure. Makes WORK/bf16 there, a made-up model of linear layers, unless it exists. Each turn times cp,
ferry to the form and ferry back, in this order; the ratio is of medians, cp / ferry: more is faster. Peak memory is the child's maximum
resident set beyond --memory. Needs numpy."""
import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import time

import numpy

FORMS = ['fp8', 'fp8-ue8m0', 'fp8-channel', 'fp8-tensor', 'mxfp8', 'mxfp4', 'nvfp4', 'nvfp4-packed', 'int4', 'int4-g128', 'int4-zp']
parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('forms', nargs='*', default=FORMS)
parser.add_argument('--gigabytes', type=float, default=1)
parser.add_argument('--repeat', type=int, default=5)
parser.add_argument('--memory', default='256MiB')
parser.add_argument('--threads', type=int, default=2)
a = parser.parse_args()
source, made, back, copy = (os.path.join(a.work, name) for name in ('bf16', 'made', 'back', 'copy'))


def make_model():
    os.makedirs(source)
    hidden, ffn = 4096, 12288
    layers = max(1, round(a.gigabytes * 1e9 / (2 * 3 * hidden * ffn)))
    names = [(f'model.layers.{layer}.mlp.{name}_proj.weight', shape) for layer in range(layers)
             for name, shape in (('gate', [ffn, hidden]), ('up', [ffn, hidden]), ('down', [hidden, ffn]))]
    header, offset = {}, 0
    for name, shape in names:
        size = 2 * shape[0] * shape[1]
        header[name] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    random = numpy.random.default_rng(1)
    with open(f'{source}/model.safetensors', 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text)
        for name, shape in names:
            for _ in range(0, shape[0], 1024):
                values = random.standard_normal((1024, shape[1]), dtype=numpy.float32) * 0.02
                file.write((values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes())
    with open(f'{source}/config.json', 'w') as file:
        json.dump({'model_type': 'made_up', 'hidden_size': hidden, 'num_hidden_layers': layers, 'torch_dtype': 'bfloat16'}, file)


def timed(command, target):
    """Seconds and peak resident MiB of one command."""
    shutil.rmtree(target, ignore_errors=True)
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(f'{command} failed:\n{output.decode()}')
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def convert(begin, end, *options):
    return timed([a.ferry, 'convert', begin, end, '--to', 'hf', '--no-manifest', '--memory', a.memory, '--threads', str(a.threads), *options], end)


def processor():
    with open('/proc/cpuinfo') as file:
        names = [line.split(':')[1].strip() for line in file if line.startswith('model name')]
    return f'{len(names)} x {names[0]}' if names else 'unknown processor'


print(f'{processor()}, load {os.getloadavg()[0]:.1f}')
if not os.path.exists(source):
    make_model()
given = float(a.memory.removesuffix('MiB'))
print(f'{"form":<14} {"cp":>7} {"to it":>7} {"of cp":>6} {"back":>7} {"of cp":>6}  peak beyond --memory')
for form in a.forms:
    seconds, peak = {'cp': [], 'to': [], 'back': []}, 0
    for _ in range(a.repeat):
        seconds['cp'].append(timed(['cp', '-r', source, copy], copy)[0])
        shutil.rmtree(copy)
        for key, arguments in (('to', (source, made, '--quantize', form)), ('back', (made, back, '--dtype', 'bf16'))):
            spent, memory = convert(*arguments)
            seconds[key].append(spent)
            peak = max(peak, memory)
        shutil.rmtree(back)
    cp, to, to_bf16 = (statistics.median(seconds[key]) for key in ('cp', 'to', 'back'))
    print(f'{form:<14} {cp:6.2f}s {to:6.2f}s {cp / to:6.2f} {to_bf16:6.2f}s {cp / to_bf16:6.2f}  {peak - given:.0f} MiB', flush=True)
shutil.rmtree(made, ignore_errors=True)
