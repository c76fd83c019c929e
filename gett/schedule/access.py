"""How operands reach shared memory and how D leaves it: vectors, majors, transposition, bank-conflict-free rows.

Everything here follows from the plan, the boxes and the kernel family's way of reading shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gett.ir.contraction import Operand
from gett.ir.gemm import A, D, GemmPlan, itemsize
from gett.schedule.records import Access
from layouts.access import max_vector
from layouts.box import Box
from layouts.modes import Strided
from layouts.swizzle import SmemLayout, choose_smem, replays

Groups = tuple[tuple[str, tuple[Strided, ...], Box], ...]


def unit_mode(modes: Sequence[Strided], tensor: int, size: int) -> int | None:
    """Position of the tensor's unit-stride mode in the group."""
    return next((i for i, s in enumerate(modes) if s.strides[tensor] == size), None)


@dataclass(frozen=True, slots=True)
class _Line:
    """A tiled dimension as one tensor sees it: `extent` elements at `stride` bytes, of which a tile takes `box`."""

    group: str
    index: int
    box: int
    stride: int
    extent: int
    whole: bool
    modes: tuple[Strided, ...]


def _lines(groups: Groups, tensor: int) -> list[_Line]:
    """The tiled dimensions of some groups, nearest elements first.

    Modes flattened into one dimension count as one line as far as each continues the one before.
    """
    out = []
    for name, modes, box in groups:
        for i, d in enumerate(box.dims):
            if d.box == 1:
                continue
            taken = [modes[d.modes[0]]]
            stride, extent = taken[0].strides[tensor], taken[0].extent
            for m in d.modes[1:]:
                if modes[m].strides[tensor] != stride * extent:
                    break
                taken.append(modes[m])
                extent *= modes[m].extent
            whole = len(taken) == len(d.modes) and d.box == extent
            out.append(_Line(name, i, d.box, stride, extent, whole, tuple(taken)))
    return sorted(out, key=lambda x: abs(x.stride) or math.inf)


def _vector(plan: GemmPlan, operand: Operand, tensor: int, lines: Sequence[_Line], block: int | None) -> int:
    """Widest access along the run that the first lines make together.

    Args:
        plan: What is run.
        operand: Of the plan.
        tensor: Its number.
        lines: In memory order.
        block: Where the run must lie in one row of the tile: the row's length.
    """
    size = itemsize(operand.dtype)
    extent = cut = 1
    used: list[Strided] = []
    for at, line in enumerate(lines):
        if line.stride != extent * size or cut != extent:
            break
        if at and block is not None and (line.group, line.index) != (lines[0].group, lines[at - 1].index + 1):
            break
        extent, cut = extent * line.extent, cut * line.box
        used += line.modes
        if not line.whole:
            break
    strides = [s.strides[tensor] for g in (plan.l, plan.m, plan.n, plan.k) for s in g if s not in used]
    return max_vector(size, math.gcd(extent, cut, block or cut), strides, operand.alignment)


