"""Holds the kernels against PyTorch: values and gradients of each operation, in fp32 and bf16.

check_kernels.py RUN_OPERATION"""
import subprocess, sys, tempfile
import numpy as np
import torch
import torch.nn.functional as F

program = sys.argv[1]
torch.manual_seed(0)
failures = 0


def numbers(*shape):
    return torch.randn(*shape)


def run(operation, dtype, arrays, outputs, **options):
    """The outputs of the operation on these arrays; `outputs`: name -> (shape, dtype)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, array in arrays.items():
            raw = array if array.dtype in (torch.int32, torch.float32) else array.view(torch.int16)
            raw.contiguous().numpy().tofile(f'{folder}/{name}')
        words = [f'{name}={float(value)}' for name, value in options.items()]
        subprocess.run([program, operation, folder, f'type={int(dtype == torch.bfloat16)}', *words], check=True)
        result = {}
        for name, (shape, stored) in outputs.items():
            raw = np.fromfile(f'{folder}/{name}', np.float32 if stored == torch.float32 else np.int16)
            tensor = torch.from_numpy(raw)
            result[name] = (tensor if stored == torch.float32 else tensor.view(torch.bfloat16)).float().reshape(shape)
        return result


def compare(operation, kind, got, expected):
    global failures
    for name, value in expected.items():
        value = value.detach().float()
        size = value.abs().max().item() or 1.0
        error = (got[name] - value).abs().max().item() / size
        bound = 4e-6 if kind == torch.float32 else 1.2e-2
        good = error <= bound
        failures += not good
        print(f'{operation:28} {str(kind)[6:]:9} {name:10} {error:.1e} of the largest{"" if good else "   WRONG"}')


def leaf(tensor):
    """The numbers that the type holds, for a computation in double precision."""
    return tensor.double().requires_grad_()


def check(label, operation, dtype, arrays, forward, names, fp32, **options):
    """`forward` of double-precision leaves gives y; `names`: inputs whose gradients are compared, `fp32` those kept in fp32."""
    arrays = {name: array.to(dtype) for name, array in arrays.items()}
    leaves = {name: leaf(array) for name, array in arrays.items()}
    y = forward(**{name: value for name, value in leaves.items() if name != 'dy'})
    gradients = torch.autograd.grad(y, [leaves[name] for name in names], leaves['dy'])
    expected = {'y': y} | {'d' + name: gradient for name, gradient in zip(names, gradients)}
    outputs = {name: (value.shape, torch.float32 if name[1:] in fp32 and name != 'y' else dtype) for name, value in expected.items()}
    compare(label, dtype, run(operation, dtype, arrays, outputs, **options), expected)


def xielu(x, alpha_p, alpha_n):
    p, n = F.softplus(alpha_p), 0.5 + F.softplus(alpha_n)
    return torch.where(x > 0, p * x * x + 0.5 * x, (torch.expm1(torch.clamp(x, max=-1e-6)) - x) * n + 0.5 * x)


def quick_geglu(x):
    gate, up = x.chunk(2, -1)
    return gate * torch.sigmoid(1.702 * gate) * up


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


activations = {0: swiglu, 1: F.gelu, 2: lambda x: F.gelu(x, approximate='tanh'), 3: lambda x: F.relu(x) ** 2, 4: quick_geglu, 5: xielu, 6: lambda x: F.relu(x)}


def attention(q, k, v, window, scale):
    """Arrays lie as [position, sequence, head, dim]."""
    q, k, v = (x.permute(1, 2, 0, 3) for x in (q, k, v))
    distance = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])[None, :]
    seen = (distance >= 0) & ((distance < window) if window else True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale, enable_gqa=True).permute(2, 0, 1, 3)


def check_attention(kind, sequences, positions, heads, groups, dim, window):
    arrays = {'q': numbers(positions, sequences, heads, dim), 'k': numbers(positions, sequences, groups, dim), 'v': numbers(positions, sequences, groups, dim), 'dy': numbers(positions, sequences, heads, dim)}
    check(f'attention window {window}', 'attention', kind, arrays, lambda q, k, v: attention(q, k, v, window, 0.2), ['q', 'k', 'v'], [], sequences=sequences, positions=positions, heads=heads, groups=groups, dim=dim, window=window, scale=0.2)


def check_cross_entropy(kind, rows, columns):
    logits, targets, weight = (3 * numbers(rows, columns)).to(kind), torch.randint(columns, (rows,), dtype=torch.int32), torch.rand(rows)
    x = leaf(logits)
    loss = F.cross_entropy(x, targets.long(), reduction='none')
    expected = {'loss': loss, 'dlogits': torch.autograd.grad(loss, x, weight.double())[0]}
    got = run('cross_entropy', kind, {'logits': logits, 'targets': targets, 'weight': weight}, {'loss': ((rows,), torch.float32), 'dlogits': ((rows, columns), kind)}, rows=rows, columns=columns)
    compare('cross entropy', kind, got, expected)


def check_embedding(kind, count, rows, width):
    table, dy, ids = numbers(rows, width).to(kind), numbers(count, width).to(kind), torch.randint(rows, (count,), dtype=torch.int32)
    x = leaf(table)
    y = F.embedding(ids.long(), x)
    expected = {'y': y, 'dtable': torch.autograd.grad(y, x, dy.double())[0]}
    got = run('embedding', kind, {'table': table, 'dy': dy, 'ids': ids}, {'y': ((count, width), kind), 'dtable': ((rows, width), torch.float32)}, count=count, rows=rows, width=width)
    compare('embedding', kind, got, expected)


def check_steps(name, make, count, decay, **options):
    parameter, gradient = numbers(count), numbers(count)
    theirs = torch.nn.Parameter(parameter.clone())
    optimizer = make([theirs], decay)
    for _ in range(3):
        theirs.grad = gradient.clone()
        optimizer.step()
    zero = torch.zeros(count)
    got = run(name, torch.float32, {'parameter': parameter, 'gradient': gradient, 'm': zero, 'v': zero}, {'parameter': ((count,), torch.float32)}, count=count, rate=0.01, decay=decay, **options)
    compare(type(optimizer).__name__, torch.float32, got, {'parameter': theirs})


for kind in (torch.float32, torch.bfloat16):
    for m, n, k in ((5, 7, 3), (96, 64, 200)):
        check('matmul', 'matmul', kind, {'x': numbers(m, k), 'w': numbers(n, k), 'bias': numbers(n), 'dy': numbers(m, n)}, lambda x, w, bias: F.linear(x, w, bias), ['x', 'w', 'bias'], ['w', 'bias'], m=m, n=n, k=k)
    arrays = {'x': numbers(33, 130), 'weight': numbers(130), 'bias': numbers(130), 'dy': numbers(33, 130)}
    check('layer norm', 'norm', kind, arrays, lambda x, weight, bias: F.layer_norm(x, (130,), weight, bias, 1e-5), ['x', 'weight', 'bias'], ['weight', 'bias'], rows=33, width=130, rms=0, epsilon=1e-5)
    del arrays['bias']
    check('RMS norm', 'norm', kind, arrays, lambda x, weight: F.rms_norm(x, (130,), weight, 1e-6), ['x', 'weight'], ['weight'], rows=33, width=130, rms=1, epsilon=1e-6)
    for number, function in activations.items():
        gated = number in (0, 4)
        arrays = {'x': 3 * numbers(9, 74 if gated else 37), 'dy': numbers(9, 37)}
        names = ['x'] + (['alpha_p', 'alpha_n'] if number == 5 else [])
        for name in names[1:]:
            arrays[name] = numbers(1)
        check(f'activation {number}', 'activation', kind, arrays, function, names, names[1:], rows=9, width=37, kind=number)
    check_attention(kind, 2, 70, 4, 2, 24, 0)
    check_attention(kind, 1, 130, 2, 2, 16, 9)
    check_cross_entropy(kind, 11, 1003)
    check_embedding(kind, 50, 20, 37)
for decay in (0, 0.1):
    check_steps('adam', lambda p, d: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.95), weight_decay=d), 137, decay, decoupled=1)
    check_steps('adam', lambda p, d: torch.optim.Adam(p, lr=0.01, betas=(0.9, 0.95), weight_decay=d), 137, decay, decoupled=0)
    check_steps('sgd', lambda p, d: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=d), 137, decay)
print(f'{failures} wrong')
sys.exit(failures != 0)
