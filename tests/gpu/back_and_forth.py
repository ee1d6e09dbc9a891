"""Lets ferry and Megatron-LM go on with one training run in turns, on one GPU, each at layouts of its own, and holds their losses against each other.

    back_and_forth.py FERRY PEERS WORK [--device cuda] [--cases dense_fp32 ...] [--spread]     MEGATRON: the folder of a Megatron-LM checkout

PEERS/NAME is a run that Megatron-LM began, PEERS/../data its data. ferry goes on from iteration 5 to 30 and saves at 15; Megatron-LM goes on from that save to 30
and saves at 20; ferry goes on from that one to 30 again, at another layout. Iterations that two of them computed must have losses that differ by no more than
1e-5 relatively in fp32, and 2.5e-5 in bf16, which is what Megatron-LM's own continuations at two layouts differ by. Ranks of ferry share the GPU; Megatron-LM
is one rank. --spread, which wants two GPUs: Megatron-LM goes on from ferry's save of the models in bf16 on two ranks, too, and twice what its own losses differ by
then is allowed, where that is more. The second line of a process is left out: its loss is the mean of the first two iterations. MEGATRON_ARGS: arguments for Megatron-LM besides. Logs:
WORK/CASE_*.log"""
import argparse
import math
import os
import re
import shutil
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('peers')
parser.add_argument('work')
parser.add_argument('--device', default='cuda')
parser.add_argument('--cases', nargs='+')
parser.add_argument('--spread', action='store_true')
a = parser.parse_args()
here = os.path.dirname(os.path.abspath(__file__))
megatron = os.environ.get('MEGATRON') or sys.exit('MEGATRON is the folder of a Megatron-LM checkout')

TENSOR, PIPELINE, DATA = '--tensor-model-parallel-size 2', '--pipeline-model-parallel-size 2', '--data-parallel-size 2'
SHARDED, FULL = '--use-distributed-optimizer', '--dist-ckpt-optim-fully-reshardable'
# What Megatron-LM does not take from a checkpoint's arguments.
QWEN3 = '--seed 11 --qk-layernorm --norm-epsilon 1e-6'
BALANCED = '--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2'
# Name: (run, ferry's layout first, ferry's layout last, arguments of both programs, bar)
CASES = {
    'dense_fp32': ('f32_qwen3', f'{TENSOR} {PIPELINE}', TENSOR, QWEN3, 1e-5),
    'dense_fp32_sharded': ('f32_qwen3', DATA, PIPELINE, f'{QWEN3} {SHARDED} {FULL}', 1e-5),
    'mixture_fp32': ('f32_qwen3moe', PIPELINE, f'{TENSOR} --sequence-parallel', f'{QWEN3} {BALANCED}', 1e-5),
    'dense_bf16': ('llama_tp2pp2_full', f'{TENSOR} {DATA}', PIPELINE, f'--seed 1234 --bf16 {SHARDED} {FULL}', 2.5e-5),
    'mixture_bf16': ('mixtral_ep2', PIPELINE, f'--expert-model-parallel-size 2 {DATA}', f'--seed 1234 --bf16 {SHARDED} {FULL} {BALANCED}', 2.5e-5),
}
# Megatron-LM's layout on two ranks.
SPREAD = {'dense_bf16': TENSOR, 'mixture_bf16': f'{TENSOR} --sequence-parallel'}
BOTH = ('--use-checkpoint-args --split 99,1,0 --seq-length 64 --micro-batch-size 2 --global-batch-size 8 --lr 1e-3 --min-lr 1e-4 --lr-decay-iters 100 '
        '--lr-warmup-iters 5 --lr-decay-style cosine --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --tokenizer-type NullTokenizer --vocab-size 250 '
        '--make-vocab-size-divisible-by 32 --log-interval 1 --attention-dropout 0 --hidden-dropout 0 --train-iters 30 --eval-iters 0 --eval-interval 1000 '
        '--transformer-impl local')
data = os.path.join(os.path.realpath(os.path.join(a.peers, '..', 'data')), 'corpus_a_text_document')


