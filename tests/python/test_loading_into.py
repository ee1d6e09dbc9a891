"""load(into=...): memory that is there, whole and as shards of DTensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ferry
from ferry._targets import shard_box

torch = pytest.importorskip("torch")

NAME = "embedding.word_embeddings.weight"


@pytest.fixture
def checkpoint(trained_run: Path) -> ferry.Checkpoint:
    return ferry.open(trained_run)


def test_torch_tensors(checkpoint: ferry.Checkpoint) -> None:
    whole = checkpoint.load(framework="pt")
    into = {name: torch.empty_like(tensor) for name, tensor in whole.items()}
    assert checkpoint.load(into=into) is not into
    assert all(torch.equal(into[name], whole[name]) for name in whole)


def test_other_dtypes_and_strides(checkpoint: ferry.Checkpoint) -> None:
    whole = checkpoint.get_tensor(NAME, "pt")
    turned = torch.empty(whole.shape[::-1], dtype=torch.float64).T
    assert not turned.is_contiguous()
    checkpoint.load(into={NAME: turned})
    assert torch.equal(turned, whole.double())
    parameter = torch.nn.Parameter(torch.zeros(whole.shape, dtype=torch.float16))
    checkpoint.load(into={NAME: parameter})
    assert torch.equal(parameter.detach(), whole.half())


def test_numpy_arrays(checkpoint: ferry.Checkpoint) -> None:
    whole = checkpoint.get_tensor(NAME, "np", dtype="F32")
    array = np.zeros(whole.shape, "f4")
    checkpoint.load(into={NAME: array})
    assert (array == whole).all()
    padded = np.zeros((whole.shape[0], whole.shape[1] + 3), "f8")
    checkpoint.load(into={NAME: padded[:, 1:-2]})
    assert (padded[:, 1:-2] == whole).all()
    assert not padded[:, 0].any() and not padded[:, -2:].any()
    big = np.zeros(whole.shape, ">f4")
    checkpoint.load(into={NAME: big})
    assert (big == whole).all()


def test_names_choose(checkpoint: ferry.Checkpoint) -> None:
    whole = checkpoint[NAME]
    into = {NAME: np.zeros(whole.shape, "f4"), "other": np.zeros(1)}
    assert set(checkpoint.load([NAME], into=into)) == {NAME}
    with pytest.raises(ferry.NotFound, match="into has other, .* names="):
        checkpoint.load(into=into)


def test_what_cannot_be_filled(checkpoint: ferry.Checkpoint) -> None:
    shape = checkpoint[NAME].shape
    with pytest.raises(ferry.Mismatch, match="shape"):
        checkpoint.load(into={NAME: np.zeros(3, "f4")})
    frozen = np.zeros(shape, "f4")
    frozen.flags.writeable = False
    with pytest.raises(ferry.Invalid, match="read-only"):
        checkpoint.load(into={NAME: frozen})
    with pytest.raises(ferry.Invalid, match="list"):
        checkpoint.load(into={NAME: [1, 2]})
    with pytest.raises(ferry.Invalid, match="meta"):
        checkpoint.load(into={NAME: torch.empty(shape, device="meta")})
    with pytest.raises(ferry.Mismatch):
        checkpoint.load(into={NAME: np.zeros(shape, "i4")})


class Mesh:
    """As torch's DeviceMesh, of any rank."""

    def __init__(self, shape: tuple[int, ...], coordinate: tuple[int, ...] | None) -> None:
        self.shape, self._coordinate = shape, coordinate

    def get_coordinate(self) -> Any:
        return None if self._coordinate is None else list(self._coordinate)


def all_coordinates(mesh: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tuple(map(int, each)) for each in np.ndindex(*mesh)]


@pytest.mark.parametrize("shape", [(8, 6), (7, 5), (3, 1), (1, 9), (0, 4)])
@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 3), (3, 2, 2)])
def test_boxes_are_those_of_torch(shape: tuple[int, ...], mesh: tuple[int, ...]) -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

    choices = [Shard(0), Shard(1), Replicate()]
    for pick in np.ndindex(*(3,) * len(mesh)):
        placements = [choices[i] for i in pick]
        for coordinate in all_coordinates(mesh):
            box = shard_box("w", shape, Mesh(mesh, coordinate), placements)
            size, offset = _compute_local_shape_and_global_offset(
                shape, mesh, lambda axis, c=coordinate: c[axis], placements
            )
            assert box.size == tuple(size)
            if 0 not in box.size:
                assert box.offset == tuple(offset)


