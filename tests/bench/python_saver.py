#!/usr/bin/env python3
"""Times ferry.AsyncSaver from Python: what save() and wait() take, for few and for many tensors.

    PYTHONPATH=build/python/python python3 tests/bench/python_saver.py FOLDER [--mebibytes 2048] [--repeat 5]
                                                                       [--bench-save BENCH_SAVE]

FOLDER is made, and removed at the end. With --bench-save, build/.../tests/bench/bench_save, it times
the same saves from C++, too, in turns with those of 30 tensors, and prints the ratios.
"""

import argparse
import re
import shutil
import statistics
import subprocess
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
    medians = {what: 1e3 * statistics.median(seconds[1:]) for what, seconds in times.items()}
    print(f"{len(tensors)} tensors, {total / 1e9:.2f} GB")
    for what, seconds in times.items():
        listed = " ".join(f"{1e3 * one:.3f}" for one in seconds[1:])  # the first one allocates
        print(f"  {what:<16} {medians[what]:10.3f} ms   {listed}")
    return medians


def measure_cpp(bench_save, folder, mebibytes, repeat):
    """Medians of bench_save's lines, in milliseconds."""
    folder.mkdir()
    command = [bench_save, folder, "--mebibytes", str(mebibytes), "--repeat", str(repeat)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"AsyncSaver: (.*?) +([\d.]+) s", lines)
    return {what: 1e3 * float(seconds) for what, seconds in found}


def compare(bench_save, folder, mebibytes, tensors, repeat):
    """Five turns of both."""
    turns = []
    for turn in range(5):
        python = measure(folder / f"python{turn}", tensors, repeat)
        turns.append((python, measure_cpp(bench_save, folder / f"cpp{turn}", mebibytes, repeat)))
    for what in turns[0][0]:
        a, b = (statistics.median(side[what] for side in sides) for sides in zip(*turns))
        print(f"  {what:<16} Python {a:.3f} ms, C++ {b:.3f} ms: {a / b:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mebibytes", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--bench-save", type=Path)
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
            if options.bench_save and count == 30:
                compare(
                    options.bench_save, options.folder, options.mebibytes, tensors, options.repeat
                )
            measure(options.folder / str(count), tensors, options.repeat)
            del tensors
        few = {f"layers.{i}.bias": torch.ones(16) for i in range(2000)}
        measure(options.folder / "small", few, options.repeat)
    finally:
        shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
