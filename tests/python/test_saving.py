"""ferry.save: what it takes, what it writes (PyTorch reads it), what it refuses."""

import array
import os
import signal
import subprocess
import sys
import threading
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import ferry

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def load_with_torch(path, names_or_tensors):
    state = {
        name: torch.empty_like(like) if isinstance(like, torch.Tensor) else None
        for name, like in names_or_tensors.items()
    }
    dcp.load(state, checkpoint_id=path)
    return state


def as_bytes(tensor):
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def expect_equal(path, tensors):
    loaded = load_with_torch(path, tensors)
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape, name
        assert torch.equal(as_bytes(loaded[name]), as_bytes(tensor)), name


DTYPES = [
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 "
    "complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
][0].split()


def test_every_dtype_of_torch(tmp_path):
    raw = torch.arange(6 * 16, dtype=torch.uint8) % 2
    tensors = {name: raw.view(getattr(torch, name)).reshape(2, -1) for name in DTYPES}
    report = ferry.save(tensors, tmp_path / "run", iteration=7)
    assert report.path == str(tmp_path / "run" / "iter_0000007")
    assert report.iteration == 7 and report.warnings == []
    assert report.to_dict()["path"] == report.path
    expect_equal(report.path, tensors)
    assert (tmp_path / "run" / "latest_checkpointed_iteration.txt").read_text().strip() == "7"


def test_any_tensor_of_torch(tmp_path):
    base = torch.randn(4, 6)
    imaginary = torch.randn(3, dtype=torch.complex64)
    tensors = {
        "transposed": base.t(),
        "strided": base[::2, 1::3],
        "expanded": torch.randn(1, 5).expand(3, 5),
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "grad": torch.randn(3, requires_grad=True) * 2,
        "conj": imaginary.conj(),
        "negative": imaginary.conj().imag,
        "tied": base,
        "inference": torch.inference_mode()(lambda: torch.ones(3))(),
    }
    expect_equal(ferry.save(tensors, tmp_path / "run").path, tensors)


def test_numpy_and_other_arrays(tmp_path):
    values = np.arange(24, dtype="f4").reshape(4, 6)
    given = {
        "array": values,
        "big_endian": values.astype(">f4"),
        "fortran": np.asfortranarray(values),
        "sliced": values[::2, ::-1],
        "read_only": np.broadcast_to(values[0], (3, 6)),
        "scalar": np.float64(2.5),
        "zero_d": np.array(7, "i4"),
        "bool": values > 3,
        "complex": values.astype("c8"),
        "memmap": np.memmap(tmp_path / "file", "i2", "w+", shape=(3,)),
        "bytes": b"abc",
        "view": memoryview(values)[1:],
        "array.array": array.array("q", [1, 2, 3]),
        "dlpack": OnlyDlpack(values),
    }
    path = ferry.save(given, tmp_path / "run").path
    expected = {
        name: torch.from_numpy(np.array(np.asarray(value), copy=True, order="C").astype(
            np.asarray(value).dtype.newbyteorder("=")))
        for name, value in given.items() if name not in ("bytes", "dlpack")
    }
    expected["bytes"] = torch.tensor(list(b"abc"), dtype=torch.uint8)
    expected["dlpack"] = torch.from_numpy(values)
    expect_equal(path, expected)


