"""From a request to a `ContractionPlan`: parse, find the path, plan each step, choose its executor.

Owns the sequence of the passes; each pass lives in its own module. Knows no user arrays, only their descriptions.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np

from gett.contraction_plan import ContractionPlan, Executable, PlanRequest, Step
from gett.frontend.build import address, address_c, choose_order, make_contraction, resolve_extents
from gett.frontend.contraction import Contraction, Operand
from gett.frontend.parser import Subscripts, parse
from gett.frontend.tensors import (
    ALIGNMENT_LIMIT,
    TensorSpec,
    converted,
    dense_strides,
    promote,
    resolve_precision,
)
from gett.network import AUTOTUNE, PathStep, check_optimize, find_steps
from gett.plan import GemmPlan, itemsize, make_gemm_plan
from gett.plan_cache import plan_cache
from gett.schedule.records import Schedule


def find_plan(request: PlanRequest) -> ContractionPlan:
    """The plan of a request, from the plan cache where it is there."""
    try:
        found = plan_cache.get(request)
    except TypeError:  # a path function that cannot be hashed, or a bad option, which planning names
        return make_plan(request)
    if found is None:
        found = plan_cache.put(request, make_plan(request))
    plan: ContractionPlan = found
    return plan


def make_plan(request: PlanRequest) -> ContractionPlan:
    """Plan a contraction from descriptions alone.

    Raises:
        SubscriptsError, ShapeError, DTypeError, OutputError, PrecisionError, OptionError: The request is at fault.
        ScheduleError, CompileError: No kernel can be made for it.
    """
    subscripts = parse(request.spec, [len(t.shape) for t in request.operands])
    out_shape = None if request.out is None else request.out.shape
    extents = resolve_extents(subscripts, [t.shape for t in request.operands], out_shape)
    named = [] if request.c is None else [("c", request.c)]
    dtype = promote(request.operands, named, request.out, request.dtype, request.casting)
    precision = resolve_precision(request.precision, dtype)
    order = choose_order(request.order, request.operands)
    check_optimize(request.optimize)

    d = _describe_result(request, subscripts, extents, dtype, order)
    d_operand = address(subscripts.output, d, extents)
    c_operand = None if request.c is None else address_c(subscripts.output, _as_read(request.c, dtype), extents)
    sources = [
        address(modes, _as_read(t, dtype), extents)
        for modes, t in zip(subscripts.inputs, request.operands, strict=True)
    ]
    info = None
    steps: tuple[Step, ...] = ()
    if 0 not in extents:
        if len(sources) <= 2:
            path: tuple[PathStep, ...] = (PathStep(tuple(range(len(sources))), len(sources), subscripts.output),)
        else:
            sources = _drop_constant(sources)
            memory = [sorted(o.modes, key=lambda m, o=o: -abs(o.stride(m))) for o in sources]  # type: ignore[misc]
            path, info = find_steps([o.modes for o in sources], subscripts.output, extents, memory, request.optimize)
        build = partial(make_contraction, subscripts.names, extents, dtype=dtype, precision=precision)
        parts = _contractions(path, sources, d_operand, c_operand, extents, build)
        steps = tuple(_plan_step(part, request) for part in parts)
    return ContractionPlan(request, str(subscripts), steps, info, d, order, _bind, find_plan)


def _describe_result(
    request: PlanRequest, subscripts: Subscripts, extents: tuple[int, ...], dtype: np.dtype[Any], order: str
) -> TensorSpec:
    """What the last step writes: `out` in its own strides, or a new array where there is none of this dtype."""
    if request.out is not None and request.out.dtype == dtype:
        return request.out
    shape = tuple(extents[m] for m in subscripts.output)
    return TensorSpec(shape, dense_strides(shape, dtype.itemsize, order), dtype, _new_alignment(request))


def _new_alignment(request: PlanRequest) -> int:
    return 1 if request.arch == "cpu" else ALIGNMENT_LIMIT


def _as_read(tensor: TensorSpec, dtype: np.dtype[Any]) -> TensorSpec:
    return tensor if tensor.dtype == dtype else converted(tensor, dtype)


def _drop_constant(operands: list[Operand]) -> list[Operand]:
    """Operands without the modes of stride 0: along them a path need not see them.

    A mode along which no operand varies stays with the first that has it: it still counts in sums and in the result.
    """
    held = {m for o in operands for m, s in zip(o.modes, o.strides, strict=True) if s}
    result = []
    for o in operands:
        kept = [(m, s) for m, s in zip(o.modes, o.strides, strict=True) if s or m not in held]
        held.update(m for m, _ in kept)
        result.append(Operand(tuple(m for m, _ in kept), tuple(s for _, s in kept), o.dtype, o.alignment))
    return result


def _contractions(
    path: tuple[PathStep, ...],
    sources: list[Operand],
    d: Operand,
    c: Operand | None,
    extents: tuple[int, ...],
    build: Any,
) -> list[tuple[PathStep, Contraction]]:
    """The contraction of each step; intermediates are dense in the mode order that the path gives them."""
    tensors = dict(enumerate(sources))
    result = []
    for step in path:
        last = step is path[-1]
        if last:
            target = d
        else:
            shape = [extents[m] for m in step.modes]
            strides = dense_strides(shape, itemsize(d.dtype))
            target = Operand(step.modes, strides, d.dtype, d.alignment)
        tensors[step.output] = target
        second = tensors[step.inputs[1]] if len(step.inputs) == 2 else None
        result.append((step, build(tensors[step.inputs[0]], second, target, c if last else None)))
    return result


def _plan_step(part: tuple[PathStep, Contraction], request: PlanRequest) -> Step:
    step, contraction = part
    gemm = make_gemm_plan(contraction)
    schedule: Schedule | None = None
    executable: Executable | None = None
    if request.device is not None:
        tuned = request.optimize == AUTOTUNE and request.arch != "cpu"
        executable = _tune(gemm, request.arch) if tuned else _build_executable(gemm, request.arch, None)
        schedule = getattr(executable, "schedule", None)
    elif request.arch != "cpu":
        from gett.schedule.select import select_schedule

        schedule = select_schedule(gemm, request.arch)
    sides = contraction.spell(contraction.a)
    if contraction.b is not None:
        sides += "," + contraction.spell(contraction.b)
    name = f"{sides}->{contraction.spell(contraction.d)}"
    return Step(name, step.inputs, step.output, gemm, schedule, executable)


def _tune(gemm: GemmPlan, arch: str) -> Executable:
    """What was measured to run one plan fastest on the current device; measured now if it never was."""
    from gett.tune.autotune import tuned_executable
    from gett.tune.store import signature

    executable = tuned_executable(gemm, arch)
    drop_plans({signature(gemm)}, tuned=False)
    return executable


def drop_plans(signatures: Collection[str], *, tuned: bool) -> int:
    """Forget the cached plans that have a step of one of these signatures, so that the next call finds the store.

    Args:
        signatures: As `gett.tune.store.signature` gives them.
        tuned: Also those whose step was tuned before.
    """
    from gett.tune.store import signature

    def affected(step: Step) -> bool:
        built = step.executable
        if built is None or step.schedule is None or (not tuned and getattr(built, "measured", None) is not None):
            return False
        return signature(step.gemm) in signatures

    return plan_cache.discard(lambda plan: any(affected(s) for s in plan.steps))


def _build_executable(gemm: GemmPlan, arch: str, schedule: Schedule | None) -> Executable:
    """What runs one plan on the current device."""
    if arch == "cpu":
        from gett.cpu import NumpyExecutable

        cpu: Executable = NumpyExecutable(gemm)
        return cpu
    if schedule is not None:
        from gett.runtime.executable import build_executable

        return build_executable(gemm, arch, schedule)
    from gett.tune.recall import build_remembered

    gpu = build_remembered(gemm, arch)
    assert gpu is not None
    return gpu


def _bind(plan: ContractionPlan) -> tuple[Executable, ...]:
    return tuple(_build_executable(s.gemm, plan.arch, s.schedule) for s in plan.steps)
