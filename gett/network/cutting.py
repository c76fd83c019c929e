"""Contractions that are too large for one launch, cut into several: kernels number the elements of a group in 32 bits.

Owns the bounds and the way of cutting. Knows contractions and their groups, neither schedules nor arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

from gett.errors import ScheduleError
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import A, B, D, GemmPlan, itemsize, make_gemm_plan
from gett.ir.tensors import dense_strides
from layouts.modes import Strided, volume

# Kernels add up to a box of 8192 to a place in a group, in 32 bits with a sign. Then they compare the sum with the end.
GROUP_LIMIT = 1 << 30
# A tile holds at least 64 elements of D or so, and the tiles of a launch, slices of K included, have 32-bit numbers.
RESULT_LIMIT = 1 << 36
MOST_LAUNCHES = 4096  # beyond any GPU's memory; what is larger still is refused before it is cut
_ALIGN = 256  # sections start at whole multiples of so many elements, so that boxes and vectors stay as they are


@dataclass(frozen=True, slots=True)
class Section:
    """One launch's share of a contraction.

    Attributes:
        contraction: With the extents of this share.
        offsets: Bytes from the address of each tensor (a, b, c, d, then the epilogue's) to that of the share.
    """

    contraction: Contraction
    offsets: tuple[int, ...]


def uncut(contraction: Contraction) -> Section:
    """All of a contraction."""
    return Section(contraction, (0,) * (4 + len(contraction.extras)))


def cut_free(section: Section, limit: int = GROUP_LIMIT) -> Iterator[Section]:
    """Sections along D's modes, each of which one launch can number."""
    excess = None
    if _is_large(section.contraction, range(len(section.contraction.extents)), limit):
        excess = _excess(make_gemm_plan(section.contraction), limit, summed=False)
    if excess is None:
        yield section
        return
    for part in _cut(section, *excess, D):
        yield from cut_free(part, limit)


def cut_sum(contraction: Contraction, limit: int = GROUP_LIMIT) -> list[Section]:
    """Sections along the summed modes, each of which one launch can number; their results are to be added up."""

    def parts(section: Section) -> Iterator[Section]:
        plan = make_gemm_plan(section.contraction)
        excess = _excess(plan, limit, summed=True)
        if excess is None:
            yield section
            return
        larger = max((A, B), key=lambda t: volume(plan.k, t))
        for part in _cut(section, *excess, B - larger if plan.swapped else larger):
            yield from parts(part)

    whole = uncut(contraction)
    return list(parts(whole)) if _is_large(contraction, contraction.summed, limit) else [whole]


def partial_sums(sections: list[Section], dtype: str) -> tuple[list[Section], Contraction]:
    """Sections of a sum that write side by side into one new tensor, and the contraction that adds those up into D.

    C and the epilogue enter there, once.

    Args:
        sections: From `cut_sum`.
        dtype: In which sums are formed; the new tensor's.

    Returns:
        The sections, and a contraction of the new tensor, whose first mode numbers the sections.
    """
    whole = sections[0].contraction
    count, shape = len(sections), whole.shape_d
    strides = dense_strides((count, *shape), itemsize(dtype))
    target = Operand(whole.d.modes, strides[1:], dtype)
    written = [
        Section(
            replace(p.contraction, c=None, d=_shifted(target, i * strides[0]), epilogue=None, extras=()),
            (*p.offsets[:3], i * strides[0]),
        )
        for i, p in enumerate(sections)
    ]
    place = {m: i for i, m in enumerate(whole.d.modes)}

    def renumbered(operand: Operand) -> Operand:
        return replace(operand, modes=tuple(place[m] for m in operand.modes))

    total = Contraction(
        names=(*(whole.names[m] for m in whole.d.modes), whole.names[whole.summed[0]]),
        extents=(*shape, count),
        a=Operand((len(shape), *range(len(shape))), strides, dtype),
        b=None,
        d=renumbered(whole.d),
        c=None if whole.c is None else renumbered(whole.c),
        dtype=dtype,
        precision=whole.precision,
        epilogue=whole.epilogue,
        extras=tuple(map(renumbered, whole.extras)),
    )
    return written, total


def _is_large(contraction: Contraction, modes: Iterable[int], limit: int) -> bool:
    """Whether there is anything to cut: the quick answer for nearly every contraction.

    An empty sum has a result all the same, which may be large.
    """
    extents = contraction.extents
    return all(extents[m] for m in contraction.d.modes) and math.prod(extents[m] or 1 for m in modes) > limit


def _excess(plan: GemmPlan, limit: int, *, summed: bool) -> tuple[tuple[int, ...], int] | None:
    """Modes of the contraction that one launch cannot number together, and how many elements of them it can.

    A matrix product numbers each group as a whole; anything else goes through D mode by mode.

    Raises:
        ScheduleError: No number of launches that is worth trying would do.
    """
    free = (*plan.l, *plan.m, *plan.n)
    bounds: list[tuple[tuple[Strided, ...], int]]
    if summed:
        bounds = [(plan.k, limit)]
    elif plan.b is not None and min(plan.extent_m, plan.extent_n, plan.extent_k) > 1:
        bounds = [(plan.l, limit), (plan.m, limit), (plan.n, limit), (free, RESULT_LIMIT)]
    else:
        bounds = [*(((s,), limit) for s in free), (free, RESULT_LIMIT)]
    modes, bound = max(bounds, key=lambda x: volume(x[0]) / x[1])
    if volume(modes) <= bound:
        return None
    labels = tuple(cast(int, m) for s in modes for m in s.labels)
    if volume(modes) > MOST_LAUNCHES * bound:
        names = "".join(plan.contraction.names[m] for m in labels)
        raise ScheduleError(
            f"{plan.contraction} would take {volume(modes) // bound} launches of at most {bound} elements along "
            f"the modes {names!r}; the limit is {MOST_LAUNCHES}"
        )
    return labels, bound


def _cut(section: Section, modes: tuple[int, ...], limit: int, tensor: int) -> Iterator[Section]:
    """Cut along the mode that a tensor has in the longest steps, in as few sections as the limit allows."""
    c = section.contraction
    operand = (c.a, c.b, c.d)[tensor]
    assert operand is not None
    mode = max((m for m in modes if c.extents[m] > 1), key=lambda m: (abs(operand.stride(m)), c.extents[m]))
    extent = c.extents[mode]
    others = math.prod(c.extents[m] for m in modes) // extent
    most = max(1, limit // others)
    step = _ALIGN if most >= _ALIGN else 1
    count = -(-extent // (most - most % step))
    length = -(-extent // count // step) * step
    tensors = (c.a, c.b, c.c, c.d, *c.extras)
    for start in range(0, extent, length):
        moves = tuple(0 if t is None else start * t.stride(mode) for t in tensors)
        extents = tuple(min(length, extent - start) if m == mode else e for m, e in enumerate(c.extents))
        a, b, added, d, *rest = (None if t is None else _shifted(t, by) for t, by in zip(tensors, moves, strict=True))
        assert a is not None
        assert d is not None
        extras = tuple(x for x in rest if x is not None)
        offsets = tuple(x + y for x, y in zip(section.offsets, moves, strict=True))
        yield Section(replace(c, extents=extents, a=a, b=b, c=added, d=d, extras=extras), offsets)


def _shifted(operand: Operand, nbytes: int) -> Operand:
    """The operand from another address on, which may be less aligned."""
    return replace(operand, alignment=math.gcd(operand.alignment, nbytes))
