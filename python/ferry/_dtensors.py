"""Which part of a DTensor a rank holds, by its mesh and placements."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from ferry.errors import Unsupported


class Box(NamedTuple):
    """Part of a tensor: [offset, offset + size) along each axis, in elements."""

    offset: tuple[int, ...]
    size: tuple[int, ...]


def box_of_rank(
    name: str, mesh: Any, placements: Sequence[Any], shape: Sequence[int]
) -> Box | None:
    """This rank's part, cut as torch.chunk() cuts; None: it is not in the mesh."""
    coordinate, extents = mesh.get_coordinate(), tuple(mesh.shape)
    if coordinate is None:
        return None
    offset, size = [0] * len(shape), list(shape)
    for axis in range(len(shape)):
        for dim in _splitting(name, extents, placements, axis, len(shape)):
            each = -(-size[axis] // extents[dim])
            begin = min(each * coordinate[dim], size[axis])
            offset[axis] += begin
            size[axis] = min(each, size[axis] - begin)
    return Box(tuple(offset), tuple(size))


def _splitting(
    name: str, mesh: tuple[int, ...], placements: Sequence[Any], axis: int, axes: int
) -> list[int]:
    """Dimensions of the mesh that split the axis, in the order in which they do: from the first to
    the last, but for those of FSDP (_StridedShard), which split what others after them have split
    into `split_factor` parts."""
    order: list[int] = []
    for dim in reversed(range(len(mesh))):
        placement = placements[dim]
        if placement.is_replicate() or placement.dim % axes != axis:
            continue
        before, parts = 0, 1
        factor = getattr(placement, "split_factor", 1)
        while parts < factor and before < len(order):
            parts *= mesh[order[before]]
            before += 1
        if parts != factor:
            raise Unsupported(
                f"tensor {name}: a DTensor sharded by {placements} is in several pieces on a rank;"
                " use a whole tensor, and distribute it"
            )
        order.insert(before, dim)
    return order
