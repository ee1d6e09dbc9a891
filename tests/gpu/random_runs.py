"""Lets Megatron-LM begin runs of configurations at random, ferry go on with each, and Megatron-LM with what ferry saved, and holds their lines against each other.

    random_runs.py FERRY DATA WORK [FIRST] [COUNT] [--jobs 8]     MEGATRON: the folder of a Megatron-LM checkout

DATA is the prefix of token files below 250. Configuration N is a function of N: sizes, activations, norms, biases, positions, latent attention, mixtures, optimizers,
schedules, evaluations, checkpoint formats and numbers' types that Megatron-LM's local modules have. Megatron-LM trains 6 iterations and saves every second one; ferry goes on from
iteration 2 and saves 4, from which Megatron-LM goes on. In fp32 losses and losses of evaluations have to agree within 1e-5, those of load balancing within 1.1e-5, norms by
their printed digits; in bf16 and fp16 losses within 5e-4. Learning rates, loss scales and skipped iterations have to be the same. The second line of a process is
left out: its loss is a mean of two iterations. What Megatron-LM refuses, and checkpoints of its own that it does not load, are counted apart.

MEGATRON needs `DotProductAttention` with `v_channels`, as README.md says. Logs: WORK/N/*.log"""
import argparse
import collections
import concurrent.futures
import itertools
import os
import random
import re
import shutil
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('data')
parser.add_argument('work')
parser.add_argument('first', nargs='?', type=int, default=0)
parser.add_argument('count', nargs='?', type=int, default=20)
parser.add_argument('--jobs', type=int, default=8)
a = parser.parse_args()
here = os.path.dirname(os.path.abspath(__file__))
megatron = os.environ.get('MEGATRON') or sys.exit('MEGATRON is the folder of a Megatron-LM checkout')
gpus = subprocess.run(['nvidia-smi', '-L'], capture_output=True, text=True, check=True).stdout.count('\n')

BASE = ('--transformer-impl local --seq-length 64 --max-position-embeddings 128 --micro-batch-size 2 --lr 2e-3 --min-lr 1e-4 --weight-decay 0.1 --adam-beta2 0.95 '
        '--tokenizer-type NullTokenizer --vocab-size 250 --make-vocab-size-divisible-by 32 --split 99,1,0 --log-interval 1 --attention-dropout 0 --hidden-dropout 0 --seed 11')
LOCAL = '--no-persist-layer-norm --no-gradient-accumulation-fusion --no-masked-softmax-fusion --no-rope-fusion'
FIGURES = {
    'loss': r'lm loss: (\S+)',
    'balance': r'\| (?:load_balancing_loss: 0.0+E.00 \| )?(?:seq_|global_)?load_balancing_loss: (\S+)',
    'z-loss': r'z_loss: (\S+)',
    'norm': r'grad norm: (\S+)',
    'rate': r'learning rate: (\S+)',
    'scale': r'loss scale: (\S+)',
    'skipped': r'skipped iterations: +(\S+)',
}
EXACT = {'rate': 1e-6, 'scale': 0, 'skipped': 0}
LIMITS = {'loss': 1e-5, 'evaluation': 1e-5, 'balance': 1.1e-5, 'z-loss': 1e-4, 'norm': 1.6e-3} | EXACT
LIMITS_OF_16_BITS = {'loss': 5e-4, 'evaluation': 5e-4, 'balance': 1e-3, 'z-loss': 3e-3, 'norm': 3e-2} | EXACT


