"""The cost model of float64 and complex128 by tensor map: products, the port of shared memory, copies.

A tile of 128 x 128 takes 128 clocks a k of the tensor cores, of 128 multiply-adds each. The port of shared memory moves
128 bytes a clock: what the copies bring takes 16 clocks a k, the rows of A that each warp reads once take 8, the
columns of B that each of eight warps reads take 64. So the tensor cores limit; in tiles of 256 x 64 the port takes 68
clocks. Nothing here has been timed.

Complex numbers take four products of what is read twice, so the tensor cores limit in smaller tiles already.
"""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.wgmma import Loop, WgmmaCost
from gett.schedule.spec.mainloop import DmmaTma
from gett.schedule.tile.wgmma_tile import WgmmaTile
from layouts.swizzle import swizzle_dividing

WARPS = 4 * DmmaTma.warpgroups
OVERLAP = 4  # exponent of the norm in which the clocks of the units add up


def fragment_replays(major: str, swizzle: int) -> int:
    """How often the loads of an operand's fragments are served, by the group along its rows and their swizzle."""
    return {16: 4, 32: 2}.get(swizzle, 1) if major == "k" else 1


class DmmaTmaCost(WgmmaCost):
    """Estimates for one plan."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        super().__init__(plan, facts)
        self.shallow_share = 0.0  # 16 k take as long as 256 of 16-bit types

    def loop(self, tile: WgmmaTile, tiles: int) -> Loop:
        """What a k-tile takes, by the unit that takes longest."""
        rates = self.device.wgmma.loop
        rows, bn, bk = tile.shape
        math_clocks = rows * bn * bk * self.plan.contraction.real_products / self.lanes
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
        smem_clocks = port * bk * self.size / rates.smem_bytes_per_clock
        units = {"tensor cores": math_clocks, "shared memory": smem_clocks, "L2": drawn}
        clocks = sum(x**OVERLAP for x in units.values()) ** (1 / OVERLAP) / rates.peak_share
        return Loop(clocks * self.in_step(tile), max(units, key=lambda name: units[name]), engine, 0.0)