def test_boxes_of_strided_shards() -> None:
    """FSDP over tensor parallelism: the mesh is (data, tensor), and tensor ranks cut first."""
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    placements = [_StridedShard(0, split_factor=2), Shard(0)]
    rows = {}
    for data, tensor in all_coordinates((3, 2)):
        box = shard_box("w", (12, 4), Mesh((3, 2), (data, tensor)), placements)
        rows[data, tensor] = (box.offset[0], box.size[0])
    assert rows == {(d, t): (6 * t + 2 * d, 2) for d, t in all_coordinates((3, 2))}
    with pytest.raises(ferry.Unsupported, match="several pieces"):
        shard_box("w", (12, 4), Mesh((3,), (0,)), [_StridedShard(0, split_factor=2)])


def test_placements_that_cannot_be_filled() -> None:
    from torch.distributed.tensor import Partial, Shard

    with pytest.raises(ferry.Unsupported, match="partial"):
        shard_box("w", (4,), Mesh((2,), (0,)), [Partial()])
    with pytest.raises(ferry.Invalid, match="not in the mesh"):
        shard_box("w", (4,), Mesh((2,), None), [Shard(0)])


def dtensor_rank(rank: int, world: int, port: int, path: str) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    store = dist.TCPStore("localhost", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    try:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        checkpoint = ferry.open(path)
        whole = checkpoint.load([NAME], framework="pt")[NAME]
        for placements in ([Shard(0), Shard(1)], [Shard(1), Shard(1)], [Shard(0), Shard(0)]):
            empty = distribute_tensor(torch.zeros_like(whole), mesh, placements)
            checkpoint.load(into={NAME: empty})
            assert torch.equal(empty.full_tensor(), whole)
    finally:
        dist.destroy_process_group()


def test_dtensors_of_four_ranks(trained_run: Path) -> None:
    import torch.distributed as dist
    import torch.multiprocessing as mp

    # The store is this process's, whose port nobody else can take meanwhile.
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    mp.spawn(dtensor_rank, (4, store.port, str(trained_run)), nprocs=4)


def turned(whole: Any) -> Any:
    """Memory for such a tensor that is not in one piece."""
    return torch.zeros(whole.shape[::-1], dtype=whole.dtype).permute(*range(whole.dim())[::-1])


@pytest.mark.parametrize("stage", [1, 3000, 1 << 20])
def test_memory_that_is_filled_by_way_of_another(
    checkpoint: ferry.Checkpoint, monkeypatch: pytest.MonkeyPatch, stage: int
) -> None:
    """In batches, between which the halves of that memory change places."""
    monkeypatch.setattr("ferry._targets._STAGE", stage)
    whole = checkpoint.load(framework="pt")
    into = {name: turned(tensor) for name, tensor in whole.items()}
    assert any(not each.is_contiguous() for each in into.values())
    direct = next(iter(into))
    into[direct] = torch.zeros_like(whole[direct])
    seen: list[tuple[int, int]] = []
    checkpoint.load(into=into, progress=lambda done, total: seen.append((done, total)))
    assert all(torch.equal(into[name], whole[name]) for name in whole)
    bytes_in_all = sum(tensor.nbytes for tensor in whole.values())
    assert seen and seen[-1] == (bytes_in_all, bytes_in_all)
    assert seen == sorted(seen)


def test_no_more_memory_than_its_halves(
    checkpoint: ferry.Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ferry._targets as targets

    allocated: list[int] = []
    allocate = targets._Stage._allocate

    def counted(self: Any) -> Any:
        memory = allocate(self)
        allocated.append(memory.numel())
        return memory

    monkeypatch.setattr(targets._Stage, "_allocate", counted)
    monkeypatch.setattr(targets, "_STAGE", 1)
    whole = checkpoint.load(framework="pt")
    checkpoint.load(into={name: turned(tensor) for name, tensor in whole.items()})
    largest = max(tensor.nbytes for tensor in whole.values() if tensor.dim() > 1)
    assert len(allocated) == 2 and max(allocated) <= largest + 64


def test_arrays_and_tensors_that_are_filled_by_way_of_one_memory(checkpoint: ferry.Checkpoint) -> None:
    names = [name for name in checkpoint if len(checkpoint[name].shape) > 1][:2]
    whole = checkpoint.load(names, framework="pt")
    array = np.zeros(whole[names[0]].shape[::-1], ">f4").T
    tensor = turned(whole[names[1]])
    checkpoint.load(into={names[0]: array, names[1]: tensor})
    assert (array == whole[names[0]].float().numpy()).all()
    assert torch.equal(tensor, whole[names[1]])
