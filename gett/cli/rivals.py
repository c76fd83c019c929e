"""What else could compute the same einsum here: the rivals of the common list that work, each as a call to time.

The list is the benchmarks', which are beside gett in a clone and are not installed with it. Every rival writes or
returns a C-contiguous result, as gett does. One that is missing or fails is left out, with its reason. Networks go by
each library's own path, with no limit on intermediates.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gett
from gett.cli.problem import Problem
from gett.errors import MissingPackageError
from gett.typing import Precision

GPU_RIVALS = ("cupy.einsum", "torch.einsum", "cutensor:DEFAULT", "cutensor:GETT", "ttgt")


def rival_table() -> Any:
    """The module of the list, `benchmarks.rivals.table`. Another package of that name is not run.

    Raises:
        MissingPackageError: gett was installed without it.
    """
    folder = Path(gett.__file__).parents[1] / "benchmarks"
    spec = importlib.util.find_spec("benchmarks") if (folder / "rivals").is_dir() else None
    if spec is None or spec.origin is None or Path(spec.origin).parent != folder:
        raise MissingPackageError("rivals are timed in a clone of gett, where its folder benchmarks is")
    return importlib.import_module("benchmarks.rivals.table")


def cpu_rivals() -> tuple[str, ...]:
    """The names of the rivals on the CPU.

    Raises:
        MissingPackageError: As `rival_table`.
    """
    return tuple(rival_table().ON_CPU)


def find_rivals(
    problem: Problem,
    operands: Sequence[Any],
    out: Any,
    precision: Precision | None,
    *,
    gpu: bool,
    libraries: Any = None,
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
    table = rival_table()
    sets = [(*operands, out)]
    setting = table.Setting(problem.subscripts, problem.dtype, precision, sets, libraries or table.Libraries())
    known = {name: table.ON_GPU[name] for name in GPU_RIVALS} if gpu else table.ON_CPU
    calls: dict[str, Callable[[], Any]] = {}
    reasons: dict[str, str] = {}
    for name, prepare in known.items():
        try:
            call = _in_order(prepare(setting), table)
            call()
        # A rival may fail in ways of its own (its library, its driver calls); the comparison goes on without it.
        except Exception as error:
            reasons[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            calls[name] = call
    return calls, reasons


def prepare_cpu_rival(
    name: str, problem: Problem, operands: Sequence[Any], out: Any, precision: Precision | None
) -> Callable[[], Any]:
    """One rival on NumPy arrays, as a call that was not made yet."""
    table = rival_table()
    setting = table.Setting(problem.subscripts, problem.dtype, precision, [(*operands, out)], table.Libraries())
    return _in_order(table.ON_CPU[name](setting), table)


def _in_order(call: Callable[[int], Any], table: Any) -> Callable[[], Any]:
    return lambda: table.in_c_order(call(0))
