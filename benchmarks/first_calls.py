"""Wall time of first calls in fresh processes: three networks, contractions of many modes.

Each is called with an empty cache, in the same process with other extents, and in a new process with the cache filled.
"""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gett
import layouts
from benchmarks import environment
from benchmarks.records import write_text

ARCH = "sm_90a"
NETWORK_S, SINGLE_S = 1.5, 1.5
"""Seconds that a first call may take: of a network, and of one contraction."""

# Whose first kernel spills, or did: a gate of a circuit, 26 modes, an outer product of bytes, permutations.
SINGLES: tuple[tuple[str, str, tuple[tuple[int, ...], ...], str], ...] = (
    *((f"ladder, {x}", "abef,ijef->ijab", ((60,) * 4, (20, 20, 60, 60)), x)
      for x in ("float32", "complex64", "float16", "float64")),
    ("plain product", "mk,kn->mn", ((2048, 2048), (2048, 2048)), "float16"),
    (
        "circuit, complex64",
        "tabdefghikopqvwxyzA,tcjlmnrsuvwxyzA->abcdefghijklmnopqrstu",
        ((2,) * 19, (2,) * 15),
        "complex64",
    ),
    (
        "26 modes, float32",
        "pftkhidcrmlsqaogejbn,mleciahkAjuwydBbxfvzg->sztBunwvxrpomqAy",
        ((2,) * 20, (2,) * 21),
        "float32",
    ),
    ("26 modes, simt", "uamnicgeqszvhjfwxltykr,ujgyaqpmvedtxiob->pzkslhnwdborcf", ((2,) * 22, (2,) * 16), "float32"),
    ("outer product, int8", "dgf,dfebc->gdebfc", ((33, 17, 5), (33, 5, 40, 5, 40)), "int8"),
    (
        "25 modes, int8",
        "scuxeyigmdapkjlwnvbqhfotr->lfhcdaqxgwmprnituyvjeoksb",
        ((2, 2, 2, 2, 2, 2, 3, 2, 2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 2, 3, 2, 2, 2),),
        "int8",
    ),
    ("12 modes, complex128", "abcdefghijkl->lgkdfaicjbhe", ((4, 2, 2, 4, 4, 3, 4, 3, 3, 3, 4, 4),), "complex128"),
)  # fmt: skip

