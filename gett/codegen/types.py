"""How the kernels spell element types: `gett.hw.dtypes` by name."""

from __future__ import annotations

from gett.hw.dtypes import data_type
from gett.ir.contraction import Contraction, Operand


def cpp_type(dtype: str) -> str:
    """C++ name of a dtype.

    Raises:
        DTypeError: The kernels have no such type.
    """
    return data_type(dtype).cpp


def dtype_c(contraction: Contraction) -> str:
    """The dtype of C, or of D where there is none."""
    return contraction.d.dtype if contraction.c is None else contraction.c.dtype


def factor_type(operand: Operand) -> str:
    """C++ name of what A or B has in memory: elements that a load conjugates have a type of their own.

    Raises:
        DTypeError: The kernels have no such type.
    """
    name = cpp_type(operand.dtype)
    return name.replace("complex", "conj") if operand.conj else name
