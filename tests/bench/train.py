"""Times training steps of `ferry train` against PyTorch, eager and compiled, in one run, and prints the ratios of their speeds.

    train.py FERRY WORK [--shapes gpt2-64 gpt2-256 llama-64] [--types fp32 bf16] [--threads 2] [--steps 14] [--no-compile]

A step is the forward and backward pass of one batch of 4 sequences, clipping of the gradient's norm and AdamW, on the same threads. In
bf16, PyTorch's parameters and optimizer state are bf16; ferry's have fp32 copies, as Megatron-LM's. Tokens a second are those of the
median step of the last ten. "peak" is the largest resident set of the process, and behind it for ferry what its plan had said."""
import argparse
import json
import os
import re
import subprocess
import sys

PYTORCH = r'''
import json, resource, sys, time
import torch
from torch import nn
from torch.nn import functional as F

c = json.loads(sys.argv[1])
torch.set_num_threads(c["threads"])
torch.manual_seed(1)
llama, width, heads, groups = c["llama"], c["hidden"], c["heads"], c["groups"]
head = width // heads


def norm():
    return nn.RMSNorm(width, 1e-5) if llama else nn.LayerNorm(width)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([norm(), norm()])
        self.qkv = nn.Linear(width, (heads + 2 * groups) * head, bias=not llama)
        self.proj = nn.Linear(width, width, bias=not llama)
        self.up = nn.Linear(width, c["ffn"] * (2 if llama else 1), bias=not llama)
        self.down = nn.Linear(c["ffn"], width, bias=not llama)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        parts = self.qkv(self.norms[0](x)).split([heads * head, groups * head, groups * head], -1)
        q, k, v = (part.view(batch, length, -1, head).transpose(1, 2) for part in parts)
        if llama:
            q, k = (torch.cat((t[..., :head // 2] * cos - t[..., head // 2:] * sin,
                               t[..., head // 2:] * cos + t[..., :head // 2] * sin), -1) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=groups != heads)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        y = self.up(self.norms[1](x))
        if llama:
            gate, value = y.chunk(2, -1)
            y = F.silu(gate) * value
        else:
            y = F.gelu(y, approximate="tanh")
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(c["vocabulary"], width)
        self.places = None if llama else nn.Embedding(c["length"], width)
        self.layers = nn.ModuleList(Layer() for _ in range(c["layers"]))
        self.norm = norm()
        self.output = nn.Linear(width, c["vocabulary"], bias=False)
        if not llama:
            self.output.weight = self.words.weight
        angles = torch.outer(torch.arange(c["length"]).float(), 10000.0 ** (-torch.arange(0, head, 2).float() / head))
        self.register_buffer("cos", angles.cos(), False)
        self.register_buffer("sin", angles.sin(), False)

    def forward(self, tokens, labels):
        x = self.words(tokens)
        if self.places is not None:
            x = x + self.places.weight
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1), labels.flatten())


model = Model()
if c["type"] == "bf16":
    model = model.bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
step = torch.compile(model) if c["compile"] else model
times = []
for number in range(c["steps"]):
    tokens = torch.randint(0, c["vocabulary"], (4, c["length"]))
    begin = time.perf_counter()
    loss = step(tokens, tokens)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    float(loss)
    times.append(time.perf_counter() - begin)
print(json.dumps({"times": times, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
'''

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
    text = subprocess.run([sys.executable, '-c', PYTORCH, json.dumps(config | {'compile': compiled})], env=environment,
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
        config = SHAPES[name] | {'length': int(length), 'type': kind, 'threads': a.threads, 'steps': a.steps}
        runs = {'ferry': lambda: ferry(config), 'PyTorch': lambda: pytorch(config, False)}
        if not a.no_compile:
            runs['PyTorch, compiled'] = lambda: pytorch(config, True)
        speeds = {}
        for who, run in runs.items():
            seconds, peak, plan = run()
            speeds[who] = 4 * int(length) / seconds
            behind = f' (plan {plan / 2**30:.2f}, {peak / plan:.2f} of it)' if plan else f', ferry {speeds["ferry"] / speeds[who]:.2f}x'
            print(f'{shape} {kind} {who}: {speeds[who]:.0f} tokens/s, peak {peak / 2**30:.2f} GiB{behind}', flush=True)
