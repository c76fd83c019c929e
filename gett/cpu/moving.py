"""Moving tiles between arrays of different element order, and adding them up, in pieces that stay in cache.

Knows NumPy arrays only, neither plans nor contractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gett.cpu import tiles
from gett.cpu.threads import parallel, pieces
from gett.cpu.tiles import Part, Tiles, call_blocks
from gett.cpu.views import Array

#: Elements in one piece of a transposing copy: 256 kB of float32, which stays in a core's second-level cache.
PIECE = 64 * 1024
#: Elements along each unit-stride axis that a piece keeps, so that whole cache lines are read and written.
RUN = 64
#: Cache lines that half a second-level cache keeps, and pages whose addresses a core keeps.
_LINES, _PAGES = 8192, 1024
_LINE, _PAGE = 64, 4096  # bytes
#: Bytes from the first element to the last that stay in a core's second-level cache, or close by.
_NEAR = 2 << 20
#: Elements up to which any order is as good.
_SMALL = 4096
#: Elements from which a copy is worth a second thread.
_PARALLEL = 1 << 19


def unit_axis(array: Array) -> int:
    """The axis of extent above 1 with the smallest stride other than 0, -1 where there is none."""
    best, found = 0, -1
    for i, (n, s) in enumerate(zip(array.shape, array.strides, strict=True)):
        if n > 1 and s and (found < 0 or abs(s) < best):
            best, found = abs(s), i
    return found


def piece_shape(shape: Sequence[int], keep: Sequence[int], size: int = PIECE) -> tuple[int, ...]:
    """Extents of pieces of at most about `size` elements that keep `RUN` elements along the axes `keep`."""
    piece = list(shape)
    others = [i for i in range(len(piece)) if i not in keep]
    for axes, least in ((others, 1), (list(keep), RUN)):
        while math.prod(piece) > size:
            i = max(axes, key=lambda i: piece[i], default=-1)
            if i < 0 or piece[i] <= least:
                break
            piece[i] = max(least, -(-piece[i] // 2))
    return tuple(piece)


def linear_like(source: Array, dtype: np.dtype[np.generic], room: Array | None = None) -> Array:
    """Uninitialised scratch of the source's shape in the source's order of strides.

    The slowest axis is padded, for a pitch that is a large power of two would map every row to the same cache set.
    """
    order = sorted(range(source.ndim), key=lambda i: -abs(source.strides[i]))
    extents = [source.shape[i] for i in order]
    if len(extents) < 2:
        flat = np.empty(extents, dtype)
    else:
        row = math.prod(extents[1:])
        pitch = row + 16
        buffer = np.empty(extents[0] * pitch, dtype) if room is None else room[: extents[0] * pitch]
        flat = buffer.reshape(extents[0], pitch)[:, :row].reshape(extents)
    back = [0] * source.ndim
    for position, i in enumerate(order):
        back[i] = position
    return flat.transpose(back)


def _is_local(target: Array, source: Array, u_target: int, u_source: int) -> bool:
    """Whether an ordinary copy, which follows the target's order, uses up each cache line of the source at once."""
    if u_source == u_target:
        return True
    if source.strides[u_target] % _PAGE == 0:  # the lines of a run would share one cache set
        return False
    if sum((n - 1) * abs(s) for n, s in zip(source.shape, source.strides, strict=True)) <= _NEAR:
        return True
    # What is read until the same lines of the source are needed again.
    step = abs(target.strides[u_source])
    axes = zip(source.strides, source.shape, target.strides, strict=True)
    lines = pages = 1
    span = _LINE
    for stride, n in sorted((abs(s), n) for s, n, t in axes if abs(t) < step):
        lines *= n
        if stride <= max(span, _PAGE):
            span += (n - 1) * stride
        else:
            pages *= n
    return lines <= _LINES and pages * (span // _PAGE + 1) <= _PAGES


def move(target: Array, source: Array, threads: int = 1) -> None:
    """`target[...] = source`, cast as needed, both of one shape.

    Where the two run along different axes, each piece goes through scratch in the source's order. Memory is then read
    and written along its own runs, and the transposition happens in cache.
    """
    if source.size <= _SMALL:
        np.copyto(target, source, casting="unsafe")
        return
    u_source, u_target = unit_axis(source), unit_axis(target)
    if u_source < 0 or u_target < 0 or _is_local(target, source, u_target, u_source):
        _copy(target, source, u_target, threads)
        return
    piece = piece_shape(source.shape, (u_source, u_target))

    def run(parts: Iterator[Part]) -> None:
        room = np.empty(math.prod(piece) + 16 * max(piece), target.dtype)
        for i in parts:
            part = source[i]
            scratch = linear_like(part, target.dtype, room)
            np.copyto(scratch, part, casting="unsafe")
            np.copyto(target[i], scratch)

    parallel(Tiles(source.shape, piece), run, threads if source.size > _PARALLEL else 1)


def _copy(target: Array, source: Array, u_target: int, threads: int) -> None:
    """An ordinary copy, in pieces that an interrupt need not wait for."""
    shared = threads > 1 and source.size > _PARALLEL and u_target >= 0
    if not shared and source.size <= tiles.CALL:
        np.copyto(target, source, casting="unsafe")
        return
    most = min(tiles.CALL, source.size // (2 * threads)) if shared else tiles.CALL

    def run(parts: Iterator[Part]) -> None:
        for i in parts:
            np.copyto(target[i], source[i], casting="unsafe")

    parallel(Tiles(source.shape, piece_shape(source.shape, (u_target,), most)), run, threads if shared else 1)


def add_pieces(sums: Tiles, form: Callable[[Part, Array | None], Any], out: Array | None) -> Array:
    """The sum of `form(part, None)` over all parts; the first is formed in `out` where there is one."""
    parts = pieces(sums)
    result = np.asarray(form(next(parts), out))
    for part in parts:
        np.add(result, form(part, None), out=result)
    return result


def add_up(target: Array, source: Array, kept: int) -> None:
    """`target[...] = ` the sum of `source` over its axes from `kept` on, added in the target's dtype."""
    axes = tuple(range(kept, source.ndim))
    if source.size <= tiles.CALL:
        np.add.reduce(source, axis=axes, dtype=target.dtype, out=target)
        return
    blocks = call_blocks(source.shape, source.strides, kept)
    sums = Tiles(source.shape[kept:], blocks[kept:])
    for part in pieces(Tiles(source.shape[:kept], blocks[:kept])):
        rows = source[part]

        def form(i: Part, out: Array | None, rows: Array = rows) -> Array:
            columns: tuple[Any, ...] = (..., *i)
            result: Array = np.add.reduce(rows[columns], axis=axes, dtype=target.dtype, out=out)
            return result

        room: tuple[Any, ...] = (*part, ...)  # the ellipsis keeps an array where nothing is kept
        add_pieces(sums, form, target[room])
