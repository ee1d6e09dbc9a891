"""Lets `ferry train` go on from runs that Megatron-LM began, and holds its log against that of Megatron-LM's own continuation.

    check_continuations.py FERRY PEERS [--device cpu] [--runs f32_gpt2 ...] [--layouts alone ...] [--one] [--jobs 1]     PEERS/NAME (a run), PEERS/logs/NAME_cont.log, PEERS/../data

At every layout: losses, and load-balancing losses, within 1e-5 of theirs, gradient norms by their printed digits; in bf16 within 2.5e-5, in fp16 within 1e-3 with
equal loss scales and skipped iterations. --layouts: at these alone; --one: at one layout each. --jobs: so many at once."""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('peers')
parser.add_argument('--device', default='cpu')
parser.add_argument('--runs', nargs='+')
parser.add_argument('--layouts', nargs='+')
parser.add_argument('--one', action='store_true')
parser.add_argument('--jobs', type=int, default=1)
a = parser.parse_args()

TENSOR, PIPELINE = '--tensor-model-parallel-size 2', '--pipeline-model-parallel-size 2'
LAYOUTS = {'alone': '', 'TP2': TENSOR, 'PP2': PIPELINE, 'DP2': '--data-parallel-size 2 --use-distributed-optimizer'}
EXPERTS = {'EP2': '--expert-model-parallel-size 2 --data-parallel-size 2 --use-distributed-optimizer'}
MORE = {'TP2 SP': TENSOR + ' --sequence-parallel', 'CP2': '--context-parallel-size 2',
        'PP2 VPP2': PIPELINE + ' --num-layers-per-virtual-pipeline-stage 1', 'TP2 PP2': f'{TENSOR} {PIPELINE}'}
# Mixtures need sequence parallelism with tensor parallelism.
MIXED = {name: words if TENSOR not in words else words + ('' if 'sequence' in words else ' --sequence-parallel') for name, words in (LAYOUTS | EXPERTS).items()}
MIXED_MORE = {name: words for name, words in MORE.items() if name != 'TP2 SP'} | {'TP2 PP2': f'{TENSOR} --sequence-parallel {PIPELINE}'}
# Experts with biases are whole on each tensor rank.
WHOLE_EXPERTS = {name: words + (' --expert-tensor-parallel-size 1' if TENSOR in words else '') for name, words in (MIXED | MIXED_MORE).items()}
MIXTURE = '--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2'
# Name: (layouts, what a checkpoint does not hold, last iteration, bar)
RUNS = {
    'llama_fp32_blend': (LAYOUTS | MORE, '--seed 1234 --data-path 30 {data}/corpus_a_text_document 70 {data}/corpus_b_text_document', 25, 1e-5),
    'f32_gpt2': (LAYOUTS, '', 25, 1e-5),
    'f32_qwen2': (LAYOUTS, '', 25, 1e-5),
    'f32_qwen3': (LAYOUTS, '', 25, 1e-5),
    'f32_mixtral': (MIXED, MIXTURE, 25, 1e-5),
    'f32_qwen3moe': (MIXED | MIXED_MORE, MIXTURE, 25, 1e-5),
    'f32_deepseek': (MIXED, '--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4', 25, 1e-5),
    'g_f32_glm45_mtp': (MIXED | MIXED_MORE, '--seed 1234 --qk-layernorm --mtp-num-layers 1 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4 --transformer-impl transformer_engine', 25, 1e-5),
    'g_f32_gptoss': (WHOLE_EXPERTS, '--seed 1234 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3 --transformer-impl transformer_engine', 25, 1e-5),
    'f32_llama_masks': (LAYOUTS, '--reset-position-ids --reset-attention-mask --eod-mask-loss --clip-grad 0.2', 25, 1e-5),
    'f16_llama': (LAYOUTS, '--fp16 --train-iters 60', 60, 1e-3),
    'llama_tp2pp2_full': (LAYOUTS, '--bf16 --seed 1234', 10, 2.5e-5),
}
LOGS = {'llama_tp2pp2_full': 'llama_tp2pp2_full_cont_same'}
WORDS = ('--use-checkpoint-args --split 99,1,0 --seq-length 64 --micro-batch-size 2 --global-batch-size 8 --lr 1e-3 --min-lr 1e-4 --lr-decay-iters 100 '
         '--lr-warmup-iters 5 --lr-decay-style cosine --weight-decay 0.1 --adam-beta2 0.95 --tokenizer-type NullTokenizer --vocab-size 250 '
         '--make-vocab-size-divisible-by 32 --log-interval 1 --attention-dropout 0 --hidden-dropout 0 --train-iters 30 --seed 11 --eval-iters 0 --transformer-impl local')
