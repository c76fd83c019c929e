"""Products of a real and a complex operand as products of real numbers: complex ones are pairs along one more mode.

They take half of the multiply-adds, and the real operand is read as it is. Owns what is computed; knows nothing of how
it runs.
"""

from __future__ import annotations

from dataclasses import replace

from gett.hw.dtypes import data_type, is_complex
from gett.ir.contraction import Contraction, Operand

PARTS = "(re,im)"
"""The name of the mode of real and imaginary parts."""


def one_is_real(c: Contraction) -> bool:
    """Whether the contraction is a product of a real and a complex operand."""
    return c.b is not None and is_complex(c.a.dtype) != is_complex(c.b.dtype)


def real_pairs(c: Contraction) -> Contraction | None:
    """The contraction in real numbers, None where it is no product of a real and a complex operand, or has an epilogue.

    It takes real factors alpha and beta alone. A conjugation is left out: the result is to be conjugated then, which C
    forbids.
    """
    if c.b is None or not one_is_real(c) or c.epilogue is not None:
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

    return replace(
        c,
        names=(*c.names, PARTS),
        extents=(*c.extents, 2),
        a=paired(c.a),
        b=paired(c.b),
        d=paired(c.d),
        c=None if c.c is None else paired(c.c),
        dtype=real.name,
    )
