"""The copies that fill an operand's tile of a stage: slab by slab, whole or the block's part of what its cluster needs.

Owns the statements inside the generated `Index::load_stage`, and how a staged tile of D is cut into copies. Knows
tensor maps and multicasts, no pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass

from gett.schedule.spec.loader import Tma
from gett.schedule.spec.schedule import Schedule
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap

# The copy engine takes one copy after the other: behind a long store, loads wait while the stages run dry. Short ones
# are not worth a cut.
STORE_BYTES, LONG_BYTES = 8192, 32768
LOOPED = 8  # more copies of a tile are a loop: one after the other, their places would take registers


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a tile.

    Attributes:
        start: Byte of the tile in shared memory where it begins.
        first: The hardware's coordinates, relative to the tile's.
        part_bytes, part_step: What a block's part of a divided box adds to `start` and to the divided coordinate.
        whose: Part of the cluster that issues it, or None: all do (each its part), or each in its turn.
    """

    start: int
    first: tuple[int, ...]
    part_bytes: int = 0
    part_step: int = 0
    whose: int | None = None


def copies(load: Tma) -> list[Copy]:
    """The copies of one tile, in the order in which they are issued."""
    out = []
    for i, (start, first) in enumerate(_starts(load)):
        if load.divided is not None:
            # The divided dimension is the outermost, so a part is one piece of the copy.
            step = load.box[load.divided] * _count(load.map, load.divided)
            out.append(Copy(start, first, load.map.slab_bytes // load.blocks, step))
        else:
            even = load.blocks > 1 and load.copies % load.blocks == 0
            out.append(Copy(start, first, whose=i % load.blocks if even else None))
    return out


def _count(made: TmaMap, dim: int) -> int:
    """The hardware's elements in one of the map along a dimension."""
    return made.halves if dim == 0 else 1


def _starts(load: Tma) -> list[tuple[int, tuple[int, ...]]]:
    """Place in shared memory and the hardware's first coordinates of each copy of the map's box."""
    made = load.map
    if not load.repeats:
        rest = (0,) * (made.rank - 1)
        width = made.box[0] * made.halves
        return [(slab * made.slab_bytes, (slab * width, *rest)) for slab in range(made.slabs)]
    out = []
    for i in range(load.copies):
        first, at = [0] * made.rank, i
        for dim, step, count in load.repeats:
            first[dim] += at % count * step * _count(made, dim)
            at //= count
        out.append((i * load.pitch, tuple(first)))
    return out


def stage_copies(name: str, load: Tma) -> list[str]:
    """C++ statements that issue the copies of operand `name` (`"a"` or `"b"`).

    In scope are its place `<name>` in shared memory, `bar`, `multicast_<name>`, `tile_k`, and the coordinates:
    `t.<name>0` ... of the tile and `k.<name>0` ... of the k-tile.
    """
    part = f"int(multicast_{name}.part)"
    if load.repeats and load.divided is None and load.copies > LOOPED:
        return _loop(name, load, part)
    calls = []
    for copy in copies(load):
        coords = [f"t.{name}{d} + k.{name}{d}{f' + {x}' if x else ''}" for d, x in enumerate(copy.first)]
        to = f"{name} + {copy.start}" if copy.start else name
        if load.divided is not None:
            to += f" + {part} * {copy.part_bytes}"
            coords[load.divided] += f" + {part} * {copy.part_step}"
        if load.blocks == 1:
            calls.append(f"    gett::tma_load({to}, &p.map_{name}, bar, {', '.join(coords)});")
            continue
        guard = ""
        if load.divided is None:
            whose = f"tile_k % {load.blocks}" if copy.whose is None else str(copy.whose)
            guard = f"    if ({part} == {whose})\n  "
        mask = f"multicast_{name}.mask"
        calls.append(f"{guard}    gett::tma_load_multicast({to}, &p.map_{name}, bar, {mask}, {', '.join(coords)});")
    return calls


def _loop(name: str, load: Tma, part: str) -> list[str]:
    """Statements that issue the copies of `load.repeats`, the first of them fastest."""
    coords = [f"t.{name}{d} + k.{name}{d}" for d in range(load.map.rank)]
    to, heads, number, flat = name, [], [], 1
    for i, (dim, step, count) in enumerate(load.repeats):
        heads.append(f"#pragma unroll 1\n    for (int i{i} = 0; i{i} < {count}; ++i{i})")
        coords[dim] += f" + i{i} * {step * _count(load.map, dim)}"
        to += f" + i{i} * {flat * load.pitch}"
        number.append(f"i{i} * {flat}")
        flat *= count
    call = f"gett::tma_load({to}, &p.map_{name}, bar, {', '.join(coords)});"
    if load.blocks > 1:
        whose = f"({' + '.join(number)})" if load.copies % load.blocks == 0 else "tile_k"
        call = (
            f"if ({part} == {whose} % {load.blocks})\n"
            f"        gett::tma_load_multicast({to}, &p.map_{name}, bar, multicast_{name}.mask, {', '.join(coords)});"
        )
    return [*reversed(heads), f"      {call}"]


def store_pieces(made: TmaMap) -> tuple[tuple[int, ...], list[tuple[int, tuple[int, ...]]]]:
    """The box of one copy of a staged tile of D; (byte of the tile, the hardware's first coordinates) of each copy."""
    box, pieces = list(made.box), [(0,) * made.rank]
    size = made.slab_bytes
    for dim in range(made.rank - 1, 0, -1) if size * made.slabs > LONG_BYTES else ():
        period = 8 * max(made.swizzle_bytes, CHUNK)
        fits = [n for n in range(1, box[dim] + 1) if box[dim] % n == 0 and size // n % period == 0]
        n = next((n for n in fits if size // n <= STORE_BYTES), max(fits, default=1))
        box[dim] //= n
        size //= n
        pieces = [(*p[:dim], i * box[dim], *p[dim + 1 :]) for p in pieces for i in range(n)]
        if box[dim] > 1 or size <= STORE_BYTES:
            break  # what lies further in is no longer in one piece
    out = []
    for slab in range(made.slabs):
        for i, first in enumerate(pieces):
            out.append((slab * made.slab_bytes + i * size, (slab * made.box[0] * made.halves, *first[1:])))
    return tuple(box), out


def tensor_maps(schedule: Schedule) -> dict[str, TmaMap]:
    """The tensor maps of a kernel by the role of their tensor, in the order of the argument."""
    loads, epilogue = {"a": schedule.hopper.a.tma, "b": schedule.hopper.b.tma}, schedule.epilogue
    maps = {name: None if load is None else load.map for name, load in loads.items()}
    maps |= {"d": epilogue.store.map, "c": epilogue.source_map}
    return {name: made for name, made in maps.items() if made is not None}
