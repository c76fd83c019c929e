"""Plans as plain data: dictionaries, lists, numbers and strings, for programs that read them as JSON.

Owns the names of the fields. Reads plans and schedules; decides nothing, and words nothing (`detail.py` does).
"""

from __future__ import annotations

from typing import Any

from gett.codec import encode
from gett.explain.detail import Plan
from gett.ir.gemm import GemmPlan
from gett.network.steps import Step


def plan_record(plan: Plan) -> dict[str, Any]:
    """A whole plan as data.

    Bytes and flops are the least that the contraction needs. `estimate_us` is the sum of what the cost model expects of
    the kernels, null where NumPy runs them. Each step has its groups, fastest mode first, with the byte strides of each
    tensor, and the schedule of its kernel with all fields of the record, null where NumPy runs it. `together` is the
    number of the launch that makes a step with others, whose kernel is then its own, null elsewhere. `operands` say
    in the order of the subscripts in which dtype each is read, and whether it is conjugated.
    """
    estimates = [s.forecast.us for s in plan.steps if s.forecast is not None]
    return {
        "subscripts": plan.subscripts,
        "arch": plan.arch,
        "shape": list(plan.shape),
        "dtype": plan.dtype.name,
        "flops": plan.flops,
        "bytes": plan.bytes,
        "intermediate_bytes": plan.intermediate_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "peak_bytes": plan.peak_bytes,
        "held_bytes": plan.held_bytes,
        "slices": plan.slices,
        "sliced": list(plan.sliced),
        "estimate_us": sum(estimates) if estimates else None,
        "path": [list(group) for group in plan.path],
        "steps": [_step(step) for step in plan.steps],
    }


def _step(step: Step) -> dict[str, Any]:
    gemm = step.gemm
    measured = getattr(step.executable, "measured", None)
    return {
        "subscripts": step.name,
        "inputs": list(step.inputs),
        "output": step.output,
        "class": gemm.shape_class(),
        "dtype": gemm.contraction.dtype,
        "precision": gemm.contraction.precision,
        "operands": [{"dtype": x.dtype, "conj": x.conj} for x in (gemm.contraction.a, gemm.contraction.b) if x],
        "epilogue": None if gemm.contraction.epilogue is None else str(gemm.contraction.epilogue),
        "swapped": gemm.swapped,
        "groups": _groups(gemm),
        "flops": gemm.flops,
        "bytes": gemm.bytes,
        "route": getattr(step.executable, "route", None),
        "schedule": encode(step.schedule),
        "together": None if step.together is None else step.together.number,
        "measured_us": None if measured is None else measured[0],
    }


def _groups(gemm: GemmPlan) -> dict[str, list[dict[str, Any]]]:
    """The modes of each group: the labels that are fused, slowest first, extent, byte strides by tensor."""
    names = gemm.contraction.names
    return {
        group: [
            {
                "labels": [names[label] for label in reversed(mode.labels) if isinstance(label, int)],
                "extent": mode.extent,
                "strides": {name: mode.strides[t] for name, t, _ in gemm.tensors},
            }
            for mode in modes
        ]
        for group, modes in (("l", gemm.l), ("m", gemm.m), ("n", gemm.n), ("k", gemm.k))
    }
