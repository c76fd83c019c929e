"""StreamMap, StreamSum, StreamMatrix: kernels whose time is that of their bytes: needs and rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.mainloops.kind import MainloopKind, multiply_adds
from gett.schedule.rules import common
from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.spec.hopper_needs import up
from gett.schedule.spec.mainloop import Digit, Stream, StreamLoad, StreamMatrix
from gett.schedule.spec.schedule import Schedule, SmemPlan
from gett.schedule.spec.stream_views import TensorView, cut_modes, image_size, output_views, sum_views, views_of
from layouts.box import Box

NAMES = "ABDC"
ROW_BYTES = 128  # bytes of a shared-memory row, and of what a warp should read together at least
MATRIX = 16  # most rows, and most columns, of a small matrix of which a thread has all


def is_small_matrix(rows: int, columns: int) -> bool:
    """Whether a thread may have all of a matrix, which is no vector."""
    return all(2 <= x <= MATRIX for x in (rows, columns))


def has_small_matrix(plan: GemmPlan) -> bool:
    """Whether one of the operands is a small matrix, in each batch."""
    return plan.b is not None and is_small_matrix(plan.extent_k, min(plan.extent_m, plan.extent_n))


def sum_block(loop: Stream) -> tuple[int, int, int]:
    """Outputs of a block of a sum, 1, and its step along K."""
    outputs = loop.threads // loop.lanes_k * loop.rows * (1 if loop.along_k else loop.vector)
    return outputs, 1, loop.lanes_k * loop.unroll * (loop.vector if loop.along_k else 1)


def _loads(loop: Stream) -> dict[int, StreamLoad]:
    return {t: load for t, load in ((A, loop.a), (B, loop.b), (C, loop.c)) if load is not None}


def smem(s: Schedule, plan: GemmPlan) -> SmemPlan:
    """One part: of a map its staged tiles, whole rows each; of a sum what warps, or threads, add up to; a matrix."""
    loop, t, size = s.mainloop, s.tiling, data_type(plan.contraction.dtype).accumulator_bytes
    if isinstance(loop, StreamMatrix):
        return SmemPlan(t.n.size * t.k.size * size)
    if loop.sums:
        sums = max(1, s.stream.lanes_k // 32) if s.stream.along_k else s.stream.lanes_k
        return SmemPlan(sums * sum_block(s.stream)[0] * size)
    views = output_views(plan)
    staged = (views[tensor] for tensor, load in _loads(s.stream).items() if load.staged)
    return SmemPlan(sum(up(image_size(t.m, x.image(t.m)) * x.size, ROW_BYTES) for x in staged))


def operands(x: Lowered) -> Reasons:
    """A kernel that sums runs plans with sums, one that maps the others; it reads the plan's tensors and no others."""
    if x.s.mainloop.sums != (x.plan.extent_k != 1):
        yield f"K has {x.plan.extent_k} elements, which are no matter for a {type(x.s.mainloop).__name__}"
    loads, tensors = _loads(x.s.stream), output_views(x.plan)
    for t in (A, B, C):
        if (t in loads) != (t in tensors):
            yield f"the plan has {int(t in tensors)} {NAMES[t]}, the schedule reads {int(t in loads)}"


def counts(x: Lowered) -> Reasons:
    """Threads along K are a power of two, each of which holds what is in flight, and its sums."""
    loop, held = x.s.stream, 0
    if loop.lanes_k & (loop.lanes_k - 1) or loop.threads % loop.lanes_k:
        yield f"{loop.lanes_k} threads along K, powers of two that divide {loop.threads} add up"
    read = loop.unroll * loop.vector * loop.rows * max(x.size, x.size_d)
    if loop.sums:
        held = loop.rows * (1 if loop.along_k else loop.vector) * data_type(x.plan.contraction.dtype).accumulator_bytes
    if read + held > common.THREAD_BYTES:
        yield f"{loop.unroll} steps are {read} bytes beside {held} of sums, a thread holds {common.THREAD_BYTES}"


def block(x: Lowered) -> Reasons:
    """The block is what its threads make."""
    loop, t = x.s.stream, x.s.tiling
    made = sum_block(loop) if loop.sums else (t.m.size, 1, 1)
    if t.shape != made:
        yield f"{t.shape}, the threads make {made}"


def _covers(box: Box, walk: Sequence[Digit], places: Sequence[int]) -> bool:
    """Whether a walk takes each element of a box once, but for the dimensions that have no place."""
    for i, d in box.tiled:
        step = 1
        for digit in sorted((x for x in walk if x.dim == i), key=lambda x: x.step):
            if digit.step != step:
                return False
            step *= digit.size
        if step != (d.box if places[i] else 1):
            return False
    return math.prod(x.size for x in walk) == image_size(box, places)


def walks(x: Lowered) -> Reasons:
    """Walks take each element of a tile once."""
    loop, box, views = x.s.stream, x.s.tiling.m, output_views(x.plan)
    for t, walk in {D: loop.walk_d, **{t: load.walk for t, load in _loads(x.s.stream).items() if load.staged}}.items():
        if not _covers(box, walk, views[t].image(box)):
            yield f"{walk} does not take each element of {NAMES[t]}'s tile once"


