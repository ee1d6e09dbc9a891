"""Times training steps of a mixture of experts of Qwen3-30B-A3B's shape, cut to some layers, by `ferry train` and by PyTorch, in bf16, in one run.

    train_mixture.py FERRY WORK [BATCH ...] [--layers 8] [--steps 12] [--no-peer] [--times] [--fp8] [--micro-batches N] [--more ARGUMENTS]

PyTorch: torch.compile, experts by grouped products, its own attention and fused AdamW, all state in bf16, 8 bytes a parameter. ferry: gradients and moments in bf16 and the
lower 16 bits of fp32 copies (--use-precision-aware-optimizer), 10 bytes a parameter, then fp32 copies, gradients and moments, as Megatron-LM has them by default, 18 bytes.
Times are medians of the last half of the steps. --times prints ferry's time by operation besides. --fp8 times ferry with 10 bytes a parameter in FP8, too, under both
recipes, and prints how much faster that is than bf16; PyTorch is left out. --micro-batches: a step of ferry's is that many times BATCH sequences."""
import argparse
import os
import re
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

from ferry_steps import SMALL, median, qwen3_30b_a3b, train

HIDDEN, HEADS, GROUPS, DIM, FFN, EXPERTS, CHOSEN, VOCABULARY, SEQUENCE = 2048, 32, 4, 128, 768, 128, 8, 151936, 4096

parser = argparse.ArgumentParser()
parser.add_argument('ferry')
parser.add_argument('work')
parser.add_argument('batches', nargs='*', type=int, default=[4])
parser.add_argument('--layers', type=int, default=8)
parser.add_argument('--steps', type=int, default=12)
parser.add_argument('--no-peer', action='store_true')
parser.add_argument('--times', action='store_true')
parser.add_argument('--fp8', action='store_true')
parser.add_argument('--micro-batches', type=int, default=1)
parser.add_argument('--more', default='', help="ferry's further arguments, as one text")
a = parser.parse_args()
if a.micro_batches > 1 and not a.no_peer and not a.fp8:
    parser.error('--micro-batches is for ferry alone: --no-peer or --fp8')
os.makedirs(a.work, exist_ok=True)


def report(who, batch, seconds, more):
    sequences = batch if who == 'PyTorch' else batch * a.micro_batches
    print(f'batch {batch}, {who}: {sequences * SEQUENCE / seconds:.0f} tokens/s, {1000 * seconds:.1f} ms a step, {more}', flush=True)


def ferry(batch, more):
    """Seconds of a step, and what it printed."""
    words = [a.ferry, 'train', *qwen3_30b_a3b(a.layers, SEQUENCE), '--micro-batch-size', str(batch), '--global-batch-size', str(batch * a.micro_batches),
             '--train-iters', str(a.steps), *a.more.split(), *more]
    return train(a.work, words)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * GROUPS) * DIM, bias=False)
        self.out = nn.Linear(HEADS * DIM, HIDDEN, bias=False)
        self.q_norm, self.k_norm = Norm(DIM), Norm(DIM)

    def forward(self, x, cos, sin):
        batch, positions, _ = x.shape
        q, k, v = (y.view(batch, positions, -1, DIM).transpose(1, 2)
                   for y in self.qkv(x).split([HEADS * DIM, GROUPS * DIM, GROUPS * DIM], -1))
        q, k = rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(batch, positions, -1))


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, HIDDEN, 2 * FFN) * 0.02)
        self.down = nn.Parameter(torch.randn(EXPERTS, FFN, HIDDEN) * 0.02)

    def forward(self, x):
        x = x.flatten(0, 1)
        weights, taken = self.router(x).float().softmax(-1).topk(CHOSEN, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype).flatten()
        taken = taken.flatten()
        order = taken.argsort(stable=True)
        ends = torch.zeros(EXPERTS, dtype=torch.int32, device=x.device).scatter_add_(
            0, taken, torch.ones_like(taken, dtype=torch.int32)).cumsum(0, dtype=torch.int32)
        gate, up = torch._grouped_mm(x[order // CHOSEN], self.up, offs=ends).chunk(2, -1)
        y = torch._grouped_mm(F.silu(gate) * up * weights[order, None], self.down, offs=ends)
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
        return y[place].view(-1, CHOSEN, HIDDEN).sum(1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms, self.attention, self.experts = (nn.ModuleList((Norm(HIDDEN), Norm(HIDDEN))),
                                                    Attention(), Experts())

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norms[0](x), cos, sin)
        return x + self.experts(self.norms[1](x)).view_as(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(a.layers))
        self.norm, self.head = Norm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(SEQUENCE).float(),
                             1e6 ** (-torch.arange(0, DIM, 2).float() / DIM))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def loss(self, x, labels):
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.loss(x, labels)


def torch_steps(batch):
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Model().bfloat16()
    for layer in model.layers:
        layer.compile()  # once for all: they are alike
    model.loss = torch.compile(model.loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, VOCABULARY, (batch, SEQUENCE + 1), device="cuda")
    times = []
    for _ in range(a.steps):
        torch.cuda.synchronize()
        start = time.time()
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.time() - start)
    return median(times), torch.cuda.max_memory_allocated() / 2**30


for batch in a.batches:
    own = {}
    for state, words in [('10 bytes a parameter', SMALL), ('18 bytes a parameter', [])][:1 if a.fp8 else 2]:
        own[state], text = ferry(batch, words)
        report(f'ferry, {state}', batch, own[state], re.search(r'peak memory.*', text)[0])
        if a.times:
            print(ferry(batch, words + ['--timing-log-level', '2'])[1][-6000:], flush=True)
    for recipe in ['tensorwise', 'delayed'] if a.fp8 else []:
        words = [*SMALL, '--fp8-format', 'hybrid', '--fp8-recipe', recipe]
        seconds, text = ferry(batch, words)
        report(f'ferry, 10 bytes a parameter, FP8 {recipe}', batch, seconds,
               f"{own['10 bytes a parameter'] / seconds:.3f}x bf16, {re.search(r'peak memory.*', text)[0]}")
        if a.times:
            print(ferry(batch, words + ['--timing-log-level', '2'])[1][-6000:], flush=True)
    if a.no_peer or a.fp8:
        continue
    torch._dynamo.reset()
    seconds, memory = torch_steps(batch)
    report('PyTorch', batch, seconds, f'{memory:.1f} GiB; ferry ' + ', '.join(f'{seconds / time:.3f}x ({state})' for state, time in own.items()))
    torch.cuda.empty_cache()
