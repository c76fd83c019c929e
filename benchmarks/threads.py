"""What users reported of other libraries, measured here: each thread's contraction by gett and by its rivals.

`python -m benchmarks.threads --json threads.json` runs all on one GPU in a minute or two; `--cpu` runs the same cases,
much smaller, on the processor, which checks the cases themselves. Owns the clock, the processes of first calls and of
calls that may crash, and the record; the page docs/why.md says what it shows.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.thread_cases import CASES
from benchmarks.thread_machine import Call, Case, Machine

BUDGET_US = 40_000.0
ALGORITHMS = ("DEFAULT", "GETT", "TGETT", "TTGT", "PATIENT")
CHILD_TIMEOUT_S = 120.0


def measure(m: Machine, call: Call) -> float:
    """The median time of a call in microseconds; on the processor that of one call."""
    if m.on_gpu:
        from gett.measure.timer import EventTimer

        times = EventTimer(m.cupy, 1, budget_us=BUDGET_US, most=30, give_up_us=400_000.0).times(lambda _: call())
        return sorted(times)[len(times) // 2]
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def cutensor_times(m: Machine, subscripts: str, a: Any, b: Any) -> dict[str, Any]:
    """The five algorithms of cuTENSOR with plans made once; what fails says why."""
    found: dict[str, Any] = {}
    try:
        library = cutensor_module().CuTensor()
    except Exception as error:
        return {"cuTENSOR": {"error": short(error)}}
    xa, xb = m.to_cupy(a), m.to_cupy(b)
    extents = {x: e for term, t in zip(subscripts.split("->")[0].split(","), (xa, xb), strict=True)
               for x, e in zip(term, t.shape, strict=True)}  # fmt: skip
    d = m.cupy.empty([extents[x] for x in subscripts.split("->")[1]], xa.dtype)
    for algorithm in ALGORITHMS:
        try:
            plan = library.plan(subscripts, xa, xb, d, algorithm=algorithm)
            found[f"cuTENSOR {algorithm}"] = {"us": measure(m, lambda plan=plan: plan(xa, xb, d))}
        except Exception as error:
            found[f"cuTENSOR {algorithm}"] = {"error": short(error)}
    return found


def cutensor_module() -> Any:
    """The bindings of the rival."""
    return importlib.import_module("benchmarks.rivals.cutensor")


def short(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]


def run_case(m: Machine, make: Callable[[Machine], Case]) -> dict[str, Any]:
    """Check and time one case; whatever fails is in the record."""
    record: dict[str, Any] = {"name": make.__name__, "doc": (make.__doc__ or "").strip()}
    try:
        case = make(m)
    except Exception as error:
        return {**record, "error": short(error), "trace": traceback.format_exc()[-1500:]}
    record |= {"name": case.name, "threads": list(case.threads), "what": case.what, "flop": case.flop,
               "bytes": case.moved, "notes": case.notes, "calls": {}}  # fmt: skip
    for i, (name, call) in enumerate(case.calls.items()):
        entry: dict[str, Any] = {}
        record["calls"][name] = entry
        try:
            if i == 0:
                difference = case.reference(call())
                entry["difference"] = difference
                entry["exact"] = difference <= case.tolerance
            m.free()
            entry["us"] = measure(m, call)
            if case.memory and m.on_gpu:
                entry["peak_bytes"] = m.peak_bytes(call)
        except Exception as error:
            entry["error"] = short(error)
        m.free()
    if case.cutensor and m.on_gpu:
        record["calls"] |= cutensor_times(m, *case.cutensor)
    return record


# First calls, each library in a process of its own; the driver, the allocators and cuBLAS are awake before the clock.
FIRST = """
import json, sys, time, warnings
import torch, cupy
library = sys.argv[1]
x = torch.ones(256, 256, device="cuda"); (x @ x).sum().item()
y = cupy.ones((256, 256), "float32"); float((y @ y).sum())
def operands(make):
    return make((1234, 1234, 23)), make((1234, 98))
text = "uvP,up->pvP"
found = {}
if library == "gett":
    import gett
    a, b = operands(lambda s: torch.rand(s, device="cuda"))
    call = lambda: gett.einsum(text, a, b)
    wait = torch.cuda.synchronize
elif library == "torch":
    a, b = operands(lambda s: torch.rand(s, device="cuda"))
    call = lambda: torch.einsum(text, a, b)
    wait = torch.cuda.synchronize
else:
    a, b = operands(lambda s: cupy.random.rand(*s, dtype="float32"))
    wait = cupy.cuda.runtime.deviceSynchronize
    if library == "cupy":
        call = lambda: cupy.einsum(text, a, b)
    else:
        from benchmarks.rivals.cutensor import load_cutensor
        load_cutensor()
        from cupyx import cutensor
        call = lambda: cutensor.contraction(1.0, a, ("u", "v", "P"), b, ("u", "p"), 0.0,
                                            cupy.empty((98, 1234, 23), "float32"), ("p", "v", "P"))
wait()
times = []
for _ in range(3):
    start = time.perf_counter(); r = call(); wait(); times.append(time.perf_counter() - start)
