"""Checkpoints as mappings of tensors, whatever their format."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ferry
from ferry.objects import Global, Object

torch = pytest.importorskip("torch")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A safetensors file with every dtype, and metadata."""
    save = pytest.importorskip("safetensors.torch").save_file
    tensors = {
        "f32": torch.arange(24, dtype=torch.float32).reshape(2, 3, 4),
        "bf16": torch.arange(12).to(torch.bfloat16).reshape(3, 4),
        "f16": torch.arange(5).to(torch.float16),
        "fp8": torch.arange(8).to(torch.float8_e4m3fn).reshape(2, 4),
        "e5m2": torch.arange(8).to(torch.float8_e5m2),
        "i64": torch.arange(6),
        "u16": torch.arange(6).to(torch.uint16),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "empty": torch.zeros(0, 3),
    }
    save(tensors, tmp_path / "model.safetensors", {"format": "pt", "by": "a test"})
    return tmp_path / "model.safetensors"


def expected(path: Path) -> dict[str, Any]:
    load = pytest.importorskip("safetensors.torch").load_file
    tensors: dict[str, Any] = load(path)
    return tensors


def same(a: Any, b: Any) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool((a.reshape(-1).view(torch.uint8) == b.reshape(-1).view(torch.uint8)).all()) if a.numel() else True


def test_a_checkpoint_is_a_mapping(model: Path) -> None:
    with ferry.open(model) as checkpoint:
        assert checkpoint.format == "safetensors"
        assert checkpoint.path == str(model)
        assert len(checkpoint) == 10
        assert set(checkpoint) == set(checkpoint.keys()) == set(expected(model))
        assert "bf16" in checkpoint
        assert "nothing" not in checkpoint
        assert checkpoint.get("nothing") is None
        assert {name: tensor.name for name, tensor in checkpoint.items()} == {n: n for n in checkpoint}
        assert checkpoint.metadata() == {"format": "pt", "by": "a test"}
        assert checkpoint.iteration is None
        assert checkpoint.args is None
        assert repr(checkpoint) == f"Checkpoint({str(model)!r}, format='safetensors', 10 tensors)"
        with pytest.raises(KeyError):
            checkpoint["nothing"]
        with pytest.raises(ferry.NotFound, match="nothing"):
            checkpoint.get_tensor("nothing")


def test_a_tensor_says_what_it_is(model: Path) -> None:
    tensor = ferry.open(model)["bf16"]
    assert (tensor.name, tensor.dtype, tensor.shape) == ("bf16", "BF16", (3, 4))
    assert (tensor.nbytes, tensor.role, len(tensor)) == (24, "model", 3)
    assert repr(tensor) == "Tensor('bf16', dtype='BF16', shape=(3, 4))"
    with pytest.raises(TypeError):
        len(ferry.open(model)["scalar"])


def test_all_dtypes_as_torch(model: Path) -> None:
    checkpoint = ferry.open(model)
    for name, tensor in expected(model).items():
        assert same(checkpoint.get_tensor(name, "pt"), tensor), name
        assert same(checkpoint[name].torch(), tensor), name
    loaded = checkpoint.load(framework="pt")
    assert list(loaded) == list(checkpoint)
    assert all(same(loaded[name], tensor) for name, tensor in expected(model).items())


def test_all_dtypes_as_numpy(model: Path) -> None:
    checkpoint = ferry.open(model)
    for name, tensor in expected(model).items():
        if name in ("bf16", "fp8", "e5m2"):
            continue
        array = checkpoint.get_tensor(name, "np")
        assert array.dtype == tensor.numpy().dtype
        assert array.shape == tensor.shape
        assert (array == tensor.numpy()).all()
        assert (np.asarray(checkpoint[name]) == tensor.numpy()).all()
        assert (np.asarray(checkpoint.get_tensor(name)) == tensor.numpy()).all()


