"""The kernel on float64 and complex128 by `mma.sync` and tensor maps.

The pipeline is `gett/kernels/mainloop/dmma_tma.cuh`; the rest of the text is `wgmma_kernel`'s.
"""

from __future__ import annotations

from gett.codegen.records import Kernel
from gett.codegen.wgmma_kernel import Pipeline, render_pipeline, stage_loads
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.mainloop import DmmaTma
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.wgmma_needs import parts
from gett.schedule.spec.wgmma_registers import dmma_step


def render_dmma_tma(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel of a lowered plan whose operands are multiplied as float64, or by such parts."""
    loop = schedule.mainloop
    assert isinstance(loop, DmmaTma)
    step = dmma_step(loop.mma_m, schedule.tiling.shape[1], parts(plan))
    pipeline = Pipeline("dmma_tma", "DmmaTma", stage_loads, "", f"gett::Dmma<{step}>")
    return render_pipeline(plan, schedule, pipeline)
