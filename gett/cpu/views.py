"""Views of the user's arrays as a plan sees them: one dimension per fused mode, or one per group of fused modes.

Owns stride arithmetic on `layouts.modes.Strided`. Knows neither arithmetic nor tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from gett.ir.contraction import Operand
from layouts.modes import Strided

Array = NDArray[Any]
Modes = tuple[Strided, ...]


@dataclass(frozen=True, slots=True)
class View:
    """How to see one array as a plan does.

    Attributes:
        shape, strides: Of the view, strides in bytes, from the array's first element.
        array_shape, array_strides: Where the array has exactly these, `axes` and a reshape give the same view. That
            is an order of magnitude cheaper than building it from an address.
        axes: Transposition before the reshape, or None where only the address will do (diagonals, broadcast axes).
        same: Whether the array as it is already is the view.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    array_shape: tuple[int, ...]
    array_strides: tuple[int, ...]
    axes: tuple[int, ...] | None
    same: bool

    def of(self, array: Array) -> Array:
        """The view of `array`; never a copy."""
        if self.axes is not None and array.shape == self.array_shape and array.strides == self.array_strides:
            return array if self.same else array.transpose(self.axes).reshape(self.shape)
        return as_strided(array, self.shape, self.strides)


def span(modes: Sequence[Strided], tensor: int) -> tuple[int, int] | None:
    """Extent and stride of `modes` (fastest first) flattened into one, or None where no single stride describes it.

    The stride of an extent of 1 is 0.
    """
    extent, stride = 1, 0
    for s in modes:
        if s.extent == 1:
            continue
        if extent == 1:
            stride = s.strides[tensor]
        elif s.strides[tensor] != stride * extent:
            return None
        extent *= s.extent
    return extent, stride


def make_view(operand: Operand, extents: Sequence[int], tensor: int, dims: Sequence[Modes]) -> View:
    """The view with one dimension for each entry of `dims`: its modes flattened (fastest first), none for extent 1.

    Flattened modes must have one `span` in this tensor.
    """
    shape, strides, order = [], [], []
    for modes in dims:
        found = span(modes, tensor)
        assert found is not None, "modes flattened into one dimension must share one stride"
        shape.append(found[0])
        strides.append(found[1])
        order += [m for s in reversed(modes) for m in reversed(s.labels)]
    array_shape = tuple(extents[m] for m in operand.modes)
    # A mode that this tensor does not have can still be a dimension of the view, with stride 0.
    plain = set(order) <= set(operand.modes) and math.prod(shape) == math.prod(array_shape)
    axes = None
    if plain:
        unit = [i for i, m in enumerate(operand.modes) if m not in order]
        axes = (*unit, *(operand.modes.index(m) for m in order))
    same = axes == tuple(range(len(array_shape))) and tuple(shape) == array_shape
    return View(tuple(shape), tuple(strides), array_shape, operand.strides, axes, same)


def each(modes: Iterable[Strided | None]) -> list[Modes]:
    """One dimension of a view for each mode, of extent 1 where it is None."""
    return [() if s is None else (s,) for s in modes]


def chains(modes: Sequence[Strided], tensor: int) -> list[Modes]:
    """Maximal runs of modes that flatten into one stride in `tensor`, fastest first, smallest stride first."""
    out: list[list[Strided]] = []
    for s in sorted(modes, key=lambda s: abs(s.strides[tensor])):
        if out and span((*out[-1], s), tensor) is not None:
            out[-1].append(s)
        else:
            out.append([s])
    return [tuple(c) for c in out]


def nearest_mode(modes: Sequence[Strided], tensor: int) -> Strided | None:
    """The mode of extent above 1 along which `tensor` has its smallest stride, None where it varies along none."""
    varying = [s for s in modes if s.strides[tensor] and s.extent > 1]
    return min(varying, key=lambda s: abs(s.strides[tensor])) if varying else None


def is_aligned(operand: Operand, dtype: np.dtype[Any]) -> bool:
    """Whether the operand's strides keep to the dtype's alignment; its address is known at the call."""
    return all(s % dtype.alignment == 0 for s in operand.strides)
