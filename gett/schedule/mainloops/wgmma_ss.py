"""WgmmaSS: both operands in shared memory, by tensor maps or gathered; one of them may stay there."""

from __future__ import annotations

from dataclasses import replace

from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.mainloops import hopper
from gett.schedule.rules.gather import GATHER_RULES, ring_bytes, warp_pieces
from gett.schedule.rules.hopper import LOADER_RULES, whole_operands
from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.spec.hopper_needs import MOST_STAGES, MOST_STAGES_OF_ONE, up
from gett.schedule.spec.mainloop import Hopper, WgmmaSS
from gett.schedule.spec.schedule import Schedule, SmemPlan

# Registers of a thread that gathers and of one that multiplies, by the accumulators that a thread may have.
GATHER_REGISTERS = {96: (112, 144), 128: (96, 160)}
REGISTERS = 512  # of the four threads, one of each quarter of a multiprocessor, that lanes of a warpgroup share
PANEL_BARRIERS = 32  # bytes of the barriers of an operand that stays


def data_types(x: Lowered) -> Reasons:
    """Wgmma multiplies the operands' type as it comes, both out of shared memory."""
    yield from whole_operands(x, "ss")


def registers(plan: GemmPlan, loop: Hopper, columns: int) -> tuple[int, int]:
    """Of a thread that fetches and of one that multiplies a tile of `columns`."""
    return hopper.by_accumulators(GATHER_REGISTERS if loop.by_warps else {}, loop.mma_m * columns // 2)


def warpgroups(x: Lowered) -> Reasons:
    """The warpgroups share the registers of a multiprocessor; where they take turns there are two that multiply."""
    loop = x.s.hopper
    if loop.ping_pong and loop.warpgroups != 2:
        yield f"2 warpgroups take turns, not {loop.warpgroups}"
    fetching, multiplying = registers(x.plan, loop, x.s.tiling.shape[1])
    groups = loop.warpgroups + loop.producers
    needed, there = loop.producers * fetching + loop.warpgroups * multiplying, REGISTERS // groups // 8 * 8 * groups
    if needed > there:
        yield f"{groups} need {needed} registers a lane, there are {there}"


def stationary_bytes(name: str, rows: int, deep: int, tiles: int) -> int:
    """Shared memory for `tiles` k-tiles of operand `name`, whose rows take `deep` bytes of each.

    They follow each other without the room that instructions want behind a tile: what lies there is the next one.
    """
    return (tiles - 1) * up(up(rows, 8) * deep, hopper.ALIGN) + hopper.tile_bytes(name, rows, deep)


def smem(s: Schedule, plan: GemmPlan) -> SmemPlan:
    """Stages, the operand that stays, staged tiles, barriers, then buffers of gathering warps."""
    t, loop, size = s.tiling, s.loop(WgmmaSS), itemsize(plan.contraction.dtype)
    deep, warps = t.shape[2], 4 * loop.producers
    kept = ring = tables = 0
    for name, loader, side in hopper.operand_tiles(s):
        if loader.stays:
            # The rows of the next panel come while those of this one are read.
            buffers = 2 if s.scheduler.tensor and not s.scheduler.one_panel else 1
            row = hopper.row_bytes(loader, deep, size)
            kept += stationary_bytes(name, loader.rows(side), row, buffers * t.k.tiles)
        if loader.by_warps:
            pieces = warp_pieces(side, deep, loader, warps)
            ring += warps * loop.cp_async_stages * ring_bytes(pieces, loader, size)
            tables += 8 * pieces
    buffers = ring + warps * up(tables, 16)
    barriers = hopper.barrier_bytes(MOST_STAGES_OF_ONE) + PANEL_BARRIERS if kept else hopper.barrier_bytes(MOST_STAGES)
    second = 0
    if s.epilogue.store.exchange is not None:  # a second tile behind the staged one
        second, barriers = up(hopper.staging_bytes(s, plan), hopper.ALIGN), barriers + 16
    made = hopper.laid_out(s, plan, kept, second, barriers)
    if s.epilogue.store.reuse_mainloop_smem:
        return made
    loaders = made.barriers + hopper.barrier_bytes(loop.stages) if buffers else 0
    return replace(made, size=made.size + buffers, stationary=made.planes, planes=0, loaders=loaders)


WGMMA_SS = hopper.HopperKind(
    words="wgmma, both operands in shared memory",
    rules=hopper.hopper_rules(data_types, (*GATHER_RULES, *LOADER_RULES), warpgroups),
    smem=smem,
    registers=registers,
    fields={"kProducerWarpgroups": "producers", "kCpAsyncStages": "cp_async_stages"},
)
