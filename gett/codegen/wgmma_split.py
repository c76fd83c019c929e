"""The kernel that multiplies planes: its instruction, and which planes are multiplied.

The pipeline is `gett/kernels/mainloop/wgmma_split.cuh`; the rest of the text is `wgmma_kernel`'s.
"""

from __future__ import annotations

from gett.codegen.records import Kernel
from gett.codegen.wgmma_atom import wgmma_planes_struct
from gett.codegen.wgmma_kernel import Pipeline, render_pipeline, stage_loads
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.wgmma_needs import chunk_columns, planes


def render_wgmma_split(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel of a lowered plan whose operands are multiplied in planes."""
    made = planes(plan)
    assert made is not None
    loop = schedule.mainloop
    assert isinstance(loop, WgmmaSplit)
    chunks = chunk_columns(plan, loop, schedule.tiling.shape[1])
    wgmma = wgmma_planes_struct(made.tensor, sorted(set(chunks)), loop.b.major)
    return render_pipeline(plan, schedule, Pipeline("wgmma_split", "WgmmaSplit", stage_loads, wgmma))