def losses(text):
    return {int(i): float(loss) for i, loss in re.findall(r'iteration +(\d+)/.*?lm loss: (\S+)', text)}


def run(case, step, command, environment):
    log = os.path.join(a.work, f'{case}_{step}.log')
    with open(log, 'w') as output:
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment, cwd=megatron).returncode
    with open(log, errors='replace') as text:
        result = losses(text.read())
    result.pop(min(result, default=0) + 1, None)
    if code or not result:
        raise RuntimeError(f'{step} ended with {code}: see {log}')
    return result


def ferry(case, step, words, common):
    return run(case, step, [os.path.realpath(a.ferry), 'train', '--device', a.device, '--data-path', data, '--data-cache-path', os.path.join(a.work, case + '_cache'),
                            *f'{BOTH} {common} {words}'.split()], {'OMP_NUM_THREADS': '1'})


def peer(case, step, words, common, ranks=1):
    return run(case, step, [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', str(ranks), os.path.join(here, 'megatron_pretraining.py'),
                            '--data-path', data, '--data-cache-path', os.path.join(a.work, case + '_peer_cache'), *f'{BOTH} {common} {words}'.split(),
                            *os.environ.get('MEGATRON_ARGS', '').split()],
               {'PYTHONPATH': megatron, 'PYTHONUNBUFFERED': '1', 'CUDA_DEVICE_MAX_CONNECTIONS': '1', 'OMP_NUM_THREADS': '1'})


def distance(one, other, first):
    steps = sorted(i for i in set(one) & set(other) if i >= first)
    if not steps or not all(math.isfinite(one[i]) and math.isfinite(other[i]) for i in steps):
        raise RuntimeError(f'from iteration {first} on both have no losses, or some that are not numbers')
    return len(steps), max(abs(one[i] / other[i] - 1) for i in steps)


def check(case):
    name, layout, other_layout, common, bar = CASES[case]
    own, theirs = (os.path.join(os.path.realpath(a.work), f'{case}_{who}') for who in ('ferry', 'megatron'))
    for folder in (own, theirs):
        shutil.rmtree(folder, ignore_errors=True)
    one = ferry(case, '1_ferry', f'--load {os.path.realpath(os.path.join(a.peers, name))} --save {own} --save-interval 10 --exit-interval 15 {layout}', common)
    rest = ferry(case, '2_ferry', f'--load {own} {layout}', common)
    two = peer(case, '3_megatron', f'--load {own} --save {theirs} --save-interval 10', common)
    three = ferry(case, '4_ferry', f'--load {theirs} --ckpt-step 20 {other_layout}', common)
    parts = [(f'from ferry ({layout}) to Megatron-LM', *distance(two, one | rest, 16)), (f'from Megatron-LM to ferry ({other_layout})', *distance(three, two, 21))]
    if a.spread and case in SPREAD:
        other = peer(case, '3_megatron_two', f'--load {own} {SPREAD[case]}', common, 2)
        count, worst = distance(two, other, 16)
        if worst > 4 * bar:
            raise RuntimeError(f'Megatron-LM itself, on one rank and on two, differs by {worst:.1e}')
        bar = max(bar, 2 * worst)
        print(f'{case:19} Megatron-LM itself, on one rank and on two ({SPREAD[case]}): {count} losses, largest difference {worst:.1e}', flush=True)
    good = all(worst <= bar for _, _, worst in parts)
    for what, count, worst in parts:
        print(f'{case:19} {what}: {count} losses, largest difference {worst:.1e}', flush=True)
    print(f'{case:19} {"ok" if good else "FAILED"}, {bar:.1e} is allowed', flush=True)
    return good


os.makedirs(a.work, exist_ok=True)
a.work = os.path.realpath(a.work)
failed = 0
for case in a.cases or CASES:
    try:
        failed += not check(case)
    except RuntimeError as error:
        failed += 1
        print(f'{case:19} FAILED: {error}', flush=True)
sys.exit(1 if failed else 0)
