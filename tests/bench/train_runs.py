"""Times what a run of `ferry train` has besides its steps, each against the same run without it, and prints the ratios.

    train_runs.py FERRY WORK [--threads 2] [--parts start ranks saves]

start   seconds from the program's beginning to the first step, of a GPT-2 shape with 124M parameters (the second of two starts)
ranks   a step by two ranks that are threads, with half of the threads each (tensor, pipeline, data parallel), against one rank: 16 micro-batches
        of 128 tokens. Of two halves of the layers the second has the output layer, too, which is as large as five of them: the pipeline is
        timed with 9 and 3 layers as well
saves   a step that follows an asynchronous save of 1.5 GB (weights and both moments) against the steps that follow none, in one run; WORK
        should be on a disk, or in memory, that is not the run's limit"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('--threads', type=int, default=2)
parser.add_argument('--parts', nargs='+', default=['start', 'ranks', 'saves'])
a = parser.parse_args()
os.makedirs(a.work, exist_ok=True)
metrics = os.path.join(a.work, 'metrics.json')
GPT2 = ('--mock-data --tokenizer-type NullTokenizer --vocab-size 50304 --num-layers 12 --hidden-size 768 --num-attention-heads 12 --lr 1e-4 '
        '--eval-iters 0 --attention-dropout 0 --hidden-dropout 0 --log-interval 1').split()


def sizes(length, micro_batch, batch):
    return ['--seq-length', length, '--max-position-embeddings', length, '--micro-batch-size', micro_batch, '--global-batch-size', batch]


def train(*words, threads=a.threads):
    """Milliseconds of each step, and seconds until the first."""
    if os.path.exists(metrics):
        os.remove(metrics)
    begin = time.perf_counter()
    process = subprocess.Popen([a.ferry, 'train', *GPT2, *map(str, words), '--metrics-json', metrics], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL, env=os.environ | {'OMP_NUM_THREADS': str(threads)})
    start = None
    for line in process.stdout:
        if 'before the start of training step' in line:
            start = time.perf_counter() - begin
    if process.wait():
        sys.exit('ferry train failed')
    with open(metrics) as lines:
        return [json.loads(line)['milliseconds'] for line in lines], start


if 'start' in a.parts:
    for _ in range(2):
        _, seconds = train(*sizes(64, 4, 4), '--train-iters', 1)
    print(f'start: {seconds:.2f} s until the first step', flush=True)

if 'ranks' in a.parts:
    layouts = {'one rank': [], 'tensor 2': ['--tensor-model-parallel-size', 2], 'pipeline 2': ['--pipeline-model-parallel-size', 2],
               'pipeline 2, 9 and 3 layers': ['--pipeline-model-parallel-size', 2, '--decoder-last-pipeline-num-layers', 3],
               'data 2': ['--data-parallel-size', 2, '--use-distributed-optimizer']}
    one = None
    for name, words in layouts.items():
        times, _ = train(*sizes(128, 1, 16), '--train-iters', 4, *words, threads=a.threads // (2 if words else 1))
        step = min(times[1:])
        one = one or step
        print(f'ranks: {name}, {step:.0f} ms a step, {step / one:.2f} of one rank', flush=True)

if 'saves' in a.parts:
    run = os.path.join(a.work, 'run')
    shutil.rmtree(run, ignore_errors=True)
    times, _ = train(*sizes(256, 4, 4), '--train-iters', 24, '--save', run, '--save-interval', 6, '--async-save', '--keep-last', 1)
    after = [times[i] for i in range(6, 24, 6)]  # numbered from 0: steps that begin right after a save
    others = [t for i, t in enumerate(times) if i > 2 and i % 6 > 2]
    print(f'saves: {statistics.median(after):.0f} ms a step after a save, {statistics.median(others):.0f} ms others, '
          f'{statistics.median(after) / statistics.median(others):.2f}', flush=True)
    shutil.rmtree(run)
