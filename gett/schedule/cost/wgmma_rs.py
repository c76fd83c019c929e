"""The cost model of the main loop with A in registers: rows of the copy engine against products.

Memory and staging are `wgmma.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from gett.schedule.cost.estimate import WORKSPACE_LIMIT, Estimate, fastest, split_us
from gett.schedule.cost.wgmma import WgmmaModel
from gett.schedule.tile.wgmma_tile import WgmmaTile, cluster_tiles

MOST_PIECES = 6
"""Runs of A's rows; more of them take longer."""


class WgmmaRSModel(WgmmaModel):
    """Estimates for one plan."""

    def estimate_rs(self, tile: WgmmaTile, depth: int, width: int) -> Estimate:
        """Expected microseconds, what bounds them, and the slices of K, of k-tiles of `depth` k1 and `width` k2."""
        return fastest(self._slices(tile, depth, width))

    def _slices(self, tile: WgmmaTile, depth: int, width: int) -> Iterator[Estimate]:
        facts, plan, device = self.facts, self.plan, self.device
        rs, launches = device.wgmma.rs, device.launches
        rows, columns, _ = tile.block
        outputs = rows * columns
        math_clocks = outputs * depth * width / self.lanes / rs.peak_share
        rows_a, rows_b = tile.m.box.size * width // tile.cluster[1], tile.n.box.size * depth // tile.cluster[0]
        copy_clocks = (rows_a + rows_b) * device.tma.wide_row_clocks
        k_clocks = max(math_clocks, copy_clocks) + 0.1 * min(math_clocks, copy_clocks)
        tiles = tile.blocks * plan.extent_l * cluster_tiles(tile.m.box.tiles, tile.n.box.tiles, tile.cluster)
        k_tiles, sms = tile.k.tiles, facts.sm_count
        pieces = tile.m.box.size / max(d.box for d in tile.m.box.dims)
        factor = {(1, 1): 1.0, (1, 2): rs.cluster_n * rs.per_warpgroup, (2, 1): rs.cluster_m}[tile.cluster]
        factor *= device.families.wgmma_rs
        factor *= rs.many_pieces if pieces > MOST_PIECES else 1.0
        for wish in {1, *((sms // tiles, 2 * sms // tiles) if tiles < sms else ())}:
            split = max(1, min(wish, k_tiles // 2, WORKSPACE_LIMIT // (tiles * outputs * 4)))
            steps = (k_tiles / split + -(-k_tiles // split)) / 2  # slices differ by one
            tail = self.staging(tile).clocks if split == 1 else outputs / 32.0
            clocks = -(-tiles * split // sms) * (steps * k_clocks + tail + rs.tile_clocks)
            busy = clocks / (facts.clock_ghz * 1e3)
            dram = rs.memory_factor * plan.bytes / device.memory.copy_tbps * 1e-6
            us = launches.launch_us + launches.fill_us + max(busy, dram) + 0.2 * min(busy, dram)
            us += split_us(tiles * split, outputs, device) if split > 1 else 0.0
            bound = "DRAM" if dram > busy else "tensor cores" if math_clocks > copy_clocks else "L2"
            yield Estimate(us * factor, bound, split)
