"""What planning knows of an array: shape, strides, dtype, alignment; and the rules for dtypes and dense layouts.

Owns `BFLOAT16`, which stands where NumPy has no dtype. Knows no array library: `gett.arrays.kinds` describes arrays
with these records.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gett.console.formatting import brief
from gett.errors import DTypeError, OptionError, PrecisionError
from gett.typing import Casting as Casting

# Wider promises do not help: no global access is wider than 16 bytes, and TMA asks for 16 (CUDA driver API).
ALIGNMENT_LIMIT = 16
MAX_AXES = 64  # of an array of NumPy, CuPy or PyTorch
_PARTS = ("float32", "complex64")
PRECISIONS = {"ieee": None, "tf32": _PARTS, "bf16x3": _PARTS, "fp16x3": _PARTS, "bf16x6": _PARTS}
"""Names to dtypes that they apply to (None: all)."""
USUAL_PRECISIONS = {"float32": "bf16x6", "complex64": "bf16x6"}
"""What is meant where no precision is asked for, but for dtypes that are `"ieee"` then."""

SUPPORTED = frozenset(
    ["bool", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
# What no executor multiplies but NumPy's own einsum, on the CPU.
NUMPY_ONLY = frozenset(np.dtype(ch).name for ch in "OgG") - SUPPORTED
NUMPY_EINSUM = np.einsum  # as it was when this module was loaded: a program may put this package's in its place


class _BFloat16:
    """As much of `numpy.dtype` as planning reads, for the one element type that NumPy lacks."""

    __slots__ = ()
    name = "bfloat16"
    kind = "f"
    itemsize = 2
    byteorder = "="

    def newbyteorder(self, order: str = "S") -> _BFloat16:
        """Itself: there is only the machine's byte order."""
        return self

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return "BFLOAT16"


BFLOAT16 = cast("np.dtype[Any]", _BFloat16())


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An array without its data.

    Attributes:
        shape: Extents.
        strides: Bytes between neighbours along each axis; any sign.
        dtype: NumPy dtype (byte order included), or `BFLOAT16`.
        alignment: Power of two that divides the address of the first coordinate, at most `ALIGNMENT_LIMIT`.
        conj: Whether the tensor is the conjugate of what its memory holds, as PyTorch's `x.conj()` is.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    alignment: int = ALIGNMENT_LIMIT
    conj: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, each counted once per coordinate."""
        return math.prod(self.shape) * self.dtype.itemsize


def parse_dtype(dtype: Any) -> np.dtype[Any]:
    """A dtype as NumPy or PyTorch spell it: `numpy.dtype(dtype)`, or `BFLOAT16`.

    Raises:
        DTypeError: It is none, or one that NumPy does not have.
    """
    if type(dtype).__module__ == "torch":  # such as torch.float32, whose text is its name
        dtype = str(dtype).removeprefix("torch.")
    if dtype is BFLOAT16 or (isinstance(dtype, str) and dtype == BFLOAT16.name):
        return BFLOAT16
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError, RecursionError) as error:  # texts that begin like records, deep lists
        raise DTypeError(f"dtype={brief(dtype)} is no dtype: {error}") from error
    return own_dtype(found)


def own_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype itself, but `BFLOAT16` for the one of that name that a package may have added to NumPy."""
    return BFLOAT16 if dtype.kind == "V" and dtype.name == BFLOAT16.name else dtype


