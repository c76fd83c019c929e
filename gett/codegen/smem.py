"""The struct `Smem` of a GEMM kernel: where the parts of its shared memory lie, as the schedule worked it out.

Prints a `SmemPlan` and computes nothing but the distance of two staging buffers. Kernels assert that their parts fit.
"""

from __future__ import annotations

from gett.schedule.spec.mainloop import Multistage
from gett.schedule.spec.schedule import Schedule


def smem_struct(schedule: Schedule) -> str:
    """Offsets of the parts from the start of a block's shared memory, and the bytes of all."""
    s = schedule.smem
    if isinstance(schedule.mainloop, Multistage):
        parts = {"kStaging": s.staging, "kKTable": s.k_table, "kOffsets": s.offsets}
    else:
        buffers = schedule.hopper.warpgroups if schedule.hopper.ping_pong else 1
        parts = {
            "kStationary": s.stationary,
            "kPlanes": s.planes,
            "kStaging": s.staging,
            "kStagingPitch": (s.barriers - s.staging) // buffers,
            "kBarriers": s.barriers,
            "kGather": s.loaders,
        }
    places = ", ".join(f"{name} = {value}" for name, value in {"kStages": s.stages, **parts}.items())
    return f"struct Smem {{\n  static constexpr int kSize = {s.size}, {places};\n}};\n"
