"""Expert parallelism on all GPUs of a machine: speed, a save, the same bits, and other layouts, in one call.

    experts.py FERRY WORK [--gpus 8] [--layers 48] [--micro-batch 1] [--accumulate 4] [--steps 8] [--recompute] [--processor]

Qwen3-30B-A3B's shape, random weights, sequences of 4096 tokens, bf16, ten bytes a parameter; as many expert as data parallel ranks as GPUs, with the
distributed optimizer. Printed are, one after another, so that a call that is cut short has shown the first:

  1. tokens a second and GPU, the model's FLOPs a second, and what rank 0's operations take of a step (the rest is waiting);
  2. the same with linear layers and routed experts in FP8 (delayed scaling);
  3. an asynchronous save by all ranks: the step in which memory is copied, steps meanwhile, and how fast it reaches WORK;
  4. the run again from its beginning: all losses and norms of gradients have to be the same, to the last digit;
  5. what was saved goes on with half as many expert ranks and two tensor ranks, and on half of the GPUs: losses within 1e-3 of the run's own.

--recompute: norms and activations are computed again, which saves memory. --processor: a tiny model on the processor, to try the script itself."""
import argparse
import os
import re
import subprocess
import sys
import threading
import time

from ferry_steps import SMALL, median, operations, qwen3_30b_a3b, shape

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('--gpus', type=int, default=8)
parser.add_argument('--layers', type=int, default=48)
parser.add_argument('--micro-batch', type=int, default=1)
parser.add_argument('--accumulate', type=int, default=4, help='micro-batches a step')
parser.add_argument('--steps', type=int, default=8)
parser.add_argument('--recompute', action='store_true')
parser.add_argument('--processor', action='store_true')
a = parser.parse_args()
sequence, saved = 4096, a.steps // 2
model = qwen3_30b_a3b(a.layers)
if a.processor:
    sequence = 64
    model = shape(sequence, 500, f'--num-layers {a.layers} --hidden-size 64 --ffn-hidden-size 96 --num-attention-heads 4 --num-query-groups 4 --moe-ffn-hidden-size 32 '
                  '--num-experts 8 --moe-router-topk 2 --moe-router-load-balancing-type none --moe-grouped-gemm', 'cpu')
batch = a.micro_batch * a.accumulate * a.gpus
words = [*model, *SMALL, '--micro-batch-size', str(a.micro_batch), '--global-batch-size', str(batch), '--train-iters', str(a.steps)]
if a.recompute:
    words += '--recompute-granularity selective --recompute-modules layernorm mlp moe_act'.split()
OVERLAP = ' --overlap-grad-reduce --overlap-param-gather'
half = max(1, a.gpus // 2)
WHOLE = f'--expert-model-parallel-size {a.gpus} --data-parallel-size {a.gpus}' + OVERLAP
WITH_TENSOR = f'--tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1 --expert-model-parallel-size {half} --data-parallel-size {half}'
ON_HALF = f'--expert-model-parallel-size {half} --data-parallel-size {half}'
run = os.path.join(a.work, 'run')


class Training:
    """ferry train, with the time at which each line of an iteration came."""

    def __init__(self, layout, *more, gpus=a.gpus):
        devices = {} if a.processor else {'CUDA_VISIBLE_DEVICES': ','.join(str(gpu) for gpu in range(gpus))}
        self.process = subprocess.Popen([a.ferry, 'train', *words, *layout.split(), *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, **devices})
        self.text, self.at, self.ms, self.figures = '', {}, {}, {}
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line
            if found := re.search(r'iteration +(\d+)/', line):
                number = int(found[1])
                self.at[number] = time.monotonic()
                self.ms[number] = float(re.search(r'elapsed time per iteration \(ms\): ([\d.]+)', line)[1])
                self.figures[number] = [float(re.search(name + r': (\S+)', line)[1]) for name in ('lm loss', 'grad norm')]

    def end(self):
        self.process.wait()
        self.reader.join()
        if self.process.returncode:
            sys.exit(self.text[-4000:] + '\nferry train failed')
        return self


def speed(name, training):
    seconds = median([training.ms[number] / 1000 for number in sorted(training.ms)])
    tokens = batch * sequence / seconds / a.gpus
    flops = re.search(r'([\d.e+]+) TFLOP', training.text)
    print(f'{name}: {1000 * seconds:.1f} ms a step, {tokens:.0f} tokens/s a GPU{f", {flops[0]}" if flops else ""}', flush=True)
    return seconds


def print_operations(layout):
    """Rank 0's times by operation in its second step, the longest first."""
    times = operations(Training(layout, '--timing-log-level', '2', '--exit-interval', '2').end().text)
    longest = sorted(times.items(), key=lambda item: -item[1])[:8]
    print(f'  operations of rank 0: {sum(times.values()):.1f} ms of it; {", ".join(f"{name} {ms:.1f}" for name, ms in longest)}', flush=True)


def compare(name, training, expected, limit):
    worst = max(abs(mine / theirs - 1) for number in training.figures for mine, theirs in zip(training.figures[number], expected[number]))
    print(f'{name}: losses and norms within {worst:.1e} of the first run', flush=True)
    if worst > limit:
        sys.exit(f'which is more than {limit}')


os.makedirs(a.work, exist_ok=True)
first = Training(WHOLE).end()
speed(f'EP{a.gpus} DP{a.gpus}, bf16', first)
print_operations(WHOLE)
if not a.processor:
    speed('FP8', Training(WHOLE, '--fp8-format', 'hybrid', '--fp8-recipe', 'delayed').end())

again = Training(WHOLE, '--save', run, '--save-interval', str(saved), '--async-save')
tracker = os.path.join(run, 'latest_checkpointed_iteration.txt')
while not os.path.exists(tracker) and again.process.poll() is None:
    time.sleep(0.002)
committed = time.monotonic()
again.end()
folder = os.path.join(run, f'iter_{saved:07d}')
size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
on_disk = committed - again.at[saved]
plain = median([again.ms[number] for number in range(2, saved + 1)])
later = [again.ms[number] for number in again.ms if number > saved + 1]
print(f'save: {size / 1e9:.1f} GB on disk after {on_disk:.1f} s ({size / on_disk / 1e9:.1f} GB/s); the step with the copy {again.ms[saved + 1] - plain:+.1f} ms, '
      f'steps after it {median(later) / plain:.3f} of those before', flush=True)
compare('the same again', again, first.figures, 0)
for name, layout, gpus in ((f'TP2 EP{half} on {a.gpus} GPUs', WITH_TENSOR, a.gpus), (f'EP{half} on {half} GPUs', ON_HALF, half)):
    begin = time.monotonic()
    other = Training(layout, '--load', run, '--ckpt-step', str(saved), gpus=gpus).end()
    loaded = re.search(r'successfully loaded', other.text)
    if not loaded:
        sys.exit(other.text[-3000:])
    # The line of a process's second iteration averages over its first, too.
    other.figures = {number: figures for number, figures in other.figures.items() if number != saved + 2}
    compare(f'{name}, the first step after {other.at[saved + 1] - begin:.1f} s', other, first.figures, 1e-3 if not a.processor else 2e-2)
