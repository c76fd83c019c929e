"""Host time of a call: warm calls of gett and its rivals, and the first call of a new plan in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.records import write_text
from benchmarks.timing import failure, host_time_us
from gett.console.formatting import format_table

# Small enough that the device is done before the host has queued the next call.
SHAPES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "64 x 64 matrices": ("mk,kn->mn", (64, 64), (64, 64)),
    "4-D": ("aebf,fdec->abcd", (8, 8, 8, 8), (8, 8, 8, 8)),
}

# A third operand makes them networks of two steps.
NETWORKS: dict[str, tuple[str, tuple[int, ...]]] = {
    "64 x 64 matrices": ("mk,kn,np->mp", (64, 64)),
    "4-D": ("aebf,fdec,cg->abgd", (8, 8)),
}

OWN = (
    "gett.einsum", "gett.einsum(out=d)", "gett.contract", "gett.contract(out=d)", "gett.contract(c=c)",
    "gett.contract(beta=1, out=d)", "gett.einsum of three", "gett.contract of three", "plan(a, b, out=d)",
)  # fmt: skip

# Time of the first call alone: imports and the CUDA context come before the clock starts.
_FIRST_CALL = """
import json, sys, time
import numpy
start = time.perf_counter()
import gett
imported = time.perf_counter() - start
subscripts, shape_a, shape_b, on_gpu = json.loads(sys.argv[1])
a, b = (numpy.random.default_rng(i).random(s, dtype="float32") for i, s in enumerate((shape_a, shape_b)))
finish = lambda: None
if on_gpu:
    import cupy
    a, b = cupy.asarray(a), cupy.asarray(b)
    finish = cupy.cuda.get_current_stream().synchronize
finish()
times = []
for _ in range(2):
    start = time.perf_counter()
    gett.einsum(subscripts, a, b)
    finish()
    times.append(time.perf_counter() - start)
