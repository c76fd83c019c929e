"""The cost model of float64 and complex128 by tensor map: products, the port of shared memory, copies.

A tile of 128 x 128 takes 128 clocks a k of the tensor cores, of 128 multiply-adds each. The port of shared memory moves
128 bytes a clock: what the copies bring takes 16 clocks a k, the rows of A that each warp reads once take 8, the
columns of B that each of eight warps reads take 64. So the tensor cores limit; in tiles of 256 x 64 the port takes 68
clocks. Factors were fitted to some 240 times of an H200, tiles of 48 contractions.

Complex numbers take four products of what is read twice, so the tensor cores limit in smaller tiles already.
"""

from __future__ import annotations

import math

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import even_splits
from gett.schedule.cost.wgmma import Loop, WgmmaCost
from gett.schedule.mainloops.dmma_tma import dmma_step
from gett.schedule.spec.hopper_needs import MOST_STAGES, parts
from gett.schedule.spec.mainloop import DmmaTma
from gett.schedule.tile.wgmma_tile import WgmmaTile
from layouts.swizzle import CHUNK, swizzle_dividing

WARPS = 4 * DmmaTma.warpgroups
OVERLAP = 4  # exponent of the norm in which the clocks of the units add up
CLOCKS = 0.95  # of a k-tile by the device's clock: these kernels run at 1.98 GHz for a while, at 1.7 in the long run
TILE_CLOCKS = 250.0  # from the last product of a tile to its staging, and on to the next tile's first product
LOAD_CLOCKS, MEMORY_CLOCKS = 1250.0, 3450.0  # from a load's issue to its end, and more of them where memory limits
WAITED = 0.6  # share of memory's time for D that those who multiply wait where they store it
REUSED_CLOCKS = 5400.0  # of a tile staged in the stages: its store reads them, then the next tile's first loads come
REUSED_LEAST = 8 * REUSED_CLOCKS  # of the products of such a tile
EXCHANGED = 1.07  # factor on products of float64 where B's numbers are exchanged once they are loaded
TWO_STAGES = 1.045  # factor on a tile's time with two stages
SHORT_STEPS = 1.05  # factor on products of 8 k, which read and write the sums twice as often as those of 16


def fragment_replays(major: str, swizzle: int) -> int:
    """How often the loads of an operand's fragments are served, by the group along its rows and their swizzle."""
    return {16: 4, 32: 2}.get(swizzle, 1) if major == "k" else 1


