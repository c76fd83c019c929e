"""The struct `Smem` of a GEMM kernel: where the parts of its shared memory lie, as the schedule worked it out.

Prints a `SmemPlan` and computes nothing but the distance of two staging buffers. Kernels assert that their parts fit.
"""

from __future__ import annotations

from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.smem import SmemPlan


def smem_struct(s: SmemPlan, more: dict[str, int]) -> str:
    """Offsets from the start of a block's shared memory, and the bytes of all; `more` are those of some kernels."""
    parts = {"kStages": s.stages, **more}
    places = ", ".join(f"{name} = {value}" for name, value in parts.items())
    return f"struct Smem {{\n  static constexpr int kSize = {s.size}, {places};\n}};\n"


def multistage_smem_struct(schedule: Schedule) -> str:
    """That of a block whose warps all fill and multiply."""
    s = schedule.smem
    return smem_struct(s, {"kStaging": s.staging, "kKTable": s.k_table, "kOffsets": s.offsets})


def hopper_smem_struct(schedule: Schedule) -> str:
    """That of a Hopper kernel, which has the distance of its staging buffers, too."""
    s, loop = schedule.smem, schedule.hopper
    parts = {
        "kStationary": s.stationary,
        "kPlanes": s.planes,
        "kStaging": s.staging,
        "kStagingPitch": (s.barriers - s.staging) // (loop.warpgroups if loop.ping_pong else 1),
        "kBarriers": s.barriers,
        "kGather": s.loaders,
    }
    return smem_struct(s, parts)
