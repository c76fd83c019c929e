"""From plan and schedule to `Kernel`: hands each main loop to its own module."""

from __future__ import annotations

from collections.abc import Callable

from gett.codegen.dmma_tma import render_dmma_tma
from gett.codegen.multistage import render_multistage
from gett.codegen.packed import render_packed
from gett.codegen.records import Kernel
from gett.codegen.stream import render_stream
from gett.codegen.stream_matrix import render_stream_matrix
from gett.codegen.wgmma_kernel import render_wgmma_ss
from gett.codegen.wgmma_rs import render_wgmma_rs
from gett.codegen.wgmma_split import render_wgmma_split
from gett.codegen.wgmma_tf32 import render_wgmma_tf32
from gett.ir.gemm import GemmPlan
from gett.schedule.lower import lower_plan
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

_RENDER: dict[type, Callable[[GemmPlan, Schedule], Kernel]] = {
    Multistage: render_multistage,
    WgmmaSS: render_wgmma_ss,
    WgmmaRS: render_wgmma_rs,
    WgmmaSplit: render_wgmma_split,
    WgmmaTf32: render_wgmma_tf32,
    DmmaTma: render_dmma_tma,
    StreamMap: render_stream,
    StreamSum: render_stream,
    StreamMatrix: render_stream_matrix,
}


def render_kernel(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel that runs `plan` by `schedule`.

    Raises:
        ScheduleError: A limit of the generated code is exceeded; the text names it.
    """
    if schedule.packing is not None:
        return render_packed(plan, schedule, render_kernel)
    return _RENDER[type(schedule.mainloop)](lower_plan(plan, schedule.tiling, schedule.precision), schedule)