LINE = re.compile(r'iteration +(\d+)/(.*)')
FIGURES = {'loss': r'lm loss: (\S+)', 'mtp': r'mtp_1 loss: (\S+)', 'balance': r'load_balancing_loss: (\S+)', 'norm': r'grad norm: (\S+)', 'scale': r'loss scale: (\S+)',
           'skipped': r'number of skipped iterations: +(\S+)'}


def figures(text):
    lines = {}
    for found in LINE.finditer(text):
        lines[int(found[1])] = {name: float(m[1]) for name, pattern in FIGURES.items() if (m := re.search(pattern, found[2]))}
    return lines


def check(name, layout, words):
    """Whether it went well, and what to print."""
    _, more, last, bar = RUNS[name]
    with open(os.path.join(a.peers, 'logs', LOGS.get(name, name + '_cont') + '.log')) as log:
        theirs = figures(log.read())
    path = '' if '--data-path' in more else '--data-path {data}/corpus_a_text_document '
    with tempfile.TemporaryDirectory() as work:
        command = [a.ferry, 'train', '--device', a.device, '--load', os.path.join(a.peers, name), '--data-cache-path', work, '--exit-interval', str(last),
                   *f'{WORDS} {path}{words} {more}'.format(data=os.path.realpath(os.path.join(a.peers, '..', 'data'))).split()]
        run = subprocess.run(command, capture_output=True, text=True, env={'OMP_NUM_THREADS': '1', **os.environ})
    ours = figures(run.stdout)
    steps = sorted(set(theirs) & set(ours))
    if run.returncode or not steps:
        return False, f'FAILED: {run.stderr.strip()[-300:]}'
    # What an iteration that was skipped has, counts nothing.
    counted = [i for i in steps if theirs[i].get('loss')]
    loss = max(abs(ours[i]['loss'] / theirs[i]['loss'] - 1) for i in counted)
    mtp = max((abs(ours[i].get('mtp', 0) / theirs[i]['mtp'] - 1) for i in counted if 'mtp' in theirs[i]), default=0)
    balance = max((abs(ours[i].get('balance', 0) - theirs[i]['balance']) for i in counted if 'balance' in theirs[i]), default=0)
    norm = max((abs(ours[i].get('norm', 0) - theirs[i]['norm']) for i in counted if 'norm' in theirs[i]), default=0)
    same = all(ours[i].get(k) == theirs[i].get(k) for i in steps for k in ('scale', 'skipped'))
    good = max(loss, mtp) <= bar and balance <= max(bar, 1e-5) and same and (bar > 1e-5 or norm <= 1.1e-3)
    return good, f'{len(steps)} iterations: loss {max(loss, mtp):.1e}, load-balancing loss {balance:.1e}, norm {norm:.1e} {"ok" if good else "FAILED"}'


cases = []
for name in a.runs or RUNS:
    layouts = [(layout, words) for layout, words in RUNS[name][0].items() if a.layouts is None or layout in a.layouts]
    cases += [(name, *layout) for layout in (layouts[-1:] if a.one else layouts)]
failed = 0
with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
    for (name, layout, _), (good, text) in zip(cases, pool.map(lambda case: check(*case), cases)):
        print(f'{name:18} {layout:9} {text}', flush=True)
        failed += not good
sys.exit(1 if failed else 0)
