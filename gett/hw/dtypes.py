"""The table of data types: one row a type, with all that tiles, instructions and copies need to know of it. Data only.

A `DataType` is a type of elements in memory. The tensor cores multiply a type of `tensor_types`, which may be another
one: float32 is rounded to tf32 where the precision allows it. Knows neither plans nor CUDA text beyond the names of
types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gett.errors import DTypeError
from gett.hw.tensor_types import PLANES, TENSOR_TYPES, MmaAtom, Planes, TensorType

ACCESS_BYTES = 16
"""Widest access of a thread."""

WORD = 4
"""Bytes of a register: an element of so many has one of its own."""


@dataclass(frozen=True, slots=True)
class DataType:
    """A type of elements in memory.

    Attributes:
        name: NumPy's name, or that of a type which NumPy lacks.
        bytes: Of an element.
        cpp: Its spelling in the kernels.
        accumulator: Type that products are summed in; integers wrap around the same way in either.
        tensor: Type that the tensor cores multiply in its place, None where they multiply none.
        tma: `CUtensorMapDataType` that moves elements unchanged, or halves of those of 16 bytes.
        real_products: Products of real numbers in one product.
    """

    name: str
    bytes: int
    cpp: str
    accumulator: str
    tensor: TensorType | None
    tma: int
    real_products: int = 1

    @property
    def real(self) -> str:
        """Name of the type of the real and imaginary parts of a complex type; of others their own."""
        return _PARTS.get(self.name, self.name)

    @property
    def parts(self) -> TensorType | None:
        """The type that the tensor cores multiply in place of the parts of a complex type; of others their own."""
        return DTYPES[self.real].tensor

    def by_warps(self) -> MmaAtom | None:
        """What four warps multiply of elements, or of their parts, as they are (Hopper); None where they do not."""
        if self.parts is None or not DTYPES[self.real].exact:
            return None
        return self.parts.four_complex if is_complex(self.name) else self.parts.four

    def by_warp(self, precision: str = "ieee") -> MmaAtom | None:
        """What a warp multiplies of elements at a precision, or of their parts as they are; None where it does not."""
        if is_complex(self.name):
            return None if self.parts is None else self.parts.mma_complex
        tensor = self.multiplied(precision)
        return None if tensor is None else tensor.mma

    @property
    def exact(self) -> bool:
        """Whether the tensor cores multiply elements as they are; else a precision must allow to round them."""
        return self.tensor is not None and self.tensor.name == self.name

    def multiplied(self, precision: str = "ieee") -> TensorType | None:
        """The type that the tensor cores multiply at a precision, None where they multiply none."""
        return self.tensor if self.tensor is not None and (self.exact or precision == self.tensor.name) else None

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of a sum of products."""
        return DTYPES[self.accumulator].bytes

    @property
    def vectors(self) -> tuple[int, ...]:
        """Elements that one access of a thread may have, widest first."""
        return tuple(v for v in (16, 8, 4, 2, 1) if v * self.bytes <= ACCESS_BYTES)

    @property
    def stmatrix(self) -> bool:
        """Whether `stmatrix` stores fragments of this type: it moves 8 x 8 matrices of 16-bit elements."""
        return self.bytes == 2

    @property
    def doubled(self) -> bool:
        """Whether an element, or each of its parts, is a number for the tensor cores that takes two registers."""
        return self.parts is not None and DTYPES[self.real].bytes == 2 * WORD


_IN_PLANES = ("float32", "complex64")

_FOR_TF32 = "bf16x3"
"""What takes the place of TF32 where no kernel rounds to it: two planes of bfloat16 have 16 bits of its 11."""

_TABLE = (
    DataType("float16", 2, "gett::half_t", "float32", TENSOR_TYPES["float16"], 6),
    DataType("bfloat16", 2, "gett::bhalf_t", "float32", TENSOR_TYPES["bfloat16"], 9),
    DataType("float32", 4, "float", "float32", TENSOR_TYPES["tf32"], 7),
    DataType("float64", 8, "double", "float64", TENSOR_TYPES["float64"], 8),
    DataType("complex64", 8, "gett::complex64", "complex64", None, 4, 4),
    DataType("complex128", 16, "gett::complex128", "complex128", None, 8, 4),
    DataType("bool", 1, "gett::bool_t", "bool", None, 0),
    DataType("int8", 1, "signed char", "int32", None, 0),
    DataType("uint8", 1, "gett::uint8", "uint32", None, 0),
    DataType("int16", 2, "short", "int32", None, 1),
    DataType("uint16", 2, "gett::uint16", "uint32", None, 1),
    DataType("int32", 4, "int", "int32", None, 3),
    DataType("uint32", 4, "gett::uint32", "uint32", None, 2),
    DataType("int64", 8, "long long", "int64", None, 5),
    DataType("uint64", 8, "gett::uint64", "uint64", None, 4),
)

DTYPES: Mapping[str, DataType] = MappingProxyType({t.name: t for t in _TABLE})
"""All data types of the kernels, by name."""


_PARTS = {"complex64": "float32", "complex128": "float64"}


def is_complex(name: str) -> bool:
    """Whether a dtype is complex; also of types that the kernels lack."""
    return name.startswith("complex")


def data_type(name: str) -> DataType:
    """The row of a dtype.

    Raises:
        DTypeError: The kernels have no such type.
    """
    try:
        return DTYPES[name]
    except KeyError:
        raise DTypeError(f"dtype {name} is not supported on a GPU; supported: {', '.join(DTYPES)}") from None


def tensor_type(name: str) -> TensorType:
    """What the tensor cores multiply in place of a dtype.

    Raises:
        DTypeError: They multiply nothing in its place.
    """
    tensor = data_type(name).tensor
    if tensor is None:
        raise DTypeError(f"tensor cores do not multiply dtype {name}")
    return tensor


def planes_of(dtype: str, precision: str) -> Planes | None:
    """The planes in which a dtype is multiplied at a precision, None where it is multiplied whole.

    No kernel rounds complex numbers to TF32.
    """
    if (dtype, precision) == ("complex64", "tf32"):
        precision = _FOR_TF32
    return PLANES.get(precision) if dtype in _IN_PLANES else None


def finer(dtype: str, precision: str) -> str:
    """The precision in planes that takes the place of one whose kernels do not take the operands' order, "" for none.

    It is at least as accurate.
    """
    return _FOR_TF32 if (dtype, precision) == ("float32", "tf32") else ""


def products_of(name: str, precision: str) -> tuple[TensorType, int]:
    """What the tensor cores multiply in place of a dtype at a precision, and their products for one of real numbers.

    Raises:
        DTypeError: They multiply nothing in its place.
    """
    planes, dtype = planes_of(name, precision), data_type(name)
    if planes is None and dtype.parts is not None and dtype.by_warps() is not None:
        return dtype.parts, 1
    return (tensor_type(name), 1) if planes is None else (planes.tensor, len(planes.products))


def wgmma_atom(name: str, precision: str = "ieee") -> MmaAtom:
    """The wgmma instruction that multiplies a dtype at a precision.

    Raises:
        DTypeError: There is none.
    """
    atom = products_of(name, precision)[0].wgmma
    if atom is None:
        raise DTypeError(f"wgmma does not multiply dtype {name}")
    return atom


def warpgroup_atom(name: str, precision: str = "ieee") -> MmaAtom:
    """What a warpgroup multiplies at a time: the wgmma instruction of a dtype, or those of its four warps.

    Raises:
        DTypeError: There is neither.
    """
    return data_type(name).by_warps() or wgmma_atom(name, precision)
