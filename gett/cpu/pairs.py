"""Products of a real and a complex operand as products of real numbers: complex ones are pairs along one more mode.

They take half of the multiply-adds, and the real operand is read as it is. Owns the plan in real numbers and the views
that it takes; knows nothing of how it runs.
"""

from __future__ import annotations

from dataclasses import replace

from numpy.lib.stride_tricks import as_strided

from gett.cpu.views import Array
from gett.hw.dtypes import data_type, is_complex
from gett.ir.contraction import Operand
from gett.ir.gemm import GemmPlan, make_gemm_plan


def real_pairs(plan: GemmPlan) -> GemmPlan | None:
    """The plan in real numbers, None where it is no product of a real and a complex operand, or has an epilogue.

    A conjugation is left out: the result is to be conjugated then, which C forbids.
    """
    c = plan.contraction
    if c.b is None or c.epilogue is not None or is_complex(c.a.dtype) == is_complex(c.b.dtype):
        return None
    written = (c.d, c.c) if c.c is not None else (c.d,)
    if any(x.dtype != c.dtype for x in written) or (c.c is not None and any(c.conj)):
        return None
    real = data_type(data_type(c.dtype).real)
    mode = len(c.extents)

    def paired(operand: Operand) -> Operand:
        if not is_complex(operand.dtype):
            return operand
        modes, strides = (*operand.modes, mode), (*operand.strides, real.bytes)
        return replace(operand, modes=modes, strides=strides, dtype=real.name, conj=False)

    return make_gemm_plan(
        replace(
            c,
            names=(*c.names, "re,im"),
            extents=(*c.extents, 2),
            a=paired(c.a),
            b=paired(c.b),
            d=paired(c.d),
            c=None if c.c is None else paired(c.c),
            dtype=real.name,
        )
    )


def as_pairs(array: Array) -> Array:
    """A view of complex numbers with a last axis of real and imaginary parts; a real array itself."""
    if array.dtype.kind != "c":
        return array
    real = array.real
    return as_strided(real, (*real.shape, 2), (*real.strides, real.itemsize))
