"""From a contraction to a GEMM: modes are classified, fused, ordered; A and B may change roles.

Owns `GemmPlan`. Knows neither tiles nor kernels nor devices: the same plan is walked by the NumPy executor and by the
generated kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gett.hw.dtypes import DTYPES
from gett.ir.contraction import Contraction, Operand
from layouts.modes import Strided, fuse, unit_mode

A, B, D, C, EXTRA = 0, 1, 2, 3, 4  # positions in `Strided.strides` of a plan; the epilogue's tensors from 4 on


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """A contraction as a batched GEMM whose matrices are strided in several modes each.

    `D[l, m, n] = f(alpha * sum_k A[l, m, k] * B[l, n, k] + beta * C[l, m, n], extras[l, m, n])`, where l, m, n, k are
    groups of fused modes, listed fastest first. Each mode's `strides` are bytes in (A, B, D, C), then in each of the
    tensors that the epilogue f reads. C's are 0 when there is no C.

    Attributes:
        contraction: What is computed. Its `a` and `b` are the user's first and second operand.
        swapped: Whether the plan's A is the user's second operand.
        l: Batch (Hadamard) modes: in A, B and D.
        m: Free modes of A (and modes that only D varies along).
        n: Free modes of B.
        k: Contracted modes; a mode summed in one operand alone has stride 0 in the other.
    """

    contraction: Contraction
    swapped: bool
    l: tuple[Strided, ...]
    m: tuple[Strided, ...]
    n: tuple[Strided, ...]
    k: tuple[Strided, ...]

    @property
    def a(self) -> Operand:
        """The operand in the role of A."""
        c = self.contraction
        return c.b if self.swapped and c.b is not None else c.a

    @property
    def b(self) -> Operand | None:
        """The operand in the role of B, None for a contraction of one operand."""
        return self.contraction.a if self.swapped else self.contraction.b

    @property
    def tensors(self) -> tuple[tuple[str, int, Operand], ...]:
        """The tensors that there are: name (`a`, `b`, `d`, `c`, `x0`...), position in `Strided.strides`, operand."""
        c = self.contraction
        names = [*"abdc", *map(str, c.epilogue.extras if c.epilogue is not None else ())]
        found = (self.a, self.b, c.d, c.c, *c.extras)
        return tuple((n, t, x) for t, (n, x) in enumerate(zip(names, found, strict=True)) if x is not None)

    @property
    def signature(self) -> str:
        """All that schedules and kernels depend on; plans that differ in letters alone share it."""
        c = self.contraction
        groups = [[(s.extent, s.strides) for s in group] for group in (self.l, self.m, self.n, self.k)]
        tensors = [None if t is None else (t.dtype, t.alignment, t.conj) for t in (self.a, self.b, c.d, c.c)]
        extras = [(t.dtype, t.alignment) for t in c.extras]
        return repr((groups, tensors, c.dtype, c.precision, c.epilogue, extras))

    def of(self, contraction: Contraction) -> GemmPlan:
        """The plan of a contraction that differs from this one's in letters alone."""
        return GemmPlan(contraction, self.swapped, self.l, self.m, self.n, self.k)

    def operand(self, tensor: int) -> Operand | None:
        """A, B, D or C, by position in `Strided.strides`; None where there is none."""
        return (self.a, self.b, self.contraction.d, self.contraction.c)[tensor]

    def size(self, tensor: int) -> int:
        """Bytes of an element of A, B or D, by position in `Strided.strides`."""
        operand = (self.a, self.b or self.a, self.contraction.d)[tensor]
        return itemsize(operand.dtype)

    @property
    def extent_l(self) -> int:
        """Product of the batch extents."""
        return math.prod(s.extent for s in self.l)

    @property
    def extent_m(self) -> int:
        """Rows of the GEMM."""
        return math.prod(s.extent for s in self.m)

    @property
    def extent_n(self) -> int:
        """Columns of the GEMM."""
        return math.prod(s.extent for s in self.n)

    @property
    def extent_k(self) -> int:
        """Length of the contraction; 1 where nothing is summed."""
        return math.prod(s.extent for s in self.k)

    @property
    def batched(self) -> tuple[int, ...]:
        """Which of A, B and D have a batch mode whose neighbours are neighbours in memory."""
        return tuple(t for t in (A, B, D) if unit_mode(self.l, t, self.size(t)) is not None)

    @property
    def flops(self) -> int:
        """Real floating-point operations: 2 per product of reals, 4 of a real and a complex number, 8 of two complex.

        Sums of one operand take 1 per element.
        """
        per = 2 * self.contraction.real_products if self.b is not None else int(self.extent_k > 1)
        return self.contraction.volume * per

    @property
    def bytes(self) -> int:
        """Least traffic: each tensor's distinct elements once (C and the epilogue's too, where there are any)."""
        extents = self.contraction.extents
        return sum(
            math.prod(extents[m] for m, s in zip(o.modes, o.strides, strict=True) if s) * itemsize(o.dtype)
            for _, _, o in self.tensors
        )

    def shape_class(self) -> str:
        """What kind of product it is: gemm, gemv, dot, outer, hadamard, batched ..., or permutation and sum."""
        m, n, k = self.extent_m > 1, self.extent_n > 1, self.extent_k != 1
        if self.b is None:
            return "sum" if k else "permutation"
        if m and n:
            kind = "gemm" if k else "outer product"
        elif m or n:
            kind = "gemv" if k else "scaling"
        else:
            kind = "dot" if k else "hadamard"
        return f"batched {kind}" if self.extent_l > 1 and kind != "hadamard" else kind


