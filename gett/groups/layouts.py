"""Problems as matrix products whose modes a table holds: groups, roles, and what vectors an operand allows.

Problems of one layout differ in addresses alone. Knows neither tables nor kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from gett.errors import SubscriptsError
from gett.hw.dtypes import DTYPES, data_type
from gett.ir.build import address, make_contraction, resolve_extents
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import A, B, D, classify, itemsize
from gett.ir.subscripts import Spec, operand_count, parse
from gett.ir.tensors import (
    ALIGNMENT_LIMIT,
    TensorSpec,
    UsualPrecision,
    dense_strides,
    factor_dtype,
    promote,
    resolve_precision,
    short_dtype,
)
from gett.schedule.spec.grouped import GroupedLoad
from layouts.modes import Strided

GROUPS = "lmnk"
Asked = str | UsualPrecision | None
"""A precision as it was asked for."""
MOST = 2**30  # elements of a group, which kernels number in 32 bits

Steps = tuple[int, int, int]
"""Bytes in A, B and D from one coordinate to the next."""


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand in its role in the product.

    Attributes:
        dtype: Of its elements in memory.
        conj: Whether its values are their conjugates.
    """

    dtype: str
    conj: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """A problem without its addresses.

    Attributes:
        names: Display names of the modes.
        dtype: In which products are formed.
        precision: How, at least.
        d: The result.
        swapped: Whether the second operand is A.
        a: The operand in the role of A.
        b: In that of B.
        modes: For each of `GROUPS` extents and steps, the fastest in D (of K, in the larger operand) first.
        place: The group of each mode of the result that has an extent above 1, by D's strides.
        whole: Whether kernels read both operands as they are, and number all elements.
        alone: Position of the mode that is fused with no other: its group, and its place there; None for none.
    """

    names: tuple[str, ...]
    dtype: str
    precision: str
    d: TensorSpec
    swapped: bool
    a: Factor
    b: Factor
    modes: tuple[tuple[tuple[int, Steps], ...], ...]
    place: str
    whole: bool
    alone: tuple[int, int] | None = None

    def extent(self, group: str) -> int:
        """Elements of a group."""
        return math.prod(extent for extent, _ in self.modes[GROUPS.index(group)])

    def factor(self, tensor: int) -> Factor:
        """A or B, by position in steps."""
        return self.b if tensor == B else self.a

    def major(self, tensor: int) -> Literal["k", "mn"]:
        """The group along which lanes read A or B: that of its least step."""
        own, k = (self.modes[GROUPS.index(g)] for g in ("n" if tensor == B else "m", "k"))
        first = [abs(group[0][1][tensor]) if group else math.inf for group in (own, k)]
        return "mn" if 0 < first[0] < (first[1] or math.inf) else "k"

    def vector(self, tensor: int, major: Literal["k", "mn"]) -> int:
        """Most elements of A or B that one copy along a group may have where addresses are aligned."""
        along = GROUPS.index("k" if major == "k" else "n" if tensor == B else "m")
        size = itemsize(self.factor(tensor).dtype)
        if not self.modes[along] or self.modes[along][0][1][tensor] != size:
            return 1
        length = self.modes[along][0][0]
        others = [step[tensor] for g, group in enumerate(self.modes) for _, step in group[1 if g == along else 0 :]]
        return next(
            v for v in data_type(self.factor(tensor).dtype).vectors
            if length % v == 0 and all(s % (v * size) == 0 for s in others)
        )  # fmt: skip

    def load(self, tensor: int, major: Literal["k", "mn"], vector: int) -> GroupedLoad:
        """How a kernel brings A or B."""
        factor = self.factor(tensor)
        return GroupedLoad(factor.dtype, factor.conj, major, vector)


