"""Tiles of one operand that threads turn in squares: its vectors are read along one mode and D's written along another.

Both tensors come in whole vectors of 16 bytes, and nothing passes through shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gett.ir.gemm import A, D
from gett.schedule.search.stream_boxes import THREADS, cut_box, walk_in_order
from gett.schedule.spec.mainloop import Digit, StreamLoad, StreamMap
from gett.schedule.spec.stream_views import TensorView, vector_along
from layouts.access import contiguous_run
from layouts.box import Box
from layouts.rates import RunRates, run_cost

VECTOR_BYTES = 16
HELD = 8  # vectors that a thread has in flight
LANES = 8  # of a warp along D's run: 128 bytes


def turn_loop(
    extents: tuple[int, ...], tensors: Mapping[int, TensorView], memory: RunRates
) -> tuple[Box, StreamMap] | None:
    """The box of D's modes and the map, None where the operand does not run along another mode in whole vectors."""
    a, d = tensors[A], tensors[D]
    modes = [m for m, e in enumerate(extents) if e > 1]
    p, q = a.nearest(modes), d.nearest(modes)
    side = VECTOR_BYTES // d.size
    if set(tensors) != {A, D} or p is None or q is None or p == q or a.size != d.size or side < 2:
        return None
    if any(extents[m] % side for m in (p, q)) or any(
        vector_along([(m, extents[m])], extents, x) < side for m, x in ((p, a), (q, d))
    ):
        return None
    unroll = max(1, HELD // side)
    volume, order = THREADS * unroll * side**2, d.order(range(len(extents)))
    best, least = None, math.inf
    for run_d in (64, 128, 256):
        for run_a in (32, 64, 128, 256):
            box = cut_box(extents, [(d, run_d), (a, run_a)], (d, a), volume, order)
            if any(box.cut[m] % side for m in (p, q)):
                continue
            runs = [(contiguous_run(box, x.strides, x.size), x.store) for x in (a, d)]
            time = sum(run_cost(memory, run, store=store, bulk=True) for run, store in runs)
            time *= (1 / box.efficiency()) ** 0.5 * (1 + 0.1 * max(0.0, math.log2(volume / box.size)))
            if time < least * 0.999:
                best, least = box, time
    if best is None:
        return None
    at = {x.modes[0]: i for i, x in best.tiled}
    return best, StreamMap(_load(best, at[p], at[q], side), None, None, THREADS, side, unroll, walk_in_order(best, d))


def _load(box: Box, p: int, q: int, side: int) -> StreamLoad:
    """A warp's squares: up to `LANES` of them along D's run, the rest of the lanes along the operand's."""
    count_p, count_q = box.dims[p].box // side, box.dims[q].box // side
    lanes_q = math.gcd(count_q, LANES)
    lanes_p = math.gcd(count_p, 32 // lanes_q)
    walk = [Digit(p, side, lanes_p), Digit(q, side, lanes_q)]
    walk += [Digit(p, side * lanes_p, count_p // lanes_p), Digit(q, side * lanes_q, count_q // lanes_q)]
    walk += [Digit(i, 1, d.box) for i, d in box.tiled if i not in (p, q)]
    return StreamLoad(width=side, walk=tuple(walk), turned=True)
