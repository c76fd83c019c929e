"""StreamMatrix: a large operand, read once, times a small matrix. What it needs of a block, and rules.

Rules are asked in order, and later ones rely on those before.
"""

from __future__ import annotations

from gett.hw.dtypes import data_type
from gett.ir.gemm import A, C, D, GemmPlan
from gett.schedule.mainloops.kind import MainloopKind, multiply_adds
from gett.schedule.rules import common
from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.spec.mainloop import StreamMatrix
from gett.schedule.spec.schedule import Schedule, SmemPlan, Tiling
from gett.schedule.spec.stream_views import cut_modes, matrix_views, vector_along

MATRIX = 16
"""Most rows, and most columns, of a small matrix of which a thread has all."""


def matrix_bytes(plan: GemmPlan, tiling: Tiling) -> int:
    """Shared memory: the small matrix."""
    return tiling.n.size * tiling.k.size * data_type(plan.contraction.dtype).accumulator_bytes


def smem(s: Schedule, plan: GemmPlan) -> SmemPlan:
    """One part, from the start on."""
    return SmemPlan(matrix_bytes(plan, s.tiling))


def small(x: Lowered) -> Reasons:
    """A thread has all of K and of N, which are few, and a block what its boxes have."""
    t = x.s.tiling
    if (t.n.size, t.k.size) != (x.plan.extent_n, x.plan.extent_k) or t.shape != (t.m.size, t.n.size, t.k.size):
        yield f"a tile of {t.n.size} x {t.k.size} in blocks of {t.shape}, all are {x.plan.extent_n} x {x.plan.extent_k}"
    if max(t.n.size, t.k.size) > MATRIX:
        yield f"{t.n.size} x {t.k.size} elements, the most are {MATRIX} x {MATRIX}"


def vectors(x: Lowered) -> Reasons:
    """Vectors lie along M, or along K of A and N of D; strides and alignment allow them."""
    loop, t = x.s.loop(StreamMatrix), x.s.tiling
    if loop.vector > 1 and max(loop.vector_k, loop.vector_n) > 1:
        yield f"{loop.vector} of M beside {loop.vector_k} of K and {loop.vector_n} of N, one of them is 1"
    if 32 % loop.lanes_n or t.n.size % loop.lanes_n or (loop.lanes_n > 1 and loop.vector_n > 1):
        yield f"{loop.lanes_n} lanes share {t.n.size} columns, in vectors of {loop.vector_n}"
    sums = -(-t.n.size // loop.lanes_n) * data_type(x.plan.contraction.dtype).accumulator_bytes
    held = loop.unroll * loop.vector * (t.k.size * x.size + sums)
    if held > common.THREAD_BYTES:
        yield f"{loop.unroll} vectors of {loop.vector} take {held} bytes, a thread holds {common.THREAD_BYTES}"
    along_m = matrix_views(x.plan, x.plan.m)
    for tensor, view in along_m.items():
        widest = vector_along(cut_modes(t.m), t.m.extents, view)
        if widest % loop.vector:
            yield f"{loop.vector} elements of {'ABDC'[tensor]} at a time, its strides allow {widest}"
    for wanted, box, group, tensors in (
        (loop.vector_k, t.k, x.plan.k, (A,)),
        (loop.vector_n, t.n, x.plan.n, (D, C)),
    ):
        views = matrix_views(x.plan, group)
        for tensor in (y for y in tensors if y in views):
            widest = vector_along(cut_modes(box), box.extents, views[tensor])
            if widest % wanted:
                yield f"{wanted} elements of {'ABDC'[tensor]} at a time, its strides allow {widest}"


RULES = (
    *(common.product, common.groups, common.extents, small, common.modes, common.parts, common.source),
    *(common.threads, common.planned(smem), common.split, common.workspace, vectors),
    *(common.grid, common.shared_memory),
)
"""All conditions."""

STREAM_MATRIX = MainloopKind(
    words="a large operand, read once, times a small matrix", rules=RULES, smem=smem, products=multiply_adds
)
