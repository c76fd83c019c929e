"""`python -m gett explain`: plan a problem for any architecture and print the plan. Runs nothing."""

from __future__ import annotations

import gett
from gett.cli.device import find_place
from gett.cli.problem import Problem


def run_explain(problem: Problem, arch: str | None, precision: str | None) -> int:
    """Print the plan of a problem; returns the exit code.

    Args:
        problem: Shapes and dtype; no data is made.
        arch: `"sm_90a"`, `"sm_80"`, ..., `"cpu"`; None for what this machine has.
        precision: As `gett.plan` takes it.
    """
    specs = [(shape, problem.dtype) for shape in problem.shapes]
    print(gett.plan(problem.subscripts, *specs, precision=precision, arch=arch or find_place(None).arch))
    return 0
