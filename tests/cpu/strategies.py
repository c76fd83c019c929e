"""Random contractions for hypothesis: every split of modes into groups, awkward extents, any strides.

Values are small integers, so that results are exact in every dtype and index errors cannot hide in a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

DTYPES = ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")
EXTENTS = (1, 2, 3, 5, 7)
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Case:
    """Subscripts with operands that fit them.

    Attributes:
        subscripts: The explicit form.
        operands: Arrays with the strides that were drawn.
        extents: Extent of each label after broadcasting.
    """

    subscripts: str
    operands: tuple[np.ndarray[Any, Any], ...]
    extents: dict[str, int]

    @property
    def output(self) -> str:
        return self.subscripts.partition("->")[2]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.extents[x] for x in self.output)

    def reference(self) -> np.ndarray[Any, Any]:
        """The exact result in the dtype of the operands, summed in the widest type of its kind."""
        dtype = np.result_type(*self.operands)
        wide = {"b": bool, "i": np.int64, "u": np.uint64, "f": np.float64, "c": np.complex128}[dtype.kind]
        result = np.einsum(self.subscripts, *(x.astype(wide) for x in self.operands))
        return np.asarray(result).astype(dtype)

    def __repr__(self) -> str:
        shown = ", ".join(f"{x.dtype}{x.shape}/{x.strides}" for x in self.operands)
        return f"Case({self.subscripts!r}: {shown})"


def values(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any], most: int = 2) -> np.ndarray[Any, Any]:
    """Integers from `-most` to `most` (0 to `most`, 0 to 1) in any dtype."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "u":
        return rng.integers(0, most + 1, shape).astype(dtype)
    real = rng.integers(-most, most + 1, shape)
    return (real + 1j * rng.integers(-most, most + 1, shape)).astype(dtype) if dtype.kind == "c" else real.astype(dtype)


def integers_of(rng: np.random.Generator, most: int = 2, usual: str = "float64") -> Callable[..., np.ndarray[Any, Any]]:
    """A function of extents and `dtype=` that draws `values`."""

    def integers(*shape: int, dtype: str = usual) -> np.ndarray[Any, Any]:
        return values(rng, shape, np.dtype(dtype), most)

    return integers


@st.composite
def strided_arrays(
    draw: st.DrawFn, shape: Sequence[int], dtype: Any, *, zero_strides: bool = True, misaligned: bool = True
) -> np.ndarray[Any, Any]:
    """An array of a given shape in a drawn memory layout.

    Axes lie in any order, with gaps, backwards, or with stride 0; the first element need not be aligned, not even to
    the item size.
    """
    dtype = np.dtype(dtype)
    rank = len(shape)
    order = draw(st.permutations(range(rank)))
    steps = [draw(st.sampled_from((1, 1, 1, 2, 3, -1, -2))) for _ in range(rank)]
    held = [zero_strides and draw(st.integers(0, 9)) == 0 for _ in range(rank)]
    extents = [1 if held[i] else shape[i] for i in range(rank)]
    sizes = [extents[i] * abs(steps[i]) for i in order]
    items = int(np.prod(sizes, dtype=int))
    offset = draw(st.sampled_from((0, 0, dtype.itemsize, 2 * dtype.itemsize, 1))) if misaligned else 0
    memory = np.zeros(items * dtype.itemsize + offset + 16, np.uint8)
    start = -memory.ctypes.data % 16 + offset
    base = np.ndarray(sizes, dtype, memory.data, start)
    view = base.transpose([order.index(i) for i in range(rank)])
    view = view[(..., *(slice(None, None, s) for s in steps))]
    view[...] = values(np.random.default_rng(draw(st.integers(0, 2**16))), view.shape, dtype)
    return np.broadcast_to(view, shape) if any(held) else view


@st.composite
def outputs(draw: st.DrawFn, shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """A writable array to receive a result, in a drawn layout, filled with a value that no result should keep."""
    array = draw(strided_arrays(shape, dtype, zero_strides=False, misaligned=False))
    array[...] = 1 if array.dtype.kind == "b" else 77
    return array


@st.composite
def contractions(
    draw: st.DrawFn,
    *,
    operands: int = 2,
    dtypes: Sequence[str] = DTYPES,
    extents: Sequence[int] = EXTENTS,
    max_modes: int = 6,
    max_volume: int = 20_000,
    empty: bool = True,
    repeats: bool = True,
    broadcast: bool = True,
    zero_strides: bool = True,
    misaligned: bool = True,
) -> Case:
    """A contraction of one, two or more operands.

    Args:
        draw: hypothesis's.
        operands: How many.
        dtypes: One of them is the dtype of all operands.
        extents: To draw from; the volume is capped by making further modes unit.
        max_modes: Of the whole contraction.
        max_volume: Most points of the iteration space.
        empty: Whether an extent may be 0.
        repeats: Whether a label may occur twice in one operand.
        broadcast: Whether an axis may have extent 1 against a longer one.
        zero_strides: Whether operands may be broadcast views.
        misaligned: Whether addresses may be misaligned.
    """
    dtype = draw(st.sampled_from(list(dtypes)))
    count = draw(st.integers(0, max_modes))
    labels = draw(st.permutations(LETTERS))[:count]
    sizes: dict[str, int] = {}
    volume = 1
    for label in labels:
        extent = draw(st.sampled_from(list(extents)))
        sizes[label] = extent if volume * extent <= max_volume else 1
        volume *= sizes[label]
    if empty and labels and draw(st.integers(0, 19)) == 0:
        sizes[labels[0]] = 0

    # Each mode is held by a non-empty set of operands and by the output or not: all groups come up this way.
    terms: list[list[str]] = [[] for _ in range(operands)]
    output = []
    for label in labels:
        holders = draw(st.integers(1, 2**operands - 1))
        for i in range(operands):
            if holders >> i & 1:
                terms[i].append(label)
        if draw(st.booleans()):
            output.append(label)
    arrays = []
    for i, term in enumerate(terms):
        if repeats and term and draw(st.integers(0, 5)) == 0:
            term.append(draw(st.sampled_from(term)))
        terms[i] = list(draw(st.permutations(term)))
        squeezed = {
            x for x in set(term) if broadcast and sum(x in t for t in terms) > 1 and draw(st.integers(0, 7)) == 0
        }
        shape = [1 if x in squeezed else sizes[x] for x in terms[i]]
        arrays.append(draw(strided_arrays(shape, dtype, zero_strides=zero_strides, misaligned=misaligned)))
    for x in labels:  # where every holder was squeezed, the mode is a unit mode
        held = [a.shape[t.index(x)] for t, a in zip(terms, arrays, strict=True) if x in t]
        sizes[x] = next((e for e in held if e != 1), 1)
    spelled = ",".join(map("".join, terms)) + "->" + "".join(draw(st.permutations(output)))
    return Case(spelled, tuple(arrays), sizes)
