#!/usr/bin/env python3
"""Loads tensors onto a GPU from Python, and compares every byte with what was saved.

    python3 tests/gpu/python_loading.py FOLDER [--gib 2]

FOLDER is made, and removed at the end. Prints GB/s of load(into=) into new memory and again, of
load(device=), get_tensor(device=) and stream(device=), and how much pinned memory PyTorch holds;
exits with 1 where a tensor differs. Half of the tensors have sizes of their own, one is larger than
the memory that they pass through, and one is transposed.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

import torch

import ferry


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gib", type=float, default=2)
    arguments = parser.parse_args()
    count = max(2, int(arguments.gib * 2**30 / (4096 * 4096 * 2)))
    made = {
        f"layers.{i}.weight": torch.randn(4096 + i % 2 * 8 * i, 4096, device="cuda").to(torch.bfloat16)
        for i in range(count)
    }
    made["embedding"] = torch.randn(40000, 4096, device="cuda").to(torch.bfloat16)  # 328 MB
    made["norm"] = torch.randn(4097, device="cuda")
    made["scale"] = torch.tensor(3.5, device="cuda")
    made["fp8"] = torch.randn(300, 77, device="cuda").to(torch.float8_e4m3fn)
    total = sum(tensor.nbytes for tensor in made.values())
    wrong = []

    def expect(what: str, tensors: dict[str, torch.Tensor], seconds: float) -> None:
        print(f"{what}: {total / seconds / 1e9:.2f} GB/s", flush=True)
        for name, tensor in made.items():
            loaded = tensors[name]
            if not loaded.is_cuda or not torch.equal(
                loaded.view(-1).view(torch.uint8), tensor.view(-1).view(torch.uint8)
            ):
                wrong.append(f"{what}: {name}")

    arguments.folder.mkdir(parents=True)
    try:
        for format in ("dcp", "safetensors"):
            path = arguments.folder / format
            begin = time.perf_counter()
            ferry.save(made, path, format=format, iteration=None, overwrite=True)
            print(f"save {format}: {total / (time.perf_counter() - begin) / 1e9:.2f} GB/s")
            source = path / "model.safetensors" if format == "safetensors" else path
            with ferry.open(source) as saved:
                into = {name: torch.empty_like(tensor) for name, tensor in made.items()}
                into["layers.0.weight"] = torch.empty_like(made["layers.0.weight"].t()).t()
                for what in ("load(into=)", "load(into=) again"):
                    for tensor in into.values():
                        tensor.view(-1).view(torch.uint8).zero_() if tensor.is_contiguous() else None
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    saved.load(into=into)
                    expect(f"{format} {what}", into, time.perf_counter() - begin)
                pinned = torch.cuda.host_memory_stats().get("allocated_bytes.current", 0)
                print(f"pinned: {pinned / 2**20:.0f} MiB")
                begin = time.perf_counter()
                loaded = saved.load(framework="pt", device="cuda")
                torch.cuda.synchronize()
                expect(f"{format} load(device=)", loaded, time.perf_counter() - begin)
                begin = time.perf_counter()
                one_by_one = {
                    name: saved.get_tensor(name, framework="pt", device="cuda") for name in made
                }
                torch.cuda.synchronize()
                expect(f"{format} get_tensor(device=)", one_by_one, time.perf_counter() - begin)
                begin = time.perf_counter()
                streamed = dict(saved.stream(framework="pt", device="cuda", memory="1GiB"))
                torch.cuda.synchronize()
                expect(f"{format} stream(device=)", streamed, time.perf_counter() - begin)
    finally:
        shutil.rmtree(arguments.folder, ignore_errors=True)
    for each in wrong:
        print("differs:", each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
