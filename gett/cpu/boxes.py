"""Tiles of the NumPy executor: how far each mode is cut, so that scratch stays bounded and copies stay in cache.

A tile is a box, a sub-range of every mode. It holds each packed tensor's unit-stride mode, so that memory is read and
written in whole cache lines on both sides of a transposition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gett.cpu.arithmetic import EXACT_K, Arithmetic
from gett.cpu.core import Core, Groups, product_time
from gett.cpu.tiles import Tiles
from gett.cpu.views import Modes, nearest_mode
from gett.ir.gemm import A, B, D
from layouts.modes import Strided, volume

#: Bytes of scratch for all tiles that a call holds at once.
SCRATCH_BYTES = 56 << 20
#: Bytes up to which a tile grows along the loops: large against Python's time per tile, small against the cache.
GROWN_BYTES = 1 << 20
#: The same of a tile of a long thin product, and how many times as long as it is thick or deep that is.
PANEL_BYTES, _THIN = 1 << 21, 16
#: Nanoseconds of one call of BLAS at most, for Ctrl-C is heard between two calls. Cutting a product of matrices into
#: panels of this size costs a hundredth of its time, for smaller ones it is more.
CALL_TIME = 2e8
#: How much shorter a call for many products is. It can be cut for nothing, and takes many times as long where BLAS's
#: threads wait for each other.
_BATCHES = 8
#: How much longer K stays than the panels' other sides: adding a partial sum goes through memory once more.
_K_LONGER = 8
#: Nanoseconds in which memory brings an element.
_ELEMENT = 0.5
#: Elements of a packed tensor's unit-stride mode in a tile, where the extent allows.
RUN = 64

Blocks = dict[Strided, int]


def box_extent(modes: Sequence[Strided], blocks: Blocks, tensor: int | None = None) -> int:
    """Elements of a box over `modes`, counting only those along which `tensor` varies where one is given."""
    return math.prod(blocks[s] for s in modes if tensor is None or s.strides[tensor])


def core_blocks(groups: Groups, core: Core, arithmetic: Arithmetic, threads: int, with_c: bool) -> Blocks:
    """The extent of a tile along each mode. Where K is cut, a tile of D is the sum of several products."""
    loops = (*groups.batch, *groups.spread, *core.loops_m, *core.loops_n)
    blocks: Blocks = dict.fromkeys(loops, 1)
    blocks.update({s: s.extent for s in (*core.m, *core.n, *core.k)})
    packed = [t for t, direct in zip((A, B, D), core.direct, strict=True) if not direct]
    members = {
        A: (*groups.batch, *core.loops_m, *core.m, *core.k),
        B: (*groups.batch, *core.loops_n, *core.n, *core.k),
        D: (*loops, *core.m, *core.n),
    }
    limit = SCRATCH_BYTES // threads // arithmetic.tile_bytes  # each thread has tiles of its own
    grown = GROWN_BYTES // arithmetic.tile_bytes

    def size(tensor: int) -> int:
        return box_extent(members[tensor], blocks)

    for t in packed:
        unit = nearest_mode(members[t], t)
        if unit is not None and blocks[unit] == 1:
            blocks[unit] = min(unit.extent, RUN if size(t) * RUN <= grown else RUN // 4)
    _cut_product(core, blocks, arithmetic)
    _cut_thin(core, blocks, packed, members, PANEL_BYTES // arithmetic.tile_bytes)
    _shrink(core, blocks, packed, members, limit, with_c)
    if arithmetic.limbs:
        while box_extent(core.k, blocks) > EXACT_K:
            _halve(core.k, blocks)
    order = sorted(loops, key=lambda s: min((abs(s.strides[t]) for t in packed if s.strides[t]), default=0))
    for s in order:
        if not any(s in members[t] for t in packed):
            blocks[s] = s.extent
    growing = True
    while growing:
        growing = False
        for s in order:
            longer = min(s.extent, 2 * blocks[s])
            if longer > blocks[s] and all(size(t) // blocks[s] * longer <= grown for t in packed if s in members[t]):
                blocks[s] = longer
                growing = True
    for s in loops:  # even cuts: 48 in tiles of 32 becomes two of 24
        blocks[s] = -(-s.extent // -(-s.extent // blocks[s]))
    _cut_batch(loops, core, blocks, arithmetic, CALL_TIME / _BATCHES / threads)
    if threads > 1:
        spread_over_threads(loops, blocks, threads)
    return blocks


def spread_over_threads(loops: Modes, blocks: Blocks, threads: int) -> None:
    """Cut the loops until there are two tiles a thread."""
    while math.prod(-(-s.extent // blocks[s]) for s in loops) < 2 * threads:
        longest = max(loops, key=lambda s: blocks[s], default=None)
        if longest is None or blocks[longest] == 1:
            return
        blocks[longest] = -(-blocks[longest] // 2)


def _call_time(loops: int, core: Core, blocks: Blocks, arithmetic: Arithmetic) -> float:
    """Nanoseconds of one call of BLAS for as many matrix products as the loops in a tile have."""
    m, n, k = (box_extent(g, blocks) for g in (core.m, core.n, core.k))
    return loops * (product_time(arithmetic, m, n, k) + _ELEMENT * (m * k + k * n + m * n))


def _cut_product(core: Core, blocks: Blocks, arithmetic: Arithmetic) -> None:
    """Cut one matrix product into panels, as square as they may be, that BLAS makes in bounded time."""
    sides, parts = (core.m, core.n, core.k), [1, 1, 1]
    while (time := _call_time(1, core, blocks, arithmetic)) > CALL_TIME:
        extents = [box_extent(g, blocks) for g in sides]
        i = max(range(3), key=lambda i: extents[i] / (_K_LONGER if i == 2 else 1))
        if extents[i] == 1:
            return
        parts[i] += parts[i] if time > 4 * CALL_TIME else 1 + parts[i] // 8
        most = -(-volume(sides[i]) // parts[i])
        for s in sides[i]:  # the faster modes stay whole, so that the panel keeps one stride
            blocks[s] = -(-s.extent // -(-s.extent // max(1, min(s.extent, most))))
            most //= s.extent


def _cut_thin(core: Core, blocks: Blocks, packed: list[int], members: dict[int, Modes], most: int) -> None:
    """Cut the rows or columns of a long thin product, whose time is that of its copies, until these stay in cache."""
    while True:
        m, n, k = (box_extent(g, blocks) for g in (core.m, core.n, core.k))
        side, others, tensors = (core.m, max(n, k), (A, D)) if m > n else (core.n, max(m, k), (B, D))
        large = any(t in packed and box_extent(members[t], blocks) > most for t in tensors)
        if not large or max(m, n) <= _THIN * others:
            return
        _halve(side, blocks)


def _cut_batch(loops: Modes, core: Core, blocks: Blocks, arithmetic: Arithmetic, most: float) -> None:
    """Cut the loops until one call for a whole tile takes bounded time."""
    while _call_time(box_extent(loops, blocks), core, blocks, arithmetic) > most:
        longest = max(loops, key=lambda s: blocks[s], default=None)
        if longest is None or blocks[longest] == 1:
            return
        blocks[longest] = -(-blocks[longest] // 2)


def _shrink(core: Core, blocks: Blocks, packed: list[int], members: dict[int, Modes], limit: int, with_c: bool) -> None:
    """Cut the matrices, longest dimension first, until all tiles together are within the limit."""
    sides = {A: (core.m, core.k), B: (core.n, core.k), D: (core.m, core.n)}
    while True:
        partial_sums = box_extent(core.k, blocks) < volume(core.k)
        if partial_sums and D not in packed:
            packed.append(D)  # BLAS cannot add to D: a partial sum needs a tile
        sizes = {t: box_extent(members[t], blocks) for t in packed}
        copies_d = (not core.direct[D]) + with_c + partial_sums
        if sum(n * (copies_d if t == D else 1) for t, n in sizes.items()) <= limit:
            return
        tensor = max(sizes, key=lambda t: sizes[t])
        if sizes[tensor] == 1:
            return
        first, second = sides[tensor]
        longer = max((first, second), key=lambda g: box_extent(g, blocks))
        if box_extent(longer, blocks) == 1:
            _halve(tuple(s for s in members[tensor] if blocks[s] > 1), blocks)
        else:
            _halve(longer, blocks)


def _halve(modes: Modes, blocks: Blocks) -> None:
    """Halve the slowest mode that can be: the faster ones keep their runs."""
    for s in reversed(modes):
        if blocks[s] > 1:
            blocks[s] = -(-blocks[s] // 2)
            return


def cut(modes: Sequence[Strided], blocks: Blocks) -> Tiles:
    """The boxes over `modes`."""
    return Tiles(tuple(s.extent for s in modes), tuple(blocks[s] for s in modes))
