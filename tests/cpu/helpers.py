"""`Contraction` records from subscripts and arrays without the parser, and arrays of small integers."""

from __future__ import annotations

import math
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gett.ir.contraction import Contraction, Operand

Array = NDArray[Any]


def operand_of(labels: str, array: Array, extents: dict[str, int]) -> Operand:
    """The record of one array; repeated labels become one mode with added strides, broadcast axes stride 0."""
    strides: dict[str, int] = {}
    for x, n, stride in zip(labels, array.shape, array.strides, strict=True):
        strides[x] = strides.get(x, 0) + (stride if n == extents[x] else 0)
    address = array.__array_interface__["data"][0]
    modes = tuple(list(extents).index(x) for x in strides)
    return Operand(modes, tuple(strides.values()), array.dtype.name, math.gcd(address, 256))


def contraction_of(
    subscripts: str, a: Array, b: Array | None = None, c: Array | None = None, d: Array | None = None
) -> Contraction:
    """The contraction of explicit subscripts `"ab,bc->ac"`; `c` has D's modes. Default D: C-contiguous."""
    inputs, output = subscripts.replace(" ", "").split("->")
    named = list(zip(inputs.split(","), (a,) if b is None else (a, b), strict=True))
    extents: dict[str, int] = {}
    for labels, array in named:
        for x, n in zip(labels, array.shape, strict=True):
            extents[x] = n if extents.get(x, 1) == 1 else extents[x]
    if d is None:
        d = np.empty([extents[x] for x in output], np.result_type(*(array for _, array in named)))
    for x, n in zip(output, d.shape, strict=True):
        extents[x] = n if extents.get(x, 1) == 1 else extents[x]
    records = [operand_of(labels, array, extents) for labels, array in named]
    return Contraction(
        names=tuple(extents),
        extents=tuple(extents.values()),
        a=records[0],
        b=None if b is None else records[1],
        d=operand_of(output, d, extents),
        c=None if c is None else operand_of(output, c, extents),
        dtype=np.result_type(*(array.dtype for _, array in named)).name,
    )


def at(array: Any, operand: Operand | None, extents: Sequence[int], offset: int) -> Any:
    """An operand's share of an array, by address as a kernel sees it."""
    if operand is None:
        return None
    place = {
        "data": (array.__array_interface__["data"][0] + offset, False),
        "shape": tuple(extents[m] for m in operand.modes),
        "strides": operand.strides,
        "typestr": np.dtype(operand.dtype).str,
        "version": 3,
    }
    return np.asarray(types.SimpleNamespace(__array_interface__=place, keep=array))


def seeded(*shape: int, dtype: Any = np.float64, seed: int = 0, low: int = -3) -> Any:
    """Integers from `low` to 3 in any dtype, of a generator of their own."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "u":
        low = 0
    real = rng.integers(low, 4, shape)
    return (real + 1j * rng.integers(-3, 4, shape)).astype(dtype) if np.dtype(dtype).kind == "c" else real.astype(dtype)
