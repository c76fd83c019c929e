"""From plan and schedule to `Kernel`: hands each family to its own module."""

from __future__ import annotations

from gett.codegen.records import Kernel
from gett.codegen.render_common import REDUCE_THREADS, element_strides, strides_of
from gett.codegen.render_crossed import render_crossed
from gett.codegen.render_sm90 import render_sm90
from gett.codegen.render_stream import render_stream
from gett.codegen.render_tiled import render_tiled
from gett.ir.gemm import GemmPlan
from gett.schedule.realize import realize
from gett.schedule.records import Schedule

_FAMILIES = {"sm90": render_sm90, "sm80": render_tiled, "simt": render_tiled, "stream": render_stream}


def render_kernel(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel that runs `plan` by `schedule`.

    Raises:
        ScheduleError: A limit of the generated code is exceeded; the text names it.
    """
    crossed = schedule.roles is not None and schedule.roles.crossed is not None
    render = render_crossed if crossed else _FAMILIES[schedule.family]
    return render(realize(plan, schedule), schedule)


__all__ = ["REDUCE_THREADS", "element_strides", "render_kernel", "strides_of"]
