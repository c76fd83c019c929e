"""Where a slice of a contraction reads and writes: views of arrays, and their descriptions before there are arrays.

Knows neither subscripts nor plans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gett.ir.tensors import TensorSpec
from gett.network.slicing import Slicing

Place = Mapping[int, slice]
"""Where a slice lies along each sliced mode."""


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
