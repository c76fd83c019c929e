"""The record of one contraction: what is multiplied, summed and stored, and how each tensor lies in memory.

Owns the semantics of a pairwise (or one-operand) contraction. Knows nothing of GEMM groups, tiles or devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gett.hw.dtypes import data_type, is_complex

if TYPE_CHECKING:  # most contractions have no epilogue
    from gett.epilogue.expression import Expression


@dataclass(frozen=True, slots=True)
class Operand:
    """How one tensor is addressed.

    Attributes:
        modes: Distinct mode numbers. A mode repeated in the subscripts (a diagonal) occurs once, its strides added.
        strides: Bytes between neighbours along each mode; 0 where a size-1 axis is broadcast; may be negative.
        dtype: NumPy dtype name (`"bfloat16"` for that type). A and B have the contraction's, or that of its real and
            imaginary parts: a real operand is read as it is.
        alignment: Largest power of two, at most 256, that divides the address of the element at coordinate 0.
        conj: Whether the values are the conjugates of what lies in memory; of complex factors alone.
    """

    modes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    alignment: int = 16
    conj: bool = False

    def stride(self, mode: int) -> int:
        """Byte stride along `mode`, 0 where this tensor does not have it."""
        return self.strides[self.modes.index(mode)] if mode in self.modes else 0


@dataclass(frozen=True, slots=True)
class Contraction:
    """`D = f(alpha * sum(A * B) + beta * C, extras)`, summed over all modes that D lacks.

    Attributes:
        names: Display name of each mode; mode numbers index it.
        extents: Extent of each mode.
        a: First operand.
        b: Second operand, or None: D is then a permutation, diagonal, sum or broadcast of A alone.
        d: The result. Every mode of D is distinct.
        c: The added operand (its modes are a subset of D's), or None.
        dtype: dtype in which products are formed (NumPy promotion of the operands). D may differ from it. Where it
            is complex, A and B may be real.
        precision: How products are formed at least: `"ieee"` (FMA or the type's own tensor-core product), `"tf32"`, or
            in planes (`gett.hw.tensor_types.PLANES`).
        epilogue: The function f, computed in the accumulator's type before the one store of D; None is the identity.
        extras: The tensors that it reads, one for each of its `extras`; their modes are a subset of D's.
    """

    names: tuple[str, ...]
    extents: tuple[int, ...]
    a: Operand
    b: Operand | None
    d: Operand
    c: Operand | None
    dtype: str
    precision: str = "ieee"
    epilogue: Expression | None = None
    extras: tuple[Operand, ...] = ()

    @property
    def shape_d(self) -> tuple[int, ...]:
        """Extents of D in the order of its modes."""
        return tuple(self.extents[m] for m in self.d.modes)

    @property
    def summed(self) -> tuple[int, ...]:
        """Modes that D lacks."""
        return tuple(m for m in range(len(self.extents)) if m not in self.d.modes)

    @property
    def conj(self) -> tuple[bool, bool]:
        """Whether A and B are conjugated as they are read; False for a B that is not there."""
        return self.a.conj, self.b is not None and self.b.conj

    @property
    def real_products(self) -> int:
        """Products of real numbers in one product of A and B: 4 of two complex numbers, 2 where one of them is real."""
        sides = [self.a] if self.b is None else [self.a, self.b]
        return math.prod(2 for x in sides if is_complex(x.dtype))

    @property
    def volume(self) -> int:
        """Number of elementary products (points of the iteration space)."""
        return math.prod(self.extents)

    @property
    def value_types(self) -> tuple[str, ...]:
        """Types of the values of the epilogue, which must be there: `gett.epilogue.types.value_types` of it."""
        from gett.epilogue.types import value_types

        assert self.epilogue is not None
        return value_types(self.epilogue, data_type(self.dtype).accumulator, [x.dtype for x in self.extras])

    @property
    def nameless(self) -> Contraction:
        """The same without names: contractions that differ in letters alone are equal then."""
        return Contraction(
            (), self.extents, self.a, self.b, self.d, self.c, self.dtype, self.precision, self.epilogue, self.extras
        )

    def spell(self, operand: Operand) -> str:
        """The modes of an operand as subscripts, e.g. `"kjicba"`."""
        return "".join(self.names[m] for m in operand.modes)

    def __str__(self) -> str:
        """The subscripts, e.g. `"bmji,cakm->kjicba"`."""
        sides = ",".join(self.spell(o) for o in (self.a, self.b) if o is not None)
        return f"{sides}->{self.spell(self.d)}"
