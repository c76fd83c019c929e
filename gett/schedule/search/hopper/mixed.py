"""Tiles whose operands tensor maps do not both move: threads bring one, or both.

Which boxes are tried, and how threads bring an operand, is each search's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import product

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.rules.gather import REACH
from gett.schedule.search.hopper.parts import Loader
from gett.schedule.search.hopper.search import HopperSearch
from gett.schedule.spec.loader import CpAsyncTile, Gather, Tma
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile
from layouts.box import Box


class MixedSearch(HopperSearch):
    """The boxes of one assignment of roles to A and B; all tiles are estimated."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        super().__init__(plan, facts, swap_ab)
        self.cuts: dict[tuple[int, int], list[Box]] = {}
        self.loaders: dict[tuple[int, Box, Box], Loader | None] = {}

    @abstractmethod
    def cut(self, tensor: int, block: int) -> list[Box]:
        """Boxes of M or N; of an operand whose unit stride is there, that mode leads."""

    @abstractmethod
    def by_threads(self, tensor: int, box: Box, box_k: Box) -> Gather | CpAsyncTile | None:
        """How threads bring an operand, None where they cannot."""

    def takes(self) -> bool:
        """Whether 32-bit offsets from an operand's first element reach all others."""
        plan, size = self.plan, self.size
        modes = [s for g in (plan.l, plan.m, plan.n, plan.k) for s in g]
        if any(s.strides[t] < 0 or s.strides[t] % size for s in modes for t in (A, B)):
            return False
        return all(sum(s.strides[t] * (s.extent - 1) for s in modes) // size < REACH for t in (A, B))

    def choices(self) -> Iterator[WgmmaTile]:
        """Every combination of tile and boxes that both operands reach, not both by tensor map."""
        if not self.takes():
            return
        for box_k, groups, n in product(self.walked(self.boxes_of_k()), self.groups, self.widths()):
            if not self.holds(groups, n, box_k):
                continue
            for box_m, box_n in product(self.side_boxes(A, groups.rows), self.side_boxes(B, n)):
                a, b = self.loader(A, box_m, box_k), self.loader(B, box_n, box_k)
                if a is not None and b is not None and (a.by_warps or b.by_warps):
                    sides = OperandTiling(box_m, self.plan.m), OperandTiling(box_n, self.plan.n)
                    yield WgmmaTile(self.atom, groups, *sides, box_k, runs=(a.width, b.width))

    def side_boxes(self, tensor: int, block: int) -> list[Box]:
        """The boxes of an operand's free group, worked out once."""
        if (tensor, block) not in self.cuts:
            self.cuts[tensor, block] = self.cut(tensor, block)
        return self.cuts[tensor, block]

    def loader(self, tensor: int, box: Box, box_k: Box) -> Loader | None:
        """By tensor map where one can, else by threads."""
        key = (tensor, box, box_k)
        if key not in self.loaders:
            flat = box.flattens or box_k.flattens
            found = None if flat else self.by_map(tensor, OperandTiling(box, self.boxes.side(tensor)), box_k)
            self.loaders[key] = found or self.by_threads(tensor, box, box_k)
        return self.loaders[key]

    def by_map(self, tensor: int, side: OperandTiling, box_k: Box) -> Tma | None:
        """The tensor map of an operand, None where there is none."""
        return self.maps(tensor, side).load(side, box_k)

    def loads(self, plan: GemmPlan, tile: WgmmaTile) -> tuple[Loader, Loader] | None:
        """How the operands come."""
        a, b = self.loader(A, tile.m.box, tile.k), self.loader(B, tile.n.box, tile.k)
        return None if a is None or b is None else (a, b)
