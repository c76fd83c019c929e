"""Fusing: neighbouring modes that are one longer mode in every tensor that holds them become one.

Knows extents and strides only; the unit of the strides is the caller's (bytes in `gett`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
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


def can_fuse(inner: Strided, outer: Strided) -> bool:
    """Whether `outer` continues `inner` without a gap in every tensor (zero strides continue zero strides)."""
    return all(so == si * inner.extent for si, so in zip(inner.strides, outer.strides, strict=True))


def fuse(modes: Sequence[Strided]) -> tuple[Strided, ...]:
    """Drop modes of extent 1 and merge all that can be merged, keeping the order of what is left."""
    todo = [m for m in modes if m.extent != 1]
    merged = True
    while merged:
        merged = False
        for i, inner in enumerate(todo):
            for j, outer in enumerate(todo):
                if i != j and can_fuse(inner, outer):
                    both = Strided(inner.labels + outer.labels, inner.extent * outer.extent, inner.strides)
                    todo[min(i, j)] = both
                    del todo[max(i, j)]
                    merged = True
                    break
            if merged:
                break
    return tuple(todo)
