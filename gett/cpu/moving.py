"""Moving tiles between arrays of different element order, in pieces that stay in cache; and work on several threads.

Knows NumPy arrays only, neither plans nor contractions.
"""

from __future__ import annotations

import contextvars
import itertools
import math
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gett.cpu.views import Array

#: Elements in one piece of a transposing copy: about 100 kB of float32, which stays in a core's second-level cache.
PIECE = 24 * 1024
#: Elements along each unit-stride axis that a piece keeps, so that whole cache lines are read and written.
RUN = 64
#: Cache lines that half a first-level cache keeps.
_LINES = 256
#: Elements from which a copy is worth a second thread.
_PARALLEL = 1 << 19


def available_threads() -> int:
    """Processors this process may run on, at most 8: more do not help what memory bounds."""
    try:
        return min(8, len(os.sched_getaffinity(0)))
    except AttributeError:
        return min(8, os.cpu_count() or 1)


def parallel(jobs: Sequence[Callable[[], None]], threads: int) -> None:
    """Run every job, on several threads where there are several; the first exception is raised again here."""
    if threads < 2 or len(jobs) < 2:
        for job in jobs:
            job()
        return
    lock, todo, failures = threading.Lock(), iter(jobs), list[BaseException]()

    def work() -> None:
        try:
            while not failures:
                with lock:
                    job = next(todo, None)
                if job is None:
                    return
                job()
        except BaseException as error:
            failures.append(error)

    # A copied context hands np.errstate on to the threads.
    others = [
        threading.Thread(target=contextvars.copy_context().run, args=(work,))
        for _ in range(min(threads, len(jobs)) - 1)
    ]
    for t in others:
        t.start()
    work()
    for t in others:
        t.join()
    if failures:
        raise failures[0]


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


def pieces(shape: Sequence[int], piece: Sequence[int]) -> list[tuple[slice, ...]]:
    """Index tuples that cut `shape` into pieces, the last axis fastest."""
    return list(
        itertools.product(
            *([slice(i, min(i + p, n)) for i in range(0, n, p)] for n, p in zip(shape, piece, strict=True))
        )
    )


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
    step = abs(target.strides[u_source])
    lines = math.prod(n for n, s in zip(target.shape, target.strides, strict=True) if abs(s) < step)
    return lines <= _LINES and source.strides[u_target] % 4096 != 0


def move(target: Array, source: Array, threads: int = 1) -> None:
    """`target[...] = source`, cast as needed, both of one shape.

    Where the two run along different axes, each piece goes through scratch in the source's order: memory is read and
    written along its own runs, and the transposition happens in cache.
    """
    u_source, u_target = unit_axis(source), unit_axis(target)
    if u_source < 0 or u_target < 0 or source.size <= 4096 or _is_local(target, source, u_target, u_source):
        if threads > 1 and source.size > _PARALLEL and u_target >= 0:
            piece = piece_shape(source.shape, (u_target,), source.size // (2 * threads))
            copies = [partial(np.copyto, target[i], source[i], casting="unsafe") for i in pieces(source.shape, piece)]
            parallel(copies, threads)
            return
        np.copyto(target, source, casting="unsafe")
        return
    piece = piece_shape(source.shape, (u_source, u_target))
    todo = pieces(source.shape, piece)
    workers = threads if source.size > _PARALLEL else 1
    share = -(-len(todo) // (4 * workers))

    def run(indices: list[tuple[slice, ...]]) -> None:
        room = np.empty(math.prod(piece) + 16 * max(piece), target.dtype)
        for i in indices:
            part = source[i]
            scratch = linear_like(part, target.dtype, room)
            np.copyto(scratch, part, casting="unsafe")
            np.copyto(target[i], scratch)

    if workers == 1:
        run(todo)
    else:
        parallel([partial(run, todo[j : j + share]) for j in range(0, len(todo), share)], workers)
