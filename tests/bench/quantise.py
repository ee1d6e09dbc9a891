"""Times `ferry convert` from bf16 to each quantised form and back against cp of the larger side, the bf16, in one run.

    quantise.py FERRY WORK [--gigabytes 1] [--shard GB] [--repeat 5] [--memory 256MiB] [--threads 2] [FORM ...]

WORK is a folder on the file system to measure. Makes WORK/bf16 there, a made-up model of linear layers, unless it exists, in one file or in
shards of --shard GB, as ferry then writes too. Each turn times cp of the files by as many processes as threads, ferry to the form and ferry back,
in this order; the ratio is of medians, cp / ferry: more is faster. Peak memory is the child's maximum resident set beyond --memory. Needs numpy."""
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
parser.add_argument('--shard', type=float, default=0)
parser.add_argument('--repeat', type=int, default=5)
parser.add_argument('--memory', default='256MiB')
parser.add_argument('--threads', type=int, default=2)
a = parser.parse_args()
source, made, back, copy = (os.path.join(a.work, name) for name in ('bf16', 'made', 'back', 'copy'))


def make_model():
    os.makedirs(source)
    hidden, ffn = 4096, 12288
    layers = max(1, round(a.gigabytes * 1e9 / (2 * 3 * hidden * ffn)))
    shards = round(a.gigabytes / a.shard) if a.shard else 1
    # One layer's numbers serve all layers: how long rounding takes does not depend on them.
    random = numpy.random.default_rng(1)
    numbers = random.standard_normal((ffn, hidden), dtype=numpy.float32) * 0.02
    values = (numbers.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()
    places = {}
    for shard in range(shards):
        name = 'model.safetensors' if shards == 1 else f'model-{shard + 1:05}-of-{shards:05}.safetensors'
        header, offset = {}, 0
        for layer in range(layers * shard // shards, layers * (shard + 1) // shards):
            for part, shape in (('gate', [ffn, hidden]), ('up', [ffn, hidden]), ('down', [hidden, ffn])):
                tensor = f'model.layers.{layer}.mlp.{part}_proj.weight'
                header[tensor] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [offset, offset + len(values)]}
                offset += len(values)
                places[tensor] = name
        text = json.dumps(header).encode()
        with open(f'{source}/{name}', 'wb') as file:
            file.write(struct.pack('<Q', len(text)) + text)
            for _ in header:
                file.write(values)
    if shards > 1:
        with open(f'{source}/model.safetensors.index.json', 'w') as file:
            json.dump({'metadata': {'total_size': len(places) * len(values)}, 'weight_map': places}, file)
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
    shards = ['--max-shard-size', f'{a.shard:g}GB'] if a.shard else []
    return timed([a.ferry, 'convert', begin, end, '--to', 'hf', '--no-manifest', '--memory', a.memory, '--threads', str(a.threads), *shards, *options], end)


def copied():
    return timed(['sh', '-c', f'mkdir {copy} && ls {source} | xargs -P {a.threads} -I @ cp {source}/@ {copy}/@'], copy)


def processor():
    with open('/proc/cpuinfo') as file:
        names = [line.split(':')[1].strip() for line in file if line.startswith('model name')]
    return f'{len(names)} x {names[0]}' if names else 'unknown processor'


print(f'{processor()}, load {os.getloadavg()[0]:.1f}')
if not os.path.exists(source):
    # In a process of its own: a program started by one that is large counts as large, too.
    maker = os.fork()
    if maker == 0:
        make_model()
        os._exit(0)
    if os.waitpid(maker, 0)[1] != 0:
        raise SystemExit('the model could not be made')
given = float(a.memory.removesuffix('MiB'))
print(f'{"form":<14} {"cp":>7} {"to it":>7} {"of cp":>6} {"back":>7} {"of cp":>6}  peak beyond --memory')
for form in a.forms:
    shutil.rmtree(made, ignore_errors=True)
    seconds, peak = {'cp': [], 'to': [], 'back': []}, 0
    for _ in range(a.repeat):
        seconds['cp'].append(copied()[0])
        shutil.rmtree(copy)
        for key, arguments in (('to', (source, made, '--quantize', form)), ('back', (made, back, '--dtype', 'bf16'))):
            spent, memory = convert(*arguments)
            seconds[key].append(spent)
            peak = max(peak, memory)
        shutil.rmtree(back)
    cp, to, to_bf16 = (statistics.median(seconds[key]) for key in ('cp', 'to', 'back'))
    print(f'{form:<14} {cp:6.2f}s {to:6.2f}s {cp / to:6.2f} {to_bf16:6.2f}s {cp / to_bf16:6.2f}  {peak - given:.0f} MiB', flush=True)
shutil.rmtree(made, ignore_errors=True)