def test_numpy_lacks_bf16(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    checkpoint = ferry.open(model)
    with pytest.raises(ferry.Unsupported, match="BF16") as raised:
        checkpoint.get_tensor("bf16", "np")
    assert raised.value.hint is not None and "dtype='F32'" in raised.value.hint
    with pytest.raises(ferry.Unsupported):
        np.asarray(checkpoint["bf16"])
    wide = np.arange(12, dtype="f4").reshape(3, 4)
    assert (checkpoint.get_tensor("bf16", "np", dtype="F32") == wide).all()
    assert (np.asarray(checkpoint["bf16"], dtype="f4") == wide).all()
    assert (np.asarray(checkpoint["bf16"], dtype="f8") == wide).all()
    assert (np.asarray(checkpoint["bf16"], dtype=int) == wide).all()
    assert (np.asarray(checkpoint.get_tensor("bf16"), dtype="f4") == wide).all()


def test_ml_dtypes_where_they_are(model: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    checkpoint = ferry.open(model)
    assert checkpoint.get_tensor("bf16", "np").dtype == ml_dtypes.bfloat16
    assert np.asarray(checkpoint["fp8"]).dtype == ml_dtypes.float8_e4m3fn


def test_casts_round_as_torch_does(model: Path) -> None:
    checkpoint = ferry.open(model)
    f32 = expected(model)["f32"]
    for spelled in ("bf16", "BF16", torch.bfloat16, "bfloat16"):
        assert same(checkpoint.get_tensor("f32", "pt", dtype=spelled), f32.to(torch.bfloat16))
    assert same(checkpoint["f32"].torch(np.float16), f32.to(torch.float16))
    loaded = checkpoint.load(["f32", "i64"], framework="pt", dtype="f16")
    assert loaded["f32"].dtype == torch.float16
    assert loaded["i64"].dtype == torch.int64  # integers stay
    with pytest.raises(ferry.Mismatch):
        checkpoint.get_tensor("i64", dtype="f32")
    with pytest.raises(ferry.Invalid, match="dtype='f33' is not a dtype"):
        checkpoint.get_tensor("f32", dtype="f33")


def test_arrays(model: Path) -> None:
    checkpoint = ferry.open(model)
    array = checkpoint.get_tensor("f32")
    assert isinstance(array, ferry.Array)
    assert (array.dtype, array.shape, array.nbytes) == ("F32", (2, 3, 4), 96)
    assert repr(array) == "Array(dtype='F32', shape=(2, 3, 4))"
    view = memoryview(array)
    assert (view.format, view.shape, view.readonly) == ("f", (2, 3, 4), False)
    assert array.tobytes() == bytes(array) == expected(model)["f32"].numpy().tobytes()
    bf16 = checkpoint.get_tensor("bf16")
    with pytest.raises(BufferError):
        memoryview(bf16)
    assert len(bf16.tobytes()) == 24
    assert bf16.astype("F32").dtype == "F32"
    assert bf16.astype("BF16").tobytes() == bf16.tobytes()


def test_dlpack(model: Path) -> None:
    checkpoint = ferry.open(model)
    for name, tensor in expected(model).items():
        if name in ("fp8", "e5m2") and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9):
            continue
        assert same(torch.from_dlpack(checkpoint[name]), tensor), name
        assert same(torch.from_dlpack(checkpoint.get_tensor(name)), tensor), name
    assert (np.from_dlpack(checkpoint["f32"]) == expected(model)["f32"].numpy()).all()
    shared = checkpoint.get_tensor("f32")

    class Copied:
        def __dlpack__(self, **keywords: Any) -> Any:
            return shared.__dlpack__(**{**keywords, "copy": True})

        def __dlpack_device__(self) -> tuple[int, int]:
            return shared.__dlpack_device__()

    copied = torch.from_dlpack(Copied())
    copied[0] = 9
    assert not (np.asarray(shared) == 9).all(axis=(1, 2)).any()
    assert shared.__dlpack_device__() == (1, 0)


def test_memory_outlives_the_checkpoint(model: Path) -> None:
    with ferry.open(model) as checkpoint:
        tensor = checkpoint.get_tensor("f32", "pt")
        lazy = checkpoint["f32"]
    model.unlink()
    assert tensor.sum() == 276
    with pytest.raises(ferry.Invalid, match="closed"):
        lazy.read()
    with pytest.raises(ferry.Invalid, match="closed"):
        checkpoint.get_tensor("f32")


def test_writing_to_a_tensor_leaves_the_file(model: Path) -> None:
    before = model.read_bytes()
    tensor = ferry.open(model).get_tensor("f32", "pt")
    tensor.fill_(7)
    ferry.open(model).get_tensor("f32", "np")[...] = 8
    assert model.read_bytes() == before
    assert (tensor == 7).all()


INDICES: list[Any] = [
    0,
    -1,
    slice(None),
    slice(1, 2),
    slice(0, 0),
    slice(5, 9),
    ...,
    (..., 0),
    (0, ..., slice(1, 3)),
    (slice(None), 1),
    (slice(None), slice(None), slice(None, None, 2)),
    (slice(None), slice(None, None, -1), slice(3, 0, -2)),
    (1, 2, 3),
    (slice(-1, None), slice(-2, -1), slice(None, -1)),
    (),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_slices_are_those_of_numpy(model: Path, index: Any) -> None:
    checkpoint = ferry.open(model)
    whole = expected(model)["f32"].numpy()
    part = checkpoint.get_slice("f32", "np")[index]
    assert part.shape == whole[index].shape
    assert (part == whole[index]).all()
    assert (np.asarray(checkpoint["f32"][index]) == whole[index]).all()


def test_slices_of_a_run_cross_ranks(trained_run: Path) -> None:
    checkpoint = ferry.open(trained_run)
    for name, tensor in checkpoint.items():
        if len(tensor.shape) < 2:
            continue
        whole = tensor.torch()
        for index in ((slice(None), slice(1, -1)), (slice(1, None, 3),), (..., -1), (-1,)):
            assert same(tensor[index].torch(), whole[index].contiguous()), (name, index)


def test_wrong_indices(model: Path) -> None:
    view = ferry.open(model).get_slice("f32")
    assert (view.get_shape(), view.get_dtype(), len(view)) == ([2, 3, 4], "F32", 2)
    for index in (2, -3, (0, 0, 4), (0, 0, 0, 0), (..., ...)):
        with pytest.raises(IndexError):
            view[index]
    for index in ("a", 1.5, None, [0], True):
        with pytest.raises(TypeError):
            view[index]


def test_a_run_of_megatron(trained_run: Path) -> None:
    checkpoint = ferry.open(trained_run)
    assert checkpoint.format == "torch_dist"
    assert checkpoint.family == "llama"
    assert checkpoint.iteration == 5
    assert checkpoint.layout.tensor == 2
    assert "Megatron" in checkpoint.writer
    args = checkpoint.args
    assert isinstance(args, types.SimpleNamespace)
    assert vars(args)["tensor_model_parallel_size"] == args.tensor_model_parallel_size == 2
    assert checkpoint.args is args
    assert isinstance(args.params_dtype, Global)
    assert args.params_dtype == "torch.bfloat16" or args.params_dtype == "torch.float32"
    assert all(not name.startswith("optimizer.") for name in checkpoint)


def test_the_optimizer(trained_run: Path) -> None:
    checkpoint = ferry.open(trained_run)
    name = "decoder.final_layernorm.weight"
    states = checkpoint.optimizer.states(name)
    assert set(states) == {"param", "exp_avg", "exp_avg_sq"}
    tensor = checkpoint.optimizer[f"{name}.exp_avg"]
    assert tensor.role == "optimizer"
    assert tensor.dtype == "F32"
    assert tensor.shape == checkpoint[name].shape
    assert checkpoint.get_tensor(tensor.name).tobytes() == tensor.read().tobytes()
    assert len(checkpoint.optimizer) == 3 * len(set(k.rpartition(".")[0] for k in checkpoint.optimizer))
    assert checkpoint.optimizer.states("nothing") == {}
    assert checkpoint.optimizer_problem is None
    with pytest.raises(KeyError):
        checkpoint.optimizer["nothing.exp_avg"]
    with ferry.open(trained_run, raw=True) as raw:
        assert set(raw) | set(raw.optimizer) != set(checkpoint) | set(checkpoint.optimizer)


def test_objects(fixtures: Path) -> None:
    checkpoint = ferry.open(fixtures / "megatron/llama_legacy_tp2pp2")
    assert len(checkpoint.objects) > 0
    seen = {}
    for name in checkpoint.objects:
        seen[name] = checkpoint.objects[name]
    assert name in checkpoint.objects
    assert repr(checkpoint.objects).startswith("Objects([")
    with pytest.raises(KeyError):
        checkpoint.objects["nothing"]


def test_objects_of_every_kind(tmp_path: Path) -> None:
    import argparse
    import collections

    class Own:
        def __init__(self) -> None:
            self.number = 1

    globals()["Own"] = Own
    Own.__module__, Own.__qualname__ = __name__, "Own"
    shared = [1, 2]
    cycle: dict[str, Any] = {"shared": shared, "again": shared}
    cycle["self"] = cycle
    stored = {
        "model": {"w": torch.ones(2)},
        "args": argparse.Namespace(lr=0.5, layers=[1], dtype=torch.bfloat16),
        "all": [None, True, 2**70, -1.5, "a\u00e9", b"\x00\xff", (1, "x"), {1, 2}],
        "ordered": collections.OrderedDict([(1, "a"), ((2, 3), "b")]),
        "cycle": cycle,
        "own": Own(),
        "path": Path("a/b"),
    }
    torch.save(stored, tmp_path / "model.pt")
    objects = ferry.open(tmp_path / "model.pt").objects
    assert objects["all"] == [None, True, 2**70, -1.5, "a\u00e9", b"\x00\xff", (1, "x"), {1, 2}]
    assert objects["ordered"] == {1: "a", (2, 3): "b"}
    assert vars(objects["args"]) == {"lr": 0.5, "layers": [1], "dtype": "torch.bfloat16"}
    found = objects["cycle"]
    assert found["self"] is found
    assert found["shared"] is found["again"]
    own = objects["own"]
    assert isinstance(own, Object)
    assert (own.class_name, own.number) == (f"{__name__}.Own", 1)
    assert objects["path"] == "a/b"


def test_tensors_inside_objects(trained_run: Path) -> None:
    objects = ferry.open(trained_run).objects
    state = objects["rng_state/shard_0.0_1.2"][0][0]
    assert isinstance(state["torch_rng_state"], ferry.Array)
    assert state["torch_rng_state"].dtype == "U8"
    torch.Generator().set_state(state["torch_rng_state"].torch())  # a state that PyTorch takes


def test_pickled_it_is_what_was_open(run: Path) -> None:
    import pickle
    import shutil

    checkpoint = ferry.open(run)
    pickled = pickle.dumps(checkpoint)
    shutil.copytree(run / "iter_0000005", run / "iter_0000006")
    (run / "latest_checkpointed_iteration.txt").write_text("6")
    again = pickle.loads(pickled)
    assert again.path == checkpoint.path != ferry.open(run).path
    assert list(again) == list(checkpoint)


def test_iterations(run: Path) -> None:
    assert ferry.open(run, iteration=5).iteration == 5
    assert ferry.open(run, iteration="5").iteration == 5
    with pytest.raises(ferry.NotFound):
        ferry.open(run, iteration=6)


def test_hf(run: Path, tmp_path: Path) -> None:
    ferry.convert(run, tmp_path / "hf")
    with ferry.open(run) as checkpoint:
        model = checkpoint.hf()
    assert model.family == "llama"
    assert model.config["model_type"] == "llama"
    assert (tmp_path / "hf/config.json").read_bytes() == model.files["config.json"]
    assert model.parameters > 0
    assert any("tokenizer_folder=" in warning for warning in model.warnings)
    written = expected(tmp_path / "hf/model.safetensors")
    assert set(model) == set(written)
    assert all(same(model.get_tensor(name, "pt"), written[name]) for name in written)
    streamed = dict(model.stream(framework="pt"))
    assert all(same(streamed[name], written[name]) for name in written)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert same(model[name][1:3, ::2].torch(), written[name][1:3, ::2].contiguous())
    half = ferry.open(run).hf(dtype="fp16")
    assert half[name].dtype == "F16"
    with pytest.raises(ferry.Mismatch):
        ferry.open(run).hf(family="gpt2")


def test_stream(trained_run: Path) -> None:
    checkpoint = ferry.open(trained_run)
    expect = checkpoint.load(framework="pt")
    got = dict(checkpoint.stream(framework="pt", memory="16MiB"))
    assert list(got) == list(expect)
    assert all(same(got[name], expect[name]) for name in expect)
    shares = [[name for name, _ in checkpoint.stream(rank=rank, world=3)] for rank in range(3)]
    assert sorted(sum(shares, [])) == sorted(expect)
    assert all(shares)
    some = list(expect)[3:1:-1]
    assert [name for name, _ in checkpoint.stream(some)] == some
    stream = checkpoint.stream()
    next(stream)
    del stream
    with pytest.raises(ferry.NotFound):
        next(checkpoint.stream(["nothing"]))
    with pytest.raises(ferry.Exhausted):
        list(checkpoint.stream(memory="1kB"))
    with pytest.raises(ferry.Invalid):
        list(checkpoint.stream(rank=2, world=2))


def test_wrong_frameworks(model: Path) -> None:
    checkpoint = ferry.open(model)
    with pytest.raises(ferry.Invalid, match="framework='tf'"):
        checkpoint.get_tensor("f32", "tf")  # type: ignore[arg-type]
    with pytest.raises(ferry.Invalid, match="device='cuda:0'"):
        checkpoint.get_tensor("f32", "np", device="cuda:0")
    with pytest.raises(ferry.Invalid, match="into="):
        checkpoint.load(into={}, framework="pt")
