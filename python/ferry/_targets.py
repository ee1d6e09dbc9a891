"""Memory that load(into=...) fills: NumPy arrays, PyTorch tensors, shards of DTensors."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, NamedTuple, Sequence

from ferry._dtensors import Box, box_of_rank
from ferry.errors import Invalid, Mismatch, Unsupported


class Target(NamedTuple):
    """Contiguous memory of a box of a tensor, and what is to be done once it is filled."""

    row: tuple[str, Any, Sequence[int], Sequence[int], Sequence[int], int]
    keep: Any
    finish: Callable[[], object] | None
    staged_bytes: int = 0  # of memory that is not the caller's
    device: Any = None  # that is to be waited for after finish()


def target_of(name: str, into: Any) -> Target:
    """Of one value of load(into=...). Invalid for what is none of those that can be filled."""
    if hasattr(into, "placements") and hasattr(into, "device_mesh"):
        box = shard_box(name, tuple(into.shape), into.device_mesh, into.placements)
        return _torch_target(name, into.detach().to_local(), tuple(into.shape), box)
    if hasattr(into, "data_ptr") and hasattr(into, "untyped_storage"):
        shape = tuple(into.shape)
        return _torch_target(name, into.detach(), shape, Box((0,) * len(shape), shape))
    if hasattr(into, "__array_interface__") and hasattr(into, "flags"):
        return _numpy_target(name, into)
    kind = type(into).__name__
    raise Invalid(f"into[{name!r}] is a {kind}; use NumPy arrays, PyTorch tensors or DTensors")


def shard_box(name: str, shape: tuple[int, ...], mesh: Any, placements: Sequence[Any]) -> Box:
    """The part of a DTensor that this rank holds."""
    if any(placement.is_partial() for placement in placements):
        raise Unsupported(f"into[{name!r}] is a DTensor of partial sums, which cannot be loaded")
    box = box_of_rank(name, mesh, placements, shape)
    if box is None:
        raise Invalid(f"into[{name!r}]: this rank is not in the mesh of the DTensor")
    return box


def _torch_target(name: str, local: Any, shape: tuple[int, ...], box: Box) -> Target:
    import torch

    if tuple(local.shape) != box.size:
        raise Mismatch(f"into[{name!r}]: this rank's shard has shape {tuple(local.shape)}, expected {box.size}")
    if local.is_meta:
        raise Invalid(f"into[{name!r}] is on the meta device and has no memory; use to_empty()")
    memory = local
    finish: Callable[[], object] | None = None
    if not local.is_cpu:
        memory = torch.empty(box.size, dtype=local.dtype, pin_memory=True)
    elif not local.is_contiguous() or local.is_conj() or local.is_neg():
        memory = torch.empty(box.size, dtype=local.dtype)
    if memory is not local:
        finish = partial(local.copy_, memory, non_blocking=True)
    row = (name, local.dtype, shape, box.offset, box.size, memory.data_ptr())
    staged = 0 if finish is None else memory.numel() * memory.element_size()
    return Target(row, memory, finish, staged, local.device if local.is_cuda else None)


def _numpy_target(name: str, into: Any) -> Target:
    import numpy

    if not into.flags.writeable:
        raise Invalid(f"into[{name!r}] is read-only; give an array that may be written to")
    memory = into
    finish: Callable[[], object] | None = None
    if not into.flags.c_contiguous or not into.dtype.isnative:
        memory = numpy.empty(into.shape, into.dtype.newbyteorder("="))
        finish = partial(numpy.copyto, into, memory)
    address = memory.__array_interface__["data"][0]
    row = (name, memory.dtype, into.shape, (0,) * into.ndim, into.shape, address)
    return Target(row, memory, finish, 0 if finish is None else memory.nbytes)
