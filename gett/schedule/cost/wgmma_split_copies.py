"""The cost model of planes whose operands come by `cp.async`: what the copies add to what planes take."""

from __future__ import annotations

from dataclasses import replace

from gett.ir.gemm import A, B, D
from gett.schedule.cost.estimate import Estimate
from gett.schedule.cost.staging import Staging
from gett.schedule.cost.traffic import Traffic
from gett.schedule.cost.wgmma import Loop
from gett.schedule.cost.wgmma_split import WgmmaSplitCost
from gett.schedule.spec.hopper_needs import parts, up
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile
from layouts.rates import L2_LINE

COPY_CLOCKS, LINE_CLOCKS = 8.0, 4.0
"""Clocks of a multiprocessor that a warp's copies take, and for each line of L2 that they touch."""

BESIDE = 1.25
"""Factor for what copies take of the warps that split: seen on an H200, 1.05 to 1.35."""


SLICED = 1.2
"""Factor where K of real numbers is in slices: seen on an H200, 1.0 to 1.9; of complex ones 0.8 to 1.5."""


class WgmmaSplitCopyCost(WgmmaSplitCost):
    """Estimates for one plan."""

    def estimate(self, tile: WgmmaTile) -> Estimate:
        """Expected time of a tile."""
        found = super().estimate(tile)
        sliced = found.split_k > 1 and parts(self.plan) == 1
        return replace(found, us=found.us * SLICED) if sliced else found

    def moved(self, tile: WgmmaTile) -> list[tuple[int, OperandTiling, int]]:
        """Those by tensor map."""
        return [x for x in super().moved(tile) if not tile.runs[x[0]]]

    def loop(self, tile: WgmmaTile, tiles: int) -> Loop:
        """What a k-tile takes: of the tensor cores and of shared memory as ever, or of the copies."""
        found = super().loop(tile, tiles)
        copied = 0.0
        for tensor, side, vector in ((A, tile.m, tile.runs[0]), (B, tile.n, tile.runs[1])):
            if vector:
                warps = up(side.box.size, 8) * tile.shape[2] / vector / 32
                run, _ = self.run(tensor, side, tile.k, self.plan.k)
                lines = 32 * vector * self.size / min(run, L2_LINE)
                copied += warps * (COPY_CLOCKS + LINE_CLOCKS * lines)
        return found if found.clocks >= copied else Loop(copied, "copies", 0.0, 0.0)

    def traffic(self, tile: WgmmaTile, staging: Staging) -> Traffic:
        """What a tile's runs make of the tensors' way through device memory."""
        of, k = self.bytes, self.plan.k
        bytes_ = of[A] * self.cost(A, tile.m, tile.k, k) + of[B] * self.cost(B, tile.n, tile.k, k)
        bytes_ += of[D] * self.cost(D, tile.m, tile.n.box, tile.n.modes, staging.bulk)
        return Traffic(bytes_ / self.device.memory.copy_tbps * 1e-6, 0.0)

    def factor(self, tile: WgmmaTile, tiles: int, k_tiles: int = 0) -> float:
        """Factor on the time for padding, dimensions and warps that wait for each other."""
        return BESIDE * super().factor(tile, tiles, k_tiles)