def staging(x: Lowered) -> Reasons:
    """Only maps stage operands, swizzled within rows of 128 bytes; a thread's rows share what is the same for them."""
    views, step = output_views(x.plan), x.s.stream.row_step
    for t, load in _loads(x.s.stream).items():
        if load.staged and (x.s.mainloop.sums or load.splat):
            yield f"{NAMES[t]} passes through shared memory in maps only, and then element by element"
        if x.s.mainloop.sums and t == C and load != StreamLoad():
            yield f"C is read where sums are stored, element by element, not {load.width} at a time or as one for all"
        if not load.staged and (load.walk or load.mask or load.shift):
            yield f"{NAMES[t]} passes no shared memory, in which {load.mask} and {load.shift} swizzle {load.walk}"
        if load.shared and not views[t].same_rows(x.s.tiling.m, step):
            yield f"outputs that are {step} apart read different elements of {NAMES[t]}"


def vectors(x: Lowered) -> Reasons:
    """Strides and alignment allow the vectors."""
    loop, views, box = x.s.stream, output_views(x.plan), x.s.tiling.m
    if loop.along_k:
        views, box = {**views, **sum_views(x.plan)}, x.s.tiling.k
    if not loop.sums:
        widest = views[D].vector(cut_modes(box))
        if widest % loop.vector:
            yield f"{loop.vector} elements of D at a time, its strides allow {widest}"
    for t, load in _loads(x.s.stream).items():
        # Single elements of C are read where sums are stored.
        if t in views and (not loop.sums or t != C):
            yield from _accesses(NAMES[t], load, views[t], box, loop.vector)


def _accesses(name: str, load: StreamLoad, view: TensorView, box: Box, vector: int) -> Reasons:
    cuts = cut_modes(box)
    if load.splat:
        if not view.is_splat(cuts, vector):
            yield f"{vector} elements of {name} are read as one, which they are not"
        return
    if load.staged:
        cuts = [(d.modes[0], d.box) for d in (box.dims[x.dim] for x in load.walk if x.step == 1)]
    # A walk may continue with a part of a dimension that it has left; vectors end before.
    widest = view.vector(cuts)
    if widest % load.width:
        yield f"accesses of {load.width} elements of {name}, its strides allow {widest}"
    if not load.staged and load.width > vector:
        yield f"accesses of {load.width} elements of {name} in vectors of {vector}"
    if not load.staged and load.width < vector and cuts and cuts[0][1] % vector:
        yield f"{vector} elements of {name} in accesses of {load.width} lie along {cuts[0][1]} of a mode"


def small(x: Lowered) -> Reasons:
    """A thread has all of K and of N, which are few, and a block what its boxes have."""
    t = x.s.tiling
    if (t.n.size, t.k.size) != (x.plan.extent_n, x.plan.extent_k) or t.shape != (t.m.size, t.n.size, t.k.size):
        yield f"a tile of {t.n.size} x {t.k.size} in blocks of {t.shape}, all are {x.plan.extent_n} x {x.plan.extent_k}"
    if max(t.n.size, t.k.size) > MATRIX:
        yield f"{t.n.size} x {t.k.size} elements, the most are {MATRIX} x {MATRIX}"


def matrix_vectors(x: Lowered) -> Reasons:
    """Vectors lie along M, or along K of A and N of D; strides and alignment allow them."""
    loop, t = x.s.loop(StreamMatrix), x.s.tiling
    if loop.vector > 1 and max(loop.vector_k, loop.vector_n) > 1:
        yield f"{loop.vector} of M beside {loop.vector_k} of K and {loop.vector_n} of N, one of them is 1"
    if t.n.size % (loop.lanes_n * loop.vector_n):
        yield f"{loop.lanes_n} lanes share {t.n.size} columns, in vectors of {loop.vector_n}"
    sums = -(-t.n.size // loop.lanes_n) * data_type(x.plan.contraction.dtype).accumulator_bytes
    held = loop.unroll * loop.vector * (t.k.size * x.size + sums)
    if held > common.THREAD_BYTES:
        yield f"{loop.unroll} vectors of {loop.vector} take {held} bytes, a thread holds {common.THREAD_BYTES}"
    for wanted, box, group, tensors in (
        (loop.vector, t.m, x.plan.m, (A, D, C)),
        (loop.vector_k, t.k, x.plan.k, (A,)),
        (loop.vector_n, t.n, x.plan.n, (D, C)),
    ):
        for tensor, view in views_of(x.plan, group, tensors).items():
            widest = view.vector(cut_modes(box))
            if widest % wanted:
                yield f"{wanted} elements of {NAMES[tensor]} at a time, its strides allow {widest}"


LIMITS = (common.grid, common.shared_memory)  # what a search runs into; it meets the rest by construction
_READ = (operands, common.groups, common.parts, common.source, common.threads)
_SHARED = (*(common.modes, common.split, common.workspace, walks, staging, vectors), *LIMITS)

MAP_RULES = (*_READ, counts, block, *_SHARED)
SUM_RULES = (*_READ, counts, block, common.boxes, *_SHARED)
MATRIX_RULES = (
    *(common.product, common.groups, common.extents, small, common.modes, common.parts, common.source),
    *(common.threads, common.split, common.workspace, matrix_vectors, *LIMITS),
)

STREAM_MAP = MainloopKind(words="each element of D is one product", rules=MAP_RULES, smem=smem)
STREAM_SUM = MainloopKind(words="sums of what is read once", rules=SUM_RULES, smem=smem)
STREAM_MATRIX = MainloopKind(
    words="a large operand, read once, times a small matrix", rules=MATRIX_RULES, smem=smem, products=multiply_adds
)
