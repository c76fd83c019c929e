"""The contractions that are timed, and the element types. Owns sizes and counts; knows no library and no device."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

DATA = Path(__file__).parent / "data" / "tccg.json"

# A short list that still meets every shape class: used by --quick.
QUICK = ("abj-bka-kj", "abjcd-dkbac-jk", "aqrs-pa-pqrs", "ijkl-imjn-lnkm", "abcijk-ijmb-mkac", "abc-bda-dc(seed)")


@dataclass(frozen=True, slots=True)
class ElementType:
    """One element type of the benchmark.

    Attributes:
        name: NumPy's name, or bfloat16.
        itemsize: Bytes of one element.
        flops: Real floating-point operations of one multiply-add.
        eps_out: Unit roundoff of the stored result.
        eps_acc: Relative error of one addition while accumulating (tensor cores truncate, hence twice the roundoff).
        wide: Type in which a reference is formed.
    """

    name: str
    itemsize: int
    flops: int
    eps_out: float
    eps_acc: float
    wide: str

    @property
    def storage(self) -> str:
        """NumPy's name of the type that holds the elements: bfloat16, which it lacks, lies in 16-bit integers."""
        return "uint16" if self.name == "bfloat16" else self.name


ELEMENT_TYPES = {
    t.name: t
    for t in (
        ElementType("float16", 2, 2, 2.0**-11, 2.0**-23, "float64"),
        ElementType("bfloat16", 2, 2, 2.0**-8, 2.0**-23, "float64"),
        ElementType("float32", 4, 2, 2.0**-24, 2.0**-24, "float64"),
        ElementType("float64", 8, 2, 2.0**-53, 2.0**-53, "float64"),
        ElementType("complex64", 8, 8, 2.0**-24, 2.0**-24, "complex128"),
        ElementType("complex128", 16, 8, 2.0**-53, 2.0**-53, "complex128"),
    )
}


