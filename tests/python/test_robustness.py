"""Threads, processes, signals, and many repetitions."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ferry

from conftest import files_below

np = pytest.importorskip("numpy")

CYCLES = int(os.environ.get("FERRY_TEST_CYCLES", "1000"))
INTERRUPTS = int(os.environ.get("FERRY_TEST_INTERRUPTS", "100"))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_does_not_grow(trained_run: Path, tmp_path: Path) -> None:
    ferry.convert(trained_run, tmp_path / "hf")

    def cycle() -> None:
        for path in (trained_run, tmp_path / "hf"):
            with ferry.open(path) as checkpoint:
                loaded = checkpoint.load(framework="np", dtype="F32")
                checkpoint.get_slice(next(iter(checkpoint)))[0]
                assert checkpoint.args is None or checkpoint.args.num_layers
                del loaded
        with pytest.raises(ferry.NotFound):
            ferry.open(tmp_path / "nothing")

    def after(cycles: int) -> int:
        for _ in range(cycles):
            cycle()
        gc.collect()
        return resident_bytes()

    before = after(max(CYCLES // 5, 20))
    files = len(os.listdir("/proc/self/fd"))
    grown = after(CYCLES) - before
    assert len(os.listdir("/proc/self/fd")) == files
    assert grown < 8 << 20, f"{grown} bytes after {CYCLES} cycles"


def test_eight_threads_read_at_once(trained_run: Path) -> None:
    checkpoint = ferry.open(trained_run)
    expected = {name: tensor.read().tobytes() for name, tensor in checkpoint.items()}
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            names = list(expected)
            random.Random(seed).shuffle(names)
            for name in names:
                assert checkpoint[name].read().tobytes() == expected[name]
                assert checkpoint[name][0].nbytes * max(len(checkpoint[name]), 1) == len(expected[name])
            loaded = checkpoint.load(names)
            assert all(loaded[name].tobytes() == expected[name] for name in names)
            assert dict(checkpoint.stream(memory="64MiB")).keys() == expected.keys()
            with ferry.open(trained_run) as own:
                assert own.load().keys() == expected.keys()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


class Rows:
    """A data set of the rows of a tensor, as DataLoader's workers read it."""

    def __init__(self, path: Path, name: str) -> None:
        self.checkpoint, self.name = ferry.open(path), name

    def __len__(self) -> int:
        return len(self.checkpoint[self.name])

    def __getitem__(self, row: int) -> Any:
        return self.checkpoint.get_slice(self.name, "pt")[row]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader(trained_run: Path, method: str) -> None:
    torch = pytest.importorskip("torch")
    name = "embedding.word_embeddings.weight"
    data = Rows(trained_run, name)
    loader = torch.utils.data.DataLoader(
        data, batch_size=7, num_workers=2, multiprocessing_context=method
    )
    rows = torch.cat(list(loader))
    assert torch.equal(rows, ferry.open(trained_run).get_tensor(name, "pt"))


def test_a_fork_can_load_and_convert(run: Path, tmp_path: Path) -> None:
    ferry.convert(run, tmp_path / "before")
    checkpoint = ferry.open(run)
    stream = checkpoint.stream()
    next(stream)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            checkpoint.load()
            ferry.convert(run, tmp_path / "child")
            try:
                next(stream)
            except ferry.Invalid:
                del stream  # waits for no thread of the parent's
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(stream)) == len(checkpoint) - 1
    assert ferry.diff(tmp_path / "before", tmp_path / "child").equal


def test_a_signal_of_another_kind_is_handled(run: Path, tmp_path: Path) -> None:
    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Alarm):
            while True:
                ferry.convert(run, tmp_path / "out", overwrite=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ferry.verify(tmp_path / "out")


INTERRUPTED = """
import sys, time, ferry
source, target = sys.argv[1:]
try:
    print("ready", flush=True)
    for turn in range(100000):
        ferry.convert(source, f"{target}/{turn}")
        ferry.seal(f"{target}/{turn}")
        checkpoint = ferry.open(source)
        checkpoint.load()
        for name, tensor in checkpoint.stream():
            pass
        ferry.diff(source, source)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(3)
"""


def test_interrupted_at_random(run: Path, tmp_path: Path) -> None:
    """No crash, and nothing half there: all that has its name is whole."""
    source_before = files_below(run)
    choose = random.Random(41)
    for turn in range(INTERRUPTS):
        target = tmp_path / f"out{turn}"
        target.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, str(run), str(target)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(choose.uniform(0, 0.4))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 3, (turn, process.returncode, out, err)
        for made in target.iterdir():
            assert made.name.isdigit(), f"{made} was left"
            assert ferry.verify(made), made
            assert ferry.diff(made, target / "0").equal
        shutil.rmtree(target)
    assert files_below(run) == source_before