class Configuration:
    def __init__(self, number):
        self.draw = random.Random(number)
        self.words = BASE.split()
        self.latent, self.experts = self.chance(.3), self.chance(.5)
        self.sizes()
        self.attention()
        self.mlp()
        self.optimizer()
        self.batches_and_schedule()
        self.type()
        # Without it Megatron-LM's first sample leaves holes in the loss of all others.
        self.add('--null-tokenizer-pad-id', self.one_of(7, 249), probability=.5 if '--eod-mask-loss' in self.words else 0)

    def chance(self, probability):
        return self.draw.random() < probability

    def add(self, *words, probability=1.):
        """Whether they are there now."""
        if not self.chance(probability):
            return False
        self.words += [str(word) for word in words]
        return True

    def one_of(self, *choices):
        return self.draw.choice(choices)

    def sizes(self):
        self.layers, heads, dim = self.one_of(1, 2, 3), self.one_of(2, 4), self.one_of(8, 16)
        self.hidden = heads * dim * self.one_of(1, 1, 1, 2)
        self.add('--num-layers', self.layers, '--hidden-size', self.hidden, '--num-attention-heads', heads)
        if self.hidden != heads * dim and not self.latent:
            self.add('--kv-channels', dim)
        self.add('--normalization', 'RMSNorm', probability=.5)
        self.add('--norm-epsilon', self.one_of('1e-6', '1e-3'), probability=.3)
        self.add('--untie-embeddings-and-output-weights', probability=.5)
        self.add('--init-method-std', 0.05, probability=.2)
        self.add('--recompute-granularity', 'full', '--recompute-method', 'uniform', '--recompute-num-layers', 1, probability=.2)

    def attention(self):
        rotary = self.latent or self.chance(.7)
        self.add('--position-embedding-type', 'rope' if rotary else 'learned_absolute')
        if rotary:
            self.add('--rotary-base', 500, probability=.3)
        if self.add('--qk-layernorm', probability=.4):
            self.add('--apply-wd-to-qk-layernorm', probability=.4)
        self.add('--add-qkv-bias', probability=.3)
        self.add('--attention-softmax-in-fp32', probability=.2)
        if self.latent:
            self.add('--multi-latent-attention', '--kv-lora-rank', 16, '--qk-head-dim', 8, '--qk-pos-emb-head-dim', 8, '--v-head-dim', self.one_of(8, 16))
            if '--qk-layernorm' in self.words or self.chance(.6):
                self.add('--q-lora-rank', 24)
            kind = self.one_of('rope', 'yarn')
            self.add('--rope-type', kind)
            self.add('--rotary-scaling-factor', self.one_of(1.0, 4.0, 40.0), probability=.5)
            if kind == 'yarn':
                self.add('--mscale', 1.0, '--mscale-all-dim', self.one_of(0.0, 1.0), probability=.3)
            return
        self.add('--group-query-attention', '--num-query-groups', self.one_of(1, 2), probability=.5)
        self.add('--window-size', '16,0', probability=.15)
        if rotary and not self.add('--use-rope-scaling', '--rope-scaling-factor', 4.0, probability=.15):
            self.add('--rotary-seq-len-interpolation-factor', 2, probability=.15)

    def mlp(self):
        kind = self.one_of('', '--swiglu', '--swiglu', '--squared-relu', '--quick-geglu')
        self.add(*kind.split())
        if kind == '--swiglu' and self.hidden < 24 or self.chance(.4):
            self.add('--ffn-hidden-size', self.one_of(48, 64, 96))
        if self.experts or self.chance(.5):
            self.add('--disable-bias-linear')
        if self.experts or kind in ('--squared-relu', '--quick-geglu'):
            self.add('--no-bias-gelu-fusion', '--no-bias-swiglu-fusion')
        else:
            self.add('--no-bias-gelu-fusion', probability=.3)
        if self.experts:
            self.mixture()

    def mixture(self):
        experts, chosen = self.one_of(2, 4, 8), self.one_of(1, 2)
        self.add('--num-experts', experts, '--moe-router-topk', chosen)
        balance = self.one_of('aux_loss', 'seq_aux_loss', 'global_aux_loss', 'none')
        self.add('--moe-router-load-balancing-type', balance)
        if balance != 'none':
            self.add('--moe-aux-loss-coeff', '1e-2')
        self.add('--moe-z-loss-coeff', '1e-3', probability=.2)
        if self.add('--moe-router-score-function', 'sigmoid', probability=.4):
            self.add('--moe-router-enable-expert-bias', '--moe-router-bias-update-rate', '1e-2', probability=.5)
        elif chosen == 1:
            self.add('--moe-router-pre-softmax')
        self.add('--moe-router-topk-scaling-factor', 2.5, probability=.3)
        if experts >= 4:
            self.add('--moe-router-num-groups', 2, '--moe-router-group-topk', 1, probability=.2)
        self.add('--moe-router-dtype', self.one_of('fp32', 'fp64'), probability=.3)
        self.add('--moe-token-dispatcher-type', self.one_of('alltoall', 'allgather'), probability=.2)
        self.add('--moe-ffn-hidden-size', self.one_of(32, 48), probability=.3)
        if self.layers > 1:
            self.add('--moe-layer-freq', self.one_of(f'([0]+[1]*{self.layers - 1})', '2'), probability=.3)
        if self.add('--moe-shared-expert-intermediate-size', self.one_of(32, 64), probability=.3):
            self.add('--moe-shared-expert-gate', probability=.3)

    def optimizer(self):
        if self.add('--optimizer', 'sgd', '--sgd-momentum', self.one_of(0.9, 0.5), '--ckpt-format', 'torch', probability=.15):
            pass
        elif not self.add('--use-distributed-optimizer', '--dist-ckpt-optim-fully-reshardable', probability=.5):
            self.add('--ckpt-format', 'torch', probability=.25)
        self.add('--adam-eps', '1e-6', probability=.3)
        self.add('--adam-beta1', 0.8, probability=.15)
        self.add('--clip-grad', self.one_of(0.0, 0.3), probability=.2)
        self.add('--decoupled-lr', '5e-4', '--decoupled-min-lr', '1e-5', probability=.15)
        self.add('--start-weight-decay', 0.0, '--end-weight-decay', 0.1, '--weight-decay-incr-style', self.one_of('linear', 'cosine'), probability=.2)

    def batches_and_schedule(self):
        style = self.one_of('cosine', 'linear', 'constant', 'WSD', 'inverse-square-root')
        self.add('--lr-decay-style', style)
        if style == 'WSD':
            self.add('--lr-wsd-decay-style', self.one_of('linear', 'cosine', 'exponential'), '--lr-wsd-decay-iters', 4)
        if style != 'WSD' and self.chance(.25):
            self.add('--train-samples', 64, '--lr-decay-samples', 72, '--lr-warmup-samples', 12)
        else:
            self.add('--train-iters', 8, '--lr-decay-iters', 10)
            self.add(*self.one_of(('--lr-warmup-iters', 2), ('--lr-warmup-iters', 2), ('--lr-warmup-fraction', 0.3)))
        self.add('--lr-warmup-init', '1e-4', probability=.2)
        self.add(*self.one_of(*[('--global-batch-size', 8)] * 3, ('--step-batch-size-schedule', '0:4 768:8')))
        self.add('--eval-iters', *self.one_of((0, '--eval-interval', 100), (2, '--eval-interval', 2)))
        if self.add('--dataloader-type', 'cyclic', probability=.15):
            self.add('--no-data-sharding', probability=.5)
        self.add('--calculate-per-token-loss', probability=.2)
        # Megatron-LM's attention with a window takes no other mask.
        self.add('--reset-position-ids', '--eod-mask-loss', *[] if '--window-size' in self.words else ['--reset-attention-mask'], probability=.2)

    def type(self):
        self.has_16_bits = self.chance(.25)
        if not self.has_16_bits:
            return
        # In fp16 SGD may save before its first step, when it has no state yet.
        if self.add('--bf16', probability=1 if 'sgd' in self.words else .6):
            self.add('--grad-reduce-in-bf16', probability=.5)
        else:
            self.add('--fp16', '--initial-loss-scale', 65536 * 4, '--loss-scale-window', 3, '--hysteresis', 1)
            self.add('--apply-query-key-layer-scaling', probability=.5)