def plan_access(
    plan: GemmPlan,
    tensor: int,
    box_mn: Box,
    box_k: Box,
    block_mn: int,
    block_k: int,
    family: str,
    batch: Box | None = None,
) -> Access:
    """The way of operand A or B; `batch` is the box of L where a block makes several batches."""
    operand = plan.a if tensor == A else plan.b
    assert operand is not None
    size = itemsize(operand.dtype)
    groups: Groups = (("k", plan.k, box_k), ("mn", plan.m if tensor == A else plan.n, box_mn))
    boxes = {"k": box_k, "mn": box_mn}
    if batch is not None:
        groups, boxes["l"] = (*groups, ("l", plan.l, batch)), batch
    lines = _lines(groups, tensor)
    group = lines[0].group if lines else "k"
    tall = block_mn * (batch.size if batch is not None else 1)

    def tile(major: str) -> SmemLayout:
        rows, inner = (tall, block_k) if major == "k" else (block_k, tall)
        return smem_layout(rows, inner * size, family, size, major)

    first = next((i for i, d in enumerate(boxes[group].dims) if d.box > 1), None)
    if lines and lines[0].index == first and group != "l":
        vector = _vector(plan, operand, tensor, lines, block_k if group == "k" else block_mn)
        if vector * size in (4, 8, 16) and (size < 16 or operand.alignment % 16 == 0):
            return Access(group, vector, True, group, tile(group))
    vector = _vector(plan, operand, tensor, lines, None)
    walk = tuple((x.group, x.index) for x in lines)
    first_step = {"k": 1, "mn": 1, "l": block_mn}
    steps = tuple((x.group, x.box, first_step[x.group] * _before(x, boxes[x.group])) for x in lines)
    served = {major: _store_conflicts(steps, vector, size, major, tile(major)) for major in ("k", "mn")}
    best = min(served, key=lambda major: (served[major], major != group))
    return Access(best, vector, False, group, tile(best), walk, max(1, served[best]))


def _before(line: _Line, box: Box) -> int:
    return math.prod(d.box for d in box.dims[: line.index])


def _store_conflicts(
    boxes: tuple[tuple[str, int, int], ...], vector: int, size: int, major: str, smem: SmemLayout
) -> int:
    """How often the first warp's store of one element is served, for a walk of (group, box, step) dimensions."""
    at = []
    for lane in range(min(32, math.prod(b for _, b, _ in boxes) // vector)):
        rest, place = lane * vector, {"k": 0, "mn": 0}
        for group, box, step in boxes:
            place["k" if group == "k" else "mn"] += rest % box * step
            rest //= box
        row, column = (place["mn"], place["k"]) if major == "k" else (place["k"], place["mn"])
        at.append(smem.address(row, column * size))
    return max(replays(at, size), default=0)


@lru_cache(maxsize=256)
def smem_layout(rows: int, row_bytes: int, family: str, size: int, major: str) -> SmemLayout:
    """Rows without bank conflicts for the way in which a family's warps read them."""

    def fits(row: int, byte: int, width: int) -> bool:
        return row < rows and byte + width <= row_bytes

    patterns: list[tuple[Callable[[int], tuple[int, int]], int, int]] = []
    if family == "sm80" and (size == 2 or (size == 4 and major == "k")):
        patterns += [(_matrix_row(chunk * 16), 16, 8) for chunk in range(min(row_bytes // 16, 8))]
    elif family == "sm80":
        patterns.append((_fragment(size, major), size, 32))
    elif major == "k":
        patterns.append((_matrix_row(0), min(8, max(size, 4)) if size < 16 else 16, 8))
    patterns = [p for p in patterns if all(fits(*p[0](lane), p[1]) for lane in range(p[2]))]
    return choose_smem(rows, row_bytes, patterns)


def _matrix_row(byte: int) -> Callable[[int], tuple[int, int]]:
    """Lanes on neighbouring rows, at the same byte."""
    return lambda lane: (lane, byte)


def _fragment(size: int, major: str) -> Callable[[int], tuple[int, int]]:
    """Lanes of a fragment read element by element: lane 4g + t holds row g, column t of a K-major tile."""
    if major == "k":
        return lambda lane: (lane >> 2, (lane & 3) * size)
    return lambda lane: (lane & 3, (lane >> 2) * size)


def vector_d(plan: GemmPlan, box_m: Box, box_n: Box, batch: Box | None = None) -> int:
    """Elements per store along D's unit-stride mode."""
    groups: Groups = (("m", plan.m, box_m), ("n", plan.n, box_n))
    lines = _lines(groups if batch is None else (*groups, ("l", plan.l, batch)), D)
    if not lines:
        return 1
    # Neighbours along the first dimension are one step apart in the tile; beyond it they are not.
    return _vector(plan, plan.contraction.d, D, lines[:1], None)
