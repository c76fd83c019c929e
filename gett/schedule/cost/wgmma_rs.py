"""The cost model of the main loop with A in registers: rows of the copy engine against products.

Memory and staging are `wgmma.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from gett.schedule.cost.estimate import LAUNCH_US, WORKSPACE_LIMIT, Estimate, fastest, split_us
from gett.schedule.cost.wgmma import FILL_US, WgmmaModel
from gett.schedule.tile.wgmma_tile import WgmmaTile, cluster_tiles

# The time that it takes blocks to keep step who share A, neighbours along N, or B, neighbours along M (measured).
IN_STEP = {(1, 1): 1.0, (1, 2): 1.12, (2, 1): 1.21}
ROW_CLOCKS = 1.5  # of the copy engine for a row of 32 or 64 bytes, measured on an H200
MOST_PIECES, MANY_PIECES = 6, 1.08  # runs of A's rows; more of them took 8 % longer
PER_WARPGROUP = 0.96  # of the time where warpgroups wait for their own rows of A
EFFICIENCY = 0.88  # of the tensor cores
TILE_CLOCKS = 2000.0  # of a tile, besides its loop and its stores
MEMORY = 1.3  # of what bytes take at copy speed


class WgmmaRSModel(WgmmaModel):
    """Estimates for one plan."""

    def estimate_rs(self, tile: WgmmaTile, depth: int, width: int) -> Estimate:
        """Expected microseconds, what bounds them, and the slices of K, of k-tiles of `depth` k1 and `width` k2."""
        return fastest(self._slices(tile, depth, width))

    def _slices(self, tile: WgmmaTile, depth: int, width: int) -> Iterator[Estimate]:
        facts, plan = self.facts, self.plan
        rows, columns, _ = tile.block
        outputs = rows * columns
        math_clocks = outputs * depth * width / self.lanes / EFFICIENCY
        rows_a, rows_b = tile.m.box.size * width // tile.cluster[1], tile.n.box.size * depth // tile.cluster[0]
        copy_clocks = (rows_a + rows_b) * ROW_CLOCKS
        k_clocks = max(math_clocks, copy_clocks) + 0.1 * min(math_clocks, copy_clocks)
        tiles = tile.blocks * plan.extent_l * cluster_tiles(tile.m.box.tiles, tile.n.box.tiles, tile.cluster)
        k_tiles, sms = tile.k.tiles, facts.sm_count
        pieces = tile.m.box.size / max(d.box for d in tile.m.box.dims)
        factor = IN_STEP[tile.cluster] * (MANY_PIECES if pieces > MOST_PIECES else 1.0)
        factor *= PER_WARPGROUP if tile.cluster[1] > 1 else 1.0
        for wish in {1, *((sms // tiles, 2 * sms // tiles) if tiles < sms else ())}:
            split = max(1, min(wish, k_tiles // 2, WORKSPACE_LIMIT // (tiles * outputs * 4)))
            steps = (k_tiles / split + -(-k_tiles // split)) / 2  # slices differ by one
            tail = self.staging(tile).clocks if split == 1 else outputs / 32.0
            clocks = -(-tiles * split // sms) * (steps * k_clocks + tail + TILE_CLOCKS)
            busy = clocks / (facts.clock_ghz * 1e3)
            dram = MEMORY * plan.bytes / facts.dram_tbps * 1e-6
            us = LAUNCH_US + FILL_US + max(busy, dram) + 0.2 * min(busy, dram)
            us += split_us(tiles * split, outputs, facts) if split > 1 else 0.0
            bound = "DRAM" if dram > busy else "tensor cores" if math_clocks > copy_clocks else "L2"
            yield Estimate(us * factor, bound, split)
