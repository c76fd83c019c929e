"""How the kernels spell element types: `gett.hw.dtypes` by name."""

from __future__ import annotations

from gett.hw.dtypes import data_type


def cpp_type(dtype: str) -> str:
    """C++ name of a dtype.

    Raises:
        DTypeError: The kernels have no such type.
    """
    return data_type(dtype).cpp