class DmmaTmaCost(WgmmaCost):
    """Estimates for one plan."""

    beside = 0.0
    few_waves = 0  # `work` has the wait for D of every tile
    idle_share = 0.2  # the chip is at its power limit
    part_of_line = 1.5
    # The clocks of float64 were fitted so: its products leave time for rows that cut sectors.
    past_end_bytes, starts_cut = 128, False

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        super().__init__(plan, facts)
        self.sum_words = 2 * parts(plan)
        self.shallow_share = 0.0  # 16 k take as long as 256 of 16-bit types

    def loop(self, tile: WgmmaTile, tiles: int) -> Loop:
        """What a k-tile takes, by the unit that takes longest."""
        rates, device = self.device.wgmma.loop, self.device
        rows, bn, bk = tile.shape
        math_clocks = rows * bn * bk * self.plan.contraction.real_products / self.lanes
        if dmma_step(tile.warpgroups.mma_m, bn, parts(self.plan)) == 8:
            math_clocks *= SHORT_STEPS
        if self.k_unit[B] is None and parts(self.plan) == 1 and self.row_of(tile) == CHUNK:
            math_clocks *= EXCHANGED
        port = float(rows + bn)  # elements a k
        drawn = engine = 0.0
        two_leads = self.k_unit[A] is not None and self.k_unit[B] not in (None, self.k_unit[A])
        for tensor, side, shared, reads, read in (
            (A, tile.a, tile.cluster[1], tile.n.box.tiles, rows),
            (B, tile.n, tile.cluster[0], tile.m.box.tiles, WARPS * bn),
        ):
            unit = self.k_unit[tensor]
            replays = 1
            if unit is not None and not two_leads:
                replays = fragment_replays("k", swizzle_dividing(tile.k.cut[unit] * self.size))
            port += read * replays
            copy, moved = self.clocks(tensor, side, tile.k, shared, reads)
            drawn, engine = drawn + copy, engine + moved
        # All multiprocessors draw as long as products run, so L2's own rate counts beside that of the way to each.
        per_clock = device.l2.read_tbps * 1e3 / (self.facts.sm_count * self.facts.clock_ghz)
        units = {
            "tensor cores": math_clocks,
            "shared memory": port * bk * self.size / rates.smem_bytes_per_clock,
            "L2": max(drawn, (rows + bn) * bk * self.size / per_clock),
        }
        clocks = sum([x**OVERLAP for x in units.values()]) ** (1 / OVERLAP)
        return Loop(CLOCKS * clocks * self.in_step(tile), max(units, key=lambda name: units[name]), engine, 0.0)

    def least_loop(self, tile: WgmmaTile, stays: bool) -> Loop:
        """What a k-tile takes at least of the tensor cores and of shared memory."""
        rows, bn, bk = tile.shape
        math_clocks = rows * bn * bk * self.plan.contraction.real_products / self.lanes
        port_clocks = (2 * rows + (1 + WARPS) * bn) * bk * self.size / self.device.wgmma.loop.smem_bytes_per_clock
        return Loop(CLOCKS * (math_clocks**OVERLAP + port_clocks**OVERLAP) ** (1 / OVERLAP), "", 0.0, 0.0)

    def work(self, tile: WgmmaTile, loop: Loop, looped: float, tail: float, stored: float = 0.0) -> float:
        """Clocks from one tile to the next."""
        return min(self.ways(tile, loop, looped, tail))

    def ways(self, tile: WgmmaTile, loop: Loop, looped: float, tail: float) -> tuple[float, float]:
        """Clocks from one tile to the next where D is staged beside the stages, and where it is staged in them.

        D has one staging buffer: a tile is staged when the tile before has left, which takes its share of memory's
        time; those who multiply wait for it where they store. Where loads are issued later than they take, each round
        of the stages waits for them. In the stages D is read before the next tile's loads begin.
        """
        memory, by_map, whole = self.memory_clocks(tile), self.staging(tile).bulk, self.whole(tile, loop, looped)
        left = memory * self.share_of_d if whole else 0.0
        beside = (max(looped, left) if by_map else looped + WAITED * left) + tail + TILE_CLOCKS
        staged = self.staged(tile) if whole else 0
        beside = self.waiting(tile, loop, looped, beside, min(1.0, memory / beside), staged)
        alone = whole and by_map and tile.blocks == 1 and self.plan.contraction.c is None
        if not alone or looped < REUSED_LEAST:
            return beside, math.inf
        within = looped + tail + TILE_CLOCKS + REUSED_CLOCKS
        return beside, self.waiting(tile, loop, looped, within, min(1.0, memory / within), 0)

    def stages_are_reused(self, tile: WgmmaTile) -> bool:
        """Whether a tile whose sums take all of K is staged where the stages are."""
        loop = self.loop(tile, self.grid(tile)[0])
        beside, within = self.ways(tile, loop, tile.k.tiles * loop.clocks, self.staging(tile).clocks)
        return within < beside

    def least_work(self, tile: WgmmaTile, loop: Loop, looped: float, tail: float) -> float:
        """The same as if memory took no time."""
        clocks = looped + tail + TILE_CLOCKS
        staged, within = self.staged(tile) if self.whole(tile, loop, looped) else 0, clocks + REUSED_CLOCKS
        beside = self.waiting(tile, loop, looped, clocks, 0.0, staged)
        return min(beside, self.waiting(tile, loop, looped, within, 0.0, 0)) if staged else beside

    def row_of(self, tile: WgmmaTile) -> int:
        """Bytes of the rows in which B's numbers lie along N."""
        cut = tile.n.run or tile.n.box.cut[tile.n.unit(B, self.size) or 0]
        return swizzle_dividing(cut * self.size)

    def staged(self, tile: WgmmaTile) -> int:
        """Bytes of a staged tile of D."""
        return tile.m.box.size * tile.n.box.size * self.size_d

    def waiting(self, tile: WgmmaTile, loop: Loop, looped: float, clocks: float, memory: float, staged: int) -> float:
        """A tile's `clocks` and those that products wait for loads; infinite where fewer than two stages fit.

        `memory` is the share of time that it takes, `staged` the bytes beside the stages.
        """
        rows, bn, bk = tile.shape
        stages = min(MOST_STAGES, (self.facts.smem_per_block - staged) // ((rows + bn) * bk * self.size))
        if stages < 2:
            return math.inf
        steps = looped / loop.clocks
        late = LOAD_CLOCKS + MEMORY_CLOCKS * memory - (stages - 1) * clocks / steps
        return (clocks + max(0.0, late) * steps / stages) * (TWO_STAGES if stages == 2 else 1.0)

    def whole(self, tile: WgmmaTile, loop: Loop, looped: float) -> bool:
        """Whether a tile's sums take all of K: those of slices are not staged."""
        return looped > 0.99 * tile.k.tiles * loop.clocks

    def splits(self, tile: WgmmaTile, tiles: int) -> list[int]:
        """Slices of K that are tried: tiles take so long that whole waves are worth a few more partial sums."""
        count, k_tiles = self.facts.sm_count, tile.k.tiles
        if tiles > count or k_tiles < 8:
            return [1]
        return even_splits((min(t // tiles, k_tiles // 4) for t in (count // 2, count, 2 * count, 3 * count)), k_tiles)

    def by_vectors(self, tile: WgmmaTile) -> float:
        """Factor on the time of a tile that was to leave by a tensor map, where there is none."""
        tiles, _ = self.grid(tile)
        looped, left = tile.k.tiles * self.loop(tile, tiles).clocks, self.memory_clocks(tile) * self.share_of_d
        left *= WAITED
        tail = self.staging(tile).clocks + TILE_CLOCKS
        return (looped + left + tail) / (max(looped, left) + tail)

    def memory_clocks(self, tile: WgmmaTile) -> float:
        """Clocks of a multiprocessor that memory takes for a tile's share of all bytes."""
        tiles, at_once = self.grid(tile)
        traffic = self.traffic(tile, self.staging(tile))
        return traffic.dram_us * self.facts.clock_ghz * 1e3 / max(1.0, tiles / at_once)
