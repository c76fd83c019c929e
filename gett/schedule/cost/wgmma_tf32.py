"""The cost model of the main loop on TF32 with A in registers: products, the port of shared memory, copies."""

from __future__ import annotations

from gett.ir.gemm import A, B
from gett.schedule.cost.wgmma import Loop, WgmmaCost
from gett.schedule.tile.wgmma_tile import WgmmaTile


def transposition_replays(swizzle: int, deep: int) -> tuple[int, int]:
    """How often the loads and the stores of B transposed are served.

    Args:
        swizzle: Bytes of a row of B.
        deep: K of a k-tile.
    """
    return {128: 1 if deep % 16 == 0 else 2, 64: 2}.get(swizzle, 4), 1


class WgmmaTf32Cost(WgmmaCost):
    """Estimates for one plan."""

    streams = False  # what is loaded goes through registers

    def loop(self, tile: WgmmaTile, tiles: int) -> Loop:
        """What a k-tile takes, by the unit that takes longest."""
        rates = self.device.wgmma.loop
        rows, bn, bk = tile.shape
        math_clocks = rows * bn * bk / self.lanes / rates.peak_share
        # Both operands come in, A is loaded once, B is read for every 64 rows; what is transposed is loaded and stored.
        port = rows + bn + rows + bn * (rows / 64)
        if self.k_unit[B] is None:
            swizzle = tile.n.atom * self.size if tile.n.run else self.rows(B, tile.n, tile.k)[1]
            port += bn * sum(transposition_replays(swizzle, bk))
        smem_clocks = port * bk * self.size / rates.smem_bytes_per_clock / rates.peak_share
        drawn = engine = 0.0
        for tensor, side, shared, reads in (
            (A, tile.a, tile.cluster[1], tile.n.box.tiles),
            (B, tile.n, tile.cluster[0], tile.m.box.tiles),
        ):
            copy, moved = self.clocks(tensor, side, tile.k, shared, reads)
            drawn, engine = drawn + copy, engine + moved
        units = {"tensor cores": math_clocks, "shared memory": smem_clocks, "L2": drawn}
        slowest = max(units, key=lambda name: units[name])
        return Loop(units[slowest] * self.in_step(tile), slowest, engine, 0.0)
