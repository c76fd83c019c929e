"""What the boxes of a Hopper tile make of its tensors' way through device memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from gett.hw.device import DeviceModel
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.cost.staging import Staging, StagingCost
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile
from layouts.box import Box
from layouts.modes import Strided
from layouts.rates import L2_LINE, run_cost


@dataclass(frozen=True, slots=True)
class Traffic:
    """What boxes make of the tensors' way through device memory.

    Attributes:
        dram_us: Microseconds that it takes.
        store_clocks: Clocks of the copy engine for a tile of D, and of C.
    """

    dram_us: float
    store_clocks: float


class TrafficCost(StagingCost):
    """Traffic of one plan's tiles, worked out once for what they have in common."""

    def __init__(self, plan: GemmPlan, device: DeviceModel) -> None:
        super().__init__(plan, device)
        self.costs: dict[tuple[int, Box, Box, bool, int], float] = {}
        self.least_traffics: dict[tuple[Box, Box, Box, Box, bool], float] = {}
        self.traffics: dict[tuple[Box, Box, Box, Box, bool, bool, int], Traffic] = {}

    @cached_property
    def bytes(self) -> dict[int, int]:
        """Distinct bytes of A, B and D, and of C, if there is one."""
        p = self.plan
        groups = {A: (p.l, p.m, p.k), B: (p.l, p.n, p.k), D: (p.l, p.m, p.n)}
        if p.contraction.c is not None:
            groups[C] = groups[D]
        return {
            t: math.prod(s.extent for g in gs for s in g if s.strides[t]) * self.item(t) for t, gs in groups.items()
        }

    @property
    def share_of_d(self) -> float:
        """D's share of all bytes."""
        return self.bytes[D] / sum(self.bytes.values())

    def cost(
        self,
        tensor: int,
        first: OperandTiling,
        second: Box,
        modes: tuple[Strided, ...],
        bulk: bool = True,
        row: int = 0,
    ) -> float:
        """Relative cost of a tensor's bytes under its boxes, moved in rows of `row` bytes if that is not 0."""
        key = (tensor, first.box, second, bulk, row)
        if key not in self.costs:
            run, start = self.run(tensor, first, second, modes)
            parts = self.device.l2.part_of_line if tensor == D and run < L2_LINE else 1.0
            if row and row < run and (row % 32 or row < 64):
                # Sectors that rows cut are made whole in L2 by the next row, at a price.
                run = row // 32 * 32 if row >= 32 else row
            moved = run_cost(self.device.memory, run, store=tensor == D, bulk=bulk, start_alignment=start)
            self.costs[key] = moved * parts
        return self.costs[key]

    def traffic(self, tile: WgmmaTile, staging: Staging) -> Traffic:
        """What a tile's boxes make of the tensors' way through device memory."""
        row = staging.dense.row * self.size_d if staging.bulk else 0
        key = (tile.m.box, tile.n.box, tile.k, tile.a.box, tile.exchange, staging.bulk, row)
        if key not in self.traffics:
            self.traffics[key] = self._traffic(tile, staging.bulk, row)
        return self.traffics[key]

    def _traffic(self, tile: WgmmaTile, bulk: bool, row: int) -> Traffic:
        device, k, of = self.device, self.plan.k, self.bytes
        share = device.l2.line_share
        tbps = device.memory.copy_tbps
        m, n, modes_n = tile.m, tile.n.box, tile.n.modes

        def cut(tensor: int, first: OperandTiling, second: Box, modes: tuple[Strided, ...]) -> float:
            return 1.0 + share * (self.lines(tensor, first, second, modes) - 1.0)

        cost_a = self.cost(A, m, tile.k, k) * cut(A, tile.a, tile.k, k)
        cost_b = self.cost(B, tile.n, tile.k, k) * cut(B, tile.n, tile.k, k)
        m_stored, n_stored, row_stored = m, n, row
        if tile.exchange and (exchanged := self.exchanged(tile)) is not None:
            m_stored, n_stored, row_stored = replace(m, box=exchanged.m), exchanged.n, 2 * row
        cost_d = self.cost(D, m_stored, n_stored, modes_n, bulk, row_stored) * cut(D, m, n, modes_n)
        source = 0.0
        if C in of:
            source = of[C] * self.cost(C, m, n, modes_n, bulk, row) * cut(C, m, n, modes_n)
        dram = (of[A] * cost_a + of[B] * cost_b + of[D] * cost_d + source) / tbps * 1e-6
        stored = m.box.size * n.size * self.size_d / row_stored * device.tma.stored_row_clocks if row_stored else 0.0
        stored *= 2 if C in of else 1  # rows of C come in as D's go out
        return Traffic(dram, stored)

    def least_dram_us(self, tile: WgmmaTile) -> float:
        """What a tile's loads take of device memory, and its stores in the longest rows that D has."""
        key = (tile.m.box, tile.n.box, tile.k, tile.a.box, tile.exchange)
        if key not in self.least_traffics:
            k, of, share = self.plan.k, self.bytes, self.device.l2.line_share
            us = 0.0
            for tensor, first, side in ((A, tile.m, tile.a), (B, tile.n, tile.n)):
                lines = 1.0 + share * (self.lines(tensor, side, tile.k, k) - 1.0)
                us += of[tensor] * self.cost(tensor, first, tile.k, k) * lines
            stored = 1.0
            if not tile.exchange:
                stored = min(self.cost(D, tile.m, tile.n.box, tile.n.modes, bulk) for bulk in (True, False))
            us += of[D] * stored + of.get(C, 0)
            self.least_traffics[key] = us / self.device.memory.copy_tbps * 1e-6
        return self.least_traffics[key]
