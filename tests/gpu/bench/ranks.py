"""Times training steps of `ferry train` on several GPUs against one, in one run, and prints the ratios of their speeds.

    ranks.py FERRY WORK [LAYOUT ...] [--steps 10] [--times]

8 layers of Llama-3-8B's shape in bf16 with fp32 copies, 8 sequences of 4096 tokens a step, one a micro-batch, whatever the layout. Of two GPUs: dp
(distributed optimizer), dp-bf16 (the same with gradients in bf16, compared with one GPU with such gradients), tp (sequence parallel), pp (5 layers,
then 3 and the output layer: as even as whole layers allow), pp-even (4 and 4); of four: dp4, tp4, tp2-dp2, pp2-dp2, pp4 (3, 2, 2 and 1 layers).
Without LAYOUT: all of those for which the machine has the GPUs. The step's time is the median of the last half; that of one GPU the mean of as many
as the layout has, all at once, each with all of the work, as two cards are hardly ever equally fast. --times prints besides how much of a step
rank 0's operations take: the rest is waiting, for other ranks and for the host."""
import argparse
import concurrent.futures
import os
import re
import subprocess

from ferry_steps import train

SHARDED = ' --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather'
# Name: (GPUs, of those, of one and of those)
LAYOUTS = {
    'dp': (2, '--data-parallel-size 2' + SHARDED, ''),
    'dp-bf16': (2, '--data-parallel-size 2' + SHARDED, '--grad-reduce-in-bf16'),
    'tp': (2, '--tensor-model-parallel-size 2 --sequence-parallel', ''),
    'pp': (2, '--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 5', ''),
    'pp-even': (2, '--pipeline-model-parallel-size 2', ''),
    'dp4': (4, '--data-parallel-size 4' + SHARDED, ''),
    'tp4': (4, '--tensor-model-parallel-size 4 --sequence-parallel', ''),
    'tp2-dp2': (4, '--tensor-model-parallel-size 2 --sequence-parallel --data-parallel-size 2' + SHARDED, ''),
    'pp2-dp2': (4, '--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 5 --data-parallel-size 2 --use-distributed-optimizer', ''),
    'pp4': (4, '--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 1', ''),
}
parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('layouts', nargs='*')
parser.add_argument('--steps', type=int, default=10)
parser.add_argument('--times', action='store_true')
a = parser.parse_args()


def steps(layout, count, gpus):
    """Milliseconds a step, its last loss, and what it printed."""
    work = os.path.join(a.work, f'gpus{gpus}')
    os.makedirs(work, exist_ok=True)
    words = (f'env CUDA_VISIBLE_DEVICES={gpus} {a.ferry} train --device cuda --bf16 --mock-data --tokenizer-type NullTokenizer --vocab-size 128256 --num-layers 8 --hidden-size 4096 '
             '--ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear '
             '--normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --seq-length 4096 '
             '--max-position-embeddings 4096 --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 8 --lr 1e-4 '
             f'--train-iters {count} --eval-iters 0 --log-interval 1 ').split() + layout.split()
    seconds, text = train(work, words)
    return 1000 * seconds, re.findall(r'lm loss: (\S+)', text)[-1], text


def operations(layout, gpus):
    """Milliseconds of the last step."""
    seen = {}
    for ms, name in re.findall(r'^ +([\d.]+) ms, +\d+ times: (.*)$', steps(layout + ' --timing-log-level 2', 3, gpus)[2], re.M):
        if name in seen:
            seen = {}  # the next step's begin
        seen[name] = float(ms)
    return sum(seen.values())


machine = subprocess.run(['nvidia-smi', '-L'], capture_output=True, text=True, check=True).stdout.count('\n')
alone = {}
for name in a.layouts or [name for name, layout in LAYOUTS.items() if layout[0] <= machine]:
    size, layout, common = LAYOUTS[name]
    if (size, common) not in alone:
        with concurrent.futures.ThreadPoolExecutor(size) as pool:
            times = [time for time, _, _ in pool.map(lambda gpu: steps(common, a.steps, gpu), range(size))]
        alone[size, common] = sum(times) / size
        print(f'one GPU{common and " " + common}: {", ".join(f"{time:.1f}" for time in times)} ms a step', flush=True)
    gpus = ','.join(str(gpu) for gpu in range(size))
    time, loss, _ = steps(f'{layout} {common}', a.steps, gpus)
    print(f'{name}: {time:.1f} ms a step, loss {loss}, {alone[size, common] / time:.3f} x one GPU', flush=True)
    if a.times:
        print(f'    operations of rank 0: {operations(f"{layout} {common}", gpus):.1f} ms of it', flush=True)
