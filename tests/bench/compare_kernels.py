"""Compares PyTorch's speed with that of bench_kernels, operation by operation, in one run.

compare_kernels.py BENCH_KERNELS [THREADS [PART OF A NAME]]   prints milliseconds of both, and how many times as fast ferry's are."""
import subprocess, sys, time
import torch
import torch.nn.functional as F

program, threads, part = sys.argv[1], int((sys.argv + ['2'])[2] if len(sys.argv) > 2 else 2), sys.argv[3] if len(sys.argv) > 3 else ''
torch.set_num_threads(threads)


def best(run):
    run()
    least, begin, times = 1e30, time.perf_counter(), 0
    clock = time.process_time if threads == 1 else time.perf_counter  # as bench_kernels does
    while times < 5 or time.perf_counter() - begin < 0.3:
        start = clock()
        run()
        least, times = min(least, clock() - start), times + 1
    return least * 1e3


def numbers(*shape, kind):
    return (torch.randn(*shape) * 0.5).to(kind)


def backward_alone(output, inputs, gradient):
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)


def products(name, tokens, inner, outer, kind):
    x, w, y = numbers(tokens, inner, kind=kind), numbers(outer, inner, kind=kind), numbers(tokens, outer, kind=kind)
    dw = numbers(outer, inner, kind=kind)
    yield f'{name} {tokens} forward', lambda: torch.mm(x, w.t(), out=y)
    yield f'{name} {tokens} data', lambda: torch.mm(y, w, out=x)
    yield f'{name} {tokens} weight', lambda: dw.addmm_(y.t(), x)


def attention(name, sequences, positions, heads, groups, kind):
    q = numbers(sequences, heads, positions, 64, kind=kind).requires_grad_()
    k, v = (numbers(sequences, groups, positions, 64, kind=kind).requires_grad_() for _ in range(2))
    forward = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=groups != heads)
    yield f'{name} forward', forward
    y = forward()
    yield f'{name} backward', backward_alone(y, (q, k, v), torch.randn_like(y))


def rows(kind):
    x, w, b = numbers(1024, 768, kind=kind).requires_grad_(), numbers(768, kind=kind).requires_grad_(), numbers(768, kind=kind).requires_grad_()
    yield 'layer norm forward', lambda: F.layer_norm(x, (768,), w, b)
    y = F.layer_norm(x, (768,), w, b)
    yield 'layer norm backward', backward_alone(y, (x, w, b), torch.randn_like(y))
    plain = x.detach()
    yield 'add', lambda: plain + plain
    wide = numbers(1024, 3072, kind=kind).requires_grad_()
    yield 'gelu forward', lambda: F.gelu(wide, approximate='tanh')
    y = F.gelu(wide, approximate='tanh')
    yield 'gelu backward', backward_alone(y, wide, torch.randn_like(y))
    gate, up = wide.detach().chunk(2, -1)
    yield 'swiglu forward', lambda: F.silu(gate) * up
    yield 'bias gradient', lambda: wide.detach().sum(0)
    logits, targets = numbers(1024, 50304, kind=kind).requires_grad_(), torch.randint(50304, (1024,))
    yield 'cross entropy', lambda: torch.autograd.grad(F.cross_entropy(logits, targets), logits)


def parameters(kind):
    p = torch.nn.Parameter(numbers(32 << 20, kind=torch.float32))
    p.grad = numbers(32 << 20, kind=torch.float32)
    optimizer = torch.optim.AdamW([p], lr=1e-4, fused=True)
    yield 'AdamW', optimizer.step
    yield 'gradient norm', lambda: torch.nn.utils.get_total_norm([p.grad])
    yield 'clear', p.grad.zero_
    yield 'normal numbers', lambda: p.grad.normal_()


def everything(kind):
    yield from rows(kind)
    yield from parameters(kind)
    yield from attention('attention 4x256', 4, 256, 12, 12, kind)
    yield from attention('attention 1x1024', 1, 1024, 12, 12, kind)
    yield from attention('attention 2x256 grouped', 2, 256, 12, 4, kind)
    for tokens in (256, 1024):
        for shape in (('qkv', tokens, 768, 2304), ('proj', tokens, 768, 768), ('fc1', tokens, 768, 3072), ('fc2', tokens, 3072, 768), ('head', tokens, 768, 50304)):
            yield from products(*shape, kind)
    for shape in (('llama qkv', 512, 768, 1280), ('llama fc1', 512, 768, 4096), ('llama fc2', 512, 2048, 768), ('llama head', 512, 768, 32000)):
        yield from products(*shape, kind)


ours = {}
for line in subprocess.run([program, str(threads), part], check=True, capture_output=True, text=True).stdout.splitlines():
    words = line.split()
    ours[' '.join(words[:-4])] = float(words[-4])
for name, kind in (('fp32', torch.float32), ('bf16', torch.bfloat16)):
    parts = [ours.get(f'logit {step} {name}') for step in ('maximum', 'sums', 'gradient')]
    if all(parts):
        ours[f'cross entropy {name}'] = sum(parts)
    for label, run in everything(kind):
        full = f'{label} {name}'
        if full in ours:
            theirs = best(run)
            print(f'{full:32} ferry {ours[full]:9.3f} ms   PyTorch {theirs:9.3f} ms   {theirs / ours[full]:5.2f} x', flush=True)
