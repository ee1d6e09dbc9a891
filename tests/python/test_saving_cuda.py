"""CUDA tensors, without a GPU: against a driver of the test's own (fake_cuda.cpp)."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ferry

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no compiler for the driver")
    folder = tmp_path_factory.mktemp("cuda")
    source = Path(__file__).with_name("fake_cuda.cpp")
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-o", "libcuda.so.1"]
    subprocess.run([COMPILER, *flags, str(source)], cwd=folder, check=True)
    return folder


def run(driver, program, *arguments):
    """In a process of its own, as the driver is loaded once."""
    path = f"{driver}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    ended = subprocess.run(
        [sys.executable, "-c", PREAMBLE + program, *map(str, arguments)],
        env={**os.environ, "LD_LIBRARY_PATH": path, "PYTHONFAULTHANDLER": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-4000:]


PREAMBLE = """
import ctypes, gc, os, sys, time
import numpy as np
import ferry

cuda = ctypes.CDLL("libcuda.so.1")
cuda.fake_allocate.restype = ctypes.c_uint64
cuda.fake_allocate.argtypes = [ctypes.c_int, ctypes.c_size_t]
cuda.fake_write.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]
cuda.fake_fill.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int,
                           ctypes.c_size_t, ctypes.c_int]
for name in ("fake_copies", "fake_pinned", "fake_pinnings"):
    getattr(cuda, name).restype = ctypes.c_long
run = sys.argv[1] if len(sys.argv) > 1 else ""


class Array:
    def __init__(self, values, device=0, stream=None, **more):
        self.values, self.device, self.more, self.stream = values, device, more, stream
        self.at = cuda.fake_allocate(device, max(1, values.nbytes))
        cuda.fake_write(self.at, values.tobytes(), values.nbytes)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.values.shape, "typestr": self.values.dtype.str, "version": 3,
                "data": (self.at, False), "strides": None, "stream": self.stream, **self.more}

    def fill(self, value, milliseconds, stream=None):
        self.values[...] = np.frombuffer(bytes([value]) * self.values.nbytes,
                                         self.values.dtype).reshape(self.values.shape)
        assert cuda.fake_fill(self.device, stream, self.at, value, self.values.nbytes,
                              milliseconds) == 0


def expect(folder, arrays):
    # Files of one rank hold each tensor whole: its bytes are there.
    data = b"".join(open(os.path.join(folder, name), "rb").read() for name in
                    sorted(os.listdir(folder)) if name.endswith(".distcp"))
    for name, array in arrays.items():
        values = getattr(array, "values", array)
        assert values.tobytes() in data, name
"""


def test_devices_and_the_host_in_one_save(driver, tmp_path):
    run(driver, """
arrays = {
    "first": Array(np.random.rand(300, 100)), "second": Array(np.random.rand(77).astype("f4"), 1),
    "half": Array(np.random.rand(5).astype("f2"), 1), "host": np.random.rand(1000),
    "scalar": Array(np.array(5, "i8")),
    "strides": Array(np.ones((2, 3), "f4"), strides=(12, 4)),
    "part": ferry.Shard(Array(np.random.rand(2, 3)), (2, 3), (0, 0)),
}
values = {name: getattr(array, "tensor", array) for name, array in arrays.items()}
report = ferry.save({**arrays, "empty": Array(np.empty((0, 3)))}, run, iteration=1)
expect(report.path, values)
ferry.save(arrays, run, iteration=2, staging="64KiB")   # in pieces
expect(run + "/iter_0000002", values)
with ferry.AsyncSaver(run) as saver:
    saver.save(arrays, 3).wait()
    saver.finish()
    assert cuda.fake_pinned() == 1, cuda.fake_pinned()
expect(run + "/iter_0000003", values)
assert cuda.fake_copies() >= 15
del saver; gc.collect()
assert cuda.fake_pinned() == 0 and cuda.fake_pinnings() >= 3
""", tmp_path / "run")  # fmt: skip


def test_what_is_queued_comes_first_and_the_caller_does_not_wait(driver, tmp_path):
    run(driver, """
