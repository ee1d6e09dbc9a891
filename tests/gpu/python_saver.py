#!/usr/bin/env python3
"""Saves tensors of a GPU from Python while steps run: what it costs a step, and that bytes are right.

    python3 tests/gpu/python_saver.py FOLDER [--gib 4] [--tensors 400] [--steps 24] [--every 6]
                                             [--without-torch]

FOLDER is made, and removed at the end. Each step reads and changes other memory of the device for
some time (as forward and backward do), then waits for the ticket, then changes all tensors in place
(as the optimizer does). Prints how long save() and wait() take, and a step with and without saves;
exits with 1 if a checkpoint holds anything else than what the tensors held when it was saved.
Without torch, memory is that of the driver, and tensors are objects with __cuda_array_interface__.
"""

import argparse
import ctypes
import shutil
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import ferry


class WithTorch:
    """bf16 tensors; a step is matrix products."""

    def __init__(self, bytes_each, count, step_ms):
        import torch

        self.torch = torch
        elements = bytes_each // 2
        generator = torch.Generator("cuda").manual_seed(1)
        self.tensors = {
            f"layers.{i}.weight": torch.randint(
                -(2**15), 2**15, (elements,), dtype=torch.int16, device="cuda", generator=generator
            ).view(torch.bfloat16)
            for i in range(count)
        }
        self.factor = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self.repeats = 1
        self.work(), self.synchronize()
        begin = time.perf_counter()
        self.repeats = 20
        self.work(), self.synchronize()
        self.repeats = max(1, int(20 * step_ms / 1e3 / (time.perf_counter() - begin)))

    def work(self):
        product = self.factor
        for _ in range(self.repeats):
            product = product @ self.factor * 0.01

    def update(self):
        for tensor in self.tensors.values():
            tensor.view(self.torch.int16).add_(1)

    def synchronize(self):
        self.torch.cuda.synchronize()

    def copies(self):
        return {name: tensor.view(self.torch.int16).cpu().numpy() for name, tensor in
                self.tensors.items()}  # fmt: skip

    def stored(self, tensor):
        return tensor.torch().view(self.torch.int16).numpy()


class WithDriver:
    """32-bit integers; a step is copies inside the device."""

    def __init__(self, bytes_each, count, step_ms):
        self.cuda = cuda = ctypes.CDLL("libcuda.so.1")
        self.check(cuda.cuInit(0))
        context = ctypes.c_void_p()
        self.check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self.check(cuda.cuCtxPushCurrent_v2(context))
        self.stream = ctypes.c_void_p()
        self.check(cuda.cuStreamCreate(ctypes.byref(self.stream), 1))
        self.elements, self.value = bytes_each // 4, 1
        self.tensors = {
            f"layers.{i}.weight": self.Tensor(self.allocate(bytes_each), self.elements, self.stream)
            for i in range(count)
        }
        self.scratch = self.allocate(2 << 30 if step_ms else 2 << 20)
        self.update()
        self.half = (1 << 30 if step_ms else 1 << 20)
        self.repeats = 1
        self.work(), self.synchronize()
        begin = time.perf_counter()
        self.repeats = 20 if step_ms else 1
        self.work(), self.synchronize()
        passed = time.perf_counter() - begin
        self.repeats = max(1, int(self.repeats * step_ms / 1e3 / passed))

    class Tensor:
        def __init__(self, at, elements, stream):
            self.__cuda_array_interface__ = {
                "shape": (elements,), "typestr": "<i4", "version": 3, "strides": None,
                "data": (at, False), "stream": stream.value,
            }  # fmt: skip
            self.at = at

    @staticmethod
    def check(result):
        if result != 0:
            sys.exit(f"the driver's error {result}")

    def allocate(self, size):
        at = ctypes.c_uint64()
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)))
        return at.value

    def work(self):
        for _ in range(self.repeats):
            self.check(self.cuda.cuMemcpyDtoDAsync_v2(
                ctypes.c_uint64(self.scratch), ctypes.c_uint64(self.scratch + self.half),
                ctypes.c_size_t(self.half), self.stream))  # fmt: skip

    def update(self):
        self.value += 1
        for number, tensor in enumerate(self.tensors.values()):
            self.check(self.cuda.cuMemsetD32Async(
                ctypes.c_uint64(tensor.at), ctypes.c_uint32(self.value * 1000 + number),
                ctypes.c_size_t(self.elements), self.stream))  # fmt: skip

    def synchronize(self):
        self.check(self.cuda.cuStreamSynchronize(self.stream))

    def copies(self):
        return {
            name: np.full(self.elements, self.value * 1000 + number, "i4")
            for number, name in enumerate(self.tensors)
        }

    def stored(self, tensor):
        return tensor.numpy()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--tensors", type=int, default=400)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--every", type=int, default=6)
    parser.add_argument("--step-ms", type=float, default=250)
    parser.add_argument("--without-torch", action="store_true")
    options = parser.parse_args()
    bytes_each = int(options.gib * (1 << 30) / options.tensors) // 512 * 512
    made = (WithDriver if options.without_torch else WithTorch)
    device = made(bytes_each, options.tensors, options.step_ms)
    total = bytes_each * options.tensors
    print(f"{options.tensors} tensors, {total / 1e9:.2f} GB, {made.__doc__}")
    options.folder.mkdir(parents=True)
    times = {"save()": [], "wait()": [], "a step": [], "a step after a save": [], "on disk": []}
    expected = {}
    run = options.folder / "run"
    with ferry.AsyncSaver(run, staging=total + (64 << 20), keep=options.steps) as saver:
        saver.prepare(device.tensors)
        ticket, saved_at = None, None
        for step in range(1, options.steps + 1):
            begin = time.perf_counter()
            device.work()
            waited = time.perf_counter()
            if ticket:
                ticket.wait()
                times["wait()"].append(time.perf_counter() - waited)
            device.update()
            device.synchronize()
            kind = "a step after a save" if ticket else "a step"
            if step > 1:  # the first one warms up
                times[kind].append(time.perf_counter() - begin)
            ticket = None
            if step % options.every == 0:
                begin = time.perf_counter()
                ticket = saver.save(device.tensors, step)
                times["save()"].append(time.perf_counter() - begin)
                if step <= 2 * options.every:
                    expected[step] = device.copies()  # a pause, which the saves may use
        begin = time.perf_counter()
        saver.finish()
        times["on disk"].append(time.perf_counter() - begin)
        print(f"status: {saver.status()}")
    for what, seconds in times.items():
        if seconds:
            listed = " ".join(f"{1e3 * one:.2f}" for one in seconds[:8])
            print(f"{what:<20} median {1e3 * statistics.median(seconds):9.2f} ms   {listed}")
    begin = time.perf_counter()
    ferry.save(device.tensors, run, iteration=10**6, staging="1GiB")
    passed = time.perf_counter() - begin
    print(f"ferry.save through 1 GiB: {passed:.2f} s, {total / passed / 1e9:.2f} GB/s")
    expected[10**6] = device.copies()
    wrong = 0
    for step, arrays in expected.items():
        checkpoint = ferry.open(run, iteration=step)
        for name, array in arrays.items():
            if not np.array_equal(device.stored(checkpoint[name]), array):
                wrong += 1
                print(f"iteration {step}: {name} is not what it was")
    print(f"{sum(map(len, expected.values()))} tensors compared, {wrong} wrong")
    shutil.rmtree(options.folder)
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
