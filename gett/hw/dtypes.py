"""The table of data types: one row a type, with all that tiles, instructions and copies need to know of it. Data only.

A `DataType` is a type of elements in memory. The tensor cores multiply a `TensorType`, which may be another one:
float32 is rounded to tf32 where the precision allows it. Knows neither plans nor CUDA text beyond the names of types.

Sources: PTX ISA, "wgmma.mma_async" (shapes; only 16-bit types may be transposed on the way out of shared memory) and
"mma.sync" (shapes and fragments); CUDA driver API, `CUtensorMapDataType`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gett.errors import DTypeError

ACCESS_BYTES = 16
"""Widest access of a thread."""

WORD = 4
"""Bytes of a register: an element of so many has one of its own."""


@dataclass(frozen=True, slots=True)
class MmaAtom:
    """One instruction of the tensor cores.

    Attributes:
        m: Rows.
        n: Columns, or the step of the columns where an instruction may have several steps of them.
        most_n: Most columns.
        k: Products that it sums.
        registers: 32-bit registers of a thread that hold its share of A and of B, as far as they come from registers.
        majors: Groups along a row of a shared-memory tile that it can read, `"k"` and `"mn"`.
        sources: Where A and B lie: `"rr"` both in registers, `"ss"` both in shared memory, `"rs"` A in registers.
    """

    m: int
    n: int
    most_n: int
    k: int
    registers: tuple[int, int]
    majors: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def either_major(self) -> bool:
        """Whether tiles in shared memory may have rows along K or along M and N."""
        return len(self.majors) == 2


@dataclass(frozen=True, slots=True)
class TensorType:
    """A type that tensor cores multiply.

    Attributes:
        name: Its name; `ArchFacts.tensor_lanes` has its rate under it.
        kind: Its spelling in the instructions.
        bytes: Of an element in shared memory.
        wgmma: Instruction of a warpgroup (Hopper), None where there is none.
        mma: Instruction of a warp (`mma.sync`, Ampere and later), None where there is none.
        tma: `CUtensorMapDataType` that rounds elements of a wider type to this one on the way, to the nearest with ties
            to even; None where there is none.
        four: Instructions of a warpgroup's four warps, as one, where there is no wgmma (Hopper); None elsewhere.
        four_complex: The same of complex numbers whose parts have the type.
    """

    name: str
    kind: str
    bytes: int
    wgmma: MmaAtom | None
    mma: MmaAtom | None
    tma: int | None = None
    four: MmaAtom | None = None
    four_complex: MmaAtom | None = None

    def ldmatrix(self, major: str) -> bool:
        """Whether `ldmatrix` reads fragments from rows along `major`: it moves rows of 16-bit pairs, untransposed."""
        return self.bytes == 2 or (self.bytes == 4 and major == "k")


@dataclass(frozen=True, slots=True)
class Planes:
    """How tensor cores multiply a wider type: its numbers are sums of planes of a narrower one.

    Attributes:
        tensor: The type of the planes.
        count: Planes of a number.
        products: (plane of A, plane of B) of the products that are formed, those of least value first.
        sum_k: Products of real numbers that the tensor cores sum, before sums are added in float32.
        scaled: Whether numbers are scaled by powers of two: those of a row of A and a sum, those of some columns of B
            and a k-tile, where the type of the planes has few exponents.
        bound: Of the error of a sum of k products, in units of 2^-24 of the sum of their magnitudes, as text.
        bound_complex: The same of a part of complex products, whose short sums have twice as many terms.
        low: Numbers that are smaller than this share of the largest that they are scaled with count as that much in the
            bound, as text.
    """

    tensor: TensorType
    count: int
    products: tuple[tuple[int, int], ...]
    sum_k: int
    scaled: bool
    bound: str
    bound_complex: str
    low: str = ""

    def sum_steps(self, parts: int, block_k: int) -> int:
        """Steps of 16 k that a sum has.

        Args:
            parts: Real numbers of an element; a complex product sums two products of them.
            block_k: K of a k-tile; a sum is of one.
        """
        return max(1, min(self.sum_k // parts, block_k) // 16)


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

    @property
    def real_flops(self) -> int:
        """Operations on real numbers for one product and its sum."""
        return 2 * self.real_products


def _wgmma(size: int) -> MmaAtom:
    """Rows of A's and B's fragments along K take 32 bytes; 16-bit tiles may be MN-major, all others are K-major."""
    return MmaAtom(64, 8, 256, 32 // size, (4, 0), ("k", "mn") if size == 2 else ("k",), ("ss", "rs"))


def _mma(size: int) -> MmaAtom:
    """m16n8: K of one instruction takes 32 bytes; the kernels load fragments from tiles of either major."""
    return MmaAtom(16, 8, 8, 32 // size, (4, 2), ("k", "mn"), ("rr",))


def _four(k: int) -> MmaAtom:
    """m16n8 of four warps one above the other: both operands in registers, out of tiles of either major."""
    return MmaAtom(64, 8, 256, k, (16, 8), ("k", "mn"), ("rr",))


# float64 has m16n8k4 to m16n8k16 on Hopper, two m8n8k4 before it; 8-bit types have instructions from Ada on.
_TENSOR = (
    TensorType("float16", "f16", 2, _wgmma(2), _mma(2)),
    TensorType("bfloat16", "bf16", 2, _wgmma(2), _mma(2)),
    TensorType("tf32", "tf32", 4, _wgmma(4), _mma(4), 11),
    TensorType("float64", "f64", 8, None, _mma(8), None, _four(16), _four(8)),
    TensorType("float8_e4m3fn", "e4m3", 1, _wgmma(1), _mma(1)),
    TensorType("float8_e5m2", "e5m2", 1, _wgmma(1), _mma(1)),
)

TENSOR_TYPES: Mapping[str, TensorType] = MappingProxyType({t.name: t for t in _TENSOR})
"""Types that tensor cores multiply, by name."""

_F16, _BF16, _TF32, _F64 = (TENSOR_TYPES[name] for name in ("float16", "bfloat16", "tf32", "float64"))

PLANES: Mapping[str, Planes] = MappingProxyType(
    {
        "bf16x6": Planes(
            _BF16, 3, ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0)), 16, False, "13 + k / 16", "23 + k / 16"
        ),
        "bf16x3": Planes(_BF16, 2, ((1, 0), (0, 1), (0, 0)), 32, False, "791 + k / 32", "791 + k / 16"),
        "fp16x3": Planes(_F16, 2, ((1, 0), (0, 1), (0, 0)), 32, True, "28 + k / 32", "28 + k / 16", "2^-17"),
    }
)
"""Precisions at which float32 and complex64 are multiplied in planes."""

_IN_PLANES = ("float32", "complex64")

_FOR_TF32 = "bf16x3"
"""What takes the place of TF32 where no kernel rounds to it: two planes of bfloat16 have 16 bits of its 11."""

_TABLE = (
    DataType("float16", 2, "gett::half_t", "float32", _F16, 6),
    DataType("bfloat16", 2, "gett::bhalf_t", "float32", _BF16, 9),
    DataType("float32", 4, "float", "float32", _TF32, 7),
    DataType("float64", 8, "double", "float64", _F64, 8),
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