print(json.dumps({"first_s": times[0], "second_s": times[1], "third_s": times[2]}))
"""

# A view with gaps through cuTENSOR, in a process that may die.
CRASH = """
import json, sys
import cupy
from benchmarks.rivals import cutensor as module
library = module.CuTensor()
which = sys.argv[1]
if which == "strided-view":
    a, b = cupy.zeros((159, 937, 937)), cupy.zeros((2, 117, 937, 108))[:, 0:116]
    d = cupy.empty((2, 116, 937, 108, 159))
    plan = library.plan("Lpq,snqi->snpiL", a, b, d)
elif which == "stride-zero":
    a, b, d = cupy.zeros(100)[None, :], cupy.zeros((4, 100)), cupy.empty((1, 4))
    a = cupy.ndarray(a.shape, a.dtype, a.data, (0, 8))
    plan = library.plan("mn,ln->ml", a, b, d)
else:
    a, b = cupy.zeros(4096), cupy.zeros((4096, 4096))
    a, d = cupy.broadcast_to(a, (4096, 4096)), cupy.empty((4096, 4096))
    plan = library.plan("mn,ln->ml", a, b, d)
plan(a, b, d)
start, end = cupy.cuda.Event(), cupy.cuda.Event()
start.record(); plan(a, b, d); end.record(); end.synchronize()
print(json.dumps({"us": 1e3 * cupy.cuda.get_elapsed_time(start, end), "version": library.version}))
"""


def child(code: str, argument: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """What a process of its own printed, or how it died."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, argument],
            capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, env={**os.environ, **(environment or {})},
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {CHILD_TIMEOUT_S:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [""]
        return {"error": f"exit status {done.returncode}: {lines[-1][:300]}"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": f"it printed {done.stdout[-200:]!r}"}
    return answer


@contextlib.contextmanager
def kernels_in(folder: str) -> Iterator[dict[str, str]]:
    """The environment of a process that keeps its kernels in a folder."""
    yield {"GETT_CACHE_DIR": folder}


def first_calls() -> dict[str, Any]:
    """Seconds of the first calls of `uvP,up->pvP`: gett with no kernel on disk, then with it, and the rivals."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, kernels_in(folder) as place:
        found["gett, nothing compiled yet"] = child(FIRST, "gett", place)
        found["gett, compiled by an earlier process"] = child(FIRST, "gett", place)
    for library in ("cupy", "cutensor", "torch"):
        found[library] = child(FIRST, library)
    return found


def device_name(m: Machine) -> dict[str, Any]:
    """What was measured on and with."""
    found: dict[str, Any] = {"torch": m.torch.__version__, "python": sys.version.split()[0]}
    if m.on_gpu:
        found |= {"gpu": m.torch.cuda.get_device_name(0), "cupy": m.cupy.__version__}
    with contextlib.suppress(Exception):
        from benchmarks import environment

        found["commit"] = environment.commit()
        found["environment"] = environment.describe()
    found["date"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return found


def table(records: list[dict[str, Any]]) -> str:
    """A line a case: whether gett's result was exact, its time, the best rival's, and the ratio."""
    lines = [f"{'case':18s} {'exact':6s} {'gett us':>10s} {'best rival us':>14s} {'ratio':>7s}  rival"]
    for record in records:
        calls = record.get("calls", {})
        if not calls:
            lines.append(f"{record['name']:18s} FAILED {record.get('error')}")
            continue
        first, *_ = calls
        ours = calls[first]
        rivals = {k: v["us"] for k, v in calls.items() if "us" in v and not k.startswith("gett")}
        best = min(rivals, key=rivals.__getitem__) if rivals else ""
        exact = {True: "yes", False: "WRONG"}.get(ours.get("exact"), "?")
        us = ours.get("us", math.nan)
        against = rivals.get(best, math.nan)
        lines.append(f"{record['name']:18s} {exact:6s} {us:10.1f} {against:14.1f} {against / us:7.2f}  {best}")
        lines += [f"    {k}: {v['error']}" for k, v in calls.items() if "error" in v]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the cases and print a table; 1 if a result was wrong or gett failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="where the record goes; $OUT/threads.json where OUT is set")
    parser.add_argument("--cpu", action="store_true", help="the same cases, much smaller, on the processor")
    parser.add_argument("--only", help="names of functions or of cases, separated by commas")
    options = parser.parse_args(arguments)
    m = Machine(not options.cpu)
    if options.cpu:
        m.torch.set_num_threads(1)  # two libraries' threads on the same cores wait for each other
    wanted = set((options.only or "").split(",")) - {""}
    begin = time.perf_counter()
    records = []
    for make in CASES:
        if not wanted or make.__name__ in wanted:
            records.append(run_case(m, make))
            m.free()
    record: dict[str, Any] = {"on": device_name(m), "cases": records}
    if m.on_gpu and not wanted:
        record["cutensor"] = {x: child(CRASH, x) for x in ("strided-view", "stride-zero", "broadcast")}
        record["first_calls"] = first_calls()
    record["seconds"] = time.perf_counter() - begin
    target = options.json or (Path(os.environ["OUT"]) / "threads.json" if "OUT" in os.environ else None)
    if target is not None:
        target.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(records))
    for part in ("cutensor", "first_calls"):
        for name, answer in record.get(part, {}).items():
            print(f"{part}: {name}: {answer}")
    print(f"{record['seconds']:.0f} s")
    failed = [r for r in records if not next(iter(r.get("calls", {"": {}}).values())).get("exact")]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