def is_numpy_only(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is one of `NUMPY_ONLY`; quicker than its name."""
    return dtype is not BFLOAT16 and dtype.char in "OgG"


def check_supported(dtype: np.dtype[Any], where: str, supported: Collection[str] = SUPPORTED) -> None:
    """Refuse dtypes that nothing here multiplies."""
    if dtype.name in supported:
        return
    hint = "; einsum, contract and tensordot give NumPy arrays of it to NumPy" if dtype.name in NUMPY_ONLY else ""
    raise DTypeError(
        f"{where} has dtype {dtype}; supported are bool, integers, float16/32/64, bfloat16 and complex64/128{hint}"
    )


def promote(
    operands: Sequence[TensorSpec],
    named: Sequence[tuple[str, TensorSpec]],
    out: TensorSpec | None,
    dtype: Any,
    casting: Casting,
    supported: Collection[str] = SUPPORTED,
) -> np.dtype[Any]:
    """The dtype in which products are formed: `dtype=`, else the promotion of everything, `out` too.

    The rules are NumPy's. Where bfloat16 takes part they are PyTorch's: with bool and integers it stays, with float16
    it gives float32, with a wider type that type.

    Args:
        operands: The factors.
        named: Further tensors that are read, with their names for messages (`c`).
        out: The array to write, if it is given.
        dtype: What the caller asks for.
        casting: NumPy's rule for every conversion.
        supported: Names of the dtypes that are taken.

    Raises:
        DTypeError: A dtype is unsupported, or a conversion breaks `casting`; the text names the tensor.
    """
    tensors = [(f"operand {i}", t) for i, t in enumerate(operands)] + list(named)
    if out is not None:
        tensors.append(("out", out))
    for where, tensor in tensors:
        check_supported(tensor.dtype, where, supported)
    result = result_type([t.dtype for _, t in tensors]) if dtype is None else parse_dtype(dtype)
    result = result.newbyteorder("=")
    check_supported(result, "the result", supported)
    for where, tensor in tensors:
        if not _can_cast(tensor.dtype, result, casting):
            raise DTypeError(f"{where} cannot be cast from {tensor.dtype} to {result} under casting={brief(casting)}")
    if out is not None and not _can_cast(result, out.dtype, casting):
        rule = brief(casting)
        raise DTypeError(f"the result cannot be cast from {result} to {out.dtype} of out under casting={rule}")
    return result


def result_type(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """The dtype that holds all of several, by `promote`'s rules.

    Raises:
        DTypeError: There is none.
    """
    known = [t for t in dtypes if t is not BFLOAT16]
    try:
        rest = np.result_type(*known) if known else None
    except TypeError as error:
        names = ", ".join(dict.fromkeys(map(str, known)))
        raise DTypeError(f"there is no dtype that holds all of {names}") from error
    if rest is not None and len(known) == len(dtypes):
        return rest
    if rest is None or rest.kind in "biu":
        return BFLOAT16
    return np.result_type(rest, np.float32)


def factor_dtype(source: np.dtype[Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that an operand is read in where products are formed in `dtype`: real ones are not made complex."""
    if dtype.kind != "c" or source.kind == "c":
        return dtype
    return np.dtype(f"f{dtype.itemsize // 2}")


def short_dtype(operands: Sequence[TensorSpec], dtype: np.dtype[Any], precision: str) -> np.dtype[Any] | None:
    """The dtype of 16 bits that all operands are read in, though products are formed in float32; None for none.

    Tensor cores multiply numbers of 16 bits exactly and sum them in float32. So do they truths and integers of 8 bits,
    which either dtype holds. `"ieee"` asks for sums by multiply-adds of float32.
    """
    if dtype != np.float32 or precision == "ieee":
        return None
    found = {t.dtype.newbyteorder("=") for t in operands if t.dtype.itemsize > 1}
    short = found.pop() if len(found) == 1 else None
    return short if short is not None and short.kind == "f" and short.itemsize == 2 else None


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which sums of a dtype are formed: float32 for floating types of 16 bits, else the dtype itself."""
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize == 2 else dtype


def _can_cast(source: np.dtype[Any], target: np.dtype[Any], casting: Casting) -> bool:
    try:
        if source is not BFLOAT16 and target is not BFLOAT16:
            return np.can_cast(source, target, casting)
        np.can_cast(np.float32, np.float32, casting)  # for its opinion of `casting`
    except ValueError as error:
        raise OptionError(f"casting={brief(casting)}: {error}") from error
    except TypeError as error:
        raise DTypeError(f"casting={brief(casting)}: {error}") from error
    if source is target or casting == "unsafe":
        return True
    if casting in ("no", "equiv"):
        return False
    kinds = "biufc"  # from narrow to wide, as "same_kind" has them
    wider = casting == "same_kind" and kinds.index(source.kind) <= kinds.index(target.kind)
    return wider or result_type([source, target]) == target


@dataclass(frozen=True, slots=True)
class UsualPrecision:
    """A precision that holds for the dtypes that it applies to, and says nothing of others."""

    name: str


def check_precision(precision: Any, where: str = "precision") -> str:
    """The name, if there is such a precision.

    Raises:
        PrecisionError: There is none.
    """
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise PrecisionError(f"{where}={brief(precision)} is unknown; there are {', '.join(map(repr, PRECISIONS))}")
    return precision


def resolve_precision(precision: str | UsualPrecision | None, dtype: np.dtype[Any]) -> str:
    """The name of the precision, the dtype's usual one where none is asked for: that is as accurate as `"ieee"`."""
    usual = USUAL_PRECISIONS.get(dtype.name, "ieee")
    if precision is None:
        return usual
    if isinstance(precision, UsualPrecision):
        only = PRECISIONS[precision.name]
        return precision.name if only is None or dtype.name in only else usual
    if not isinstance(precision, str) or precision not in PRECISIONS:
        names = [name for name, only in PRECISIONS.items() if only is None or dtype.name in only]
        raise PrecisionError(f"precision={brief(precision)} is unknown; {dtype.name} has {', '.join(map(repr, names))}")
    only = PRECISIONS[precision]
    if only is not None and dtype.name not in only:
        raise PrecisionError(f"precision={brief(precision)} applies to {', '.join(only)}, not to {dtype.name}")
    return precision


def dense_strides(shape: Sequence[int], itemsize: int, order: str = "C") -> tuple[int, ...]:
    """Byte strides of a contiguous array in C or F order."""
    strides = [0] * len(shape)
    step = itemsize
    axes = range(len(shape)) if order == "F" else range(len(shape) - 1, -1, -1)
    for axis in axes:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def is_contiguous(spec: TensorSpec, order: str) -> bool:
    """Whether the elements lie without gaps in C or F order (axes of extent 1 do not count)."""
    dense = dense_strides(spec.shape, spec.dtype.itemsize, order)
    return 0 in spec.shape or all(s == d for e, s, d in zip(spec.shape, spec.strides, dense, strict=True) if e != 1)


def packed_axes(spec: TensorSpec) -> tuple[int, ...]:
    """Axes that vary or are empty, slowest first: the memory order that a converted copy keeps."""
    axes = [i for i, (e, s) in enumerate(zip(spec.shape, spec.strides, strict=True)) if e == 0 or (e != 1 and s)]
    return tuple(sorted(axes, key=lambda i: -abs(spec.strides[i])))


def converted(spec: TensorSpec, dtype: np.dtype[Any]) -> TensorSpec:
    """The copy that a conversion makes: dense, in the memory order of `spec`; axes of stride 0 stay so."""
    strides = [0] * len(spec.shape)
    step = dtype.itemsize
    for axis in reversed(packed_axes(spec)):
        strides[axis] = step
        step *= spec.shape[axis]
    return TensorSpec(spec.shape, tuple(strides), dtype, ALIGNMENT_LIMIT)