# Time of the call alone: imports, operands and the CUDA context come before the clock starts.
_CHILD = """
import json, logging, os, sys, time
import numpy as np
start = time.perf_counter()
import gett
found = {"import_s": time.perf_counter() - start, "gett": gett.__file__}
task = json.load(sys.stdin)
subscripts, shapes, dtype = task["subscripts"], [tuple(s) for s in task["shapes"]], np.dtype(task["dtype"])
optimize = {} if task["path"] is None else {"optimize": [tuple(p) for p in task["path"]]}
said = []
class Said(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
log = logging.getLogger("gett")
log.addHandler(Said())
log.setLevel(logging.DEBUG)
log.propagate = False

def ahead():
    start, cpu = time.perf_counter(), sum(os.times()[:4])
    plan = gett.plan(subscripts, *((s, task["dtype"]) for s in shapes), arch=task["arch"], **optimize)
    planned = time.perf_counter()
    plan.compile()
    found.update(plan_s=planned - start, compile_s=time.perf_counter() - planned)
    found.update(total_s=time.perf_counter() - start, cpu_s=sum(os.times()[:4]) - cpu)

def operand(rng, shape):  # of the first network or of the other
    if dtype.kind in "iu":
        return rng.integers(-2, 3, shape).astype(dtype)
    # So that sums of a whole network stay near 1: each mode is two tensors'.
    scale = np.prod(shape, dtype=float) ** -0.25
    x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype.kind == "c" else 0)
    return (x * scale).astype(dtype)

def called():
    import cupy, opt_einsum
    rng = np.random.default_rng(1)
    arrays = [cupy.asarray(operand(rng, s)) for s in shapes]
    finish = cupy.cuda.get_current_stream().synchronize
    finish()
    begun = start = time.perf_counter()
    plan = gett.plan(subscripts, *arrays, **optimize)
    planned = time.perf_counter()
    d = plan(*arrays)
    finish()
    found.update(plan_s=planned - start, total_s=time.perf_counter() - start)
    start = time.perf_counter()
    plan(*arrays)
    finish()
    found["second_s"] = time.perf_counter() - start
    if task["others"]:
        others = [cupy.asarray(operand(rng, s)) for s in task["others"]]
        finish()
        start = time.perf_counter()
        gett.plan(subscripts, *others, **optimize)(*others)
        finish()
        found["other_s"] = time.perf_counter() - start
    plan.compile()
    found["own_s"] = time.perf_counter() - begun  # until kernels of its own run
    exact = dtype.kind in "iu"
    wide = arrays if exact else [x.astype("c16" if dtype.kind == "c" else "f8") for x in arrays]
    path = optimize.get("optimize", [tuple(range(len(shapes)))])
    wanted = opt_einsum.contract(subscripts, *wide, optimize=path)
    if exact:
        found["error"] = 0.0 if bool((wanted.astype(d.dtype) == d).all()) else 1.0
    else:
        found["error"] = float(cupy.linalg.norm((wanted - d).ravel()) / cupy.linalg.norm(wanted.ravel()))


called() if task["on_gpu"] else ahead()
found["kernels"] = sum("compiled" in x for x in said)
found["poor"] = sum("replaced" in x for x in said)
print(json.dumps(found))
"""

WRONG = {"float16": 1e-2, "float32": 1e-4, "complex64": 1e-4, "complex128": 1e-12, "float64": 1e-12, "int8": 0.0}
"""Norm of the error, as a share of the result's, above which a result is wrong."""


