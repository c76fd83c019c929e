"""The cost model of gathered operands: what copying, shifting and multiplying take of a multiprocessor's shared memory.

Knows pieces and chunks, no tensor maps; memory and staging are `wgmma.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from gett.ir.gemm import A, B, D
from gett.schedule.cost.estimate import Estimate, fastest, split_us, wgmma_splits
from gett.schedule.cost.staging import row_length
from gett.schedule.cost.wgmma import WgmmaModel
from gett.schedule.spec.wgmma_needs import pieces_of
from gett.schedule.tile.wgmma_tile import WgmmaTile

SHORT_K = 64
"""Sums so short that nothing hides a tile's start and its stores."""


class GatherModel(WgmmaModel):
    """Estimates for one plan."""

    def k_clocks(self, tile: WgmmaTile) -> tuple[float, float]:
        """Clocks of a k-tile: of the tensor cores, and of the slowest of what feeds them."""
        rows, bn, bk = tile.block
        loop, gather = self.device.wgmma.loop, self.device.wgmma.gather
        math_clocks = rows * bn * bk / self.lanes
        served = (rows / 64) * (64 + bn) * bk * self.size / loop.smem_bytes_per_clock
        drawn = 0.0
        for side, run in ((tile.m, tile.runs[0]), (tile.n, tile.runs[1])):
            elements = side.box.size * bk
            if run:
                drawn += pieces_of(side.box.size, bk, run) * (gather.piece_clocks + run * gather.element_clocks)
            else:
                drawn += elements * self.size / self.device.l2.tma_bytes_per_clock
                served += elements * self.size / loop.smem_bytes_per_clock
        return math_clocks, max(served, drawn)

    def estimate(self, tile: WgmmaTile) -> Estimate:
        """Expected microseconds, what bounds them, and the best split of K."""
        return fastest(self._gathered(tile))

    def _gathered(self, tile: WgmmaTile) -> Iterator[Estimate]:
        plan, facts, of, device = self.plan, self.facts, self.bytes, self.device
        launches, gather = device.launches, device.wgmma.gather
        staging = self.staging(tile)
        memory = (
            of[A] * self.cost(A, tile.m, tile.k, plan.k)
            + of[B] * self.cost(B, tile.n, tile.k, plan.k)
            + of[D] * self.cost(D, tile.m, tile.n.box, tile.n.modes, staging.bulk)
        ) / device.memory.copy_tbps * 1e-6  # fmt: skip
        math_clocks, served = self.k_clocks(tile)
        k_clocks = max(math_clocks / device.wgmma.loop.peak_share, served)
        k_tiles = tile.k.tiles
        tiles = tile.m.box.tiles * tile.n.box.tiles * plan.extent_l
        rows, bn, _ = tile.block
        row = row_length(plan, tile.m.box, tile.n.box) if not staging.bulk else 0
        stored = self.row_staging(tile, row) if row else staging.clocks
        for split in wgmma_splits(k_tiles, tiles, facts.sm_count):
            blocks = tiles * split
            tail = stored if split == 1 else rows * bn / 32.0
            loop = -(-k_tiles // split) * k_clocks
            fetch = loop + gather.tile_clocks
            each = max(fetch, loop + tail)
            if tile.warpgroups.ping_pong:
                each = max(fetch, tail) + 0.2 * min(fetch, tail)
            busy = math.ceil(blocks / facts.sm_count) * each / (facts.clock_ghz * 1e3)
            dram = memory / min(1.0, blocks / facts.sm_count)
            us = launches.launch_us + 2 * launches.fill_us + max(dram, busy) + 0.2 * min(dram, busy)
            us += split_us(blocks, rows * bn, device) if split > 1 else 0.0
            us *= device.families.gather
            us *= gather.short_sum if plan.extent_k <= SHORT_K else 1.0
            yield Estimate(us, "DRAM" if dram >= busy else "stores" if tail > fetch else "gathering", split)
