"""Where elements of a tile lie in shared memory: as the copies of a tensor map put them, as wgmma reads them.

Both are arrays over the whole tile, so that a rule compares them element by element. Knows maps and boxes, no plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gett.schedule.spec.epilogue import StagedTile
from gett.schedule.spec.loader import Tma
from layouts.box import Box
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap

Places = NDArray[np.int64]


def swizzled(swizzle: int, address: Places) -> Places:
    """Where the bytes of dense atoms lie under the hardware's swizzle of `swizzle` bytes, 16 for none."""
    return address ^ (((address >> 7) & (swizzle // CHUNK - 1)) << 4)


def coordinates(dims: Sequence[tuple[int, int]]) -> dict[int, Places]:
    """The coordinate along each mode of a tile's elements; `dims` are (mode, elements), the tile's fastest first."""
    index = np.arange(math.prod(count for _, count in dims))
    out = {}
    for mode, count in dims:
        out[mode] = index % count
        index = index // count
    return out


def mapped_places(made: TmaMap, local: Mapping[int, Places]) -> Places | None:
    """Bytes at which the map's own copies put elements of its tile; None where they do not bring them all."""
    return _placed(made, _in_map(made, local))


def copied_places(load: Tma, local: Mapping[int, Places]) -> Places | None:
    """The same for all copies that make an operand's tile, one after the other."""
    made = load.map
    if not load.repeats:
        return mapped_places(made, local)
    if made.slabs > 1 or any(dim >= made.rank for dim, _, _ in load.repeats):
        return None
    local, copy, flat = dict(local), np.zeros(1, np.int64), 1
    others = []
    for dim, step, count in load.repeats:
        # Copies are parts of a mode that the map's tile has less of, else of one of its dimensions.
        fits = {m: (made.modes[m].dim, made.modes[m].weight * made.tile[m]) == (dim, step) for m in local}
        at = next((m for m, x in local.items() if fits[m] and x.max() == count * made.tile[m] - 1), None)
        if at is None:
            others.append((dim, step, count, flat))
        else:
            copy, local[at] = copy + local[at] // made.tile[at] * flat, local[at] % made.tile[at]
        flat *= count
    place = _in_map(made, local)
    for dim, step, count, stride in others:
        which = place[dim] // step
        if which.max() >= count:
            return None
        copy, place[dim] = copy + which * stride, place[dim] - which * step
    found = _placed(made, place)
    return None if found is None else found + copy * load.pitch


def _in_map(made: TmaMap, local: Mapping[int, Places]) -> list[Places]:
    """Coordinates in the map, from the tile's first element on."""
    at = [np.zeros(1, np.int64) for _ in range(made.rank)]
    for m, x in local.items():
        mode = made.modes[m]
        at[mode.dim] = at[mode.dim] + abs(mode.weight) * x
    return at


def _placed(made: TmaMap, at: list[Places]) -> Places | None:
    slab, at[0] = at[0] // made.box[0], at[0] % made.box[0]
    if slab.max() >= made.slabs or any(x.max() >= b for x, b in zip(at[1:], made.box[1:], strict=True)):
        return None
    row = np.zeros(1, np.int64)
    for x, b in zip(reversed(at[1:]), reversed(made.box[1:]), strict=True):
        row = row * b + x
    return slab * made.slab_bytes + swizzled(made.swizzle_bytes, row * made.pitch + at[0] * made.itemsize)


def wgmma_places(
    major: str, swizzle: int, shape: tuple[int, int], rows: int, block_k: int, size: int, atom: tuple[int, int] = (0, 0)
) -> Places:
    """Bytes at which wgmma's descriptors look for elements [row of M or N, k] of an operand's tile.

    The box has `shape`; the tile has room for `block_k` k. An atom of an MN-major tile holds `atom[0]` rows and has
    room for `atom[1]`; both are 0 where atoms are full.
    """
    i, k = np.arange(shape[0])[:, None], np.arange(shape[1])[None, :] * (size if major == "k" else 1)
    if major == "k":
        slab = -(-rows // 8) * 8 * swizzle
        return k // swizzle * slab + swizzled(swizzle, i * swizzle + k % swizzle)
    held, room = atom
    byte = (i // held * room + i % held if held else i) * size
    return byte // swizzle * (block_k * swizzle) + swizzled(swizzle, k * swizzle + byte % swizzle)


def staged_places(tile: StagedTile, group: str, box: Box) -> Places:
    """What index of a group's box adds to an element's place in the staged tile, in elements, before the swizzle."""
    index = np.arange(box.size)
    total = np.zeros(box.size, np.int64)
    for i, (d, step) in enumerate(zip(box.dims, tile.m if group == "m" else tile.n, strict=True)):
        x = index % d.box
        index = index // d.box
        if tile.cut is not None and tile.cut[:2] == (group, i):
            _, _, piece, far = tile.cut
            total += x % piece * step + x // piece * far
        else:
            total += x * step
    return total
