"""Times training steps of `ferry train` against PyTorch, eager and compiled, in one run, and prints the ratios of their speeds.

    train.py FERRY WORK [--shapes gpt2-64 gpt2-256 llama-64] [--types fp32 bf16] [--threads 2] [--steps 14] [--no-compile]

A step is the forward and backward pass of one batch of 4 sequences, clipping of the gradient's norm and AdamW, on the same threads. In
bf16, PyTorch's parameters and optimizer state are bf16; ferry's have fp32 copies, as Megatron-LM's. Tokens a second are those of the
median step of the last ten. "peak" is the largest resident set of the process, followed for ferry by what its plan had said."""
import argparse
import json
import os
import re
import subprocess
import sys

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'torch_steps.py')
SHAPES = {'gpt2': dict(llama=False, layers=12, hidden=768, heads=12, groups=12, ffn=3072, vocabulary=50304),
          'llama': dict(llama=True, layers=12, hidden=768, heads=12, groups=4, ffn=2048, vocabulary=32000)}

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('--shapes', nargs='+', default=['gpt2-64', 'gpt2-256', 'llama-256'])
parser.add_argument('--types', nargs='+', default=['fp32', 'bf16'])
parser.add_argument('--threads', type=int, default=2)
parser.add_argument('--steps', type=int, default=14)
parser.add_argument('--no-compile', action='store_true')
a = parser.parse_args()
os.makedirs(a.work, exist_ok=True)


def median(times):
    last = sorted(times[-10:])
    return last[len(last) // 2]


def pytorch(config, compiled):
    environment = os.environ | {'OMP_NUM_THREADS': str(a.threads)}
    text = subprocess.run([sys.executable, PEER, json.dumps(config | {'compile': compiled})], env=environment,
                          check=True, capture_output=True, text=True).stdout
    result = json.loads(text.splitlines()[-1])
    return median(result['times']), result['peak'], None


def ferry(c):
    metrics = os.path.join(a.work, 'metrics.json')
    if os.path.exists(metrics):
        os.remove(metrics)
    model = ['--swiglu', '--disable-bias-linear', '--normalization', 'RMSNorm', '--position-embedding-type', 'rope',
             '--group-query-attention', '--num-query-groups', str(c['groups']),
             '--untie-embeddings-and-output-weights'] if c['llama'] else []
    words = [a.ferry, 'train', '--mock-data', '--tokenizer-type', 'NullTokenizer', '--vocab-size', str(c['vocabulary']),
             '--num-layers', str(c['layers']), '--hidden-size', str(c['hidden']), '--ffn-hidden-size', str(c['ffn']),
             '--num-attention-heads', str(c['heads']), '--seq-length', str(c['length']), '--max-position-embeddings', str(c['length']),
             '--micro-batch-size', '4', '--global-batch-size', '4', '--lr', '1e-4', '--train-iters', str(a.steps), '--eval-iters', '0',
             '--attention-dropout', '0', '--hidden-dropout', '0', '--log-interval', '1', '--metrics-json', metrics] + model
    words += ['--bf16'] if c['type'] == 'bf16' else []
    process = subprocess.Popen(words, env=os.environ | {'OMP_NUM_THREADS': str(a.threads)}, stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit('ferry train failed')
    plan = re.search(r'total\n +0 .* (\S+)\n', text)
    with open(metrics) as lines:
        times = [json.loads(line)['milliseconds'] / 1000 for line in lines]
    return median(times), usage.ru_maxrss * 1024, float(plan[1]) * 2**30


for shape in a.shapes:
    name, length = shape.split('-')
    for kind in a.types:
        config = SHAPES[name] | {'device': 'cpu', 'batch': 4, 'length': int(length), 'type': kind, 'threads': a.threads, 'steps': a.steps}
        runs = {'ferry': lambda: ferry(config), 'PyTorch': lambda: pytorch(config, False)}
        if not a.no_compile:
            runs['PyTorch, compiled'] = lambda: pytorch(config, True)
        speeds = {}
        for who, run in runs.items():
            seconds, peak, plan = run()
            speeds[who] = 4 * int(length) / seconds
            comparison = f' (plan {plan / 2**30:.2f}, {peak / plan:.2f} of it)' if plan else f', ferry {speeds["ferry"] / speeds[who]:.2f}x'
            print(f'{shape} {kind} {who}: {speeds[who]:.0f} tokens/s, peak {peak / 2**30:.2f} GiB{comparison}', flush=True)
