"""TFLOP/s of PyTorch's causal attention in bf16, for the shapes that bench_attention takes.

    python3 tests/gpu/bench/attention.py [cudnn|flash] [B,H,Hkv,T,d[,dv] ...]
"""
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = ["4,32,32,4096,128", "4,32,8,4096,128", "1,32,8,16384,128", "16,12,12,1024,64",
          "8,25,25,1024,64", "4,32,32,4096,96", "4,16,16,4096,192,128"]
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def milliseconds(run, runs=16, warm=3):
    """The median time of a run. All are queued before any is waited for."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(runs + 1)]
    for event in events[:-1]:
        event.record()
        run()
    events[-1].record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) for a, b in zip(events[warm:], events[warm + 1:]))
    return times[len(times) // 2]


def measure(name, shape):
    n = [int(x) for x in shape.split(",")]
    sequences, heads, groups, positions, dim = n[:5]
    value_dim = n[5] if len(n) > 5 else dim

    def numbers(of, width):  # memory as bench_attention has it: [position, sequence, head, dim]
        x = torch.randn(positions, sequences, of, width, device="cuda", dtype=torch.bfloat16)
        return x.permute(1, 2, 0, 3).requires_grad_()

    q, k, v = numbers(heads, dim), numbers(groups, dim), numbers(groups, value_dim)
    pairs = sequences * heads * positions * (positions + 1) / 2
    with sdpa_kernel(BACKENDS[name]):
        def forward():
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=groups != heads)

        with torch.no_grad():
            ahead = milliseconds(forward)
        y = forward()
        dy = torch.randn_like(y)
        back = milliseconds(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
    flops = 2 * pairs * (dim + value_dim)
    back_flops = 2 * pairs * (3 * dim + 2 * value_dim)
    print(f"{shape:28} forward {ahead:8.3f} ms {flops / ahead * 1e-9:6.1f} TFLOP/s   "
          f"backward {back:8.3f} ms {back_flops / back * 1e-9:6.1f} TFLOP/s   {name}", flush=True)


names = [x for x in sys.argv[1:] if x in BACKENDS] or ["cudnn"]
for shape in [x for x in sys.argv[1:] if x not in BACKENDS] or SHAPES:
    for name in names:
        try:
            measure(name, shape)
        except RuntimeError as error:
            print(f"{shape:28} {name}: {str(error).splitlines()[0][:80]}", flush=True)