def tasks() -> dict[str, dict[str, Any]]:
    """What is called, by name; `most_s` is how long its first call may take."""
    data = Path(__file__).resolve().parent / "data" / "networks.json"
    networks = json.loads(data.read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = {}
    for name, n in networks.items():
        given = {"subscripts": n["eq"], "shapes": n["shapes"], "dtype": n["dtype"], "path": n["path"]}
        found[name] = given | {"most_s": NETWORK_S, "others": other_extents(n["eq"], n["shapes"])}
    for name, subscripts, shapes, dtype in SINGLES:
        given = {"subscripts": subscripts, "shapes": shapes, "dtype": dtype, "path": None}
        found[name] = given | {"most_s": SINGLE_S, "others": None}
    return found


def other_extents(subscripts: str, shapes: Sequence[Sequence[int]]) -> list[list[int]]:
    """Shapes of the same network with other extents: three quarters of those above 2, and 1 for every tenth of 2."""
    terms = subscripts.partition("->")[0].split(",")
    known = {x: e for term, shape in zip(terms, shapes, strict=True) for x, e in zip(term, shape, strict=True)}
    made = {x: 3 * e // 4 if e > 2 else 1 if i % 10 == 0 else e for i, (x, e) in enumerate(known.items())}
    return [[made[x] for x in term] for term in terms]


def compile_modules() -> None:
    """Compile gett's modules, as an installer does: a process that cannot keep them compiles 0.3 s of them anew."""
    for package in (gett, layouts):
        for folder in package.__path__:
            compileall.compile_dir(folder, quiet=2)


def measure(task: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
    """First calls in new processes, with an empty cache and with a filled one; `failed` says what went wrong."""
    with tempfile.TemporaryDirectory(prefix="gett-first-calls-") as folder:
        found = _measured(task, on_gpu, folder)
        if "failed" not in found:
            again = _measured(task | {"others": None}, on_gpu, folder)
            found |= {"failed": again["failed"]} if "failed" in again else {"cached_s": again["total_s"]}
    if "failed" not in found and found.get("error", 0.0) > WRONG[task["dtype"]]:
        found["failed"] = f"wrong result: error {found['error']:.1e}"
    return found


def _measured(task: dict[str, Any], on_gpu: bool, folder: str) -> dict[str, Any]:
    """What a process says whose cache is a folder."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH"), root) if p)  # another tree's gett comes first
    given = json.dumps(task | {"on_gpu": on_gpu, "arch": ARCH})
    # NVRTC and the driver keep what they compile, under the home directory if nothing else is said.
    settings = os.environ | {"PYTHONPATH": path, "GETT_CACHE_DIR": folder, "CUDA_CACHE_PATH": folder}
    for name in ("GETT_CACHE_DISABLE", "GETT_SHARED_FIRST"):
        settings.pop(name, None)
    command = [sys.executable, "-c", _CHILD]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=600, check=True, env=settings, cwd=folder
        )
    except subprocess.CalledProcessError as error:
        return {"failed": str((error.stderr.strip().splitlines() or ["failed"])[-1])[:300]}
    except subprocess.SubprocessError as error:
        return {"failed": str(error)[:300]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(figures: dict[str, Any]) -> str:
    """The figures as text."""
    head = f"{'first call, s':<22} {'planned':>8} {'total':>8} {'limit':>6} {'cached':>7} {'kernels':>8} {'poor':>5}"
    lines = [f"{head}  ({figures['where']})"]
    for name, got in figures["calls"].items():
        if "total_s" not in got:
            lines.append(f"  {name:<20} {got['failed']}"[:110])
            continue
        most = got["most_s"]
        row = f"  {name:<20} {got['plan_s']:8.2f} {got['total_s']:8.2f} {most:6.1f} {got.get('cached_s', 0.0):7.2f}"
        row += f" {got['kernels']:8} {got['poor']:5}"
        more = f"  CPU {got['cpu_s']:.1f}" if "cpu_s" in got else f"  again {got['second_s']:.4f}"
        more += f"  other extents {got['other_s']:.2f}" if "other_s" in got else ""
        more += f"  own {got['own_s']:.1f}" if "own_s" in got else ""
        late = "  LATE" if got["total_s"] > most else ""
        lines.append(row + more + late + (f"  {got['failed']}" if "failed" in got else ""))
    return "\n".join(lines)


def main(*, on_gpu: bool, json_path: str | None = None, only: Sequence[str] = (), rounds: int = 1) -> int:
    """Measure, print, and write JSON where asked; 1 when a call failed or a result is wrong.

    Args:
        on_gpu: Whether arrays are contracted on the GPU; else kernels are only planned and compiled.
        json_path: Where every figure goes.
        only: Names of the calls; all by default.
        rounds: How often each is measured; the fastest counts.
    """
    known = tasks()
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"unknown case {unknown[0]!r}; choose from {', '.join(known)}")
    compile_modules()
    figures: dict[str, Any] = {
        "where": "arrays on a GPU" if on_gpu else f"planned and compiled for {ARCH}",
        "environment": environment.describe() | {"clocks": environment.clocks()},
        "calls": {},
    }
    for name in only or known:
        tried = [measure(known[name], on_gpu) for _ in range(rounds)]
        best = min(tried, key=lambda x: ("failed" in x, x.get("total_s", 0.0)))
        # A result that is wrong once is wrong.
        failed = next(({"failed": x["failed"]} for x in tried if "failed" in x), {})
        figures["calls"][name] = best | failed | {
            "most_s": known[name]["most_s"], "all_s": [x.get("total_s") for x in tried],
        }  # fmt: skip
        if json_path:  # a run that is cut short keeps what it has
            write_text(json.dumps(figures, indent=1) + "\n", json_path)
    print(table(figures))
    return 1 if any("failed" in x for x in figures["calls"].values()) else 0
