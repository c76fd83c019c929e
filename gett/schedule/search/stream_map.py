"""Tiles of plans without sums: each element of D is one product, and a tile is stored in D's order.

Operands whose nearest mode is another one are staged in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gett.hw.archs import ArchFacts
from gett.hw.device import DeviceModel
from gett.ir.gemm import A, B, C, D
from gett.schedule.search.stream_boxes import (
    choose_swizzle,
    cut_box,
    in_order,
    walk_in_order,
    walk_in_rows,
)
from gett.schedule.search.tried import STREAMING
from gett.schedule.spec.mainloop import StreamLoad, StreamMap
from gett.schedule.spec.stream_views import TensorView, cut_modes, image_places, is_splat, vector_along
from layouts.access import contiguous_run
from layouts.box import Box
from layouts.rates import run_cost


def map_loop(
    extents: tuple[int, ...], tensors: Mapping[int, TensorView], facts: ArchFacts, device: DeviceModel
) -> tuple[Box, StreamMap]:
    """The box of D's modes, and how tensors are read."""
    d = tensors[D]
    widest = max(t.size for t in tensors.values())
    tile, volume = STREAMING.tile_bytes // widest, math.prod(extents)
    if 0 < volume < tile * facts.sm_count * 4:  # small results: more blocks rather than large tiles
        even = 1 << max(0, volume // (facts.sm_count * 4) - 1).bit_length()
        tile = min(max(even, STREAMING.threads), tile)
    box = _box(extents, tensors, tile, device)
    vector = min(vector_along(cut_modes(box), extents, d), max(1, 16 // widest))
    loads = {t: _load(box, extents, x, vector) for t, x in tensors.items() if t != D}
    unroll = min(4, -(-box.size // (vector * STREAMING.threads)))
    walk_d, store_once = walk_in_order(box, d), d.bytes > facts.l2_bytes
    return box, StreamMap(loads[A], loads.get(B), loads.get(C), STREAMING.threads, vector, unroll, walk_d, store_once)


def _box(extents: tuple[int, ...], tensors: Mapping[int, TensorView], volume: int, device: DeviceModel) -> Box:
    """The cheapest of the boxes that give D and each operand runs of several lengths."""
    memory, from_l2 = device.memory, device.memory.copy_tbps / device.l2.read_tbps
    d, modes = tensors[D], range(len(extents))
    inputs = sorted((x for t, x in tensors.items() if t != D), key=lambda x: -x.bytes)
    transposed = [x for x in inputs if x.nearest(modes) not in (d.nearest(modes), None)]
    best, least = None, math.inf
    for run_d in STREAMING.runs:
        for run in (16, *STREAMING.runs) if transposed else (0,):
            runs = [(d, run_d), *((x, run) for x in transposed)]
            box = cut_box(extents, runs, (d, *transposed), volume, d.order(modes))
            time = sum(
                (x.bytes + from_l2 * _again(box, x))
                * run_cost(memory, contiguous_run(box, x.strides, x.size), store=x.store)
                for x in tensors.values()
            )
            # Ragged and small tiles leave lanes idle, which costs less than bytes do.
            time *= (1 / box.efficiency()) ** 0.5 * (1 + 0.1 * max(0.0, math.log2(volume / box.size)))
            if time < least * 0.999:
                best, least = box, time
    assert best is not None
    return best


def _again(box: Box, tensor: TensorView) -> int:
    """Bytes that tiles read of a tensor beyond its own, since it does not vary along some modes."""
    read = math.prod(d.box for _, d in box.tiled if tensor.strides[d.modes[0]]) * tensor.size
    return max(0, box.tiles * read - tensor.bytes) if 0 in tensor.strides else 0


def _load(box: Box, extents: Sequence[int], tensor: TensorView, vector: int) -> StreamLoad:
    """Straight into registers where D's order suits the tensor, else through shared memory."""
    cuts = cut_modes(box)
    nearest = tensor.nearest([m for m, _ in cuts])
    if is_splat(cuts, tensor, vector) and (
        not cuts or vector > 1 or nearest in (None, cuts[0][0]) or tensor.strides[cuts[0][0]] == 0
    ):
        return StreamLoad(splat=vector > 1)
    width = min(vector, vector_along(cuts, extents, tensor))
    whole = width == vector and vector > 1
    if not whole and cuts and (cuts[0][1] % vector or nearest != cuts[0][0]):
        return _staged(box, extents, tensor)
    return StreamLoad(width=width)


def _staged(box: Box, extents: Sequence[int], tensor: TensorView) -> StreamLoad:
    places = image_places(box, tensor)
    dims = [box.dims[i] for i in in_order(box, tensor)]
    width = vector_along([(d.modes[0], d.box) for d in dims], extents, tensor)
    walk = tuple(digit for digit in walk_in_rows(box, tensor, width) if places[digit.dim])
    mask, shift = choose_swizzle(places, walk, width, tensor.size)
    return StreamLoad(staged=True, width=width, walk=walk, mask=mask, shift=shift)
