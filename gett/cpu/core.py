"""Which matrix product lies inside a plan: the modes of its rows, columns and sum, and which tensors BLAS reads as is.

Owns `Core` and its cost model. Every candidate is a batch of matrix products. A tensor that is no BLAS matrix in it is
packed (A, B) or scattered (D) tile by tile. Knows strides and extents only, no arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gett.cpu.arithmetic import Arithmetic
from gett.cpu.views import Modes, chains, nearest_mode, span
from gett.ir.gemm import A, B, D
from layouts.modes import Strided, volume

# Nanoseconds on a current x86 core, fitted to 1,342 cores of 388 contractions (notes of 2026-11-23).
#: One matrix product of a batch, a run that BLAS reads.
_CALL, _FAR = 45.0, 0.5
#: A run that is packed, and one of D that is scattered: stores wait for nothing.
_RUN, _STORED_RUN = 15.0, 3.0
#: A byte copied along both arrays' runs; a byte across them, and an element, which is loaded and stored alone.
_STRAIGHT, _ACROSS, _ELEMENT = 0.1, 0.3, 0.5
#: Memory is read before it is written, and nothing prefetches a scatter.
_WRITE = 1.75
#: Python's share of one packed tile, and of one call of a NumPy function.
_TILE, _FUNCTION = 6_000.0, 2_000.0
#: One product by `numpy.einsum`'s own loop, which has no vector instructions for complex numbers. The three are for a
#: byte of a real number, a complex number, a number that one of the tensors holds out of order.
_LOOP_BYTE, _LOOP_COMPLEX, _LOOP_SCATTERED = 0.04, 2.2, 1.6
#: Modes of one matrix dimension, and those of the same group that are loops.
_Side = tuple[Modes, Modes]
#: Chains tried per tensor and group: the plan has been fused, so more than a few means many tiny modes.
_TRIED = 3


@dataclass(frozen=True, slots=True)
class Groups:
    """A plan's modes by what the executor does with them; strides in (A, B, D, C), fastest first.

    Attributes:
        batch: In A, B and D.
        spread: In D alone: results are broadcast along them.
        m, n: Free modes of A and of B.
        k: Summed over products.
        sum_a, sum_b: Summed in one operand before the product.
        times: Product of the extents of summed modes that neither operand varies along.
    """

    batch: Modes
    spread: Modes
    m: Modes
    n: Modes
    k: Modes
    sum_a: Modes
    sum_b: Modes
    times: int


@dataclass(frozen=True, slots=True)
class Core:
    """A batch of matrix products `D[m, n] = sum_k A[m, k] B[k, n]` inside the plan.

    Attributes:
        m, n, k: Modes of the matrices' dimensions, fastest first.
        loops_m, loops_n: Modes of M and N outside the matrices.
        direct: Whether BLAS reads A, reads B, writes D in place, in this order.
        nanoseconds: What the cost model expects.
    """

    m: Modes
    n: Modes
    k: Modes
    loops_m: Modes
    loops_n: Modes
    direct: tuple[bool, bool, bool]
    nanoseconds: float


def product_time(arithmetic: Arithmetic, m: int, n: int, k: int) -> float:
    """Nanoseconds of one matrix product, apart from what memory takes."""
    efficiency = m / (m + 6) * n / (n + 9) * k / (k + 3)
    return _CALL + m * n * k / (arithmetic.rate * efficiency)


def is_matrix(rows: Modes, columns: Modes, tensor: int, itemsize: int) -> bool:
    """Whether BLAS can address the tensor as a matrix: both groups have one stride, and one of these is the unit."""
    r, c = span(rows, tensor), span(columns, tensor)
    if r is None or c is None:
        return False
    if r[0] == 1 or c[0] == 1:
        stride = c[1] if r[0] == 1 else r[1]
        return r[0] == c[0] == 1 or (stride > 0 and stride % itemsize == 0)
    return any(
        inner[1] == itemsize and outer[1] % itemsize == 0 and outer[1] >= inner[0] * itemsize
        for inner, outer in ((r, c), (c, r))
    )


def choose_core(groups: Groups, arithmetic: Arithmetic, possible: tuple[bool, bool, bool]) -> Core:
    """The cheapest core. `possible` says which of A, B, D BLAS may address at all (dtype, alignment, pre-sums)."""
    best: Core | None = None
    every = (*groups.batch, *groups.spread, *groups.m, *groups.n, *groups.k)
    units = {t: nearest_mode(every, t) for t in (A, B, D)}
    for m, n, k in product(_candidates(groups.m, A), _candidates(groups.n, B), _orders(groups.k)):
        core = _evaluate(groups, arithmetic, possible, units, m, n, k)
        if best is None or core.nanoseconds < best.nanoseconds:
            best = core
        if all(core.direct) and not core.loops_m and not core.loops_n:
            return core
    assert best is not None
    return best


def _orders(modes: Modes) -> list[Modes]:
    """K as each operand runs; the product does not care, as long as they agree."""
    return list(dict.fromkeys(tuple(sorted(modes, key=lambda s: abs(s.strides[t]))) for t in (A, B)))


def _candidates(modes: Modes, operand: int) -> list[_Side]:
    """Sets of modes worth being a matrix dimension: all of them, or a run of the operand or of D; and the rest."""
    found: list[Modes] = []
    for t in (D, operand):
        found.append(tuple(sorted(modes, key=lambda s: abs(s.strides[t]))))
        runs = chains(modes, t)
        found += [*runs[:1], *sorted(runs[1:], key=lambda c: -volume(c))[: _TRIED - 1]]
        # One mode alone: where the operand's runs and D's begin alike but go on differently.
        found += [(s,) for s in found[-len(runs[:_TRIED])][:1]]
    different = {m: set(m) for m in found}
    return [(m, tuple(s for s in modes if s not in chosen)) for m, chosen in different.items()]


def _evaluate(
    groups: Groups,
    arithmetic: Arithmetic,
    possible: tuple[bool, bool, bool],
    units: dict[int, Strided | None],
    side_m: _Side,
    side_n: _Side,
    k: Modes,
) -> Core:
    item = arithmetic.work.itemsize
    (m, loops_m), (n, loops_n) = side_m, side_n
    direct = (
        possible[0] and is_matrix(m, k, A, item),
        possible[1] and is_matrix(k, n, B, item),
        possible[2] and is_matrix(m, n, D, item),
    )
    batch = volume(groups.batch)
    em, en, ek = volume(m), volume(n), volume(k)
    calls = batch * volume(loops_m) * volume(loops_n)
    time = calls * product_time(arithmetic, em, en, ek)
    work = (
        (A, m, k, batch * volume(groups.m) * ek * volume(groups.sum_a)),
        (B, n, k, batch * volume(groups.n) * ek * volume(groups.sum_b)),
        (D, m, n, batch * volume(groups.m) * volume(groups.n) * volume(groups.spread)),
    )
    for (tensor, rows, columns, elements), free in zip(work, direct, strict=True):
        price = _reading(tensor, rows, columns) if free else _moving(units[tensor], tensor, rows, columns, item)
        time += elements * (_WRITE * price if tensor == D else price)
    return Core(m, n, k, loops_m, loops_n, direct, time + (_FUNCTION if all(direct) else _TILE))


def _reading(tensor: int, rows: Modes, columns: Modes) -> float:
    """Nanoseconds per element that BLAS loses where the rows of a matrix in place are short and far apart."""
    r, c = span(rows, tensor), span(columns, tensor)
    assert r is not None, "a tensor in place is a matrix"
    assert c is not None, "a tensor in place is a matrix"
    inner, outer = sorted((r, c), key=lambda x: x[1] or math.inf)
    return 0.0 if outer[1] in (0, inner[0] * inner[1]) else _FAR / inner[0]


def _moving(unit: Strided | None, tensor: int, rows: Modes, columns: Modes, item: int) -> float:
    """Nanoseconds per element of `item` bytes to pack or scatter a tensor whose scratch has these dimensions."""
    per_run = _STORED_RUN if tensor == D else _RUN
    for group in (rows, columns):
        if unit is not None and group and unit == group[0]:
            run = 1
            for length in range(1, len(group) + 1):
                found = span(group[:length], tensor)
                if found is None:
                    break
                run = found[0]
            return _STRAIGHT * item + per_run / run
    return _ACROSS * item + _ELEMENT + per_run / max(1, volume(columns[:1]), volume(rows[:1]))


def element_wise_cost(groups: Groups, work: np.dtype[Any]) -> float:
    """Nanoseconds of `numpy.einsum`'s own loop over every product."""
    every = (*groups.batch, *groups.spread, *groups.m, *groups.n, *groups.k, *groups.sum_a, *groups.sum_b)
    inner = min(every, key=lambda s: min(abs(x) for x in s.strides[:3] if x), default=None)
    length = 1 if inner is None else inner.extent
    one = _LOOP_COMPLEX if work.kind == "c" else _LOOP_BYTE * work.itemsize
    if not runs_alike(every):
        one = max(one, _LOOP_SCATTERED)
    return _FUNCTION + volume(every) * (one + 8.0 / length)


def runs_alike(modes: Modes) -> bool:
    """Whether there is one mode along which A, B and D each run at their smallest stride or stand still."""
    units = [nearest_mode(modes, t) for t in (A, B, D)]
    return any(all(u is None or u == s or not s.strides[t] for t, u in enumerate(units)) for s in units if s)
