"""`python -m gett explain`: plan a problem for any architecture and print the plan. Runs nothing."""

from __future__ import annotations

import json
from typing import Any

import gett
from gett.cli.device import find_place
from gett.cli.problem import Problem
from gett.typing import Order, Precision


def run_explain(
    problem: Problem,
    arch: str | None,
    *,
    precision: Precision | None = None,
    optimize: Any = "auto",
    order: Order = "K",
    form: str | None = None,
) -> int:
    """Print the plan of a problem; returns the exit code.

    Args:
        problem: Shapes and dtype; no data is made.
        arch: `"sm_90a"`, `"sm_80"`, ..., `"cpu"`; None for what this machine has.
        precision: As `gett.plan` takes it; `optimize` and `order` likewise.
        optimize: How the path of a network is found.
        order: Memory order of the result.
        form: `"json"` for one line of JSON, `"detail"` for every part of every step, None for what `print` shows.
    """
    specs = [(shape, problem.dtype) for shape in problem.shapes]
    plan = gett.plan(
        problem.subscripts, *specs, precision=precision, optimize=optimize, order=order,
        arch=arch or find_place(None).arch,
    )  # fmt: skip
    if form == "json":
        print(json.dumps(plan.settle().to_dict(), allow_nan=False))
    else:
        print(plan.explain(detail=form == "detail"))
    return 0
