"""Whether a tensor map is one that the hardware has for a tensor: it is made anew from its tile, order and swizzle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gett.ir.contraction import Operand
from gett.ir.gemm import itemsize
from layouts.modes import Strided
from layouts.tma import TmaMap
from layouts.tma_map import Refusal, tma_map


def misshapen(name: str, made: TmaMap, modes: int) -> Iterator[str]:
    """Why a map is none of a tensor of so many modes, whatever its numbers are."""
    if {len(made.modes), len(made.tile)} != {modes} or sorted(made.order) != list(range(modes)):
        yield f"map of {name}: it is for {len(made.modes)} modes, the tensor has {modes}"
    ranks = {len(made.extents), len(made.strides), len(made.box)}
    if len(ranks) > 1 or any(m.dim >= made.rank for m in made.modes):
        yield f"map of {name}: it has {ranks} dimensions, its modes lie along {[m.dim for m in made.modes]}"


def wrong_map(
    name: str,
    made: TmaMap,
    operand: Operand,
    tensor: int,
    modes: Sequence[Strided],
    box: Sequence[int] | None = None,
) -> Iterator[str]:
    """What is wrong with the map of a tensor, nothing where it is right.

    Args:
        name: Of the tensor, for the text.
        made: The map.
        operand: The tensor.
        tensor: Position of its strides.
        modes: Its modes, as the map has them.
        box: What the map's box would be where one copy brought the whole tile; its own by default.
    """
    size = itemsize(operand.dtype)
    yield from misshapen(name, made, len(modes))
    if made.itemsize != size:
        yield f"map of {name}: its elements have {made.itemsize} bytes, those of {operand.dtype} have {size}"
    if made.base_offset:
        yield f"map of {name}: it starts {made.base_offset} bytes from element 0, whose address is passed"
    whole = replace(made, box=tuple(box)) if box is not None else made
    reason = ""
    for row in (0, whole.box[0]):
        found = tma_map(
            [s.extent for s in modes],
            [s.strides[tensor] for s in modes],
            size,
            made.tile,
            order=made.order,
            unit=made.order[0],
            base_alignment=operand.alignment,
            swizzle_bytes=made.swizzle_bytes,
            row=row,
        )
        if found == whole:
            return
        reason = reason or (found.reason if isinstance(found, Refusal) else f"a tile of {made.tile} needs {found}")
    yield f"map of {name}: {reason}; the schedule has boxes of {made.box} of extents {made.extents}"
