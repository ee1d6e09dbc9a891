#!/usr/bin/env python3
"""How near ferry estimate is to what ferry train takes, for ten layouts on the processor:
    python3 tests/bench/estimate_memory.py build/release/bin/ferry WORK
WORK is an empty folder. Ranks are threads of one process: its largest resident set is compared with the sum of all ranks' estimates.
What the process has without a model (the same run of a tiny one) is taken off. Ends with 1 where a layout is more than 5 % off."""
import json, os, resource, subprocess, sys

ferry, work = os.path.abspath(sys.argv[1]), sys.argv[2]
os.makedirs(work, exist_ok=True)
MODEL = ('--num-layers 8 --hidden-size 768 --num-attention-heads 12 --seq-length 256 --max-position-embeddings 256 --vocab-size 16384 '
         '--make-vocab-size-divisible-by 128 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear '
         '--untie-embeddings-and-output-weights').split()
TINY = {'768': '48', '16384': '256'}
RUN = ('--micro-batch-size 2 --train-iters 2 --lr 1e-4 --mock-data --tokenizer-type NullTokenizer --device cpu --eval-iters 0 --log-interval 1').split()
LAYOUTS = ['', '--bf16', '--bf16 --use-distributed-optimizer --data-parallel-size 2', '--tensor-model-parallel-size 2',
           '--bf16 --tensor-model-parallel-size 2 --sequence-parallel', '--pipeline-model-parallel-size 2 --global-batch-size 8',
           '--bf16 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 --global-batch-size 8',
           '--recompute-granularity full --recompute-method uniform --recompute-num-layers 1',
           '--bf16 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --global-batch-size 4',
           '--context-parallel-size 2']


def peak(words):
    before = subprocess.Popen([ferry, 'train', *words], cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = before.stderr.read()
    _, status, usage = os.wait4(before.pid, 0)
    if status:
        sys.exit(f'{" ".join(words)}\n{errors.decode()}')
    return usage.ru_maxrss * 1024


def planned(words):
    estimate = json.loads(subprocess.run([ferry, 'estimate', '--json', '--', *words], check=True, capture_output=True).stdout)
    each = estimate['ranks']['world'] // estimate['ranks']['pipeline']
    return sum(stage['total_bytes'] for stage in estimate['stages']) * each


worst = 0
print('| layout | estimate, MiB | measured, MiB | measured / estimate |\n|---|--:|--:|--:|')
for layout in LAYOUTS:
    tiny = [TINY.get(word, word) for word in MODEL]
    plan, idle = planned(MODEL + RUN + layout.split()), peak(tiny + RUN + layout.split()) - planned(tiny + RUN + layout.split())
    used = peak(MODEL + RUN + layout.split()) - idle
    worst = max(worst, abs(used / plan - 1))
    print(f'| `{layout or "one rank, fp32"}` | {plan / 2**20:.0f} | {used / 2**20:.0f} | {used / plan:.3f} |', flush=True)
sys.exit(worst > 0.05)
