"""The cost model of gathered operands: what copying, shifting and multiplying take of shared memory."""

from __future__ import annotations

from gett.ir.gemm import A, B, D
from gett.schedule.cost.staging import Staging
from gett.schedule.cost.traffic import Traffic
from gett.schedule.cost.wgmma import Loop, WgmmaCost
from gett.schedule.rules.gather import pieces_of
from gett.schedule.tile.wgmma_tile import WgmmaTile

SHORT_K = 64
"""Sums so short that nothing hides a tile's start and its stores."""


class GatherCost(WgmmaCost):
    """Estimates for one plan."""

    fills = 2  # the chunks' way through the warps' rings, too

    def loop(self, tile: WgmmaTile, tiles: int) -> Loop:
        """What a k-tile takes: of the tensor cores, or of what feeds them."""
        rows, bn, bk = tile.shape
        rates, gather = self.device.wgmma.loop, self.device.wgmma.gather
        math_clocks = rows * bn * bk / self.lanes / rates.peak_share
        served = (rows / 64) * (64 + bn) * bk * self.size / rates.smem_bytes_per_clock
        drawn = 0.0
        for side, run in ((tile.m, tile.runs[0]), (tile.n, tile.runs[1])):
            elements = side.box.size * bk
            if run:
                drawn += pieces_of(side.box.size, bk, run) * (gather.piece_clocks + run * gather.element_clocks)
            else:
                drawn += elements * self.size / self.device.l2.tma_bytes_per_clock
                served += elements * self.size / rates.smem_bytes_per_clock
        return Loop(max(math_clocks, served, drawn), "gathering", 0.0, 0.0)

    def traffic(self, tile: WgmmaTile, staging: Staging) -> Traffic:
        """What a tile's runs make of the tensors' way through device memory."""
        of, k = self.bytes, self.plan.k
        bytes_ = of[A] * self.cost(A, tile.m, tile.k, k) + of[B] * self.cost(B, tile.n, tile.k, k)
        bytes_ += of[D] * self.cost(D, tile.m, tile.n.box, tile.n.modes, staging.bulk)
        return Traffic(bytes_ / self.device.memory.copy_tbps * 1e-6, 0.0)

    def work(self, tile: WgmmaTile, loop: Loop, looped: float, tail: float, stored: float = 0.0) -> float:
        """Clocks from one tile to the next: warps gather for the next while this one is stored."""
        fetch = looped + self.device.wgmma.gather.tile_clocks
        if tile.warpgroups.ping_pong:
            return max(fetch, tail) + 0.2 * min(fetch, tail)
        return max(fetch, looped + tail)

    def least_tail(self, tile: WgmmaTile) -> float:
        """Rows that leave one by one hide what writing them takes."""
        return self.device.stores.tile_clocks

    def factor(self, tile: WgmmaTile, tiles: int, k_tiles: int = 0) -> float:
        """Factor on the time of sums that hide nothing."""
        factor = self.device.mainloops.gather
        return factor * (self.device.wgmma.loop.short_sum if self.plan.extent_k <= SHORT_K else 1.0)
