"""The kernel that multiplies planes: its instruction, and which planes are multiplied.

The pipeline is `gett/kernels/mainloop/wgmma_split.cuh`; the rest of the text is `wgmma_kernel`'s.
"""

from __future__ import annotations

from gett.codegen.records import Kernel
from gett.codegen.wgmma_atom import wgmma_planes_struct
from gett.codegen.wgmma_kernel import Pipeline, render_pipeline, stage_loads
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.wgmma_needs import planes


def render_wgmma_split(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel of a lowered plan whose operands are multiplied in planes."""
    made = planes(plan)
    assert made is not None
    wgmma = wgmma_planes_struct(made.tensor, schedule.tiling.shape[1], schedule.wgmma.b.major)
    return render_pipeline(plan, schedule, Pipeline("wgmma_split", "WgmmaSplit", stage_loads, wgmma))
