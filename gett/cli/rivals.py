"""What else could compute the same einsum here: the rivals of the common list that work, each as a call to time.

Every rival writes or returns a C-contiguous result, as gett does. One that is missing or fails is left out, with its
reason. Networks go by each library's own path, with no limit on intermediates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.rivals.table import ON_CPU, ON_GPU, Libraries, Setting, in_c_order
from gett.cli.problem import Problem

GPU_RIVALS = ("cupy.einsum", "torch.einsum", "cutensor:DEFAULT", "cutensor:GETT", "ttgt")


def find_rivals(
    problem: Problem,
    operands: Sequence[Any],
    out: Any,
    precision: str | None,
    *,
    gpu: bool,
    libraries: Libraries | None = None,
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """Rivals that work for this problem, by name, and the reasons of those that do not.

    Args:
        problem: What to compute.
        operands: NumPy arrays, or CuPy arrays where `gpu`.
        out: A result array that rivals may overwrite.
        precision: As given to gett; rivals follow where they can.
        gpu: Which rivals.
        libraries: Those of `math_mode`, where it is used.
    """
    setting = Setting(problem.subscripts, problem.dtype, precision, [(*operands, out)], libraries or Libraries())
    known = {name: ON_GPU[name] for name in GPU_RIVALS} if gpu else ON_CPU
    calls: dict[str, Callable[[], Any]] = {}
    reasons: dict[str, str] = {}
    for name, prepare in known.items():
        try:
            call = _in_order(prepare(setting))
            call()
        # A rival may fail in ways of its own (its library, its driver calls); the comparison goes on without it.
        except Exception as error:
            reasons[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            calls[name] = call
    return calls, reasons


def _in_order(call: Callable[[int], Any]) -> Callable[[], Any]:
    return lambda: in_c_order(call(0))