class OnlyDlpack:
    def __init__(self, array):
        self._array = array

    def __dlpack__(self, *, stream=None):
        return self._array.__dlpack__()

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_ml_dtypes(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.arange(8).astype(ml_dtypes.bfloat16)
    path = ferry.save({"a": values, "b": values.astype(ml_dtypes.float8_e4m3fn)}, tmp_path / "r").path
    expect_equal(path, {"a": torch.arange(8).bfloat16(), "b": torch.arange(8).to(torch.float8_e4m3fn)})


def test_numpy_needs_no_torch(tmp_path):
    program = (
        "import sys, numpy, ferry; ferry.save({'a': numpy.arange(3)}, sys.argv[1]); "
        "ferry.AsyncSaver(sys.argv[1]).close(); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "run")], check=True, timeout=60)
    expect_equal(tmp_path / "run" / "iter_0000000", {"a": torch.arange(3)})


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"x": [1, 2]}, ferry.Invalid, ["tensor x is a list", "objects="]),
        ({"x": 1.5}, ferry.Invalid, ["tensor x is a float"]),
        ({"x": {"y": torch.ones(1)}}, ferry.Invalid, ["tensor x is a dict", "flattened"]),
        ({3: torch.ones(1)}, ferry.Invalid, ["is a int, not a str"]),
        ({"x": torch.ones(2, device="meta")}, ferry.Unsupported, ["tensor x is on device meta"]),
        ({"x": torch.eye(3).to_sparse()}, ferry.Unsupported, ["tensor x is sparse"]),
        ({"x": torch.eye(3).to_sparse_csr()}, ferry.Unsupported, ["tensor x is sparse"]),
        ({"x": np.array([None])}, ferry.Unsupported, ["tensor x has elements of type object"]),
        ({"x": np.array(["a"])}, ferry.Unsupported, ["tensor x has elements of type str"]),
        ({"x": np.ma.masked_array([1])}, ferry.Unsupported, ["tensor x", "MaskedArray"]),
        ({"x": memoryview(b"abcd")[::2]}, ferry.Unsupported, ["tensor x is not contiguous"]),
        ({"x/shard_0_1": np.ones(2)}, ferry.Invalid, ["/shard_"]),
        ({"x": ferry.Shard(np.ones(2), (4,), (3,))}, ferry.Invalid, ["tensor x", "[3:5]"]),
        ({"x": ferry.Shard(np.ones(2), (4,), (0,))}, ferry.Invalid, ["they hold 2 of 4 elements"]),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path, given, error, words):
    with pytest.raises(error) as raised:
        ferry.save(given, tmp_path / "run")
    assert all(word in str(raised.value) for word in words), raised.value
    assert not (tmp_path / "run" / "iter_0000000").exists()


def test_a_shard_whose_offset_has_another_rank():
    with pytest.raises(ferry.Invalid):
        ferry.Shard(np.ones(2), (4, 4), (0,))


def test_objects_are_what_torch_save_stores(tmp_path):
    shared = [1, 2]
    values = {
        "state": {
            "none": None, "yes": True, "no": False, "int": -5, "big": -(2**100), "float": 1.5,
            "text": "é\n", "bytes": b"\x00\xff", "tuple": (1, (2,), ()), "list": [[], {}],
            "set": {1, 2}, "ordered": OrderedDict(a=1, b=2), "int keys": {1: "a", (1, 2): "b"},
            "namespace": Namespace(lr=0.1, nested=Namespace(x=[1])), "shared": [shared, shared],
        },
        "step": 12,
    }  # fmt: skip
    path = ferry.save({"a": torch.ones(2)}, tmp_path / "run", objects=values).path
    state = {"a": torch.zeros(2), "state": None, "step": None}
    dcp.load(state, checkpoint_id=path, no_dist=True, planner=_any_objects())
    assert state["step"] == 12 and state["state"] == values["state"]
    assert state["state"]["shared"][0] is state["state"]["shared"][1]
    assert torch.equal(state["a"], torch.ones(2))


def _any_objects():
    class Planner(dcp.DefaultLoadPlanner):
        def load_bytes(self, read_item, value):
            self.original_state_dict[read_item.dest_index.fqn] = torch.load(
                value, weights_only=False
            )

    return Planner(flatten_state_dict=False)


def _cycle():
    value = []
    value.append({"back": value})
    return value


def _deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [0, np.float64(1)]}, "objects['o']['a'][1] is a numpy.float64"),
        (torch.ones(1), "objects['o'] is a torch.Tensor"),
        (Path("x"), "objects['o'] is a pathlib"),
        ({"a": signal.SIGINT}, "objects['o']['a'] is a signal.Signals"),
        ("\ud800", "halves of surrogate pairs"),
        (_cycle(), "objects['o'][0]['back'] is a value that holds itself"),
        (_deep(), "is nested too deep"),
    ],
)
def test_objects_that_are_refused(tmp_path, value, words):
    with pytest.raises(ferry.Unsupported) as raised:
        ferry.save({"a": torch.ones(1)}, tmp_path / "run", objects={"o": value})
    assert words in str(raised.value)


