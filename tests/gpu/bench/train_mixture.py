"""Tokens/s of PyTorch training a mixture of experts of Qwen3-30B-A3B's shape, in bf16: torch.compile,
experts by grouped products, its own attention and fused AdamW. What ferry train is held against.

    python3 tests/gpu/bench/train_mixture.py [BATCH ...]      LAYERS=8 SEQUENCE=4096 STEPS=10
"""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

HIDDEN, HEADS, GROUPS, DIM, FFN, EXPERTS, CHOSEN, VOCABULARY = 2048, 32, 4, 128, 768, 128, 8, 151936
LAYERS, SEQUENCE = int(os.environ.get("LAYERS", 8)), int(os.environ.get("SEQUENCE", 4096))
STEPS = int(os.environ.get("STEPS", 10))


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
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
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


torch.manual_seed(0)
with torch.device("cuda"):
    model = Model().bfloat16()
for layer in model.layers:
    layer.compile()  # once for all: they are alike
model.loss = torch.compile(model.loss)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
print(f"{sum(p.numel() for p in model.parameters()) / 1e9:.2f} billion parameters", flush=True)
for batch in [int(x) for x in sys.argv[1:]] or [1, 2, 4]:
    times = []
    try:
        torch._dynamo.reset()
        torch.cuda.reset_peak_memory_stats()
        tokens = torch.randint(0, VOCABULARY, (batch, SEQUENCE + 1), device="cuda")
        for _ in range(STEPS):
            torch.cuda.synchronize()
            start = time.time()
            loss = model(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            times.append(time.time() - start)
    except torch.OutOfMemoryError:
        print(f"batch {batch}: out of memory", flush=True)
        break
    step = sorted(times[3:])[len(times[3:]) // 2]
    print(f"batch {batch}: {batch * SEQUENCE / step:.0f} tokens/s, {step * 1e3:.1f} ms a step, "
          f"loss {loss.item():.3f}, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