def itemsize(dtype: str) -> int:
    """Bytes of one element; NumPy's own types, which kernels lack, included."""
    return DTYPES[dtype].bytes if dtype in DTYPES else np.dtype(dtype).itemsize


def classify(contraction: Contraction) -> dict[str, list[Strided]]:
    """The modes of each group with their byte strides in each tensor, unfused, as the user's A and B."""
    groups: dict[str, list[Strided]] = {"l": [], "m": [], "n": [], "k": []}
    a, b, d, c = contraction.a, contraction.b, contraction.d, contraction.c
    for mode, extent in enumerate(contraction.extents):
        sa, sb = a.stride(mode), b.stride(mode) if b is not None else 0
        sd, sc = d.stride(mode), c.stride(mode) if c is not None else 0
        if mode not in d.modes:
            group = "k"
        elif sa and sb:
            group = "l"
        else:
            group = "n" if sb else "m"
        groups[group].append(Strided((mode,), extent, (sa, sb, sd, sc, *(x.stride(mode) for x in contraction.extras))))
    return groups


def make_gemm_plan(contraction: Contraction) -> GemmPlan:
    """Plan a contraction as a GEMM.

    A and B change roles when that puts D's unit-stride mode into the N group. The tensor cores have rows of D along N,
    and stores follow these rows.
    """
    groups = {g: fuse(ms) if all(s.extent for s in ms) else tuple(ms) for g, ms in classify(contraction).items()}
    m, n = groups["m"], groups["n"]
    swapped = contraction.b is not None and bool(m) and (not n or _smallest(m, D) < _smallest(n, D))
    if swapped:
        m, n = _exchange(n), _exchange(m)
    batch, k = groups["l"], groups["k"]
    if swapped:
        batch, k = _exchange(batch), _exchange(k)
    return GemmPlan(
        contraction,
        swapped,
        _order(batch, (D, A, B)),
        _order(m, (A, D)),
        _order(n, (B, D)),
        _order(k, _k_order(contraction, swapped)),
    )


def _smallest(modes: tuple[Strided, ...], tensor: int) -> int:
    return min(abs(s.strides[tensor]) for s in modes)


def _exchange(modes: tuple[Strided, ...]) -> tuple[Strided, ...]:
    return tuple(Strided(s.labels, s.extent, (s.strides[B], s.strides[A], *s.strides[2:])) for s in modes)


def _k_order(contraction: Contraction, swapped: bool) -> tuple[int, int]:
    """K follows the operand that has more bytes: its runs matter more."""
    a, b = contraction.a, contraction.b
    if b is None:
        return A, B
    first, second = (b, a) if swapped else (a, b)

    def size(o: Operand) -> int:
        return math.prod(contraction.extents[m] for m in o.modes) * itemsize(o.dtype)

    return (A, B) if size(first) >= size(second) else (B, A)


def _order(modes: tuple[Strided, ...], tensors: tuple[int, ...]) -> tuple[Strided, ...]:
    """Smallest stride first in the first tensor that varies along the mode, modes constant in it last."""
    return tuple(sorted(modes, key=lambda s: tuple(abs(s.strides[t]) or math.inf for t in tensors)))
