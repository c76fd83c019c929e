"""Where the NumPy executor conjugates: tiles of an operand as they are packed, or the product.

`conj(A) B` is `conj(A conj(B))`, and `conj(A) conj(B)` is `conj(A B)`. Owns these ways and the loop over the result;
knows neither tiles nor BLAS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gett.cpu import tiles
from gett.cpu.moving import piece_shape, unit_axis
from gett.cpu.threads import parallel
from gett.cpu.tiles import Part, Tiles
from gett.cpu.views import Array
from gett.hw.dtypes import is_complex
from gett.ir.gemm import GemmPlan

#: Elements from which a second thread pays.
_PARALLEL = 1 << 19


@dataclass(frozen=True, slots=True)
class Conjugation:
    """What is conjugated: tiles of A and of B, in the plan's roles, before the product; the product."""

    a: bool = False
    b: bool = False
    d: bool = False


def conjugations(plan: GemmPlan) -> tuple[Conjugation, ...]:
    """The ways to a plan's product, the first of which touches no operand that is not conjugated."""
    sides = [(is_complex(x.dtype), x.conj) for x in (plan.a, plan.b) if x is not None]
    flags = [conj for complex_, conj in sides if complex_]
    if not any(flags):
        return (Conjugation(),)
    if all(flags):
        return (Conjugation(d=True),)
    first = plan.a.conj
    return Conjugation(first, not first), Conjugation(not first, first, d=True)


def conjugate(array: Array, threads: int = 1) -> None:
    """Conjugate an array in place, in pieces that an interrupt need not wait for."""
    shared = threads > 1 and array.size > _PARALLEL
    if not shared and array.size <= tiles.CALL:
        np.conjugate(array, out=array)
        return
    most = min(tiles.CALL, array.size // (2 * threads)) if shared else tiles.CALL

    def run(parts: Iterator[Part]) -> None:
        for i in parts:
            np.conjugate(array[i], out=array[i])

    parallel(Tiles(array.shape, piece_shape(array.shape, (unit_axis(array),), most)), run, threads if shared else 1)
