#!/usr/bin/env python3
"""data_order.py PROGRAM [DOCUMENTS [SEQUENCE_LENGTH]]: the time that a sample order takes here and with
Megatron Core's C++ helpers and NumPy, in seconds of the processor's time, and the ratio. PROGRAM is
build/release/tests/bench/bench_data_order; 1,000,000 documents hold 10^9 tokens. Both make the same
arrays, which is checked.

    build/interop-python/bin/python tests/bench/data_order.py build/release/tests/bench/bench_data_order
"""
import json
import subprocess
import sys
import time

import numpy
import xxhash
from megatron.core.datasets import helpers_cpp
from megatron.core.datasets.gpt_dataset import _build_document_index, _build_shuffle_index

REPEATS = 5


def best_of(work):
    best, result = 1e9, None
    for _ in range(REPEATS):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def theirs(documents, length):
    lengths = numpy.random.default_rng(0).integers(1, 2000, documents, dtype=numpy.int32)
    tokens = int(lengths.sum())
    state = None

    def document_index():
        nonlocal state
        state = numpy.random.RandomState(1234)
        return _build_document_index(numpy.arange(documents, dtype=numpy.int32), 1, state, False)

    document_seconds, index = best_of(document_index)
    sample_seconds, samples = best_of(
        lambda: helpers_cpp.build_sample_idx_int32(lengths, index, length, 1, tokens, True, 1))
    before, count = state.get_state(), samples.shape[0] - 1

    def shuffle_index():
        state.set_state(before)
        return _build_shuffle_index(count, count, state)

    shuffle_seconds, order = best_of(shuffle_index)
    shares = [0.05, 0.1, 0.15, 0.2, 0.2, 0.15, 0.1, 0.05]
    datasets, places = numpy.zeros(2000000, numpy.int16), numpy.zeros(2000000, numpy.int64)
    blend_seconds, _ = best_of(
        lambda: helpers_cpp.build_blending_indices(datasets, places, shares, len(shares), 2000000, False))
    return {"document_index": document_seconds, "sample_index": sample_seconds, "shuffle_index": shuffle_seconds,
            "blend": blend_seconds,
            "digests": [xxhash.xxh3_128_hexdigest(a.tobytes()) for a in (index, samples, order, datasets)]}


def main(program, documents=1000000, length=2048):
    ours = json.loads(subprocess.run([program, str(documents), str(length)], check=True, capture_output=True).stdout)
    peer = theirs(int(documents), int(length))
    assert ours["digests"] == peer["digests"], "the arrays differ"
    print(f"{documents} documents of 1 to 1,999 tokens, samples of {length}: the same arrays; processor's time, fastest of {REPEATS}")
    for part in ("document_index", "sample_index", "shuffle_index", "blend"):
        print(f"  {part:15} ferry {ours[part] * 1e3:8.2f} ms   Megatron Core {peer[part] * 1e3:8.2f} ms   {peer[part] / ours[part]:.2f} x as fast")
    parts = ("document_index", "sample_index", "shuffle_index")
    a, b = sum(ours[p] for p in parts), sum(peer[p] for p in parts)
    print(f"  {'one dataset':15} ferry {a * 1e3:8.2f} ms   Megatron Core {b * 1e3:8.2f} ms   {b / a:.2f} x as fast")
    print(f"  checked, as from a cache: {ours['check'] * 1e3:.2f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
