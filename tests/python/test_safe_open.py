"""ferry.safe_open behaves as safetensors.safe_open does, on files of safetensors and others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ferry

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    from safetensors.torch import save_file

    tensors = {
        "b": torch.randn(10, 5),
        "a": torch.randn(3, 4, 2).to(torch.bfloat16),
        "c": torch.zeros(2, 2, dtype=torch.int8),
        "scalar": torch.tensor(1.5),
        "none": torch.zeros(0, 2),
    }
    save_file(tensors, tmp_path / "m.safetensors", {"framework": "pt"})
    return tmp_path / "m.safetensors"


def both(path: Path, framework: str) -> tuple[Any, Any]:
    return safetensors.safe_open(path, framework), ferry.safe_open(path, framework)


def test_names_and_metadata(path: Path) -> None:
    theirs, ours = both(path, "pt")
    assert ours.keys() == list(theirs.keys())
    assert ours.offset_keys() == list(theirs.offset_keys())
    assert ours.metadata() == theirs.metadata()


def test_no_metadata_is_none(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(2)}, tmp_path / "x.safetensors")
    theirs, ours = both(tmp_path / "x.safetensors", "np")
    assert ours.metadata() is theirs.metadata() is None


def test_a_name_without_suffix(path: Path) -> None:
    bare = path.rename(path.parent / "weights")
    with ferry.safe_open(bare, "pt") as file:
        assert file.metadata() == {"framework": "pt"}
        assert len(file.keys()) == 5


def test_tensors(path: Path) -> None:
    theirs, ours = both(path, "pt")
    for name in theirs.keys():
        a, b = theirs.get_tensor(name), ours.get_tensor(name)
        assert (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device)
        assert torch.equal(a, b)
    assert all(torch.equal(t, theirs.get_tensor(n)) for n, t in ours.get_tensors().items())


def test_arrays(path: Path) -> None:
    theirs, ours = both(path, "np")
    for name in ("b", "c", "scalar", "none"):
        a, b = theirs.get_tensor(name), ours.get_tensor(name)
        assert a.dtype == b.dtype and a.shape == b.shape and (a == b).all()


SLICES: list[Any] = [
    slice(None),
    slice(2, 8),
    slice(-3, None),
    slice(0, 0),
    (slice(1, 3), slice(2)),
    (slice(None), 1),
    (0,),
    3,
    -1,
    ...,
    (..., slice(1, 2)),
]


@pytest.mark.parametrize("index", SLICES, ids=str)
def test_slices(path: Path, index: Any) -> None:
    theirs, ours = both(path, "pt")
    a, b = theirs.get_slice("b"), ours.get_slice("b")
    assert a.get_shape() == b.get_shape()
    assert a.get_dtype() == b.get_dtype() == "F32"
    assert torch.equal(a[index], b[index])


def test_wrong_slices_raise(path: Path) -> None:
    theirs, ours = both(path, "pt")
    for view in (theirs.get_slice("b"), ours.get_slice("b")):
        with pytest.raises(Exception):
            view[0, 0, 0]
        with pytest.raises(Exception):
            view[10]


def test_the_context_closes(path: Path) -> None:
    with ferry.safe_open(path, framework="pt", device="cpu") as file:
        tensor = file.get_tensor("b")
    assert tensor.shape == (10, 5)
    with pytest.raises(ferry.Error):
        file.get_tensor("b")


def test_names_that_are_not_there(path: Path) -> None:
    with ferry.safe_open(path, "pt") as file:
        with pytest.raises(KeyError):
            file.get_tensor("nothing")
        with pytest.raises(KeyError):
            file.get_slice("nothing")
    with pytest.raises(ferry.NotFound):
        ferry.safe_open(path.parent / "nothing", "pt")
    with pytest.raises(ferry.Invalid):
        ferry.safe_open(path, "keras")


def test_a_run_of_megatron(trained_run: Path) -> None:
    with ferry.safe_open(trained_run, "pt") as file:
        assert file.keys() == sorted(ferry.open(trained_run))
        assert all(isinstance(file.get_tensor(name), torch.Tensor) for name in file.keys())
