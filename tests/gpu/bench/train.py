"""Times training steps of `ferry train` on one GPU against PyTorch's, compiled, in one run, and prints the ratio of their speeds.

    train.py FERRY WORK [SHAPE[:BATCH] ...] [--steps 24] [--no-peer] [--times] [--fp8] [--more ARGUMENTS]

SHAPE: gpt2 (124M), gpt2-xl (1558M), llama-8b-8 (8 layers of Llama-3-8B's shape), llama-8b (all 32). A step is the forward and backward pass of BATCH sequences,
clipping of the gradient's norm and AdamW, in bf16. ferry has fp32 copies of parameters and moments, as Megatron-LM has; PyTorch has fp32 parameters and autocast or,
where that does not fit, bf16 alone. For llama-8b ferry has gradients and moments in bf16 and of fp32 copies the lower 16 bits (--use-precision-aware-optimizer), 10
bytes a parameter; PyTorch is all in bf16, 8 bytes. Tokens a second are those of the median step of the last half. MFU counts 6 operations a parameter and token, and the
causal half of attention, against 989 TFLOP/s (the specification of an H100 or H200 in bf16). --times prints ferry's time by operation besides. --fp8 times ferry with
the linear layers of Llama's shape in FP8, too, under both recipes, and prints how much faster that is than bf16; it needs no PyTorch."""
import argparse
import json
import os
import re
import subprocess
import sys

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../bench/torch_steps.py')
SHAPES = {
    'gpt2': dict(llama=False, layers=12, hidden=768, heads=12, groups=12, ffn=3072, vocabulary=50304, length=1024, batch=64),
    'gpt2-xl': dict(llama=False, layers=48, hidden=1600, heads=25, groups=25, ffn=6400, vocabulary=50304, length=1024, batch=16),
    'llama-8b-8': dict(llama=True, layers=8, hidden=4096, heads=32, groups=8, ffn=14336, vocabulary=128256, length=4096, batch=2),
    'llama-8b': dict(llama=True, layers=32, hidden=4096, heads=32, groups=8, ffn=14336, vocabulary=128256, length=4096, batch=3, small=True),
}
SMALL = ['--use-distributed-optimizer', '--use-precision-aware-optimizer', '--main-grads-dtype', 'bf16', '--exp-avg-dtype', 'bf16', '--exp-avg-sq-dtype', 'bf16']

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('shapes', nargs='*', default=['gpt2', 'gpt2:128', 'gpt2-xl', 'llama-8b-8:1', 'llama-8b-8'])
parser.add_argument('--steps', type=int, default=24)
parser.add_argument('--no-peer', action='store_true')
parser.add_argument('--times', action='store_true')
parser.add_argument('--more', default='', help="ferry's further arguments, as one text")
parser.add_argument('--fp8', action='store_true')
a = parser.parse_args()
os.makedirs(a.work, exist_ok=True)


def median(times):
    last = sorted(times[-(a.steps // 2):])
    return last[len(last) // 2]


def ferry(c, *more):
    metrics = os.path.join(a.work, 'metrics.json')
    if os.path.exists(metrics):
        os.remove(metrics)
    model = ['--swiglu', '--disable-bias-linear', '--normalization', 'RMSNorm', '--position-embedding-type', 'rope', '--group-query-attention',
             '--num-query-groups', str(c['groups']), '--untie-embeddings-and-output-weights'] if c['llama'] else []
    words = [a.ferry, 'train', '--device', 'cuda', '--bf16', '--mock-data', '--tokenizer-type', 'NullTokenizer', '--vocab-size', str(c['vocabulary']),
             '--num-layers', str(c['layers']), '--hidden-size', str(c['hidden']), '--ffn-hidden-size', str(c['ffn']),
             '--num-attention-heads', str(c['heads']), '--seq-length', str(c['length']), '--max-position-embeddings', str(c['length']),
             '--micro-batch-size', str(c['batch']), '--global-batch-size', str(c['batch']), '--lr', '1e-4', '--train-iters', str(a.steps),
             '--eval-iters', '0', '--log-interval', '1', '--attention-dropout', '0', '--hidden-dropout', '0', '--metrics-json', metrics]
    words += model + (SMALL if c.get('small') else []) + a.more.split() + list(more)
    run = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        sys.exit(run.stdout + 'ferry train failed')
    peak = re.search(r'.*peak.*', run.stdout)
    plan = re.search(r'^ +0 +\d+ .* (\S+)$', run.stdout, re.M)
    with open(metrics) as lines:
        seconds = median([json.loads(line)['milliseconds'] / 1000 for line in lines])
    return seconds, run.stdout, ', '.join(([peak[0].strip()] if peak else []) + ([f'planned {plan[1]} GiB'] if plan else []))


def peer(c):
    for kind in ['bf16'] if c.get('small') else ['autocast', 'bf16']:
        config = c | {'device': 'cuda', 'threads': 1, 'steps': a.steps, 'compile': True, 'type': kind}
        run = subprocess.run([sys.executable, PEER, json.dumps(config)], capture_output=True, text=True)
        if run.returncode == 0:
            result = json.loads(run.stdout.splitlines()[-1])
            return median(result['times']), f"{kind}, peak {result['peak'] / 2**30:.1f} GiB"
    sys.exit(run.stderr)


def mfu(c, tokens):
    head = c['hidden'] // c['heads']
    layer = c['hidden'] * head * 2 * (c['heads'] + c['groups']) + c['hidden'] * c['ffn'] * (3 if c['llama'] else 2)
    parameters = c['layers'] * layer + c['hidden'] * c['vocabulary']
    return tokens * (6 * parameters + 6 * c['layers'] * c['hidden'] * c['length']) / 989e12


for shape in a.shapes:
    name, _, batch = shape.partition(':')
    config = SHAPES[name] | ({'batch': int(batch)} if batch else {})
    tokens = config['batch'] * config['length']
    seconds, text, peak = ferry(config)
    own = tokens / seconds
    print(f"{name} B {config['batch']} ferry: {own:.0f} tokens/s, {1000 * seconds:.1f} ms, MFU {100 * mfu(config, own):.1f} %. {peak}", flush=True)
    if a.fp8:
        for recipe in ['tensorwise', 'delayed']:
            words = ['--fp8-format', 'hybrid', '--fp8-recipe', recipe]
            narrow, text, peak = ferry(config, *words)
            print(f"{name} B {config['batch']} ferry, FP8 {recipe}: {tokens / narrow:.0f} tokens/s, {1000 * narrow:.1f} ms, {seconds / narrow:.3f}x bf16. {peak}",
                  flush=True)
            if a.times:
                print(ferry(config, '--timing-log-level', '2', *words)[1], flush=True)
    if not a.no_peer and not a.fp8:
        seconds, what = peer(config)
        print(f"{name} B {config['batch']} PyTorch: {tokens / seconds:.0f} tokens/s, {1000 * seconds:.1f} ms ({what}); ferry {own * seconds / tokens:.3f}x", flush=True)
    if a.times:
        print(ferry(config, '--timing-log-level', '2')[1], flush=True)
