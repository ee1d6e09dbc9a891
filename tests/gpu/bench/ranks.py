"""Times training steps of `ferry train` on two GPUs against one, in one run, and prints the ratios of their speeds.

    ranks.py FERRY WORK [LAYOUT ...] [--steps 10] [--times]

8 layers of Llama-3-8B's shape in bf16 with fp32 copies, 8 sequences of 4096 tokens a step, one a micro-batch, whatever the layout. LAYOUT: dp
(distributed optimizer), dp-bf16 (the same with gradients in bf16, beside one GPU with such gradients), tp (sequence parallel), pp (5 layers,
then 3 and the output layer: as even as whole layers allow), pp-even (4 and 4). The step's time is the median of the last half; that of one GPU
the mean of both, each by itself, as two cards are hardly ever equally fast. --times prints besides how much of a step rank 0's operations take:
the rest is waiting, for other ranks and for the host."""
import argparse
import os
import re

from ferry_steps import train

DATA = '--data-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather'
# Name: (of two GPUs, of one and of two)
LAYOUTS = {
    'dp': (DATA, ''),
    'dp-bf16': (DATA, '--grad-reduce-in-bf16'),
    'tp': ('--tensor-model-parallel-size 2 --sequence-parallel', ''),
    'pp': ('--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 5', ''),
    'pp-even': ('--pipeline-model-parallel-size 2', ''),
}
parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('layouts', nargs='*', default=list(LAYOUTS))
parser.add_argument('--steps', type=int, default=10)
parser.add_argument('--times', action='store_true')
a = parser.parse_args()
os.makedirs(a.work, exist_ok=True)


def steps(layout, count, gpus='0,1'):
    """Milliseconds a step, its last loss, and what it printed."""
    words = (f'env CUDA_VISIBLE_DEVICES={gpus} {a.ferry} train --device cuda --bf16 --mock-data --tokenizer-type NullTokenizer --vocab-size 128256 --num-layers 8 --hidden-size 4096 '
             '--ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear '
             '--normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --seq-length 4096 '
             '--max-position-embeddings 4096 --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 8 --lr 1e-4 '
             f'--train-iters {count} --eval-iters 0 --log-interval 1 ').split() + layout.split()
    seconds, text = train(a.work, words)
    return 1000 * seconds, re.findall(r'lm loss: (\S+)', text)[-1], text


def operations(layout):
    """Milliseconds of the last step."""
    seen = {}
    for ms, name in re.findall(r'^ +([\d.]+) ms, +\d+ times: (.*)$', steps(layout + ' --timing-log-level 2', 3)[2], re.M):
        if name in seen:
            seen = {}  # the next step's begin
        seen[name] = float(ms)
    return sum(seen.values())


alone = {}
for name in a.layouts:
    layout, common = LAYOUTS[name]
    if common not in alone:
        times = [steps(common, a.steps, gpu)[0] for gpu in '01']
        alone[common] = sum(times) / 2
        print(f'one GPU{common and " " + common}: {times[0]:.1f} and {times[1]:.1f} ms a step', flush=True)
    time, loss, _ = steps(f'{layout} {common}', a.steps)
    print(f'{name}: {time:.1f} ms a step, loss {loss}, {alone[common] / time:.3f} x one GPU', flush=True)
    if a.times:
        print(f'    operations of rank 0: {operations(f"{layout} {common}"):.1f} ms of it', flush=True)