def lines(text):
    found = collections.defaultdict(dict)
    for iteration, line in re.findall(r'iteration +(\d+)/(.*)', text):
        found[int(iteration)] |= {name: float(m[1]) for name, pattern in FIGURES.items() if (m := re.search(pattern, line))}
        # A skipped iteration has the loss 0, or none where it is a process's first.
        if found[int(iteration)].get('loss') == 0:
            del found[int(iteration)]['loss']
    for iteration, loss in re.findall(r'validation loss at iteration (\d+) .*?lm loss value: (\S+)', text):
        found[int(iteration)]['evaluation'] = float(loss)
    return found


class Run:
    def __init__(self, number, configuration):
        self.folder = os.path.join(os.path.realpath(a.work), str(number))
        self.words = configuration.words
        self.gpu = str(number % gpus)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)

    def start(self, name, command, more, environment, cwd):
        """Its exit status, and what it printed."""
        log = os.path.join(self.folder, name + '.log')
        with open(log, 'w') as output:
            words = [*command, '--data-path', os.path.realpath(a.data), '--data-cache-path', f'{self.folder}/cache_{name}', '--exit-interval', '6', *self.words, *more.split()]
            environment = {**os.environ, **environment, 'CUDA_VISIBLE_DEVICES': self.gpu, 'OMP_NUM_THREADS': '1'}
            status = subprocess.run(words, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=cwd).returncode
        with open(log, errors='replace') as text:
            return status, text.read()

    def ferry(self, name, more):
        return self.start(name, [os.path.realpath(a.ferry), 'train', '--device', 'cuda'], more.format(self.folder), {}, self.folder)

    def peer(self, name, more):
        command = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', '1', os.path.join(here, 'megatron_pretraining.py'), *LOCAL.split()]
        return self.start(name, command, more.format(self.folder), {'PYTHONPATH': megatron, 'CUDA_DEVICE_MAX_CONNECTIONS': '1'}, megatron)


