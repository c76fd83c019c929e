"""What a rule of legality is, and what it looks at: a schedule, the lowered plan that its boxes belong to, a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import warpgroup_atom
from gett.hw.tensor_types import MmaAtom
from gett.ir.contraction import Operand
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.spec.loader import HopperLoader, TileLoader, Tma
from gett.schedule.spec.schedule import Schedule, Tiling
from gett.schedule.spec.vectors import TiledDim, tiled_dims
from layouts.box import Box
from layouts.modes import Strided, unit_mode

L = TypeVar("L", bound=TileLoader)


@dataclass(frozen=True, slots=True)
class HopperOperand:
    """One operand of a Hopper kernel."""

    name: str  # `"A"` or `"B"`
    tensor: int  # position of its strides
    operand: Operand  # the tensor itself
    loader: HopperLoader  # how it travels
    batch: tuple[Strided, ...]  # its modes of the lowered plan
    free: tuple[Strided, ...]
    k: tuple[Strided, ...]
    box: Box  # what a tile takes of its free modes: of A what the accumulators hold
    # What a tile takes of K, in the order of its tile: where planes are made, or fragments loaded number by number,
    # that of its rows comes first.
    box_k: Box
    free_unit: int | None  # positions of the unit-stride mode, None where it lies in the other group
    k_unit: int | None

    @property
    def modes(self) -> tuple[Strided, ...]:
        """All of its modes, in the order in which tensor maps have them."""
        return (*self.batch, *self.free, *self.k)

    @property
    def unit(self) -> int | None:
        """Position of the unit-stride mode in the loader's major group."""
        return self.k_unit if self.loader.major == "k" else self.free_unit

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
    return t.m.divided(t.mma_tiles)


@dataclass(frozen=True)
class Lowered:
    """A schedule `s` with the lowered plan that its boxes belong to, on a GPU."""

    s: Schedule
    plan: GemmPlan
    facts: ArchFacts

    @cached_property
    def size(self) -> int:
        """Bytes of an element of the type in which products are formed; A and B of Hopper kernels have it."""
        return itemsize(self.plan.contraction.dtype)

    @cached_property
    def size_d(self) -> int:
        """Bytes of an element of D."""
        return itemsize(self.plan.contraction.d.dtype)

    @property
    def tiles(self) -> int:
        """Tiles of D; bandwidth-bound kernels have the batches in the box of M."""
        t = self.s.tiling
        return t.m.tiles if self.s.mainloop.one_group else t.tiles(self.plan.extent_l)

    @property
    def clusters(self) -> int:
        """Clusters that tiles of D make, of all batches; blocks of the last ones may have no tile."""
        t, (m, n) = self.s.tiling, self.s.cluster
        return -(-t.m.tiles // m) * -(-t.n.tiles // n) * self.plan.extent_l

    @property
    def atom(self) -> MmaAtom:
        """What a warpgroup multiplies at a time."""
        return warpgroup_atom(self.plan.contraction.dtype, self.plan.contraction.precision)

    @property
    def blocks(self) -> int:
        """Blocks of a cluster."""
        return math.prod(self.s.cluster)

    @cached_property
    def operands(self) -> tuple[HopperOperand, HopperOperand]:
        """A and B of a Hopper kernel."""
        t, loop, plan = self.s.tiling, self.s.hopper, self.plan
        assert plan.b is not None
        out = []
        for name, tensor, operand, loader, free, box in (
            ("A", A, plan.a, loop.a, plan.m, mma_box(t)), ("B", B, plan.b, loop.b, plan.n, t.n)
        ):  # fmt: skip
            units = unit_mode(free, tensor, self.size), unit_mode(plan.k, tensor, self.size)
            lead = units[1] if loop.own_k_order and loader.tma is not None else None
            box_k = t.k if lead is None else t.k.led_by(lead)
            out.append(HopperOperand(name, tensor, operand, loader, plan.l, free, plan.k, box, box_k, *units))
        return out[0], out[1]

    @cached_property
    def dims_d(self) -> list[TiledDim]:
        """The tiled dimensions of M and N by distance in D."""
        return tiled_dims((("m", self.plan.m, self.s.tiling.m), ("n", self.plan.n, self.s.tiling.n)), D)

    @property
    def by_map(self) -> Iterator[tuple[HopperOperand, Tma]]:
        """The operands that tensor maps bring, with the copies."""
        return ((o, load) for o in self.operands if (load := o.loader.tma) is not None)

    def brought_by(self, kind: type[L]) -> list[tuple[HopperOperand, L]]:
        """The operands that loaders of a kind bring, with these."""
        return [(o, o.loader) for o in self.operands if isinstance(o.loader, kind)]


Reasons = Iterator[str]
"""How a schedule breaks a rule, with the numbers; nothing where it does not."""

Rule = Callable[[Lowered], Reasons]
"""One condition that schedules must meet: a function with the rule's name, whose docstring is the condition."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a schedule cannot be run."""

    rule: Rule  # the rule that it breaks
    reason: str  # how, with the numbers, behind the rule's name


def name_of(rule: Rule) -> str:
    """A rule's name in words."""
    return rule.__name__.replace("_", " ")


def first_broken(rules: Iterable[Rule], schedule: Schedule, plan: GemmPlan, facts: ArchFacts) -> Refusal | None:
    """The first rule that a schedule breaks, None where it meets all.

    Rules are asked in order: one may rely on those before it.
    """
    x = Lowered(schedule, plan, facts)
    return next((Refusal(rule, f"{name_of(rule)}: {reason}") for rule in rules for reason in rule(x)), None)
