"""The table of main loops: what generic code asks of a schedule's."""

from __future__ import annotations

from gett.ir.gemm import GemmPlan
from gett.schedule.mainloops.dmma_tma import DMMA_TMA
from gett.schedule.mainloops.hopper import HopperKind
from gett.schedule.mainloops.kind import MainloopKind
from gett.schedule.mainloops.multistage import MULTISTAGE
from gett.schedule.mainloops.stream import STREAM_MAP, STREAM_MATRIX, STREAM_SUM
from gett.schedule.mainloops.wgmma_rs import WGMMA_RS
from gett.schedule.mainloops.wgmma_split import WGMMA_SPLIT
from gett.schedule.mainloops.wgmma_ss import WGMMA_SS
from gett.schedule.mainloops.wgmma_tf32 import WGMMA_TF32
from gett.schedule.spec.mainloop import (
    DmmaTma,
    Multistage,
    StreamMap,
    StreamMatrix,
    StreamSum,
    WgmmaRS,
    WgmmaSplit,
    WgmmaSS,
    WgmmaTf32,
)
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.smem import SmemPlan

HOPPER_KINDS: dict[type, HopperKind] = {
    WgmmaSS: WGMMA_SS,
    WgmmaRS: WGMMA_RS,
    WgmmaSplit: WGMMA_SPLIT,
    WgmmaTf32: WGMMA_TF32,
    DmmaTma: DMMA_TMA,
}
"""Those in which some warpgroups fetch and others multiply."""

KINDS: dict[type, MainloopKind] = {
    Multistage: MULTISTAGE,
    **HOPPER_KINDS,
    StreamMap: STREAM_MAP,
    StreamSum: STREAM_SUM,
    StreamMatrix: STREAM_MATRIX,
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
