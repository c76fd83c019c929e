"""From plan and schedule to `Kernel`: hands each family of main loops to its own module."""

from __future__ import annotations

from collections.abc import Callable

from gett.codegen.hopper import render_hopper
from gett.codegen.multistage import render_multistage
from gett.codegen.packed import render_packed
from gett.codegen.ragged import with_ends
from gett.codegen.records import Kernel
from gett.codegen.stream import render_stream, render_stream_matrix
from gett.codegen.tma import tensor_maps
from gett.ir.gemm import GemmPlan
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops.table import HOPPER_KINDS
from gett.schedule.spec.mainloop import Multistage, StreamMap, StreamMatrix, StreamSum
from gett.schedule.spec.schedule import Schedule

_RENDER: dict[type, Callable[[GemmPlan, Schedule], Kernel]] = {
    Multistage: render_multistage,
    **dict.fromkeys(HOPPER_KINDS, render_hopper),
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
    made = _RENDER[type(schedule.mainloop)](lower_plan(plan, schedule.tiling, schedule.precision), schedule)
    return with_ends(made, tensor_maps(schedule)) if schedule.scheduler.ragged else made
