"""What tensor cores multiply: types with their instructions, and the planes in which wider types are multiplied.

Data only. Knows no type of elements in memory (`dtypes`), neither plans nor CUDA text beyond the names of types.

Sources: PTX ISA, "wgmma.mma_async" (shapes; only 16-bit types may be transposed on the way out of shared memory);
"mma.sync" (shapes and fragments); CUDA driver API, `CUtensorMapDataType`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


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
            to even. None without such a type.
        four: Instructions of a warpgroup's four warps, as one, where there is no wgmma (Hopper); None elsewhere.
        four_complex: The same of complex numbers whose parts have the type.
        mma_complex: `mma` of such numbers, as instructions make it of their parts; None where these would be rounded.
    """

    name: str
    kind: str
    bytes: int
    wgmma: MmaAtom | None
    mma: MmaAtom | None
    tma: int | None = None
    four: MmaAtom | None = None
    four_complex: MmaAtom | None = None
    mma_complex: MmaAtom | None = None

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
        scaled: Whether numbers are scaled by powers of two, because the type of the planes has few exponents. One scale
            is for a row of A and a sum, one for some columns of B and a k-tile.
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


def _wgmma(size: int) -> MmaAtom:
    """Rows of A's and B's fragments along K take 32 bytes; 16-bit tiles may be MN-major, all others are K-major."""
    return MmaAtom(64, 8, 256, 32 // size, (4, 0), ("k", "mn") if size == 2 else ("k",), ("ss", "rs"))


def _mma(size: int) -> MmaAtom:
    """m16n8: K of one instruction takes 32 bytes; the kernels load fragments from tiles of either major."""
    return MmaAtom(16, 8, 8, 32 // size, (4, 2), ("k", "mn"), ("rr",))


def _complex_mma(k: int) -> MmaAtom:
    """m8n8 of complex numbers, which are 16 bytes each: rows of their parts are rows of one instruction."""
    return MmaAtom(8, 8, 8, k, (4, 4), ("k", "mn"), ("rr",))


def _four(k: int) -> MmaAtom:
    """m16n8 of four warps one above the other: both operands in registers, out of tiles of either major."""
    return MmaAtom(64, 8, 256, k, (16, 8), ("k", "mn"), ("rr",))


# float64 has m16n8k4 to m16n8k16 on Hopper, two m8n8k4 before it.
_TENSOR = (
    TensorType("float16", "f16", 2, _wgmma(2), _mma(2)),
    TensorType("bfloat16", "bf16", 2, _wgmma(2), _mma(2)),
    TensorType("tf32", "tf32", 4, _wgmma(4), _mma(4), 11),
    TensorType("float64", "f64", 8, None, _mma(8), None, _four(16), _four(8), _complex_mma(4)),
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
