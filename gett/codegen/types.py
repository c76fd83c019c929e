"""How the kernels spell element types, and which type sums have: `gett.hw.dtypes` by name."""

from __future__ import annotations

from gett.hw.dtypes import data_type


def cpp_type(dtype: str) -> str:
    """C++ name of a dtype.

    Raises:
        DTypeError: The kernels have no such type.
    """
    return data_type(dtype).cpp


def accumulator(dtype: str) -> str:
    """Dtype in which products of `dtype` are summed.

    Raises:
        DTypeError: The kernels have no such type.
    """
    return data_type(dtype).accumulator
