"""The cost model of the main loop with A in registers: rows of the copy engine against products."""

from __future__ import annotations

from gett.schedule.cost.staging import Staging
from gett.schedule.cost.traffic import Traffic
from gett.schedule.cost.wgmma import Loop, WgmmaCost
from gett.schedule.tile.wgmma_tile import WgmmaTile


class WgmmaRSCost(WgmmaCost):
    """Estimates for one plan."""

    def loop(self, tile: WgmmaTile, tiles: int) -> Loop:
        """What a k-tile takes: rows of A, which have k1, for each k2, and of B, which have k2, for each k1."""
        depth, width = (tile.k.cut[unit] for unit in self.k_unit.values() if unit is not None)
        rows, columns, _ = tile.shape
        math_clocks = rows * columns * depth * width / self.lanes / self.device.wgmma.loop.peak_share
        copied = tile.m.box.size * width // tile.cluster[1] + tile.n.box.size * depth // tile.cluster[0]
        copy_clocks = copied * self.device.tma.row_clocks
        clocks = max(math_clocks, copy_clocks) + 0.1 * min(math_clocks, copy_clocks)
        return Loop(clocks * self.in_step(tile), "tensor cores" if math_clocks > copy_clocks else "L2", 0.0, 0.0)

    def traffic(self, tile: WgmmaTile, staging: Staging) -> Traffic:
        """The bytes at copy speed."""
        return Traffic(self.plan.bytes / self.device.memory.copy_tbps * 1e-6, 0.0)

    def splits(self, tile: WgmmaTile, tiles: int) -> list[int]:
        """Slices of K, whose k-tiles are dealt out in turn."""
        sms, outputs = self.facts.sm_count, tile.shape[0] * tile.shape[1]
        most = min(tile.k.tiles // 2, self.facts.workspace_limit // (tiles * outputs * 4))
        return sorted({max(1, min(wish, most)) for wish in (1, sms // tiles, 2 * sms // tiles)})

    def factor(self, tile: WgmmaTile, tiles: int, k_tiles: int = 0) -> float:
        """Factor against the other main loops."""
        return self.device.mainloops.wgmma_rs
