"""What bandwidth-bound kernels need of a block: places for outputs, shared memory.

Searches choose by these numbers and rules check them.
"""

from __future__ import annotations

from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, C, GemmPlan
from gett.schedule.spec.mainloop import Stream, StreamMatrix, StreamSum
from gett.schedule.spec.stream_views import image_places, image_size, output_views
from gett.schedule.spec.tiling import Tiling

ROW_BYTES = 128
"""Bytes of a shared-memory row, and of what a warp should read together at least."""


MATRIX = 16
"""Most rows, and most columns, of a small matrix of which a thread has all."""


def sum_block(loop: StreamSum) -> tuple[int, int, int]:
    """Outputs of a block, 1, and its step along K."""
    outputs = loop.threads // loop.lanes_k * loop.rows * (1 if loop.along_k else loop.vector)
    return outputs, 1, loop.lanes_k * loop.unroll * (loop.vector if loop.along_k else 1)


def stream_bytes(plan: GemmPlan, tiling: Tiling, loop: Stream | StreamMatrix) -> int:
    """Shared memory: of a map its staged tiles, whole rows each; of a sum what warps, or threads, add up to.

    Of a product the small matrix.
    """
    if isinstance(loop, StreamMatrix):
        return tiling.n.size * tiling.k.size * data_type(plan.contraction.dtype).accumulator_bytes
    if isinstance(loop, StreamSum):
        sums = max(1, loop.lanes_k // 32) if loop.along_k else loop.lanes_k
        return sums * sum_block(loop)[0] * data_type(plan.contraction.dtype).accumulator_bytes
    views, box = output_views(plan), tiling.m
    staged = [views[t] for t, x in ((A, loop.a), (B, loop.b), (C, loop.c)) if x is not None and x.staged]
    images = (image_size(box, image_places(box, x)) * x.size for x in staged)
    return sum(-(-size // ROW_BYTES) * ROW_BYTES for size in images)
