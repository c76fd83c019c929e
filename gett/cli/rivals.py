"""What else could compute the same einsum here: the installed libraries, each as a call to time.

Every rival writes or returns a C-contiguous result, as gett does. All are optional; one that is missing or fails is
left out, with its reason. Networks go by each library's own path, with no limit on intermediates.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gett.cli.problem import Problem

# numpy.einsum's own default keeps intermediates below the largest operand, and takes a network all at once where it
# cannot: hours instead of milliseconds.
GREEDY = ("greedy", 1 << 62)

Call = Callable[[], Any]
Prepare = Callable[[Problem, Sequence[Any], Any, str | None], Call]


def find_rivals(
    problem: Problem, operands: Sequence[Any], out: Any, precision: str | None, *, gpu: bool
) -> tuple[dict[str, Call], dict[str, str]]:
    """Rivals that work for this problem, by name, and the reasons of those that do not.

    Args:
        problem: What to compute.
        operands: NumPy arrays, or CuPy arrays where `gpu`.
        out: A result array that rivals may overwrite.
        precision: As given to gett; rivals follow where they can.
        gpu: Which rivals.
    """
    calls: dict[str, Call] = {}
    reasons: dict[str, str] = {}
    for name, prepare in (_GPU_RIVALS if gpu else _CPU_RIVALS).items():
        try:
            call = prepare(problem, operands, out, precision)
            call()
        # A rival may fail in ways of its own (its library, its driver calls); the comparison goes on without it.
        except Exception as error:
            reasons[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            calls[name] = call
    return calls, reasons


def _numpy_einsum(problem: Problem, operands: Sequence[Any], out: Any, precision: str | None) -> Call:
    return lambda: np.ascontiguousarray(np.einsum(problem.subscripts, *operands, optimize=GREEDY))


def _opt_einsum(problem: Problem, operands: Sequence[Any], out: Any, precision: str | None) -> Call:
    contract = importlib.import_module("opt_einsum").contract
    return lambda: np.ascontiguousarray(contract(problem.subscripts, *operands))


def _cupy_einsum(problem: Problem, operands: Sequence[Any], out: Any, precision: str | None) -> Call:
    cupy = importlib.import_module("cupy")
    return lambda: cupy.ascontiguousarray(cupy.einsum(problem.subscripts, *operands, optimize=GREEDY))


def _torch_einsum(problem: Problem, operands: Sequence[Any], out: Any, precision: str | None) -> Call:
    torch = importlib.import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    tensors = [torch.from_dlpack(x) for x in operands]
    stream = torch.cuda.ExternalStream(importlib.import_module("cupy").cuda.get_current_stream().ptr)

    def call() -> Any:
        # On CuPy's stream, whose events time it.
        with torch.cuda.stream(stream):
            return torch.einsum(problem.subscripts, *tensors).contiguous()

    return call


def _cutensor(algorithm: str) -> Prepare:
    def prepare(problem: Problem, operands: Sequence[Any], out: Any, precision: str | None) -> Call:
        a, b = operands
        library = importlib.import_module("gett.baselines.cutensor").CuTensor()
        plan = library.plan(problem.subscripts, a, b, out, algorithm=algorithm, precision=precision)
        return lambda: plan(a, b, out)

    return prepare


def _ttgt(problem: Problem, operands: Sequence[Any], out: Any, precision: str | None) -> Call:
    a, b = operands
    cupy = importlib.import_module("cupy")
    ttgt = importlib.import_module("gett.baselines.ttgt").Ttgt(problem.subscripts, a, b, cupy)
    return lambda: ttgt(a, b, out)


_CPU_RIVALS: dict[str, Prepare] = {"numpy.einsum": _numpy_einsum, "opt_einsum": _opt_einsum}
_GPU_RIVALS: dict[str, Prepare] = {
    "cupy.einsum": _cupy_einsum,
    "torch.einsum": _torch_einsum,
    "cuTENSOR default": _cutensor("DEFAULT"),
    "cuTENSOR GETT": _cutensor("GETT"),
    "transpose + cuBLAS": _ttgt,
}
