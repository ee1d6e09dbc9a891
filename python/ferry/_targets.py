"""Memory that load(into=...) fills: NumPy arrays, PyTorch tensors, shards of DTensors."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

from ferry._dtensors import Box, box_of_rank
from ferry.errors import Invalid, Mismatch, Unsupported

# Name, dtype, shape of the tensor, offset and size of the box of it that is there, address.
Row = tuple[str, Any, Sequence[int], Sequence[int], Sequence[int], int]
Read = Callable[[Sequence[Row], Any], None]

# Least bytes of memory through which is read what the host cannot write to, or not in one piece.
_STAGE = 128 << 20
_ALIGNMENT = 64


class Target(NamedTuple):
    """A box of a tensor, and the tensor or array that is to hold it."""

    name: str
    into: Any
    shape: Sequence[int]
    box: Box
    nbytes: int
    is_direct: bool  # the host can write to it, in one piece
    is_torch: bool


def target_of(name: str, into: Any) -> Target:
    """The target for one value of load(into=...). Invalid where the value cannot be filled."""
    if hasattr(into, "placements") and hasattr(into, "device_mesh"):
        box = shard_box(name, tuple(into.shape), into.device_mesh, into.placements)
        local = into.detach().to_local()
        if hasattr(type(local), "wait"):  # a collective is still under way
            local = local.wait()
        return _torch_target(name, local, tuple(into.shape), box)
    if hasattr(into, "data_ptr") and hasattr(into, "untyped_storage"):
        shape = tuple(into.shape)
        return _torch_target(name, into.detach(), shape, Box((0,) * len(shape), shape))
    if hasattr(into, "__array_interface__") and hasattr(into, "flags"):
        return _numpy_target(name, into)
    kind = type(into).__name__
    raise Invalid(f"into[{name!r}] is of class {kind}; use NumPy arrays, PyTorch tensors or DTensors")


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
        raise Mismatch(
            f"into[{name!r}]: this rank's shard has shape {tuple(local.shape)}, expected {box.size}"
        )
    if local.is_meta:
        raise Invalid(f"into[{name!r}] is on the meta device and has no memory; use to_empty()")
    if hasattr(type(local), "__tensor_flatten__") or local.layout != torch.strided:
        kind = f"class {type(local).__name__}, layout {local.layout}"
        raise Unsupported(
            f"into[{name!r}] ({kind}) is not one array of elements; give what it is made of"
        )
    _check_memory(name, local)
    is_direct = local.is_cpu and local.is_contiguous() and not (local.is_conj() or local.is_neg())
    return Target(name, local, shape, box, local.numel() * local.element_size(), is_direct, True)


def _check_memory(name: str, local: Any) -> None:
    """That each element has memory of its own."""
    if local.numel() == 0:
        return
    axes = [(size, step) for size, step in zip(local.shape, local.stride()) if size > 1]
    if any(step == 0 for _, step in axes):
        raise Invalid(f"into[{name!r}]: several of its elements share memory; give its clone()")
    last = local.storage_offset() + sum((size - 1) * step for size, step in axes)
    needed, held = (last + 1) * local.element_size(), local.untyped_storage().nbytes()
    if held < needed:
        raise Invalid(f"into[{name!r}]: its storage was freed: it has {held} bytes of {needed}")


def _numpy_target(name: str, into: Any) -> Target:
    if not into.flags.writeable:
        raise Invalid(f"into[{name!r}] is read-only; give an array that may be written to")
    is_direct = bool(into.flags.c_contiguous and into.dtype.isnative)
    box = Box((0,) * into.ndim, into.shape)
    return Target(name, into, into.shape, box, into.nbytes, is_direct, False)


def fill(targets: Sequence[Target], read: Read, call: Any) -> None:
    """Fills all of them by read(rows, progress). `call` gets the bytes done and in total."""
    stage = _Stage(targets)
    total, done = sum(target.nbytes for target in targets), 0
    rows: list[Row] = []
    unread = 0

    def read_batch() -> None:
        nonlocal done, unread
        before = done
        read(rows, call and (lambda part, _: call(before + part, total)))
        done += unread
        unread = 0
        stage.hand_out()
        rows.clear()

    for target in targets:
        if not target.is_direct and not stage.has_room(target.nbytes):
            read_batch()
        rows.append(stage.row(target))
        unread += target.nbytes
    read_batch()
    stage.finish()
    _note_changes([target.into for target in targets if target.is_direct and target.is_torch])


def _note_changes(tensors: Sequence[Any]) -> None:
    """So that a backward pass that needs what was there is refused, as after copy_()."""
    if not tensors:
        return
    import torch

    increment = getattr(torch.autograd.graph, "increment_version", None)
    for tensor in tensors:
        if increment is not None and not tensor.is_inference():
            increment(tensor)


class _Stage:
    """Memory that is read into in place of that of targets, and copied to them from there.

    It has two halves that are kept over all batches, each as large as the largest target: devices
    copy from one while the other is read into.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        staged = [target for target in targets if not target.is_direct]
        sizes = [_aligned(target.nbytes) for target in staged]
        self._bytes = min(sum(sizes), max(sizes + [_STAGE]))
        self._is_torch = any(target.is_torch for target in staged)
        self._is_pinned = any(target.is_torch and target.into.is_cuda for target in staged)
        self._halves: list[Any] = [None, None]
        self._marks: list[list[Any]] = [[], []]  # in streams of devices, after copies from a half
        self._turn = 0
        self._used = 0
        self._copies: list[tuple[Target, Any]] = []

    def has_room(self, nbytes: int) -> bool:
        return self._used + _aligned(nbytes) <= self._bytes

    def row(self, target: Target) -> Row:
        memory = target.into if target.is_direct else self._place(target)
        if target.is_torch:
            address = memory.data_ptr()
        else:
            address = memory.__array_interface__["data"][0]
        return target.name, memory.dtype, target.shape, target.box.offset, target.box.size, address

    def _place(self, target: Target) -> Any:
        """Memory in the half whose turn it is."""
        part = self._half()[self._used : self._used + target.nbytes]
        self._used += _aligned(target.nbytes)
        if target.is_torch:
            memory = part.view(target.into.dtype).view(target.box.size)
        else:
            bytes_there = part.numpy() if self._is_torch else part
            dtype = target.into.dtype.newbyteorder("=")
            memory = bytes_there.view(dtype).reshape(target.into.shape)
        self._copies.append((target, memory))
        return memory

    def _half(self) -> Any:
        for mark in self._marks[self._turn]:
            mark.synchronize()
        self._marks[self._turn].clear()
        if self._halves[self._turn] is None:
            self._halves[self._turn] = self._allocate()
        return self._halves[self._turn]

    def _allocate(self) -> Any:
        if self._is_torch:
            import torch

            # Whatever torch.set_default_device() says.
            return torch.empty(
                self._bytes, dtype=torch.uint8, device="cpu", pin_memory=self._is_pinned
            )
        import numpy

        return numpy.empty(self._bytes, "u1")

    def hand_out(self) -> None:
        """Copies what was read, and lets the other half have its turn."""
        devices = set()
        for target, memory in self._copies:
            if not target.is_torch:
                target.into[...] = memory
            elif target.into.is_cuda:
                target.into.copy_(memory, non_blocking=True)
                devices.add(target.into.device)
            else:
                target.into.copy_(memory)
        if devices:
            import torch

            self._marks[self._turn] = [
                torch.cuda.current_stream(device).record_event() for device in devices
            ]
        self._copies.clear()
        self._used = 0
        self._turn = 1 - self._turn

    def finish(self) -> None:
        for mark in self._marks[0] + self._marks[1]:
            mark.synchronize()


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT

