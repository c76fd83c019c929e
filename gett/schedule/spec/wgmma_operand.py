"""An operand of a Hopper kernel as the rules look at it: its loader, its modes, and the tile that it brings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gett.ir.contraction import Operand
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule.spec.loader import Stationary, WgmmaLoader
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.tiling import Tiling
from layouts.box import Box, TileDim
from layouts.modes import Strided, unit_mode


@dataclass(frozen=True, slots=True)
class WgmmaOperand:
    """One operand.

    Attributes:
        name: `"A"` or `"B"`.
        tensor: Position of its strides.
        operand: The tensor itself.
        loader: How it travels.
        batch, free, k: Its modes of the lowered plan.
        box: What a tile takes of its free modes: of A what the accumulators hold.
        box_k: What a tile takes of K.
        free_unit, k_unit: Positions of the unit-stride mode, None where it lies in the other group.
    """

    name: str
    tensor: int
    operand: Operand
    loader: WgmmaLoader
    batch: tuple[Strided, ...]
    free: tuple[Strided, ...]
    k: tuple[Strided, ...]
    box: Box
    box_k: Box
    free_unit: int | None
    k_unit: int | None

    @property
    def modes(self) -> tuple[Strided, ...]:
        """All of its modes, in the order in which tensor maps have them."""
        return (*self.batch, *self.free, *self.k)

    @property
    def free_dims(self) -> list[tuple[int, int]]:
        """(mode, elements) of the tile along free modes, the tile's fastest first."""
        return [(len(self.batch) + d.modes[0], d.box) for _, d in self.box.tiled]

    @property
    def k_dims(self) -> list[tuple[int, int]]:
        """The same along K."""
        first = len(self.batch) + len(self.free)
        return [(first + d.modes[0], d.box) for _, d in self.box_k.tiled]


def mma_box(t: Tiling) -> Box:
    """The rows of M that accumulators hold: the tile's, of which MMA tiles divide the last tiled dimension."""
    if t.mma_tiles == 1:
        return t.m
    last = t.m.tiled[-1][0]
    dims = (TileDim(d.modes, d.box // t.mma_tiles if i == last else d.box) for i, d in enumerate(t.m.dims))
    return Box(t.m.extents, tuple(dims))


def operands(s: Schedule, plan: GemmPlan) -> tuple[WgmmaOperand, WgmmaOperand]:
    """A and B of a lowered plan."""
    t, loop, size = s.tiling, s.wgmma, itemsize(plan.contraction.dtype)
    assert plan.b is not None

    def view(name: str, tensor: int, loader: WgmmaLoader, free: tuple[Strided, ...], box: Box) -> WgmmaOperand:
        operand = plan.a if tensor == A else plan.b
        assert operand is not None
        units = unit_mode(free, tensor, size), unit_mode(plan.k, tensor, size)
        return WgmmaOperand(name, tensor, operand, loader, plan.l, free, plan.k, box, t.k, *units)

    return view("A", A, loop.a, plan.m, mma_box(t)), view("B", B, loop.b, plan.n, t.n)


def stationary_operand(s: Schedule) -> str:
    """`"a"` or `"b"` for the operand that stays, "" where none does."""
    found = [name for name, x in (("a", s.wgmma.a), ("b", s.wgmma.b)) if isinstance(x, Stationary)]
    return found[0] if found else ""


def cluster_size(s: Schedule) -> int:
    """Blocks of a cluster."""
    return math.prod(s.cluster)
