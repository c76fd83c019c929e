"""The contractions that tests share: the TCCG benchmark at reduced extents, and hand-chosen awkward ones.

Owns subscripts, extents and memory layouts, and what follows from them: `Contraction` records, arrays of small integers
(NumPy or CuPy), exact references. Knows neither schedules nor kernels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gett.ir.contraction import Contraction, Operand

TCCG = Path(__file__).parent.parent / "benchmarks" / "data" / "tccg.json"

# What `reduced` turns extents into: primes, odd numbers, even ones and multiples of 8 take turns.
_SIZES = (3, 4, 5, 7, 8, 9, 10, 11, 13, 15, 16, 17, 20, 23, 24, 29, 32, 37, 40, 47, 48, 56, 61, 64, 72, 83, 96, 101)
_SIZES += (112, 127, 128, 149, 160, 192, 211, 256)

EXACT_HALF = 2048  # every integer up to here is a float16
ALIGNED = 256  # what an allocation's own address is a multiple of, as far as plans care


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor of given extents lies in a flat buffer.

    Attributes:
        order: Axes from the slowest to the fastest in memory; empty for C order.
        steps: Per axis, every how many elements one is taken: negative walks backwards, 0 repeats one element. Empty
            for all 1.
        offset: Elements of the buffer before the tensor's memory.
        ones: Axes of extent 1 in the array, broadcast against the mode's extent.
    """

    order: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    offset: int = 0
    ones: tuple[int, ...] = ()

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The array's own shape."""
        return tuple(1 if i in self.ones else e for i, e in enumerate(shape))

    def place(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
        """Strides, position of the element at coordinate 0 and size of the buffer, all in elements."""
        shape = self.shape(shape)
        steps = self.steps or (1,) * len(shape)
        strides, start, size = [0] * len(shape), self.offset, 1
        for axis in reversed(self.order or tuple(range(len(shape)))):
            step = steps[axis]
            strides[axis] = size * step
            start -= min(0, size * step) * (shape[axis] - 1)
            size *= shape[axis] * abs(step) if step else 1
        return tuple(strides), start, self.offset + size


DENSE = Layout()


@dataclass(frozen=True, slots=True)
class Case:
    """One contraction of two operands.

    Attributes:
        name: For test ids.
        subscripts: With explicit output; a label may occur twice in an operand.
        extents: Extent of each label.
        a, b, d: Layouts.
    """

    name: str
    subscripts: str
    extents: Mapping[str, int] = field(hash=False)
    a: Layout = DENSE
    b: Layout = DENSE
    d: Layout = DENSE

    def __repr__(self) -> str:
        return self.name

    @property
    def labels(self) -> tuple[str, str, str]:
        """Labels of A, B and D."""
        inputs, d = self.subscripts.split("->")
        a, b = inputs.split(",")
        return a, b, d

    def shape(self, labels: str) -> tuple[int, ...]:
        """Extents of some labels."""
        return tuple(self.extents[x] for x in labels)

    @property
    def volume(self) -> int:
        """Elementary products."""
        return math.prod(self.extents.values())

    @property
    def depth(self) -> int:
        """Products that one element of D sums."""
        d = self.labels[2]
        return math.prod(e for x, e in self.extents.items() if x not in d)

    def contraction(
        self, dtype: str, *, precision: str = "ieee", with_c: Layout | None = None, address: int = ALIGNED
    ) -> Contraction:
        """The record, for buffers whose addresses are multiples of `address` bytes; `with_c` is C's layout."""
        names = tuple(dict.fromkeys("".join(self.labels)))
        a, b, d = (
            self._operand(x, layout, dtype, names, address)
            for x, layout in zip(self.labels, (self.a, self.b, self.d), strict=True)
        )
        c = None if with_c is None else self._operand(self.labels[2], with_c, dtype, names, address)
        return Contraction(names, self.shape("".join(names)), a, b, d, c, dtype, precision)

    def _operand(self, labels: str, layout: Layout, dtype: str, names: tuple[str, ...], address: int) -> Operand:
        size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        shape = self.shape(labels)
        steps, start, _ = layout.place(shape)
        strides: dict[str, int] = {}
        for x, e, own, s in zip(labels, shape, layout.shape(shape), steps, strict=True):
            strides[x] = strides.get(x, 0) + (s * size if e == own else 0)
        alignment = math.gcd(address, start * size) if start else address
        return Operand(tuple(names.index(x) for x in strides), tuple(strides.values()), dtype, alignment & -alignment)

    def operands(self, xp: Any, dtype: str, seed: int = 0) -> tuple[Any, Any]:
        """A and B, of small integers, as arrays of NumPy or CuPy."""
        most = 1 if self.depth > 1000 else 2
        rng = np.random.default_rng((seed, *self.subscripts.encode()))
        made = []
        for labels, layout in zip(self.labels, (self.a, self.b), strict=False):
            made.append(fill(xp, layout, self.shape(labels), integers(rng, dtype, most)))
        return made[0], made[1]

    def added(self, xp: Any, dtype: str, layout: Layout = DENSE) -> Any:
        """A tensor C of small integers."""
        rng = np.random.default_rng(7)
        return fill(xp, layout, self.shape(self.labels[2]), integers(rng, dtype, 2))

    def result(self, xp: Any, dtype: str) -> tuple[Any, Any]:
        """D in its layout, poisoned, and the buffer that it lies in."""
        strides, start, size = self.d.place(self.shape(self.labels[2]))
        buffer = xp.full(size * np.dtype(dtype).itemsize, 0xFF, dtype=np.uint8).view(dtype)
        return view(xp, buffer, self.shape(self.labels[2]), strides, start), buffer

    def reference(self, a: Any, b: Any, dtype: str) -> Any:
        """The exact product of NumPy arrays, in the widest type of their kind (not yet in `dtype`)."""
        wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
        a, b = (np.asarray(x).astype(wide) for x in (a, b))
        exact = np.asarray(np.einsum(self.subscripts, a, b, optimize=True))
        assert exact.shape == self.shape(self.labels[2])
        if np.dtype(dtype).kind in "fc" and exact.size:
            assert max(np.abs(exact.real).max(), np.abs(exact.imag).max()) <= EXACT_HALF
        return exact


def integers(rng: np.random.Generator, dtype: str, most: int) -> Any:
    """A function from a count to so many integers of at most `most` in absolute value."""
    kind = np.dtype(dtype).kind

    def draw(count: int) -> Any:
        if kind == "b":
            return rng.random(count) < 0.2
        real = rng.integers(0 if kind == "u" else -most, most + 1, count)
        return (real + 1j * rng.integers(-most, most + 1, count) if kind == "c" else real).astype(dtype)

    return draw


def fill(xp: Any, layout: Layout, shape: tuple[int, ...], draw: Any) -> Any:
    """An array in a layout, with values from `draw`, also in the gaps."""
    strides, start, size = layout.place(shape)
    return view(xp, xp.asarray(draw(size)), layout.shape(shape), strides, start)


def view(xp: Any, buffer: Any, shape: tuple[int, ...], strides: tuple[int, ...], start: int) -> Any:
    """Elements of a flat buffer as an array; strides and start in elements."""
    size = buffer.dtype.itemsize
    if 0 in shape:
        return xp.empty(shape, buffer.dtype)
    return xp.lib.stride_tricks.as_strided(buffer[start:], shape, tuple(s * size for s in strides))


def to_host(array: Any) -> Any:
    """A NumPy copy."""
    return array.get() if hasattr(array, "get") else np.array(array)


def round_to(exact: Any, dtype: str) -> Any:
    """An exact result in the dtype of D: integers wrap around, truth is any product but zero."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return exact != 0
    return exact.astype(np.int64).astype(dtype) if kind in "iu" else exact.astype(dtype)


def tccg() -> list[Case]:
    """The published cases at their full extents, dense."""
    records = json.loads(TCCG.read_text(encoding="utf-8"))["cases"]
    return [Case(r["name"], r["einsum"], r["extents"]) for r in records]


def reduced(case: Case, limit: int) -> Case:
    """The same contraction with at most `limit` elementary products, no extent a power of the others.

    Extents stay in the order of their size, and take turns in being odd, prime and multiples of 8, so that boxes are
    ragged here and whole there.
    """
    order = sorted(case.extents, key=lambda x: (-case.extents[x], x))
    turn = sum(case.name.encode())
    extents: dict[str, int] = {}
    room = limit
    for i, x in enumerate(order):
        target = max(3, int(room ** (1 / (len(order) - i)) * (1.5 if i % 2 == 0 else 1.0)))
        usual = [s for s in _SIZES if s <= min(target, case.extents[x])]
        near = usual[-3:]
        extents[x] = near[(turn + i) % len(near)]
        room = max(1, room // extents[x])
    return replace(case, extents=extents)


def small_tccg(limit: int = 1 << 20) -> list[Case]:
    """All TCCG cases, reduced."""
    return [reduced(c, limit) for c in tccg()]


_BITS_A, _BITS_B, _BITS_D = "kaqbrcsdtepfuv", "tuglhqimjnsrvk", "jalbgchidmenfp"

AWKWARD = (
    Case("batch-slowest", "lij,ljk->lik", {"l": 5, "i": 33, "j": 24, "k": 40}),
    Case("batch-unit-stride", "ijl,jkl->ikl", {"l": 6, "i": 19, "j": 23, "k": 21}),
    Case("batch-unit-in-two", "ikjl,kljx->xjil", {"l": 40, "i": 21, "x": 19, "j": 2, "k": 13}),
    Case("two-batch-modes", "xiyj,yjxk->ykxi", {"x": 3, "y": 4, "i": 17, "j": 32, "k": 16}),
    Case("batch-squeezed-in-a", "lij,ljk->lik", {"l": 7, "i": 20, "j": 24, "k": 18}, a=Layout(ones=(0,))),
    Case("k-only-in-a", "isj,jk->ik", {"i": 37, "s": 5, "j": 16, "k": 24}),
    Case("k-only-in-b", "ij,jtk->ik", {"i": 24, "t": 6, "j": 19, "k": 40}),
    Case("k-squeezed-in-b", "ij,jk->ik", {"i": 24, "j": 19, "k": 40}, b=Layout(ones=(0,))),
    Case("zero-strides", "ijz,jky->izyk", {"i": 12, "j": 32, "k": 16, "z": 3, "y": 5}, Layout((), (1, 1, 0)),
         Layout((), (1, 1, 0))),
    Case("negative-strides", "ijk,klj->li", {"i": 33, "j": 12, "k": 16, "l": 40}, Layout((), (-1, 1, -1)),
         Layout((), (-2, -1, 1)), Layout((), (-1, 1))),
    Case("misaligned", "ij,jk->ik", {"i": 64, "j": 48, "k": 72}, Layout(offset=1), Layout(offset=3), Layout(offset=1)),
    Case("misaligned-rows", "ijk,jlk->il", {"i": 33, "j": 6, "k": 32, "l": 35}, Layout((), (1, 1, 1), 2),
         Layout((), (1, 3, 1), 0)),
    Case("sliced", "ikj,lkj->il", {"i": 40, "j": 16, "k": 9, "l": 24}, Layout((), (2, 1, 2)), Layout((), (1, 2, 1)),
         Layout((), (3, 2))),
    Case("unit-extents", "aibj,jcbd->iacd", {"a": 1, "i": 23, "b": 1, "j": 40, "c": 1, "d": 48}),
    Case("twenty-modes-of-2", f"{_BITS_A},{_BITS_B}->{_BITS_D}", dict.fromkeys("abcdefghijklmnpqrstuv", 2)),
    Case("m-is-1", "ij,jk->ik", {"i": 1, "j": 72, "k": 100}),
    Case("n-is-1", "ji,kj->ik", {"i": 77, "j": 104, "k": 1}),
    Case("k-is-1", "ai,bi->ba", {"i": 1, "a": 33, "b": 70}),
    Case("dot", "ijk,kji->", {"i": 9, "j": 11, "k": 7}),
    Case("k-mismatch", "mkl,nlk->mn", {"m": 70, "n": 45, "k": 24, "l": 16}),
    Case("k-mismatch-primes", "mkl,nlk->nm", {"m": 71, "n": 43, "k": 13, "l": 11}),
    Case("unit-in-batch-and-free", "iljm,lkmj->kilj", {"i": 8, "l": 3, "j": 10, "k": 16, "m": 12}),
    Case("primes", "abcd,dcef->beaf", {"a": 7, "b": 11, "c": 13, "d": 5, "e": 17, "f": 3}),
    Case("odd-box-along-k", "akbl,lckb->ca", {"a": 40, "k": 7, "b": 10, "l": 6, "c": 37}),
    Case("huge-k", "ki,kj->ij", {"k": 20_011, "i": 16, "j": 24}),
    Case("huge-k-boxed", "iak,bkj->iajb", {"k": 8192, "i": 3, "a": 5, "b": 2, "j": 9}),
    Case("huge-two-modes-k", "ikl,lkj->ij", {"k": 96, "l": 81, "i": 13, "j": 30}),
    Case("result-with-gaps", "ijk,kl->ilj", {"i": 9, "j": 31, "k": 32, "l": 26}, d=Layout((2, 0, 1), (1, 2, -1), 5)),
    Case("result-transposed", "ijk,kl->ilj", {"i": 8, "j": 31, "k": 32, "l": 24}, d=Layout((1, 2, 0))),
    Case("diagonal", "iij,jk->ki", {"i": 29, "j": 40, "k": 33}),
    Case("long-and-short", "ajb,bc->cja", {"a": 300, "j": 2, "b": 17, "c": 5}),
)  # fmt: skip

STREAMS = ("k-is-1", "m-is-1", "n-is-1", "dot")
TILED = tuple(c for c in AWKWARD if c.name not in STREAMS)
"""The awkward cases that are matrix products, not streams."""


def by_name(name: str) -> Case:
    """One of the awkward cases."""
    return next(c for c in AWKWARD if c.name == name)
