"""Lines of which a tile reads a part: how often device memory sends them.

Memory sends whole lines. Where another tile or k-tile reads the rest of a line while L2 keeps it, the line comes once;
where more than L2 keeps is read in between, it comes again with each part. Knows boxes, strides and the order in which
tiles are made, and no main loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.ir.gemm import A, B, GemmPlan
from layouts.box import Box
from layouts.modes import Strided
from layouts.rates import L2_LINE

LONG = 2 * L2_LINE
"""Bytes of runs whose ends are not looked at."""

Cut = tuple[str, Sequence[Strided], Box | None]
"""A group, its modes, and how tiles cut it; None where a tile has one element, the first mode walked fastest."""


class Part(NamedTuple):
    """A run of a tensor's memory that tiles cut, and where it goes on."""

    sent: float  # bytes of the lines that it touches, against its own
    group: str  # of the mode along which it goes on
    step: int  # tiles or k-tiles from one to the next along that mode, the group's own alone
    of_line: int  # parts that a line has


class Walk(NamedTuple):
    """The order in which tiles and k-tiles are made."""

    steps: int  # k-tiles of a slice of K
    rows: int  # rows of tiles that are visited together
    columns: int  # tiles along N
    of_batch: int  # tiles of a batch, in all slices
    blocks: int  # tiles of all batches, in all slices
    at_once: int  # that are made at a time

    def between(self, part: Part) -> float:
        """Share of the whole time from one part of a run to the next; 0 where both are read at the same time."""
        if part.group == "k":  # a slice that ends before leaves the rest to one that began with it
            return part.step % self.steps / self.steps * min(1.0, self.at_once / self.blocks)
        rows = part.step if part.step < self.rows else part.step * self.columns
        tiles = {"m": rows, "n": part.step * self.rows, "l": part.step * self.of_batch}[part.group]
        return tiles / self.blocks if tiles * (part.of_line - 1) >= self.at_once else 0.0


def kept_by_l2(facts: ArchFacts) -> float:
    """Bytes that are still in L2 when the rest of their lines is read."""
    return nearest(facts).l2.kept_share * facts.l2_bytes


class PartialLines:
    """How often the lines of one plan's operands come, of whose bytes `read` tells; all tensors have `distinct`."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, read: Mapping[int, int], distinct: float) -> None:
        self.plan, self.read, self.distinct = plan, read, distinct
        self.kept = kept_by_l2(facts)
        self.known: dict[tuple[int, tuple[Box | None, ...]], tuple[Part, ...]] = {}

    @property
    def come_again(self) -> bool:
        """Whether any may: L2 does not keep all that is read."""
        return self.distinct > self.kept

    @property
    def larger(self) -> int:
        """The larger operand."""
        return max((A, B), key=self.read.__getitem__)

    def of_operands(self, m: Cut, n: Cut, l: Box | None, k: Box, walk: Walk) -> float:
        """Bytes that memory sends of both operands beyond those that they have, by how tiles cut all groups."""
        if not self.come_again:
            return 0.0
        of_l, of_k = ("l", self.plan.l, l), ("k", self.plan.k, k)
        sides = ((A, m), (B, n))
        return sum(self.again(self.parts(t, (of_l, side, of_k)), walk, self.read[t]) for t, side in sides)

    def parts(self, tensor: int, cuts: Sequence[Cut]) -> tuple[Part, ...]:
        """The short runs of an operand, the shortest first; none where L2 keeps all that is read."""
        if not self.come_again:
            return ()
        key = tensor, tuple(box for _, _, box in cuts)
        if key not in self.known:
            self.known[key] = tuple(_parts(tensor, self.plan.size(tensor), cuts))
        return self.known[key]

    def again(self, parts: Sequence[Part], walk: Walk, own: float) -> float:
        """Bytes that memory sends of an operand beyond its `own`.

        Whole lines pass through L2 between two parts, and drive out a line the likelier the more they are.
        """
        most = 0.0
        for part in parts:
            more = (part.sent - 1.0) * own
            passing = walk.between(part) * (self.distinct + more)
            most = max(most, more * (1.0 - self.kept / passing) if passing > self.kept else 0.0)
        return most


def _parts(tensor: int, size: int, cuts: Sequence[Cut]) -> list[Part]:
    """A tensor's runs that end where a tile does, each of which goes on in another tile."""
    found, run, modes = [], size, sorted(_taken(tensor, cuts))
    for i, (stride, taken, extent, group, step) in enumerate(modes):
        if stride != run or run >= LONG:
            break
        if taken < extent and run * taken < LONG:
            aligned = math.gcd(L2_LINE, run * taken, *(x[0] for x in modes[i + 1 :]))
            count = min(-(-extent // taken), -(-L2_LINE // (run * taken)))
            sent = _sent(run * taken, aligned)
            found += [Part(sent, group, step, count)] if sent > 1.0 else []
        run *= extent
    return found


def _taken(tensor: int, cuts: Sequence[Cut]) -> list[tuple[int, int, int, str, int]]:
    """Of each mode that a tensor has its stride, the elements in a tile, its extent, and how far the next tile is."""
    found = []
    for group, modes, cut in cuts:
        box = cut or Box.of_cuts([s.extent for s in modes], {})
        step = 1
        for i, dim in enumerate(box.dims):
            left, within = dim.box, step
            for mode in (modes[m] for m in dim.modes):
                taken = min(left, mode.extent)
                if mode.extent > 1 and mode.strides[tensor]:
                    found.append((abs(mode.strides[tensor]), taken, mode.extent, group, within))
                left = -(-left // mode.extent)
                within *= mode.extent if taken == 1 else 1
            step *= box.tiles_per_dim[i]
    return found


def _sent(run: int, aligned: int) -> float:
    """Bytes of the lines that runs touch which begin at multiples of `aligned`, against those of the runs."""
    touched = sum(-(-(at + run) // L2_LINE) for at in range(0, L2_LINE, aligned))
    return touched * aligned / run
