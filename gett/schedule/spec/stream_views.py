"""Tensors as bandwidth-bound kernels see them: strides along the modes of a group, and the vectors that they allow.

The groups are D's modes, all in one (`output_modes`), and the contracted ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gett.ir.contraction import Operand
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from layouts.access import max_vector
from layouts.box import Box
from layouts.modes import Strided


def output_modes(plan: GemmPlan) -> tuple[Strided, ...]:
    """All modes of D: the groups l, m and n, which these kernels do not tell apart."""
    return (*plan.l, *plan.m, *plan.n)


@dataclass(frozen=True, slots=True)
class TensorView:
    """One tensor's view of a group."""

    strides: tuple[int, ...]  # bytes along each mode of the group
    others: tuple[int, ...]  # bytes along all modes outside the group
    size: int  # bytes of an element
    alignment: int  # of the element at coordinate 0
    bytes: int  # its distinct elements, all groups
    store: bool = False  # whether it is written

    def order(self, modes: Sequence[int]) -> list[int]:
        """Some modes by distance in memory, those that it does not vary along last."""
        return sorted(modes, key=lambda m: abs(self.strides[m]) or math.inf)

    def nearest(self, modes: Sequence[int]) -> int | None:
        """The nearest of some modes in memory, None where it varies along none of them."""
        return min((m for m in modes if self.strides[m]), key=lambda m: abs(self.strides[m]), default=None)


def output_views(plan: GemmPlan) -> dict[int, TensorView]:
    """Each tensor's view of D's modes: A, B, D and C as far as there are such."""
    return {t: view_of(plan, t, output_modes(plan)) for t in (A, B, D, C) if _operand(plan, t) is not None}


def sum_views(plan: GemmPlan) -> dict[int, TensorView]:
    """Each operand's view of K. Of an empty sum no element is touched."""
    views = {t: view_of(plan, t, plan.k) for t in (A, B) if _operand(plan, t) is not None}
    if plan.extent_k:
        return views
    return {t: TensorView((), x.others, x.size, x.alignment, 0) for t, x in views.items()}


def matrix_views(plan: GemmPlan, modes: tuple[Strided, ...]) -> dict[int, TensorView]:
    """A's, D's and C's view of some modes of a plan whose B is a small matrix."""
    return {t: view_of(plan, t, modes) for t in (A, D, C) if _operand(plan, t) is not None}


def view_of(plan: GemmPlan, tensor: int, modes: Sequence[Strided]) -> TensorView:
    """A tensor's view of some of the plan's modes."""
    operand = _operand(plan, tensor)
    assert operand is not None
    everything = (*output_modes(plan), *plan.k)
    size = itemsize(operand.dtype)
    return TensorView(
        tuple(s.strides[tensor] for s in modes),
        tuple(s.strides[tensor] for s in everything if s not in modes and s.extent > 1),
        size,
        operand.alignment,
        math.prod(s.extent for s in everything if s.strides[tensor]) * size,
        tensor == D,
    )


def _operand(plan: GemmPlan, tensor: int) -> Operand | None:
    return (plan.a, plan.b, plan.contraction.d, plan.contraction.c)[tensor]


def cut_modes(box: Box) -> list[tuple[int, int]]:
    """(mode, cut) of the box's dimensions that are longer than 1."""
    return [(d.modes[0], d.box) for _, d in box.tiled]


def same_rows(box: Box, tensor: TensorView, step: int) -> bool:
    """Whether outputs of a tile that are `step` apart, as a thread has them, need the same elements of a tensor."""
    inner = 1
    for m, cut in cut_modes(box):
        inner *= cut
        if tensor.strides[m] and step % inner:
            return False
    return True


def vector_along(cuts: Sequence[tuple[int, int]], extents: Sequence[int], tensor: TensorView) -> int:
    """Widest access (up to 16 bytes) in elements along the index that cut modes form, fastest first.

    A mode that the tile covers whole continues into the next where the tensor has no gap there.
    """
    run, inside = 1, []
    for mode, cut in cuts:
        if tensor.strides[mode] != tensor.size * run:
            break
        inside.append(mode)
        run *= math.gcd(extents[mode], cut)
        if cut < extents[mode]:
            break
    rest = [s for m, s in enumerate(tensor.strides) if m not in inside and extents[m] > 1]
    return max_vector(tensor.size, run, [*rest, *tensor.others], tensor.alignment)


def image_places(box: Box, tensor: TensorView) -> tuple[int, ...]:
    """Distance between neighbours along each dimension of a box in a tensor's image in shared memory.

    The image has the tile's order. Dimensions along which the tensor does not vary are left out, with 0.
    """
    out, distance = [], 1
    for d in box.dims:
        kept = d.box > 1 and tensor.strides[d.modes[0]] != 0
        out.append(distance if kept else 0)
        distance *= d.box if kept else 1
    return tuple(out)


def image_size(box: Box, places: Sequence[int]) -> int:
    """Elements of the image."""
    return math.prod(d.box for d, place in zip(box.dims, places, strict=True) if place)


def image_is_whole(box: Box, places: Sequence[int], vector: int) -> bool:
    """Whether the elements of every vector of D lie together in the image."""
    return all(places[i] or box.prefix(i) % vector == 0 for i, _ in box.tiled)


def is_splat(cuts: Sequence[tuple[int, int]], tensor: TensorView, vector: int) -> bool:
    """Whether the tensor is constant along each `vector` elements of the index, counted from 0."""
    covered = 1
    for mode, cut in cuts:
        if covered % vector == 0:
            break
        if tensor.strides[mode]:
            return False
        covered *= cut
    return True
