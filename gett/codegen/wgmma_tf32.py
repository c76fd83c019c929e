"""The kernel on TF32 with A in registers: its instruction.

The pipeline is `gett/kernels/mainloop/wgmma_tf32.cuh`; the rest of the text is `wgmma_kernel`'s.
"""

from __future__ import annotations

from gett.codegen.records import Kernel
from gett.codegen.wgmma_atom import wgmma_planes_struct
from gett.codegen.wgmma_kernel import Pipeline, render_pipeline, stage_loads
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.wgmma_needs import multiplied


def render_wgmma_tf32(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel of a lowered plan whose A is in registers and whose B, as wgmma reads it, has rows along K."""
    tensor = multiplied(plan)
    assert tensor is not None
    wgmma = wgmma_planes_struct(tensor, [schedule.tiling.shape[1]], "k")
    return render_pipeline(plan, schedule, Pipeline("wgmma_tf32", "WgmmaTf32", stage_loads, wgmma))
