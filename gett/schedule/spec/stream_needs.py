"""What bandwidth-bound kernels need of a block: places for outputs, shared memory, workspace.

Searches choose by these numbers and rules check them.
"""

from __future__ import annotations

from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, C, GemmPlan
from gett.schedule.spec.mainloop import StreamMap, StreamSum
from gett.schedule.spec.stream_views import TensorView
from layouts.box import Box

ROW_BYTES = 128
"""Bytes of a shared-memory row, and of what a warp should read together at least."""


def staged_bytes(box: Box, loop: StreamMap, tensors: dict[int, TensorView]) -> int:
    """Shared memory of the tiles that are staged, whole rows each, one after the other."""
    staged = [t for t, x in ((A, loop.a), (B, loop.b), (C, loop.c)) if x is not None and x.staged]
    return sum(-(-box.size * tensors[t].size // ROW_BYTES) * ROW_BYTES for t in staged)


def sum_block(loop: StreamSum) -> tuple[int, int, int]:
    """Outputs of a block, 1, and its step along K."""
    outputs = loop.threads // loop.lanes_k * loop.rows * (1 if loop.along_k else loop.vector)
    return outputs, 1, loop.lanes_k * loop.unroll * (loop.vector if loop.along_k else 1)


def sum_bytes(plan: GemmPlan, loop: StreamSum) -> int:
    """Shared memory for the sums of each output: of each warp where lanes add up in it, else of each thread."""
    sums = max(1, loop.lanes_k // 32) if loop.along_k else loop.lanes_k
    return sums * sum_block(loop)[0] * data_type(plan.contraction.dtype).accumulator_bytes
