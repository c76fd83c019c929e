"""The cost model of gathered operands: what copying, shifting and multiplying take of a multiprocessor's shared memory.

Knows pieces and chunks, no tensor maps; memory and staging are `wgmma.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from gett.ir.gemm import A, B, D
from gett.schedule.cost.copies import L2_BYTES_PER_CLOCK
from gett.schedule.cost.estimate import LAUNCH_US, Estimate, fastest, split_us, wgmma_splits
from gett.schedule.cost.staging import row_length
from gett.schedule.cost.wgmma import FILL_US, SMEM_BYTES_PER_CLOCK, TENSOR_EFFICIENCY, WgmmaModel
from gett.schedule.spec.wgmma_needs import chunk_bytes, pieces_of
from gett.schedule.tile.wgmma_tile import WgmmaTile
from layouts.swizzle import CHUNK

# What a piece takes from L2 to its place; fitted to measured kernels with pieces that start anywhere.
PIECE_CLOCKS, ELEMENT_CLOCKS = 2.4, 7.5 / 64
# Of shared memory for a chunk: that comes into the ring, that goes from there into its place, that is transposed.
ARRIVAL_CLOCKS, SHIFT_CLOCKS, TRANSPOSE_CLOCKS = 0.14, 0.31, 0.5
STEP_CLOCKS, TILE_CLOCKS, STORE_CLOCKS = 420.0, 1500.0, 300.0  # of a k-tile, of a tile's offsets, of its end
SHORT_K, SHORT_SUMS = 64, 1.25  # sums so short that nothing hides a tile's start and its stores, and what that costs
ONE_STAGE = 1.25  # times as long where a k-tile's copies start only when the one before has left the ring


class GatherModel(WgmmaModel):
    """Estimates for one plan."""

    def k_clocks(self, tile: WgmmaTile) -> tuple[float, float]:
        """Clocks of a k-tile: of the tensor cores, and of the slowest of what feeds them."""
        rows, bn, bk = tile.block
        per_chunk = CHUNK // self.size
        math_clocks = rows * bn * bk / self.lanes
        served = (rows / 64) * (64 + bn) * bk * self.size / SMEM_BYTES_PER_CLOCK
        drawn = 0.0
        for side, run, transposed in ((tile.m, tile.runs[0], tile.transposed), (tile.n, tile.runs[1], False)):
            elements = side.box.size * bk
            if run:
                pieces = pieces_of(side.box.size, bk, run)
                drawn += pieces * (PIECE_CLOCKS + run * ELEMENT_CLOCKS)
                arrived = chunk_bytes(run, self.size) / CHUNK * ARRIVAL_CLOCKS
                served += pieces * (arrived + run / per_chunk * SHIFT_CLOCKS)
                served += pieces * run / per_chunk * TRANSPOSE_CLOCKS if transposed else 0.0
            else:
                drawn += elements * self.size / L2_BYTES_PER_CLOCK
                served += elements * self.size / SMEM_BYTES_PER_CLOCK
        return math_clocks, max(served, drawn, STEP_CLOCKS)

    def estimate(self, tile: WgmmaTile) -> Estimate:
        """Expected microseconds, what bounds them, and the best split of K."""
        return fastest(self._gathered(tile))

    def _gathered(self, tile: WgmmaTile) -> Iterator[Estimate]:
        plan, facts, of = self.plan, self.facts, self.bytes
        staging = self.staging(tile)
        memory = (
            of[A] * self.cost(A, tile.m, tile.k, plan.k)
            + of[B] * self.cost(B, tile.n, tile.k, plan.k)
            + of[D] * self.cost(D, tile.m, tile.n.box, tile.n.modes, staging.bulk)
        ) / facts.dram_tbps * 1e-6  # fmt: skip
        math_clocks, served = self.k_clocks(tile)
        k_clocks = max(math_clocks / TENSOR_EFFICIENCY, served)
        k_tiles = tile.k.tiles
        tiles = tile.m.box.tiles * tile.n.box.tiles * plan.extent_l
        rows, bn, _ = tile.block
        row = row_length(plan, tile.m.box, tile.n.box) if not staging.bulk else 0
        stored = self.row_staging(tile, row) if row else staging.clocks
        for split in wgmma_splits(k_tiles, tiles, facts.sm_count):
            blocks = tiles * split
            tail = stored if split == 1 else rows * bn / 32.0
            loop = -(-k_tiles // split) * k_clocks
            fetch = loop + TILE_CLOCKS
            each = max(fetch, loop + tail + STORE_CLOCKS)
            if tile.warpgroups.ping_pong:
                each = max(fetch, tail) + 0.2 * min(fetch, tail)
            busy = math.ceil(blocks / facts.sm_count) * each / (facts.clock_ghz * 1e3)
            dram = memory / min(1.0, blocks / facts.sm_count)
            us = LAUNCH_US + 2 * FILL_US + max(dram, busy) + 0.2 * min(dram, busy)
            us += split_us(blocks, rows * bn, facts) if split > 1 else 0.0
            us *= SHORT_SUMS if plan.extent_k <= SHORT_K else 1.0
            yield Estimate(us, "DRAM" if dram >= busy else "stores" if tail > fetch else "gathering", split)
