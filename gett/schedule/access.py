"""How operands reach shared memory and how D leaves it: vectors, majors, transposition, bank-conflict-free rows.

Everything here follows from the plan, the boxes and the kernel family's way of reading shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from gett.plan import A, D, GemmPlan, itemsize
from gett.schedule.records import Access
from layouts.access import max_vector
from layouts.box import Box
from layouts.modes import Strided
from layouts.swizzle import SmemLayout, choose_smem


def unit_mode(modes: Sequence[Strided], tensor: int, size: int) -> int | None:
    """Position of the tensor's unit-stride mode in the group."""
    return next((i for i, s in enumerate(modes) if s.strides[tensor] == size), None)


def other_strides(plan: GemmPlan, tensor: int, modes: Sequence[Strided], unit: int) -> list[int]:
    """The tensor's byte strides along every mode but the unit one."""
    unit_mode = modes[unit]
    return [s.strides[tensor] for g in (plan.l, plan.m, plan.n, plan.k) for s in g if s is not unit_mode]


def _dimension(box: Box, mode: int) -> tuple[int, int] | None:
    """(dimension that `mode` leads, product of the boxes before it), None where it is inside a flattened one."""
    prefix = 1
    for i, d in enumerate(box.dims):
        if mode in d.modes:
            return (i, prefix) if d.modes[0] == mode and d.box > 1 else None
        prefix *= d.box
    return None


def plan_access(
    plan: GemmPlan, tensor: int, box_mn: Box, box_k: Box, block_mn: int, block_k: int, family: str, k_table: bool
) -> Access:
    """The way of operand A or B."""
    operand = plan.a if tensor == A else plan.b
    assert operand is not None
    size = itemsize(operand.dtype)
    groups = (("k", plan.k, box_k), ("mn", plan.m if tensor == A else plan.n, box_mn))
    vector, group, prefix, unit_box = 1, "k", 1, 1
    for name, modes, box in groups:
        unit = unit_mode(modes, tensor, size)
        at = _dimension(box, unit) if unit is not None else None
        if unit is None or at is None:
            continue
        cut = box.dims[at[0]].box
        block = block_k if name == "k" else block_mn
        v = max_vector(
            size,
            math.gcd(modes[unit].extent, cut, block),
            other_strides(plan, tensor, modes, unit),
            operand.alignment,
        )
        if k_table and name == "k" and at[1] > 1:
            v = 1
        group, vector = name, v
        prefix, unit_box = (at[1], cut) if v > 1 else (1, 1)
    if vector == 1:
        group = _nearest(groups, tensor)
    asynchronous = vector * size in (4, 8, 16) and prefix == 1
    if size == 16 and prefix == 1:
        asynchronous = operand.alignment % 16 == 0
    major = group if prefix == 1 else "k"
    rows, inner = (block_mn, block_k) if major == "k" else (block_k, block_mn)
    return Access(
        major, vector, asynchronous, group, smem_layout(rows, inner * size, family, size, major), prefix, unit_box
    )


def _nearest(groups: Sequence[tuple[str, tuple[Strided, ...], Box]], tensor: int) -> str:
    """The group along which neighbouring elements of a tile are nearest in memory."""
    best = {}
    for name, modes, box in groups:
        lead = [modes[d.modes[0]].strides[tensor] for d in box.dims if d.box > 1]
        best[name] = abs(lead[0]) if lead and lead[0] else math.inf
    return "k" if best["k"] <= best["mn"] else "mn"


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


def vector_d(plan: GemmPlan, box_m: Box, box_n: Box) -> int:
    """Elements per store along D's unit-stride mode."""
    size = itemsize(plan.contraction.d.dtype)
    best = 1
    for modes, box in ((plan.m, box_m), (plan.n, box_n)):
        unit = unit_mode(modes, D, size)
        at = _dimension(box, unit) if unit is not None else None
        if unit is not None and at is not None:
            cut = box.dims[at[0]].box
            rest = other_strides(plan, D, modes, unit)
            best = max_vector(size, math.gcd(modes[unit].extent, cut), rest, plan.contraction.d.alignment)
    return best
