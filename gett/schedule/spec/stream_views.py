"""Tensors as bandwidth-bound kernels see them: strides along the modes of a group, and the vectors that they allow.

The groups are D's modes, all in one (`output_modes`), and the contracted ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from layouts.access import max_vector
from layouts.box import Box
from layouts.modes import Strided, volume

Cuts = Sequence[tuple[int, int]]  # (mode, what a tile takes of it), fastest first


def output_modes(plan: GemmPlan) -> tuple[Strided, ...]:
    """All modes of D: the groups l, m and n, which these kernels do not tell apart."""
    return (*plan.l, *plan.m, *plan.n)


def cut_modes(box: Box) -> list[tuple[int, int]]:
    """(mode, cut) of the box's dimensions that are longer than 1."""
    return [(d.modes[0], d.box) for _, d in box.tiled]


@dataclass(frozen=True, slots=True)
class TensorView:
    """One tensor's view of a group."""

    extents: tuple[int, ...]  # of each mode of the group
    strides: tuple[int, ...]  # bytes along each of them
    others: tuple[int, ...]  # bytes along all modes outside the group
    size: int  # bytes of an element
    alignment: int  # of the element at coordinate 0
    bytes: int  # its distinct elements, all groups
    store: bool = False  # whether it is written

    def order(self, modes: Sequence[int] | None = None) -> list[int]:
        """All modes or some by distance in memory, those that it does not vary along last."""
        modes = range(len(self.strides)) if modes is None else modes
        return sorted(modes, key=lambda m: abs(self.strides[m]) or math.inf)

    def nearest(self, modes: Sequence[int]) -> int | None:
        """The nearest of some modes in memory, None where it varies along none of them."""
        return min((m for m in modes if self.strides[m]), key=lambda m: abs(self.strides[m]), default=None)

    def run(self, cuts: Cuts) -> Cuts:
        """The first cut modes, as far as each goes on in memory where the one before ends, which is covered whole."""
        step = self.size
        for at, (mode, cut) in enumerate(cuts):
            if self.strides[mode] != step:
                return cuts[:at]
            if cut < self.extents[mode]:
                return cuts[: at + 1]
            step *= self.extents[mode]
        return cuts

    def vector(self, cuts: Cuts) -> int:
        """Widest access (up to 16 bytes) in elements along the index that cut modes form.

        A mode that the tile covers whole continues into the next where the tensor has no gap there.
        """
        along = self.run(cuts)
        run, inside = math.prod(math.gcd(self.extents[m], cut) for m, cut in along), [m for m, _ in along]
        rest = [s for m, s in enumerate(self.strides) if m not in inside and self.extents[m] > 1]
        return max_vector(self.size, run, [*rest, *self.others], self.alignment)

    def is_splat(self, cuts: Cuts, vector: int) -> bool:
        """Whether the tensor is constant along each `vector` elements of the index, counted from 0."""
        covered = 1
        for mode, cut in cuts:
            if covered % vector == 0:
                break
            if self.strides[mode]:
                return False
            covered *= cut
        return True

    def same_rows(self, box: Box, step: int) -> bool:
        """Whether outputs of a tile that are `step` apart, as a thread has them, need the same elements."""
        inner = 1
        for m, cut in cut_modes(box):
            inner *= cut
            if self.strides[m] and step % inner:
                return False
        return True

    def image(self, box: Box) -> tuple[int, ...]:
        """Distance between neighbours along each dimension of a box in the tensor's image in shared memory.

        The image has the tile's order. Dimensions along which the tensor does not vary are left out, with 0.
        """
        out, distance = [], 1
        for d in box.dims:
            kept = d.box > 1 and self.strides[d.modes[0]] != 0
            out.append(distance if kept else 0)
            distance *= d.box if kept else 1
        return tuple(out)


def image_size(box: Box, places: Sequence[int]) -> int:
    """Elements of an image."""
    return math.prod(d.box for d, place in zip(box.dims, places, strict=True) if place)


def views_of(plan: GemmPlan, modes: Sequence[Strided], tensors: Sequence[int] = (A, B, D, C)) -> dict[int, TensorView]:
    """Some tensors' views of some of the plan's modes, as far as there are such tensors."""
    everything, found = (*output_modes(plan), *plan.k), {}
    for t in tensors:
        if (operand := plan.operand(t)) is not None:
            size = itemsize(operand.dtype)
            found[t] = TensorView(
                tuple(s.extent for s in modes),
                tuple(s.strides[t] for s in modes),
                tuple(s.strides[t] for s in everything if s not in modes and s.extent > 1),
                size,
                operand.alignment,
                volume(everything, t) * size,
                t == D,
            )
    return found


def output_views(plan: GemmPlan) -> dict[int, TensorView]:
    """Each tensor's view of D's modes."""
    return views_of(plan, output_modes(plan))


def sum_views(plan: GemmPlan) -> dict[int, TensorView]:
    """Each operand's view of K. Of an empty sum no element is touched."""
    views = views_of(plan, plan.k, (A, B))
    if plan.extent_k:
        return views
    return {t: TensorView((), (), x.others, x.size, x.alignment, 0) for t, x in views.items()}
