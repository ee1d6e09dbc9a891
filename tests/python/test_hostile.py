"""What a hostile or careless program does: wrong values, wrong moments, threads, ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ferry

torch = pytest.importorskip("torch")

NAME = "decoder.final_layernorm.weight"


@pytest.fixture
def checkpoint(trained_run: Path) -> ferry.Checkpoint:
    return ferry.open(trained_run)


@pytest.fixture
def small(tmp_path: Path) -> ferry.Checkpoint:
    tensors = {
        "f32": torch.arange(6).reshape(2, 3).float(),
        "bf16": torch.arange(6).bfloat16(),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
    }
    ferry.save(tensors, tmp_path / "small", format="safetensors")
    return ferry.open(tmp_path / "small")


# Names and paths.


@pytest.mark.parametrize("name", [1, None, b"f32", 1.5, ("f32",), "\ud800", "f32\0"])
def test_what_is_no_name_is_not_there(small: ferry.Checkpoint, name: Any) -> None:
    assert name not in small
    assert small.get(name) is None
    for use in (small.get_tensor, small.get_slice, lambda name: small.load([name])):
        with pytest.raises(ferry.NotFound, match="there is no tensor"):
            use(name)
    with pytest.raises(ferry.NotFound, match="there is no tensor"):
        small.stream([name])


def test_what_is_no_path(run: Path, tmp_path: Path) -> None:
    class Path_:
        def __fspath__(self) -> str:
            raise LookupError("mine")

    for function in (ferry.open, ferry.verify, lambda path: ferry.convert(run, path)):
        for value in (3, object()):
            with pytest.raises(TypeError, match="expected str or os.PathLike, not"):
                function(value)
        with pytest.raises(LookupError, match="mine"):
            function(Path_())
        with pytest.raises(ferry.Invalid, match="null character"):
            function(f"{run}\0")
        with pytest.raises(UnicodeEncodeError):
            function("\ud800")
    for function in (ferry.open, ferry.verify):
        with pytest.raises(TypeError, match="path: expected str or os.PathLike, not NoneType"):
            function(None)
    assert ferry.open(os.fsencode(run)).path == ferry.open(run).path  # type: ignore[arg-type]
    saved = ferry.save({"a": np.ones(2)}, os.fsencode(tmp_path / "bytes"))  # type: ignore[arg-type]
    assert ferry.open(saved.path)["a"].shape == (2,)


def test_iterations_that_are_none(run: Path) -> None:
    for value in ("", "x", -1):
        with pytest.raises(ferry.Invalid, match="iteration"):
            ferry.open(run, iteration=value)
    with pytest.raises(ferry.Invalid, match=f"iteration={2**70} is out of range"):
        ferry.open(run, iteration=2**70)
    with pytest.raises(ferry.NotFound, match="iteration asks for 99.*iteration=5"):
        ferry.open(run, iteration=99)
    with pytest.raises(TypeError, match="raw: expected bool"):
        ferry.open(run, raw=1)  # type: ignore[arg-type]


def test_a_relative_path_stays_where_it_was(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    checkpoint = ferry.open(run.name)
    model = checkpoint.hf()
    saver = ferry.AsyncSaver("saved")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert checkpoint[NAME].read().nbytes and model["model.norm.weight"].read().nbytes
    assert ferry.open(checkpoint.path).path == checkpoint.path
    saver.save({"a": np.ones(2)}, 1)
    saver.close()
    assert os.listdir(run.parent / "saved") and not os.listdir(".")


# Values.


def test_numbers_that_are_none(checkpoint: ferry.Checkpoint, run: Path) -> None:
    with pytest.raises(ferry.Invalid, match="threads=-1: must not be negative"):
        checkpoint.load(threads=-1)
    with pytest.raises(ferry.Invalid, match="threads=-1: must not be negative"):
        ferry.verify(run, threads=-1)
    with pytest.raises(ferry.Invalid, match="memory=-1 is out of range"):
        checkpoint.load(memory=-1)
    with pytest.raises(ferry.Invalid, match=f"threads={2**40} is out of range"):
        ferry.verify(run, threads=2**40)
    for tolerance in (-1.0, float("nan")):
        with pytest.raises(ferry.Invalid, match="tolerance=.*negative"):
            ferry.diff(run, run, tolerance=tolerance)
    with pytest.raises(TypeError, match="rank: expected int, not str"):
        checkpoint.stream(rank="0")  # type: ignore[arg-type]
    with pytest.raises(ferry.Invalid, match="rank=-1 is none of world=1"):
        checkpoint.stream(rank=-1)


def test_the_type_float_is_what_frameworks_take_it_for(small: ferry.Checkpoint) -> None:
    assert small.get_tensor("f32", dtype=float).dtype == "F64"


def test_devices(small: ferry.Checkpoint) -> None:
    with pytest.raises(TypeError):
        small.get_tensor("f32", "pt", device=3.5)
    for use in (small.get_tensor, small.get_slice):
        with pytest.raises(ferry.Invalid, match="takes framework='pt'"):
            use("f32", "np", device="cuda:0")
    assert small.load(framework="pt", device="meta")["f32"].is_meta
    assert small.load(["f32"], framework="np", device="cpu:0")["f32"].shape == (2, 3)


def test_a_scalar_is_not_empty(small: ferry.Checkpoint) -> None:
    for scalar in (small["scalar"], small.get_slice("scalar")):
        with pytest.raises(TypeError):
            list(scalar)
    assert len(list(small["f32"])) == len(list(small.get_slice("f32"))) == 2
    with pytest.raises(TypeError, match="an index takes ints"):
        small["f32"][None]


def test_numpy_of_what_buffers_have_no_format_for(small: ferry.Checkpoint) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = small.get_tensor("bf16", "np")
    assert array.dtype == ml_dtypes.bfloat16
    assert (array.astype("f4") == np.arange(6)).all()
    assert small.load(framework="np")["bf16"].dtype == ml_dtypes.bfloat16


def test_an_array_that_nobody_made() -> None:
    class Own(ferry.Array):
        pass

    for kind in (ferry.Array, Own):
        with pytest.raises(BufferError):
            memoryview(kind.__new__(kind))


def test_the_default_device_of_torch_is_not_ours(small: ferry.Checkpoint) -> None:
    turned = torch.zeros(3, 2).t()
    with torch.device("meta"):
        assert small.get_tensor("empty", "pt").device.type == "cpu"
        small.load(into={"f32": turned})
    assert (turned == torch.arange(6).reshape(2, 3)).all()


# Tensors to load into, and to save.


def test_memory_that_cannot_be_filled(small: ferry.Checkpoint) -> None:
    freed = torch.zeros(12)
    view = freed[6:].view(2, 3)
    freed.untyped_storage().resize_(0)
    for into, words in (
        (view, "its storage was freed"),
        (torch.zeros(2, 1).expand(2, 3), "share memory"),
        (torch.zeros(2, 3).to_sparse(), "not one array"),
        (torch.quantize_per_tensor(torch.zeros(2, 3), 1.0, 0, torch.quint8), "into\\['f32'\\]"),
        (bytearray(24), "of class bytearray"),
    ):
        with pytest.raises(ferry.Error, match=words):
            small.load(into={"f32": into})
    with pytest.raises(TypeError, match="into: expected a mapping"):
        small.load(into=[torch.zeros(2, 3)])  # type: ignore[arg-type]
    with pytest.raises(ferry.NotFound, match="into has no bf16"):
        small.load(["bf16"], into={"f32": torch.zeros(2, 3)})


def test_filling_is_a_change_that_backward_notices(small: ferry.Checkpoint) -> None:
    weight = torch.ones(2, 3, requires_grad=True)
    loss = (weight * weight).sum()
    small.load(into={"f32": weight})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_view_of_freed_memory_is_not_saved(tmp_path: Path) -> None:
    whole = torch.ones(8)
    view = whole[4:]
    whole.untyped_storage().resize_(0)
    with pytest.raises(ferry.Invalid, match="tensor a: its storage has 0 bytes"):
        ferry.save({"a": view}, tmp_path / "run")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"a": ferry.Shard(np.ones((2, 3)), (), ())}, ferry.Invalid, "cannot have a part of shape"),
        ({"a": ferry.Shard(np.ones(2), ("2",), (0,))}, TypeError, "consist of ints"),
        ({"\ud800": np.ones(2)}, ferry.Invalid, "surrogate"),
        ([np.ones(2)], TypeError, "tensors: expected a mapping by name, not list"),
        (None, TypeError, "tensors: expected a mapping by name, not NoneType"),
    ],
)
def test_what_cannot_be_saved(tmp_path: Path, given: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        ferry.save(given, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "none"}, "optimizer= cannot be used with format='dcp'"),
        ({"release": "0.16"}, "release= cannot be used"),
        ({"max_shard_size": 1}, "max_shard_size= cannot be used"),
        ({"format": "safetensors", "iteration": 3}, "iteration= is for runs"),
        ({"keep": 0}, "keep=0 must be at least 1"),
        ({"keep_every": -2}, "keep_every=-2 must be at least 1"),
        ({"files_per_rank": 0}, "files_per_rank=0 must be"),
        ({"timeout": "x"}, "timeout='x' is not a positive number"),
        ({"timeout": float("nan")}, "timeout=nan is not a positive number"),
        ({"objects": {1: 1}}, "the name of an object is a int"),
        ({"threads": -1}, "threads=-1: must not be negative"),
    ],
)
def test_options_without_a_meaning(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ferry.Invalid, match=words):
        ferry.save({"a": np.ones(2)}, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_options_of_wrong_types(tmp_path: Path) -> None:
    for options in ({"overwrite": 1}, {"keep": "1"}, {"iteration": 1.0}, {"iteration": True}):
        with pytest.raises(TypeError, match=f"{next(iter(options))}: expected"):
            ferry.save({"a": np.ones(2)}, tmp_path / "run", **options)


# Objects of ferry as objects of Python.


def test_mappings_equal_themselves_alone(trained_run: Path) -> None:
    a, b = ferry.open(trained_run), ferry.open(trained_run)
    for each in (a, a.optimizer, a.objects, a.hf()):
        assert each == each
    assert a != b
    assert len({a, b}) == 2
    a.close()
    assert a == a and a != b


def test_reports_say_how_to_send_them(run: Path) -> None:
    import copy
    import pickle

    report = ferry.verify(run)
    for use in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="VerifyReport cannot be pickled.*to_dict"):
            use(report)
    with pytest.raises(TypeError, match="unhashable"):
        hash(report)


# Threads and ends.


def test_a_stream_of_two_threads(checkpoint: ferry.Checkpoint) -> None:
    """The stream of the module itself, without a generator of Python around it."""
    for _ in range(20):
        stream = ferry._ferry.Stream(checkpoint._reader, list(checkpoint), {}, 0, 1)
        taken: list[str] = []
        refused: list[ferry.Invalid] = []

        def work() -> None:
            try:
                for name, _ in stream:
                    taken.append(name)
            except ferry.Invalid as error:
                refused.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(taken) <= set(checkpoint) and len(set(taken)) == len(taken)
        assert all("one tensor at a time" in str(error) for error in refused)


ENDS_WHILE_THREADS_WORK = """
import itertools, sys, threading, time, ferry
source, target = sys.argv[1:]

