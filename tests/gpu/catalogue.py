"""The catalogue of kernels on the GPU at hand: its kernels by family, compiled on all processors, run exactly."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from tests.gpu.support import Problem, compile_all, compiles_well, device_facts, needs_hopper, run_case
from tests.specs import Spec, specs


def problem_of(spec: Spec) -> Problem:
    """What a kernel computes."""
    return Problem(spec.case, spec.dtype, spec.plan.contraction.precision, spec.c)


@cache
def kernels(family: str, dtype: str = "") -> tuple[Spec, ...]:
    """The kernels of a family for this GPU, one of every combination of parts."""
    needs_hopper()
    out: dict[object, Spec] = {}
    for spec in specs(family, device_facts().planning, dtype):
        out.setdefault((spec.case, spec.c, spec.dtype, spec.parts), spec)
    return tuple(out.values())


def good(found: Iterable[Spec]) -> list[Spec]:
    """Those whose registers suffice, which all but a few must."""
    every = list(found)
    compile_all((problem_of(spec), spec.schedule) for spec in every)
    kept = [spec for spec in every if compiles_well(problem_of(spec), spec.schedule)]
    assert len(kept) >= len(every) - 1 - len(every) // 10
    assert kept
    return kept


def run_spec(cupy: Any, spec: Spec, **scalars: Any) -> None:
    """Run a kernel and compare every element; C is added with factors unless others are asked for."""
    usual = {"alpha": 2, "beta": 3} if spec.c is not None else {}
    run_case(cupy, problem_of(spec), spec.schedule, **{**usual, **scalars})