@dataclass(frozen=True, slots=True)
class Case:
    """One contraction of two C-ordered tensors.

    Attributes:
        name: The name under which it was published (column-major strings, result first).
        einsum: The same as a C-order einsum string with explicit output.
        extents: Extent of each mode, as sorted (label, extent) pairs.
        group: The collection that it belongs to.
    """

    name: str
    einsum: str
    extents: tuple[tuple[str, int], ...]
    group: str

    @property
    def modes(self) -> tuple[str, str, str]:
        """Subscripts of A, B and D."""
        inputs, d = self.einsum.split("->")
        a, b = inputs.split(",")
        return a, b, d

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of A, B and D."""
        e = dict(self.extents)
        a, b, d = (tuple(e[m] for m in modes) for modes in self.modes)
        return a, b, d

    @property
    def bmnk(self) -> tuple[int, int, int, int]:
        """Batch, rows, columns and depth of the matrix product that this contraction is (rows belong to A)."""
        e = dict(self.extents)
        a, b, d = (set(m) for m in self.modes)

        def product(labels: set[str]) -> int:
            return math.prod(e[x] for x in labels)

        return product(a & b & d), product((a & d) - b), product((b & d) - a), product((a & b) - d)

    @property
    def volume(self) -> int:
        """Number of elementary products."""
        return math.prod(e for _, e in self.extents)

    @property
    def elements(self) -> int:
        """Elements of A, B and D together."""
        return sum(math.prod(s) for s in self.shapes)

    def flops(self, dtype: ElementType) -> int:
        """Real floating-point operations."""
        return self.volume * dtype.flops

    def bytes(self, dtype: ElementType) -> int:
        """Least traffic: each tensor once."""
        return self.elements * dtype.itemsize

    def scaled(self, scale: float) -> Case:
        """The same contraction with extents multiplied by one factor, so that `scale` of the elements remain.

        Args:
            scale: Share of the elements to keep, in (0, 1]; 1 returns the case itself.

        Raises:
            ValueError: `scale` is outside (0, 1].
        """
        if not 0 < scale <= 1:
            raise ValueError(f"scale is {scale}; it must lie in (0, 1]")
        if scale == 1:
            return self
        return self._shrunk(lambda case: case.elements <= scale * self.elements)

    def limited(self, flops: float, dtype: ElementType) -> Case:
        """The same contraction with extents multiplied by one factor, so that it has at most so many operations."""
        return self if self.flops(dtype) <= flops else self._shrunk(lambda case: case.flops(dtype) <= flops)

    def odd(self) -> Case:
        """The same contraction with every even extent one less: no stride is a multiple of two elements."""
        return self._with({label: e - (e % 2 == 0) for label, e in self.extents})

    def reduced(self, elements: int, volume: int) -> Case:
        """The same contraction with the longest modes halved in turn until it is small enough.

        Unlike `scaled` it leaves short modes alone, so that contractions of many short modes keep their shape. Of
        equally long modes that one is halved which most elements have: a gate's own modes are not.

        Args:
            elements: Most elements of A, B and D together.
            volume: Most elementary products.
        """
        found, extents = self, dict(self.extents)
        while found.elements > elements or found.volume > volume:
            held = {
                x: sum(math.prod(s) for m, s in zip(self.modes, found.shapes, strict=True) if x in m) for x in extents
            }
            longest = max(extents, key=lambda x: (extents[x], held[x]))
            extents[longest] = max(1, extents[longest] // 2)
            found = self._with(extents)
        return found

    def fused(self) -> Case:
        """The same contraction of the same memory, with modes that lie together wherever they occur as one mode.

        Array libraries take fewer modes than a state of many qubits has.
        """
        follows: dict[str, str] = {}
        for x, y in {pair for modes in self.modes for pair in pairwise(modes)}:
            if all((x in m) == (y in m) and (x not in m or x + y in m) for m in self.modes):
                follows[y] = x
        heads = {}
        for label in dict(self.extents):
            head = label
            while head in follows:
                head = follows[head]
            heads[label] = head
        extents: dict[str, int] = {}
        for label, extent in self.extents:
            extents[heads[label]] = extents.get(heads[label], 1) * extent
        einsum = "".join(x for x in self.einsum if x not in follows)
        return Case(self.name, einsum, tuple(extents.items()), self.group)

    def _shrunk(self, fits: Callable[[Case], bool]) -> Case:
        low, high = 0.0, 1.0
        for _ in range(40):  # bisect the factor: rounded extents make the counts staircases
            middle = (low + high) / 2
            low, high = (middle, high) if fits(self._times(middle)) else (low, middle)
        return self._times(low)

    def _times(self, factor: float) -> Case:
        return self._with({label: max(1, round(e * factor)) for label, e in self.extents})

    def _with(self, extents: Mapping[str, int]) -> Case:
        return Case(self.name, self.einsum, tuple(extents.items()), self.group)


def load_cases(names: Iterable[str] = (), *, quick: bool = False, path: Path = DATA) -> tuple[Case, ...]:
    """The cases of a file, in its order.

    Args:
        names: Keep only these; empty keeps all.
        quick: Keep only a short list that still meets every shape class.
        path: JSON file with a list `cases` of `{name, einsum, extents, group}`.

    Raises:
        ValueError: A name is not in the file.
    """
    records = json.loads(path.read_text(encoding="utf-8"))["cases"]
    cases = tuple(Case(r["name"], r["einsum"], tuple(sorted(r["extents"].items())), r["group"]) for r in records)
    return choose(cases, tuple(names) or (QUICK if quick else ()))


def choose(cases: tuple[Case, ...], names: Iterable[str]) -> tuple[Case, ...]:
    """The cases of these names in their own order; all where no name is given.

    Raises:
        ValueError: There is no such name.
    """
    wanted = tuple(names) or tuple(c.name for c in cases)
    unknown = [n for n in wanted if n not in {c.name for c in cases}]
    if unknown:
        raise ValueError(f"no case is named {unknown[0]!r}; the cases are: {', '.join(c.name for c in cases)}")
    return tuple(c for c in cases if c.name in wanted)
