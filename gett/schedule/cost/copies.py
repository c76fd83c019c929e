"""What copies of the Hopper tiles take: device memory, lines of L2, rows of the copy engine.

Knows a tile's boxes and the tensors' strides; tiles as a whole are estimated in `hopper.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import products_of, warpgroup_atom
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.access import Runs
from layouts.box import Box
from layouts.modes import Strided, unit_mode, volume
from layouts.rates import L2_LINE, SECTOR, run_cost
from layouts.swizzle import CHUNK, swizzle_dividing


class Loads(NamedTuple):
    """What loads of an operand take under a box of its free group and one of K; of several boxes the least of each."""

    tiles: int  # along the free group
    read: float  # bytes at copy speed that reading the operand is worth
    clocks: float  # of the copy engine for a k-tile, and of a multiprocessor's way to L2
    shared: float  # the same for each of two blocks that share it
    apart: float  # one by the rows that follow each other at one stride

    @classmethod
    def least(cls, found: Sequence[Loads]) -> Loads:
        """What none of some boxes is below."""
        return found[0] if len(found) == 1 else cls._make(map(min, zip(*found, strict=True)))


class CopyCost:
    """Copies of one plan's tiles; what they take is worked out once for each pair of boxes."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        self.plan, self.facts, self.device, c = plan, facts, nearest(facts), plan.contraction
        self.threads, self.tile_rates = self.device.hopper.threads, self.device.hopper.tiles
        self.size, self.size_d = itemsize(c.dtype), itemsize(c.d.dtype)
        self.atom, self.real_products = warpgroup_atom(c.dtype, c.precision), c.real_products
        self.lanes = facts.tensor_lanes[products_of(c.dtype, c.precision)[0].name]
        self.k_unit = {t: unit_mode(plan.k, t, self.size) for t in (A, B)}
        self.runs: dict[tuple[int, tuple[int, ...]], Runs] = {}
        self.known_runs: dict[tuple[int, Box, Box], tuple[int, int]] = {}
        self.known_loads: dict[tuple[int, Box, int, Box], Loads] = {}
        self.known_costs: dict[tuple[int, Box, Box, bool, int], float] = {}

    @cached_property
    def bytes(self) -> dict[int, int]:
        """Distinct bytes of A, B and D, and of C, if there is one."""
        p = self.plan
        groups = {A: (p.l, p.m, p.k), B: (p.l, p.n, p.k), D: (p.l, p.m, p.n)}
        if p.contraction.c is not None:
            groups[C] = groups[D]
        return {t: volume(chain(*gs), t) * self.item(t) for t, gs in groups.items()}

    @cached_property
    def share_of_d(self) -> float:
        """D's share of all bytes."""
        return self.bytes[D] / sum(self.bytes.values())

    def item(self, tensor: int) -> int:
        """Bytes of a tensor's elements."""
        c = self.plan.contraction.c
        return itemsize(c.dtype) if tensor == C and c is not None else self.size_d if tensor == D else self.size

    def run(self, tensor: int, first: OperandTiling, second: Box, modes: tuple[Strided, ...]) -> tuple[int, int]:
        """Bytes of a tensor that lie together in a tile, and the alignment of their starts."""
        key = (tensor, first.box, second)
        if key not in self.known_runs:
            extents = (*first.box.extents, *second.extents)  # splits differ in them
            if (tensor, extents) not in self.runs:
                strides = [[s.strides[tensor] for s in group] for group in (first.modes, modes)]
                self.runs[tensor, extents] = Runs(strides, extents, self.item(tensor))
            self.known_runs[key] = self.runs[tensor, extents].of_boxes(first.box, second)
        return self.known_runs[key]

    def lines(self, run: int, store: bool = False) -> float:
        """Factor for L2's lines that runs touch, by those that they fill, anywhere that runs may begin.

        Runs below a line are judged otherwise.
        """
        if run < L2_LINE:
            return 1.0
        starts = range(0, L2_LINE, math.gcd(run, L2_LINE))
        touched = sum(-(-(at + run) // L2_LINE) for at in starts) / len(starts) * L2_LINE / run
        touched += self.device.l2.run_end_bytes / run if store else 0.0
        return 1.0 + self.device.l2.line_share * (touched - 1.0)

    def loads(self, tensor: int, side: OperandTiling, box_k: Box) -> Loads:
        """What loads of A or of B take."""
        key = (tensor, side.box, side.run, box_k)
        if key not in self.known_loads:
            self.known_loads[key] = self._loads(tensor, side, box_k)
        return self.known_loads[key]

    def _loads(self, tensor: int, side: OperandTiling, box_k: Box) -> Loads:
        run, start = self.run(tensor, side, box_k, self.plan.k)
        cost = run_cost(self.device.memory, run, bulk=True, start_alignment=start)
        rows, row = self.rows(tensor, side, box_k)
        if row >= 64:
            drawn = rows * row / self.device.l2.tma_bytes_per_clock
            batches = (abs(s.strides[tensor]) for s in self.plan.l if s.extent > 1)
            if math.gcd(start, *batches) % SECTOR:
                drawn *= 1.0 + SECTOR / row  # one more is read
            shared = drawn / 2
        else:  # short rows cost as much as longer ones, and those that others send cost as well
            drawn = rows * (self.device.tma.element_clocks if row == self.size else self.device.tma.row_clocks)
            shared = drawn / (1 + self.device.tma.multicast_gain)
        read = self.bytes[tensor] * cost * self.lines(run)
        return Loads(side.box.tiles, read, drawn, shared, 1 / _first_rows(tensor, side))

    def rows(self, tensor: int, side: OperandTiling, box_k: Box) -> tuple[float, int]:
        """Rows that the copy engine moves for one k-tile of an operand, and their bytes.

        Those that pass K's end count as several.
        """
        tma, late, k_unit = self.device.tma, 1.0, self.k_unit[tensor]
        if k_unit is not None:
            cut, extent = box_k.cut[k_unit], self.plan.k[k_unit].extent
            if box_k.size % self.atom.k:  # one row holds a tile's k, and only they are moved
                factor = tma.cut_row_factor if cut * self.size > CHUNK else 1.0
                return side.box.size * factor, cut * self.size
            if extent % cut:
                late += tma.past_end_rows * 64 / (cut * self.size) / -(-extent // cut)
        elif side.run:
            return side.box.size // side.run * box_k.size, side.run * self.size
        else:
            cut = side.box.cut[side.unit(tensor, self.size) or 0]
        row = swizzle_dividing(cut * self.size) or CHUNK
        return late * side.box.size * box_k.size * self.size / row, row

    def cost(self, tensor: int, m: OperandTiling, n: OperandTiling, bulk: bool, row: int = 0) -> float:
        """Relative cost of the bytes of D or of C, moved in rows of `row` bytes if that is not 0."""
        key = (tensor, m.box, n.box, bulk, row)
        if key not in self.known_costs:
            run, start = self.run(tensor, m, n.box, n.modes)
            parts = self.device.l2.part_of_line if tensor == D and run < L2_LINE else 1.0
            if row and row < run and (row % 32 or row < 64):
                # Sectors that rows cut are made whole in L2 by the next row, at a price.
                run = row // 32 * 32 if row >= 32 else row
            moved = run_cost(self.device.memory, run, store=tensor == D, bulk=bulk, start_alignment=start, tile=True)
            self.known_costs[key] = moved * parts
        return self.known_costs[key]


def _first_rows(tensor: int, side: OperandTiling) -> int:
    """Rows of an operand's tile that follow each other at one stride."""
    rows, step = 1, 0
    for _, dim in side.box.tiled:
        first = side.modes[dim.modes[0]]
        stride = abs(first.strides[tensor])
        if rows > 1 and stride != step * rows:
            break
        rows, step = rows * dim.box, step or stride
        if len(dim.modes) > 1 or dim.box < first.extent:
            break
    return rows
