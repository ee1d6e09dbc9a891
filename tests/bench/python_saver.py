#!/usr/bin/env python3
"""Times ferry.AsyncSaver from Python: what save() and wait() take, for few and for many tensors.

    PYTHONPATH=build/python/python python3 tests/bench/python_saver.py FOLDER [--mebibytes 2048] [--repeat 5]

FOLDER is made, and removed at the end. Compare with bench_save's lines "AsyncSaver: ..." of as many
mebibytes, which has 6 tensors for each 416 MiB.
"""

import argparse
import shutil
import statistics
import time
from pathlib import Path

import torch

import ferry


def measure(folder, tensors, repeat):
    total = sum(tensor.nbytes for tensor in tensors.values())
    times = {"save() returns": [], "wait() returns": [], "all on disk": []}
    with ferry.AsyncSaver(folder, overwrite=True, staging=2 * total + (64 << 20)) as saver:
        for iteration in range(repeat + 1):
            start = time.perf_counter()
            ticket = saver.save(tensors, 1)
            times["save() returns"].append(time.perf_counter() - start)
            ticket.wait()
            times["wait() returns"].append(time.perf_counter() - start)
            saver.finish()
            times["all on disk"].append(time.perf_counter() - start)
    print(f"{len(tensors)} tensors, {total / 1e9:.2f} GB")
    for what, seconds in times.items():
        listed = " ".join(f"{1e3 * one:.3f}" for one in seconds[1:])  # the first one allocates
        print(f"  {what:<16} {1e3 * statistics.median(seconds[1:]):10.3f} ms   {listed}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mebibytes", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    try:
        for count in (30, 2000):
            elements = (options.mebibytes << 20) // 2 // count
            tensors = {
                f"layers.{i}.mlp.weight": torch.randint(-99, 99, (elements,), dtype=torch.int16).view(
                    torch.bfloat16
                )
                for i in range(count)
            }
            measure(options.folder / str(count), tensors, options.repeat)
            del tensors
        few = {f"layers.{i}.bias": torch.ones(16) for i in range(2000)}
        measure(options.folder / "small", few, options.repeat)
    finally:
        shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