def test_the_run_folder(tmp_path):
    run = tmp_path / "run"
    tensors = {"a": torch.ones(4)}
    for iteration in range(1, 6):
        ferry.save(tensors, run, iteration=iteration, keep=2, keep_every=2)
    assert sorted(os.listdir(run))[:3] == ["iter_0000002", "iter_0000004", "iter_0000005"]
    with pytest.raises(ferry.Invalid, match="exists.*overwrite"):
        ferry.save(tensors, run, iteration=5)
    ferry.save({"a": torch.zeros(4)}, run, iteration=5, overwrite=True, tracker="never")
    expect_equal(run / "iter_0000005", {"a": torch.zeros(4)})
    ferry.save(tensors, run, iteration=1, tracker="always", sha256=True, files_per_rank=2)
    assert (run / "latest_checkpointed_iteration.txt").read_text().strip() == "1"
    assert (run / "iter_0000001" / "integrity.json").exists()
    ferry.save(tensors, run, iteration=6, manifest=False)
    assert not (run / "iter_0000006" / "ferry.manifest.json").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"format": "gguf"}, "format='gguf' is none"),
        ({"format": "torch_dist"}, "needs like="),
        ({"like": "x"}, "like= cannot be used with format='dcp'"),
        ({"format": "torch", "like": "x", "objects": {"a": 1}}, "objects= are for"),
        ({"tracker": "maybe"}, "tracker='maybe'"),
        ({"memory": "lots"}, "memory='lots'"),
        ({"iteration": -1}, "iteration=-1: the first is 0"),
        ({"group": 5}, "group is of class int"),
    ],
)
def test_wrong_options(tmp_path, options, words):
    with pytest.raises(ferry.Invalid) as raised:
        ferry.save({"a": torch.ones(1)}, tmp_path / "run", **options)
    assert words in str(raised.value)


def test_a_folder_that_is_no_run(tmp_path):
    tensors = {"a": torch.ones(4)}
    report = ferry.save(tensors, tmp_path / "alone", iteration=None)
    assert report.iteration is None and report.path == str(tmp_path / "alone")
    expect_equal(tmp_path / "alone", tensors)
    assert os.listdir(tmp_path) == ["alone"]
    with pytest.raises(ferry.Invalid, match="exists"):
        ferry.save(tensors, tmp_path / "alone", iteration=None)
    ferry.save({"a": torch.zeros(4)}, tmp_path / "alone", iteration=None, overwrite=True)
    expect_equal(tmp_path / "alone", {"a": torch.zeros(4)})
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters").write_text("kept")
    with pytest.raises(ferry.Invalid, match="is not empty and holds no checkpoint"):
        ferry.save(tensors, tmp_path / "home", iteration=None, overwrite=True)
    with pytest.raises(ferry.Invalid, match="keep= "):
        ferry.save(tensors, tmp_path / "alone", iteration=None, keep=1)


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {
        "a": torch.randn(300, 10).bfloat16(),
        "t": torch.randn(4, 6).t(),
        "fp8": torch.ones(8).to(torch.float8_e4m3fn),
    }
    ferry.save(tensors, tmp_path / "one", format="safetensors")
    loaded = safetensors.load_file(tmp_path / "one" / "model.safetensors")
    assert set(loaded) == set(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(as_bytes(loaded[name]), as_bytes(tensor))
    ferry.save(tensors, tmp_path / "several", format="safetensors", max_shard_size="4kB")
    assert (tmp_path / "several" / "model.safetensors.index.json").exists()
    ferry.save(tensors, tmp_path / "one", format="safetensors", overwrite=True)
    with pytest.raises(ferry.Invalid, match="whole tensors"):
        part = ferry.Shard(np.ones(2), (4,), (0,))
        ferry.save({"a": part}, tmp_path / "part", format="safetensors")
    with pytest.raises(ferry.Invalid, match="needs like="):
        ferry.save(tensors, tmp_path / "part", format="hf")
    with pytest.raises(ferry.Invalid, match="no place for objects"):
        ferry.save(tensors, tmp_path / "part", format="safetensors", objects={"a": 1})
    with pytest.raises(ferry.Invalid, match="is for save"):
        ferry.AsyncSaver(tmp_path / "part", format="safetensors")
    assert sorted(os.listdir(tmp_path)) == ["one", "several"]


def test_progress_and_an_exception_in_it(tmp_path):
    calls = []
    big = {f"t{i}": torch.ones(1 << 20) for i in range(8)}
    ferry.save(big, tmp_path / "run", progress=lambda done, total: calls.append((done, total)))
    assert calls and calls[-1][0] == calls[-1][1] >= 32 << 20

    def fail(done, total):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        ferry.save(big, tmp_path / "run", iteration=1, progress=fail)
    assert not (tmp_path / "run" / "iter_0000001").exists()


def test_ctrl_c(tmp_path):
    big = {f"t{i}": torch.ones(1 << 20) for i in range(64)}
    for delay in (0.0, 0.01, 0.05, 0.1):
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            for iteration in range(1, 1000):
                ferry.save(big, tmp_path / "run", iteration=iteration, overwrite=True, keep=1)
        left = {path.name for path in tmp_path.glob("run/*") if not path.name.startswith("iter_")}
        assert left <= {"latest_checkpointed_iteration.txt"}
