"""The table of main loops: what generic code asks of a schedule's."""

from __future__ import annotations

from gett.ir.gemm import GemmPlan
from gett.schedule.mainloops import dmma_tma, multistage, stream, wgmma_rs, wgmma_split, wgmma_ss, wgmma_tf32
from gett.schedule.mainloops.hopper import HopperKind
from gett.schedule.mainloops.kind import MainloopKind
from gett.schedule.spec import mainloop
from gett.schedule.spec.schedule import Schedule, SmemPlan

HOPPER_KINDS: dict[type, HopperKind] = {
    mainloop.WgmmaSS: wgmma_ss.WGMMA_SS,
    mainloop.WgmmaRS: wgmma_rs.WGMMA_RS,
    mainloop.WgmmaSplit: wgmma_split.WGMMA_SPLIT,
    mainloop.WgmmaTf32: wgmma_tf32.WGMMA_TF32,
    mainloop.DmmaTma: dmma_tma.DMMA_TMA,
}
"""Those in which some warpgroups fetch and others multiply."""

KINDS: dict[type, MainloopKind] = {
    mainloop.Multistage: multistage.MULTISTAGE,
    **HOPPER_KINDS,
    mainloop.StreamMap: stream.STREAM_MAP,
    mainloop.StreamSum: stream.STREAM_SUM,
    mainloop.StreamMatrix: stream.STREAM_MATRIX,
}
"""All main loops."""


def kind_of(schedule: Schedule) -> MainloopKind:
    """What a schedule's main loop is."""
    return KINDS[type(schedule.mainloop)]


def hopper_kind(schedule: Schedule) -> HopperKind:
    """The same of a Hopper kernel."""
    return HOPPER_KINDS[type(schedule.hopper)]


def smem_plan(schedule: Schedule, plan: GemmPlan) -> SmemPlan:
    """Where the parts of shared memory lie for a schedule's other parts and a lowered plan."""
    return kind_of(schedule).smem(schedule, plan)