@lru_cache(maxsize=4096)
def make_layout(spec: Spec, a: TensorSpec, b: TensorSpec, d: TensorSpec | None, precision: Asked) -> Layout:
    """The layout of a problem.

    Args:
        spec: The subscripts.
        a: The first operand.
        b: The second.
        d: The array to write; None for a new one, C-contiguous.
        precision: As it was asked for.

    Raises:
        SubscriptsError, ShapeError, OutputError, DTypeError, PrecisionError: The problem is at fault.
    """
    check_pair(spec)
    subscripts = parse(spec, (len(a.shape), len(b.shape)))
    extents = resolve_extents(subscripts, (a.shape, b.shape), None if d is None else d.shape)
    arithmetic = arithmetic_of(a, b, d, precision)
    if d is None:
        shape = tuple(extents[m] for m in subscripts.output)
        d = plain(TensorSpec(shape, dense_strides(shape, arithmetic.dtype.itemsize), arithmetic.dtype))
    first, second = (
        address(modes, x, extents, x.conj and x.dtype.kind == "c")
        for modes, x in zip(subscripts.inputs, (a, b), strict=True)
    )
    own = address(subscripts.output, d, extents)
    contraction = make_contraction(
        subscripts.names, extents, first, second, own, None, arithmetic.dtype, arithmetic.precision
    )
    return as_product(contraction, d, arithmetic.read, arithmetic.whole and whole_strides((a, b, d)))


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How products are formed.

    Attributes:
        dtype: Of a new result.
        precision: At least.
        read: Name of the dtype of what is multiplied.
        whole: Whether kernels read both operands as they are, and know the result's dtype.
    """

    dtype: np.dtype[Any]
    precision: str
    read: str
    whole: bool


def arithmetic_of(a: TensorSpec, b: TensorSpec, d: TensorSpec | None, precision: Asked) -> Arithmetic:
    """How a product of two tensors is formed, by the rules of `einsum`.

    Raises:
        DTypeError, PrecisionError: There is no such product.
    """
    dtype = promote((a, b), (), d, None, "safe")
    asked = resolve_precision(precision, dtype)
    short = short_dtype((a, b), dtype, asked)
    read = [short or factor_dtype(x.dtype, dtype) for x in (a, b)]
    known = all(x.dtype == own and own.name in DTYPES for x, own in zip((a, b), read, strict=True))
    return Arithmetic(dtype, asked, (short or dtype).name, known and (dtype if d is None else d.dtype).name in DTYPES)


def whole_strides(tensors: Sequence[TensorSpec]) -> bool:
    """Whether strides are multiples of elements."""
    return all(s % x.dtype.itemsize == 0 for x in tensors for s in x.strides)


def plain(spec: TensorSpec) -> TensorSpec:
    """A description that depends neither on the address nor on strides along which there are no neighbours."""
    if 0 in spec.shape:
        strides = dense_strides(spec.shape, spec.dtype.itemsize)
    else:
        strides = tuple(0 if e == 1 else s for e, s in zip(spec.shape, spec.strides, strict=True))
    return TensorSpec(spec.shape, strides, spec.dtype, ALIGNMENT_LIMIT, spec.conj)


def check_pair(spec: Spec) -> None:
    """Refuse subscripts of other than two operands.

    Raises:
        SubscriptsError: They are.
    """
    if operand_count(spec) != 2:
        shown = repr(spec) if isinstance(spec, str) else "the label lists"
        raise SubscriptsError(f"{shown} describes {operand_count(spec)} operands; a problem has two")


def as_product(contraction: Contraction, d: TensorSpec, dtype: str, whole: bool, alone: int | None = None) -> Layout:
    """A contraction of two operands as a product whose rows run along N, by `gett.ir.gemm`'s rule.

    Modes of L, M and N are in D's order, so that pairs that sum into one block number its elements alike. The mode
    `alone` is fused with no other.
    """
    groups = classify(contraction)
    b = contraction.b
    assert b is not None
    order = sorted((abs(s.strides[D]), g) for g in "lmn" for s in groups[g] if s.extent != 1)
    free = [g for _, g in order if g != "l"]
    swapped = bool(free) and free[0] == "m"
    roles = {"l": "l", "m": "n", "n": "m", "k": "k"} if swapped else {g: g for g in GROUPS}
    at = (B, A, D) if swapped else (A, B, D)
    first, second = (b, contraction.a) if swapped else (contraction.a, b)
    larger = A if _elements(contraction, first) >= _elements(contraction, second) else B
    found = {
        roles[g]: [Strided(s.labels, s.extent, tuple(s.strides[t] for t in at)) for s in groups[g]] for g in GROUPS
    }
    modes = [fused(found[g], larger if g == "k" else D, alone) for g in GROUPS]
    at_alone = next(((g, i) for g, (_, i) in enumerate(modes) if i >= 0), None)
    place = "".join(roles[g] for _, g in order)
    return Layout(
        contraction.names, dtype, contraction.precision, replace(d, alignment=ALIGNMENT_LIMIT), swapped,
        Factor(first.dtype, first.conj), Factor(second.dtype, second.conj), tuple(x for x, _ in modes), place,
        whole and all(math.prod(e for e, _ in group) < MOST for group, _ in modes),
        at_alone,
    )  # fmt: skip


def fused(modes: Sequence[Strided], tensor: int, alone: int | None = None) -> tuple[tuple[tuple[int, Steps], ...], int]:
    """Extents and steps of a group by their steps in a tensor; neighbours that continue each other are one mode.

    The mode `alone` is fused with no other; its place comes second, -1 for none.
    """
    found: list[tuple[int, Steps]] = []
    place = -1
    open_ = False  # whether the last mode may be continued
    for s in sorted(modes, key=lambda s: abs(s.strides[tensor]) or math.inf):
        own = s.labels == (alone,)
        if s.extent == 1 and not own:
            continue
        step = (s.strides[0], s.strides[1], s.strides[2])
        if open_ and not own and all(found[-1][0] * x == y for x, y in zip(found[-1][1], step, strict=True)):
            found[-1] = (found[-1][0] * s.extent, found[-1][1])
        else:
            found.append((s.extent, step))
        open_ = not own
        place = len(found) - 1 if own else place
    return tuple(found), place


def _elements(contraction: Contraction, operand: Operand) -> int:
    return math.prod(contraction.extents[m] for m in operand.modes)