one, other = Array(np.zeros(1 << 16, "u1"), stream=1), Array(np.zeros(1 << 16, "u1"), 1)
other.stream = 2   # per-thread default stream: unknown to this driver
with ferry.AsyncSaver(run) as saver:
    try:
        saver.save({"a": other}, 1)
        raise AssertionError
    except ferry.IOFailed as error:
        assert "CUDA: marking the work on a device" in str(error), error
    for step in range(2, 5):
        one.fill(step, 1000)
        ticket = saver.save({"a": one}, step)
        assert not ticket.is_ready()   # the device is still at it
        ticket.wait()
        one.fill(99, 0)    # after wait() it may change
        saver.finish()
        one.values[...] = step
        expect(run + f"/iter_{step:07d}", {"a": one})
""", tmp_path / "run")  # fmt: skip


def test_a_copy_that_fails(driver, tmp_path):
    run(driver, """
arrays = {f"t{i}": Array(np.random.rand(1000)) for i in range(5)}
cuda.fake_fail_copies(1)
try:
    ferry.save(arrays, run, iteration=1)
    raise AssertionError
except ferry.IOFailed as error:
    assert "CUDA: copying from a device: a fault of the test (CUDA_ERROR_FAKE)" in str(error), error
assert not os.path.exists(run + "/iter_0000001")
ferry.save(arrays, run, iteration=1)
expect(run + "/iter_0000001", arrays)
""", tmp_path / "run")  # fmt: skip


def test_dlpack(driver, tmp_path):
    run(driver, """
class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]
class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]
class Managed(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("rank", ctypes.c_int32),
                ("dtype", Type), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]
new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

class Dlpack(Array):
    __cuda_array_interface__ = property(lambda self: (_ for _ in ()).throw(AttributeError()))
    def __dlpack_device__(self):
        return (2, self.device)
    def __dlpack__(self, stream=None):
        assert stream not in (None, 0, 1, 2)
        self.shape = (ctypes.c_int64 * 2)(*self.values.shape)
        self.managed = Managed(self.at, Device(2, self.device), 2, Type(4, 16, 1), self.shape)
        # Its work is queued in the stream that is to read it.
        cuda.fake_fill(self.device, stream, self.at, 7, self.values.nbytes, 100)
        self.values[...] = 0x0707
        return new(ctypes.addressof(self.managed), b"dltensor", None)

array = Dlpack(np.ones((30, 40), "u2"), 1)
ferry.save({"a": array}, run, iteration=1)
expect(run + "/iter_0000001", {"a": array})
""", tmp_path / "run")  # fmt: skip


def test_torch(driver, tmp_path):
    pytest.importorskip("torch")
    run(driver, """
import types, torch
class OnDevice(torch.Tensor):
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    def get_device(self): return self.array.device
    def data_ptr(self): return self.array.at

asked = []
def current_stream(device):
    asked.append(device)
    return types.SimpleNamespace(cuda_stream=0)
torch.cuda.current_stream = current_stream
tensors, arrays = {}, {}
for i in range(6):
    values = torch.randn(3, 50)
    tensors[f"t{i}"] = values.as_subclass(OnDevice)
    tensors[f"t{i}"].array = arrays[f"t{i}"] = Array(values.numpy().copy(), i % 2)
for array in arrays.values():
    array.fill(3, 50)
ferry.save(tensors, run, iteration=1)
expect(run + "/iter_0000001", arrays)
assert sorted(asked) == [0, 1]
""", tmp_path / "run")  # fmt: skip


def test_without_a_driver(tmp_path):
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("there is a driver")
    except OSError:
        pass

    class There:
        __cuda_array_interface__ = {
            "shape": (2,), "typestr": "<f4", "data": (4096, False), "version": 3
        }  # fmt: skip

    with pytest.raises(ferry.Unsupported, match="cannot be read without its driver: libcuda.so.1"):
        ferry.save({"a": There()}, tmp_path / "run")
