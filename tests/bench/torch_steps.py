"""Steps of GPT-2's or Llama's shape as PyTorch users write them, eager or compiled: the peer of train.py and of ../gpu/bench/train.py.

    torch_steps.py CONFIG    JSON: device, threads, type (fp32, bf16 or, with fp32 parameters, autocast), compile, steps, batch, length, and the shape

For a training (../gpu/real_training.py) also: weights, a folder with GPT-2 as transformers names it; samples, a .npy file of tokens [steps * batch][length + 1];
rates, the learning rate of each step; weight_decay, of matrices. With type bf16 a training's optimizer then has fp32 copies of the parameters, and takes gradients in
fp32, as Megatron-LM's does. Without them weights begin as Megatron-LM's and ferry's do, and tokens are random. (With PyTorch's
own beginning of an embedding, which GPT-2's output layer shares, and each token as its own label, the loss is 0 and so are all gradients: a GPU multiplies zeros
some 10 % faster.) Prints the seconds of each step, its loss, the most memory it had and the number of parameters, as JSON."""
import json, resource, sys, time
import numpy as np
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
        logits = self.output(self.norm(x)).flatten(0, 1)
        return F.cross_entropy(logits.float() if 'samples' in c else logits, labels.flatten())


@torch.no_grad()
def init_weights(model):
    for name, p in model.named_parameters():
        if p.dim() > 1:
            p.normal_(0, 0.02 / ((2 * c['layers'])**0.5 if name.endswith(('proj.weight', 'down.weight')) else 1))
        elif name.endswith('bias'):
            p.zero_()


def load_gpt2(model, folder):
    """Takes the weights of transformers' GPT-2, whose matrices are transposed."""
    from safetensors.torch import load_file
    theirs = load_file(f'{folder}/model.safetensors')
    theirs = {name.removeprefix('transformer.'): tensor for name, tensor in theirs.items()}
    names = {'words.weight': 'wte.weight', 'output.weight': 'wte.weight', 'places.weight': 'wpe.weight', 'norm.weight': 'ln_f.weight', 'norm.bias': 'ln_f.bias'}
    parts = {'norms.0': 'ln_1', 'norms.1': 'ln_2', 'qkv': 'attn.c_attn', 'proj': 'attn.c_proj', 'up': 'mlp.c_fc', 'down': 'mlp.c_proj'}
    state = {}
    for name in model.state_dict():
        if name in names:
            state[name] = theirs[names[name]]
        else:
            _, layer, part, kind = name.replace('norms.', 'norms').split('.')
            tensor = theirs[f"h.{layer}.{parts[part.replace('norms', 'norms.')]}.{kind}"]
            state[name] = tensor.T if tensor.dim() == 2 else tensor
    model.load_state_dict(state)


with torch.device(device):
    model = Model()
if 'weights' in c:
    load_gpt2(model, c['weights'])
else:
    init_weights(model)
with_copies = c['type'] == 'bf16' and 'samples' in c
# What the optimizer changes.
copies = [nn.Parameter(p.detach().clone()) if with_copies else p for p in model.parameters()]
if c['type'] == 'bf16':
    model = model.bfloat16()
if 'samples' in c:
    samples = np.load(c['samples'], mmap_mode='r')
    parameter_groups = [{'params': [p for p in copies if p.dim() > 1], 'weight_decay': c['weight_decay']},
                        {'params': [p for p in copies if p.dim() == 1], 'weight_decay': 0}]
    optimizer = torch.optim.AdamW(parameter_groups, lr=torch.tensor(0.0, device=device), betas=(0.9, 0.95), eps=1e-8, fused=True)
else:
    optimizer = torch.optim.AdamW(copies, lr=1e-4, fused=True)


def batch_of(number):
    """Tokens and labels."""
    if 'samples' not in c:
        part = torch.randint(0, c['vocabulary'], (c['batch'], c['length'] + 1), device=device)
    else:
        part = torch.from_numpy(samples[number * c['batch']:(number + 1) * c['batch']].astype(np.int64)).to(device)
    return part[:, :-1].contiguous(), part[:, 1:].contiguous()


step = torch.compile(model) if c['compile'] else model
times, losses = [], []
for number in range(c['steps']):
    begin = time.perf_counter()
    tokens, labels = batch_of(number)
    if 'rates' in c:
        for group in optimizer.param_groups:
            group['lr'].fill_(c['rates'][number])
    with torch.autocast(device, torch.bfloat16, enabled=c['type'] == 'autocast'):
        loss = step(tokens, labels)
    loss.backward()
    if with_copies:
        for copy, p in zip(copies, model.parameters()):
            copy.grad = p.grad.float()
    nn.utils.clip_grad_norm_(copies, 1.0)
    optimizer.step()
    if with_copies:
        torch._foreach_copy_([p.data for p in model.parameters()], copies)
        optimizer.zero_grad(set_to_none=True)
    model.zero_grad(set_to_none=True)
    losses.append(float(loss))
    times.append(time.perf_counter() - begin)
peak = torch.cuda.max_memory_allocated() if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({'times': times, 'losses': losses, 'peak': peak, 'parameters': sum(p.numel() for p in model.parameters())}))