def compare(ours, theirs, iterations, limits):
    """The largest difference of each figure, and those that are too large."""
    worst = collections.defaultdict(float)
    for i in iterations:
        if 'rate' not in theirs[i]:
            worst['rate'] = float('inf')
    for i, name in itertools.product(iterations, limits):
        one, other = ours[i].get(name), theirs[i].get(name)
        if (one is None) != (other is None):
            worst[name] = float('inf')
        elif one is not None:
            difference = abs(one - other)
            worst[name] = max(worst[name], difference / abs(other) if name in ('loss', 'evaluation', 'z-loss', 'rate') and other else difference)
    return dict(worst), {name: value for name, value in worst.items() if value > limits[name]}


def check(number):
    """What became of it, and what to print besides."""
    configuration = Configuration(number)
    limits = LIMITS_OF_16_BITS if configuration.has_16_bits else LIMITS
    run = Run(number, configuration)
    try:
        status, text = run.peer('begin', '--save {0}/megatron --save-interval 2')
        theirs = lines(text)
        if status or 6 not in theirs:
            return 'refused by Megatron-LM', ''
        status, text = run.ferry('ferry', '--load {0}/megatron --ckpt-step 2 --save {0}/ferry --save-interval 2')
        if status:
            return 'FAILED', f'ferry: {text.strip()[-300:]}'
        worst, bad = compare(lines(text), theirs, (3, 5, 6), limits)
        status, text = run.peer('back', '--load {0}/ferry --ckpt-step 4 --no-load-rng')
        if status and run.peer('own', '--load {0}/megatron --ckpt-step 4 --no-load-rng')[0]:
            return ('FAILED', f'differ: {bad}') if bad else ('equal (Megatron-LM loads no such checkpoint, not even its own)', '')
        if status:
            return 'FAILED', f'Megatron-LM does not load what ferry saved: {run.folder}/back.log'
        back = lines(text)
        if 'rate' not in back[5]:
            return 'FAILED', f'Megatron-LM did not go on from iteration 4: {run.folder}/back.log'
        # A process's first line has no loss where that iteration was skipped.
        bad |= compare(back, theirs, [5], {name: limits[name] for name in ('loss', 'norm', 'rate') if name in back[5]})[1]
        return ('FAILED', f'differ: {bad}') if bad else ('equal', ', '.join(f'{name} {value:.1e}' for name, value in worst.items() if value))
    finally:
        for name in ('megatron', 'ferry', 'cache_begin', 'cache_ferry', 'cache_back', 'cache_own'):
            shutil.rmtree(os.path.join(run.folder, name), ignore_errors=True)


numbers = range(a.first, a.first + a.count)
ends = collections.Counter()
with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
    for number, (end, more) in zip(numbers, pool.map(check, numbers)):
        ends[end] += 1
        print(f'{number:5} {end} {more}', flush=True)
        if end == 'FAILED':
            print('     ', ' '.join(Configuration(number).words), flush=True)
print(', '.join(f'{count} {end}' for end, count in ends.most_common()))
sys.exit(1 if ends['FAILED'] or not ends['equal'] else 0)
