"""Where elements of a tile lie in shared memory, worked out in Python: what copies write and what wgmma reads."""

from __future__ import annotations

from gett.codegen.index import Function
from gett.codegen.tma import copies
from gett.schedule.spec.loader import Gather, Tma
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box, TileDim
from layouts.swizzle import swizzle_address

SIZE = 2  # bytes of an element


def coordinates(box: Box, local: int) -> list[int]:
    """Coordinate of each mode of a box at an index of the tile."""
    out = [0] * len(box.extents)
    for d in box.dims:
        out[d.modes[0]] = local % d.box
        local //= d.box
    return out


def run(function: Function, local: int) -> int:
    """The value of a generated function of one index."""
    return function.evaluate(local=local)[""]


def mma_box(schedule: Schedule) -> Box:
    """The rows of M that the accumulators hold at a time."""
    box = schedule.tiling.m
    last = max((i for i, d in enumerate(box.dims) if d.box > 1), default=-1)
    tiles = schedule.tiling.mma_tiles
    dims = (TileDim(d.modes, d.box // tiles) if i == last else d for i, d in enumerate(box.dims))
    return Box(box.extents, tuple(dims))


def swizzle_of(loader: Tma | Gather) -> int:
    """Bytes of the tile's swizzle."""
    return loader.map.swizzle_bytes if isinstance(loader, Tma) else loader.swizzle_bytes


def read_at(loader: Tma | Gather, rows: int, depth: int, row: int, k: int) -> int:
    """Byte of a tile from which wgmma takes an element: columns of swizzle atoms, whose rows are swizzled.

    Args:
        loader: What brings the tile.
        rows: Rows of the tile.
        depth: K of the tile, padding included.
        row, k: The element; arrays of them give an array.
    """
    swizzle = swizzle_of(loader)
    if loader.major == "k":
        atom, inside, line, pitch = SIZE * k // swizzle, SIZE * k % swizzle, row, -(-rows // 8) * 8
    else:
        held = loader.run if isinstance(loader, Tma) and loader.run else swizzle // SIZE  # rows that an atom holds
        atom, inside, line, pitch = row // held, SIZE * (row % held), k, -(-depth // 8) * 8
    return atom * pitch * swizzle + swizzle_address(swizzle, line * swizzle + inside)


def places(load: Tma, at: tuple[int, ...], tile_k: int) -> list[int]:
    """Where the blocks that share a tile put the element at map coordinate `at`, one entry a write."""
    made = load.map
    out = []
    for part in range(load.blocks):
        for copy in copies(load):
            whose = tile_k % load.blocks if copy.whose is None else copy.whose
            if load.blocks > 1 and load.divided is None and part != whose:
                continue
            first = list(copy.first)
            start = copy.start
            if load.divided is not None:
                first[load.divided] += part * copy.part_step
                start += part * copy.part_bytes
            inside = [x - f for x, f in zip(at, first, strict=True)]
            if not all(0 <= x < b for x, b in zip(inside, load.box, strict=True)):
                continue
            line = 0
            for x, b in zip(reversed(inside[1:]), reversed(load.box[1:]), strict=True):
                line = line * b + x
            assert start % (8 * made.swizzle_bytes) == 0, "a copy starts where the swizzle's pattern does"
            out.append(start + swizzle_address(made.swizzle_bytes, line * made.pitch + SIZE * inside[0]))
    return out
