"""Steps of GPT-2's or Llama's shape as PyTorch users write them, eager or compiled: the peer of train.py and of ../gpu/bench/train.py.

    torch_steps.py CONFIG    JSON: device, threads, type (fp32, bf16 or, with fp32 parameters, autocast), compile, steps, batch, length, and the shape

Prints the seconds of each step and the most memory it had, as JSON."""
import json, resource, sys, time
import torch
from torch import nn
from torch.nn import functional as F

c = json.loads(sys.argv[1])
device, on_gpu = c['device'], c['device'] == 'cuda'
if on_gpu:
    torch.set_float32_matmul_precision('high')
else:
    torch.set_num_threads(c['threads'])
torch.manual_seed(1)
llama, width, heads, groups = c['llama'], c['hidden'], c['heads'], c['groups']
head = width // heads


def norm():
    return nn.RMSNorm(width, 1e-5) if llama else nn.LayerNorm(width)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([norm(), norm()])
        self.qkv = nn.Linear(width, (heads + 2 * groups) * head, bias=not llama)
        self.proj = nn.Linear(width, width, bias=not llama)
        self.up = nn.Linear(width, c['ffn'] * (2 if llama else 1), bias=not llama)
        self.down = nn.Linear(c['ffn'], width, bias=not llama)

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
            y = F.gelu(y, approximate='tanh')
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(c['vocabulary'], width)
        self.places = None if llama else nn.Embedding(c['length'], width)
        self.layers = nn.ModuleList(Layer() for _ in range(c['layers']))
        self.norm = norm()
        self.output = nn.Linear(width, c['vocabulary'], bias=False)
        if not llama:
            self.output.weight = self.words.weight
        angles = torch.outer(torch.arange(c['length']).float(), 10000.0 ** (-torch.arange(0, head, 2).float() / head))
        self.register_buffer('cos', angles.cos(), False)
        self.register_buffer('sin', angles.sin(), False)

    def forward(self, tokens, labels):
        x = self.words(tokens)
        if self.places is not None:
            x = x + self.places.weight
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1), labels.flatten())


with torch.device(device):
    model = Model()
if c['type'] == 'bf16':
    model = model.bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
step = torch.compile(model) if c['compile'] else model
times = []
for number in range(c['steps']):
    tokens = torch.randint(0, c['vocabulary'], (c['batch'], c['length']), device=device)
    begin = time.perf_counter()
    with torch.autocast(device, torch.bfloat16, enabled=c['type'] == 'autocast'):
        loss = step(tokens, tokens)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    float(loss)
    times.append(time.perf_counter() - begin)
peak = torch.cuda.max_memory_allocated() if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({'times': times, 'peak': peak}))
