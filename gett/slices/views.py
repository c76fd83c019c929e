"""Where a slice of a contraction reads and writes: views of arrays, and their descriptions before there are arrays.

Knows neither subscripts nor plans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gett.ir.tensors import TensorSpec
from gett.network.slicing import Slicing, count_slices

Place = Mapping[int, slice]
"""Where a slice lies along each sliced mode."""

_Lengths = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SliceGrid:
    """The slices of a contraction in a fixed order: parts of the result, and the slices that are summed into each.

    Attributes:
        outer: The sliced modes of the result, each with its extent in a slice.
        inner: The other sliced modes.
        extents: Of all modes.
        output: Modes of the result.
    """

    outer: _Lengths
    inner: _Lengths
    extents: tuple[int, ...]
    output: tuple[int, ...]

    @classmethod
    def of(cls, lengths: _Lengths, extents: tuple[int, ...], output: tuple[int, ...]) -> SliceGrid:
        """The slices of some lengths."""
        outer = tuple(x for x in lengths if x[0] in output)
        return cls(outer, tuple(x for x in lengths if x[0] not in output), extents, output)

    @property
    def parts(self) -> int:
        """How many parts the result has."""
        return count_slices(self.outer, self.extents)

    @property
    def summed(self) -> int:
        """How many slices are summed into each part."""
        return count_slices(self.inner, self.extents)

    def part(self, number: int) -> Place:
        """Where a part lies along the sliced modes of the result."""
        return self._place(self.outer, number)

    def shape(self, number: int) -> tuple[int, ...]:
        """The shape of a part."""
        place = self.part(number)
        return tuple(place[m].stop - place[m].start if m in place else self.extents[m] for m in self.output)

    def slice(self, number: int) -> Place:
        """Where a slice of any part lies along the other sliced modes."""
        return self._place(self.inner, number)

    def _place(self, lengths: _Lengths, number: int) -> Place:
        found = {}
        for mode, length in reversed(lengths):
            extent = self.extents[mode]
            number, i = divmod(number, -(-extent // length))
            found[mode] = slice(i * length, min((i + 1) * length, extent))
        return found


def sliced_axes(
    modes: Sequence[int], shape: Sequence[int], extents: Sequence[int], way: Slicing
) -> tuple[tuple[int, int], ...]:
    """The axes of an operand that are sliced, each with its mode."""
    lengths = dict(way.lengths)
    return tuple((i, m) for i, m in enumerate(modes) if m in lengths and shape[i] == extents[m])


def view(array: Any, axes: Sequence[tuple[int, int]], place: Place) -> Any:
    """Where a slice reads or writes an array; along axes of extent 1, which broadcast, that is all of it."""
    if not axes:
        return array
    index = [slice(None)] * len(array.shape)
    for axis, mode in axes:
        if array.shape[axis] != 1:
            index[axis] = place[mode]
    return array[tuple(index)]


def part_spec(
    spec: TensorSpec, axes: Sequence[tuple[int, int]], place: Place, steps: Mapping[int, int] | None = None
) -> TensorSpec:
    """The description of `view`; every slice has its alignment where `steps` tells how far apart they begin."""
    shape, alignment = list(spec.shape), spec.alignment
    for axis, mode in axes:
        if shape[axis] != 1:
            shape[axis] = place[mode].stop - place[mode].start
            if steps is not None:
                alignment = math.gcd(alignment, spec.strides[axis] * steps[mode])
    return replace(spec, shape=tuple(shape), alignment=alignment)
