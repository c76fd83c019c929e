"""Names of element types in the kernels. Data only."""

from __future__ import annotations

from gett.errors import DTypeError
from gett.ir.tensors import accumulator as accumulator

CPP = {
    "float16": "gett::half_t",
    "bfloat16": "gett::bhalf_t",
    "float32": "float",
    "float64": "double",
    "complex64": "gett::complex64",
    "complex128": "gett::complex128",
    "bool": "gett::bool_t",
    "int8": "signed char",
    "uint8": "gett::uint8",
    "int16": "short",
    "uint16": "gett::uint16",
    "int32": "int",
    "uint32": "gett::uint32",
    "int64": "long long",
    "uint64": "gett::uint64",
}
"""C++ spelling of each supported dtype."""


def cpp_type(dtype: str) -> str:
    """C++ name of a dtype.

    Raises:
        DTypeError: The kernels have no such type.
    """
    try:
        return CPP[dtype]
    except KeyError:
        raise DTypeError(f"dtype {dtype} is not supported on a GPU; supported: {', '.join(CPP)}") from None
