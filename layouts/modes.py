"""Modes as several tensors see them, their unit strides, and fusing: neighbours that are one mode in every tensor.

Knows extents and strides only; the unit of the strides is the caller's (bytes in `gett`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Strided:
    """A mode as several tensors see it.

    Attributes:
        labels: The original modes that it fuses, fastest first.
        extent: Product of their extents.
        strides: One stride per tensor, 0 where the tensor does not vary along it.
    """

    labels: tuple[Hashable, ...]
    extent: int
    strides: tuple[int, ...]


def volume(modes: Iterable[Strided], tensor: int | None = None) -> int:
    """Product of extents, of the modes along which `tensor` varies where one is given."""
    return math.prod(s.extent for s in modes if tensor is None or s.strides[tensor])


def unit_mode(modes: Sequence[Strided], tensor: int, itemsize: int) -> int | None:
    """Position of the mode whose neighbours are neighbours in the tensor's memory (stride +itemsize), or None.

    Modes of extent 1 have no neighbours. Of several (overlapping views) the longest is returned.
    """
    units = [i for i, s in enumerate(modes) if s.strides[tensor] == itemsize and s.extent > 1]
    return max(units, key=lambda i: modes[i].extent, default=None)


def _next_strides(inner: Strided) -> tuple[int, ...]:
    """Strides of a mode that continues `inner` without a gap; zero strides continue zero strides."""
    return tuple(s * inner.extent for s in inner.strides)


def fuse(modes: Sequence[Strided]) -> tuple[Strided, ...]:
    """Drop modes of extent 1 and merge all that can be merged, keeping the order of what is left."""
    todo = [m for m in modes if m.extent != 1]
    while (pair := _fusible(todo)) is not None:
        inner, outer = todo[pair[0]], todo[pair[1]]
        todo[min(pair)] = Strided(inner.labels + outer.labels, inner.extent * outer.extent, inner.strides)
        del todo[max(pair)]
    return tuple(todo)


def _fusible(modes: Sequence[Strided]) -> tuple[int, int] | None:
    """Where the first mode is that another one continues, and where that one is; found by its strides."""
    places: dict[tuple[int, ...], list[int]] = {}
    for i, m in enumerate(modes):
        places.setdefault(m.strides, []).append(i)
    for i, inner in enumerate(modes):
        for j in places.get(_next_strides(inner), ()):
            if i != j:
                return i, j
    return None