def convert(number):
    for turn in itertools.count():
        ferry.convert(source, f"{target}/{number}-{turn}")

def read():
    while True:
        with ferry.open(source) as checkpoint:
            checkpoint.load(dtype="F32")
            checkpoint.hf()
            dict(checkpoint.stream())

for work in (read, read, lambda: convert(1), lambda: convert(2)):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
print("end")
"""


def test_the_program_ends_while_daemon_threads_work(run: Path, tmp_path: Path) -> None:
    for turn in range(5):
        target = tmp_path / str(turn)
        target.mkdir()
        ended = subprocess.run(
            [sys.executable, "-c", ENDS_WHILE_THREADS_WORK, str(run), str(target)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")
        assert all(ferry.verify(made) for made in target.iterdir())


def test_a_saver_that_nobody_closes_reports_its_error() -> None:
    with pytest.warns((RuntimeWarning, ResourceWarning)) as warned:
        saver = ferry.AsyncSaver("/proc/no_folder")
        saver.save({"a": np.ones(2)}, 1)
        del saver
    errors = [each for each in warned if each.category is RuntimeWarning]
    assert len(errors) == 1 and "saving iteration 1" in str(errors[0].message)




def test_ctrl_c_ends_what_cannot_be_cancelled(tmp_path: Path) -> None:
    import signal
    import time

    many = {f"layers.{i}.weight": np.zeros(1, "u1") for i in range(60000)}
    path = ferry.save(many, tmp_path / "many", format="safetensors", manifest=False).path

    def seconds_of(work: Any) -> float:
        begin = time.monotonic()
        try:
            work()
        except KeyboardInterrupt:
            pass
        return time.monotonic() - begin

    for work in (lambda: ferry.open(path), lambda: ferry.check(path), lambda: ferry.open(path).hf()):
        whole = seconds_of(work)
        timer = threading.Timer(whole / 5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        assert seconds_of(work) < whole / 2 + 0.1
        timer.join()
