"""Times training steps of `ferry train` on several GPUs against one, in one run, and prints the ratios of their speeds.

    ranks.py FERRY WORK [LAYOUT ...] [--steps 10] [--times]

8 layers of Llama-3-8B's shape in bf16 with fp32 copies, 8 sequences of 4096 tokens a step, one a micro-batch, whatever the layout. Of two GPUs: dp
(distributed optimizer), dp-bf16 (the same with gradients in bf16, compared with one GPU with such gradients), tp (sequence parallel), pp (5 layers,
then 3 and the output layer: as even as whole layers allow), pp-even (4 and 4); of four: dp4, tp4, tp2-dp2, pp2-dp2, pp4 (3, 2, 2 and 1 layers).
ep2 and ep4 are expert and data parallel, of 8 layers of Qwen3-30B-A3B's shape at 10 bytes a parameter, two sequences a micro-batch.
Without LAYOUT: all of those for which the machine has the GPUs. The step's time is the median of the last half; that of one GPU the mean of as many
as the layout has, all at once, each with all of the work, as two cards are hardly ever equally fast. --times prints besides how much of a step
rank 0's operations take: the rest is waiting, for other ranks and for the host."""
import argparse
import concurrent.futures
import os
import re
import subprocess

from ferry_steps import SMALL, llama_8b, operations, qwen3_30b_a3b, train

SHARDED = ' --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather'
LLAMA = [*llama_8b(8), '--micro-batch-size', '1', '--global-batch-size', '8']
MIXTURE = [*qwen3_30b_a3b(8), *SMALL, '--micro-batch-size', '2', '--global-batch-size', '8']
EXPERTS = ' --overlap-grad-reduce --overlap-param-gather'
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
    'ep2': (2, '--expert-model-parallel-size 2 --data-parallel-size 2' + EXPERTS, ''),
    'ep4': (4, '--expert-model-parallel-size 4 --data-parallel-size 4' + EXPERTS, ''),
    'pp4': (4, '--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 1', ''),
}
parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('layouts', nargs='*')
parser.add_argument('--steps', type=int, default=10)
parser.add_argument('--times', action='store_true')
a = parser.parse_args()


def steps(model, layout, count, gpus):
    """Milliseconds a step, its last loss, and what it printed."""
    work = os.path.join(a.work, f'gpus{gpus}')
    os.makedirs(work, exist_ok=True)
    words = ['env', f'CUDA_VISIBLE_DEVICES={gpus}', a.ferry, 'train', *model, '--train-iters', str(count), *layout.split()]
    seconds, text = train(work, words)
    return 1000 * seconds, re.findall(r'lm loss: (\S+)', text)[-1], text


machine = subprocess.run(['nvidia-smi', '-L'], capture_output=True, text=True, check=True).stdout.count('\n')
alone = {}
for name in a.layouts or [name for name, layout in LAYOUTS.items() if layout[0] <= machine]:
    size, layout, common = LAYOUTS[name]
    model, what = (MIXTURE, 'mixture') if name.startswith('ep') else (LLAMA, 'dense')
    key = size, common, what
    if key not in alone:
        with concurrent.futures.ThreadPoolExecutor(size) as pool:
            times = [time for time, _, _ in pool.map(lambda gpu: steps(model, common, a.steps, gpu), range(size))]
        alone[key] = sum(times) / size
        print(f'one GPU, {what}{common and " " + common}: {", ".join(f"{time:.1f}" for time in times)} ms a step', flush=True)
    gpus = ','.join(str(gpu) for gpu in range(size))
    time, loss, _ = steps(model, f'{layout} {common}', a.steps, gpus)
    print(f'{name}: {time:.1f} ms a step, loss {loss}, {alone[key] / time:.3f} x one GPU', flush=True)
    if a.times:
        times = operations(steps(model, f'{layout} {common} --timing-log-level 2', 3, gpus)[2])
        print(f'    operations of rank 0: {sum(times.values()):.1f} ms of it', flush=True)