print(json.dumps({"import_s": imported, "first_s": times[0], "second_s": times[1]}))
"""


def warm_calls(on_gpu: bool) -> dict[str, dict[str, float | str]]:
    """Host microseconds per warm call, by operand shape and rival; a rival that fails gives its text."""
    found: dict[str, dict[str, float | str]] = {}
    for title, (subscripts, shape_a, shape_b) in SHAPES.items():
        prepare = _gpu_calls if on_gpu else _cpu_calls
        calls, finish = prepare(subscripts, shape_a, shape_b, *NETWORKS[title])
        times: dict[str, float | str] = {}
        for name, make in calls.items():
            try:
                times[name] = host_time_us(make(), finish)
            except Exception as error:  # a rival that is missing or fails must not end the run
                times[name] = failure(error).error or "failed"
        found[title] = times
    return found


Prepared = dict[str, Callable[[], Callable[[], object]]]


def _gett_calls(subscripts: str, a: Any, b: Any, out: Any, network: str, third: Any) -> Prepared:
    import gett

    added = out.copy()

    def planned() -> Callable[[], object]:
        plan = gett.plan(subscripts, a, b)
        return lambda: plan(a, b, out=out)

    calls: tuple[Callable[[], object], ...] = (
        lambda: gett.einsum(subscripts, a, b),
        lambda: gett.einsum(subscripts, a, b, out=out),
        lambda: gett.contract(subscripts, a, b),
        lambda: gett.contract(subscripts, a, b, out=out),
        lambda: gett.contract(subscripts, a, b, c=added),
        lambda: gett.contract(subscripts, a, b, beta=1, out=out),
        lambda: gett.einsum(network, a, b, third),
        lambda: gett.contract(network, a, b, third),
    )
    return dict(zip(OWN, [*(lambda call=call: call for call in calls), planned], strict=True))


def _gpu_calls(
    subscripts: str, shape_a: Sequence[int], shape_b: Sequence[int], network: str, shape_c: Sequence[int]
) -> tuple[Prepared, Callable[[], object]]:
    import cupy
    import numpy as np

    generator = np.random.default_rng(0)
    a, b, third = (cupy.asarray(generator.random(tuple(s), dtype="float32")) for s in (shape_a, shape_b, shape_c))
    out = cupy.einsum(subscripts, a, b).copy(order="C")

    def torch_call() -> Callable[[], object]:
        import torch

        x, y = torch.from_dlpack(a), torch.from_dlpack(b)
        return lambda: torch.einsum(subscripts, x, y)

    def own_torch_call(name: str) -> Callable[[], object]:
        import torch

        import gett

        call, x, y = getattr(gett, name), torch.from_dlpack(a), torch.from_dlpack(b)
        return lambda: call(subscripts, x, y)

    calls = _gett_calls(subscripts, a, b, out, network, third) | {
        "gett.einsum, PyTorch tensors": lambda: own_torch_call("einsum"),
        "gett.contract, PyTorch tensors": lambda: own_torch_call("contract"),
        "torch.einsum": torch_call,
        "cupy.einsum": lambda: lambda: cupy.einsum(subscripts, a, b),
    }
    return calls, cupy.cuda.get_current_stream().synchronize


def _cpu_calls(
    subscripts: str, shape_a: Sequence[int], shape_b: Sequence[int], network: str, shape_c: Sequence[int]
) -> tuple[Prepared, Callable[[], object]]:
    import numpy as np
    import opt_einsum

    generator = np.random.default_rng(0)
    a, b, third = (generator.random(tuple(s), dtype="float32") for s in (shape_a, shape_b, shape_c))
    out = np.ascontiguousarray(np.einsum(subscripts, a, b))
    calls = _gett_calls(subscripts, a, b, out, network, third) | {
        "numpy.einsum(optimize=True)": lambda: lambda: np.einsum(subscripts, a, b, optimize=True),
        "opt_einsum.contract": lambda: lambda: opt_einsum.contract(subscripts, a, b),
    }
    return calls, lambda: None


def first_calls(on_gpu: bool) -> dict[str, dict[str, dict[str, float] | str]]:
    """Seconds of the first call of a plan: with an empty kernel cache, then in a second process with the warm one."""
    found: dict[str, dict[str, dict[str, float] | str]] = {}
    for title, (subscripts, shape_a, shape_b) in SHAPES.items():
        with tempfile.TemporaryDirectory(prefix="gett-overhead-") as folder:
            task = json.dumps([subscripts, shape_a, shape_b, on_gpu])
            found[title] = {name: _in_process(task, folder) for name in ("empty cache", "warm cache")}
    return found


def _in_process(task: str, cache: str) -> dict[str, float] | str:
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH")) if p)
    settings = os.environ | {"PYTHONPATH": path, "GETT_CACHE_DIR": cache, "XDG_CACHE_HOME": cache}
    for name in ("GETT_CACHE_DISABLE", "GETT_SHARED_FIRST"):
        settings.pop(name, None)
    command = [sys.executable, "-c", _FIRST_CALL, task]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=settings)
    except subprocess.CalledProcessError as error:
        return str((error.stderr.strip().splitlines() or ["failed"])[-1])[:300]
    except subprocess.SubprocessError as error:
        return str(error)[:300]
    return {str(k): float(v) for k, v in json.loads(done.stdout.splitlines()[-1]).items()}


def _cell(time: float | str) -> str:
    """A time, or what there is in place of one."""
    return f"{time:.1f}" if isinstance(time, float) else time[:40]


def table(figures: dict[str, Any]) -> str:
    """The figures as text."""
    warm = figures["warm_us"]
    names = [*dict.fromkeys(name for times in warm.values() for name in times)]
    rows = [[name, *(_cell(times.get(name, "")) for times in warm.values())] for name in names]
    lines = [f"host time of a warm call, us ({figures['where']})"]
    lines += ["  " + line for line in format_table(["", *warm], rows, left=1)]
    for title, processes in figures.get("first_s", {}).items():
        lines.append(f"first call in a new process, ms: {title}")
        for name, got in processes.items():
            if isinstance(got, str):
                lines.append(f"    {name:<14} {got}"[:110])
            else:
                numbers = (1e3 * got[k] for k in ("first_s", "second_s", "import_s"))
                lines.append("    {:<14} {:9.1f}, second call {:.2f}, import gett {:.0f}".format(name, *numbers))
    return "\n".join(lines)


def main(*, on_gpu: bool, json_path: str | None = None, with_first: bool = True) -> int:
    """Measure, print, and write JSON where asked; 1 when gett itself failed."""
    figures: dict[str, Any] = {
        "where": "CuPy arrays on a GPU" if on_gpu else "NumPy arrays",
        "environment": environment.describe() | {"clocks": environment.clocks()},
        "warm_us": warm_calls(on_gpu),
    }
    if with_first:
        figures["first_s"] = first_calls(on_gpu)
    if json_path:
        write_text(json.dumps(figures, indent=1) + "\n", json_path)
    print(table(figures))
    mine = [times[name] for times in figures["warm_us"].values() for name in OWN]
    first = [p for processes in figures.get("first_s", {}).values() for p in processes.values()]
    return 1 if any(isinstance(t, str) for t in mine + first) else 0
