"""Whole networks, warm: three of public programs, and an iteration of CCSD of some fifty contractions.

Rivals run the same path, pair by pair, through opt_einsum: PyTorch on a GPU, NumPy without. Owns the cases and the
table; first calls are `benchmarks.first_calls`'.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import opt_einsum

import gett
from benchmarks import environment, first_calls, gpus
from benchmarks.records import write_text
from benchmarks.timing import GpuTimer, host_time_us
from gett.console.formatting import format_table

CALLS = 30  # of which the median counts
SIZES = {True: (10, 60), False: (3, 6)}  # occupied and virtual spin orbitals of CCSD, on a GPU and without
APART = {"complex64": 1e-3, "float64": 1e-10}

# Spin-orbital CCSD: J. F. Stanton, J. Gauss, J. D. Watts, R. J. Bartlett, J. Chem. Phys. 94, 4334 (1991), equations 1
# to 13. A name is a block of a tensor (o occupied, v virtual); each term adds to the last name. Antisymmetrised terms
# are there for each permutation, since programs call einsum for each.
CCSD = """
ia,jb->ijab t1 t1 tau; mf,mafe->ae t1 ovvv Fae; mnaf,mnef->ae tau oovv Fae; me,ma->ae Fov t1 Fae
ie,me->mi t1 Fov Fmi; ne,mnie->mi t1 ooov Fmi; inef,mnef->mi tau oovv Fmi; nf,mnef->me t1 oovv Fme
je,mnie->mnij t1 ooov Woooo; ie,mnje->mnij t1 ooov Woooo; ijef,mnef->mnij tau oovv Woooo
mb,maef->abef t1 ovvv Wvvvv; ma,mbef->abef t1 ovvv Wvvvv; mnab,mnef->abef tau oovv Wvvvv
jf,mbef->mbej t1 ovvv Wovvo; nb,mnje->mbej t1 ooov Wovvo; jnfb,mnef->mbej t2 oovv Wovvo
jf,nb,mnef->mbej t1 t1 oovv Wovvo
ie,ae->ia t1 Fae r1; ma,mi->ia t1 Fmi r1; imae,me->ia t2 Fme r1; nf,naif->ia t1 ovov r1
imef,maef->ia t2 ovvv r1; mnae,mnie->ia t2 ooov r1
ijae,be->ijab t2 Fae r2; ijbe,ae->ijab t2 Fae r2; ijae,mb,me->ijab t2 t1 Fme r2; ijbe,ma,me->ijab t2 t1 Fme r2
imab,mj->ijab t2 Fmi r2; jmab,mi->ijab t2 Fmi r2; imab,je,me->ijab t2 t1 Fme r2; jmab,ie,me->ijab t2 t1 Fme r2
mnab,mnij->ijab tau Woooo r2; ijef,abef->ijab tau Wvvvv r2
imae,mbej->ijab t2 Wovvo r2; jmae,mbei->ijab t2 Wovvo r2; imbe,maej->ijab t2 Wovvo r2; jmbe,maei->ijab t2 Wovvo r2
ie,ma,mbej->ijab t1 t1 ovvo r2; je,ma,mbei->ijab t1 t1 ovvo r2; ie,mb,maej->ijab t1 t1 ovvo r2
je,mb,maei->ijab t1 t1 ovvo r2; ie,abej->ijab t1 vvvo r2; je,abei->ijab t1 vvvo r2
ma,mbij->ijab t1 ovoo r2; mb,maij->ijab t1 ovoo r2
ijab,ijab-> oovv t2 e; ijab,ia,jb-> oovv t1 t1 e
"""
_FIXED = {"t1": "ov", "t2": "oovv", "tau": "oovv", "r1": "ov", "r2": "oovv", "Fae": "vv", "Fmi": "oo", "Fme": "ov",
          "Fov": "ov", "Woooo": "oooo", "Wvvvv": "vvvv", "Wovvo": "ovvo"}  # fmt: skip


def ccsd_terms() -> list[tuple[str, list[str]]]:
    """Subscripts and the names of operands of each contraction of an iteration."""
    lines = [x.split() for x in CCSD.replace("\n", ";").split(";") if x.strip()]
    return [(x[0], x[1:-1]) for x in lines]


def ccsd_arrays(occupied: int, virtual: int, seed: int = 0) -> dict[str, Any]:
    """Random tensors of an iteration by name."""
    rng, sizes = np.random.default_rng(seed), {"o": occupied, "v": virtual}
    names = sorted({name for _, operands in ccsd_terms() for name in operands})
    return {name: rng.standard_normal([sizes[x] for x in _FIXED.get(name, name)]) * 0.1 for name in names}


def wall_us(call: Callable[[], object], finish: Callable[[], object], calls: int = CALLS) -> float:
    """Median microseconds of a call with its result ready."""
    times = []
    for _ in range(calls + 2):
        finish()
        start = time.perf_counter()
        call()
        finish()
        times.append((time.perf_counter() - start) * 1e6)
    return float(np.median(times[2:]))


def _row(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], on_gpu: bool) -> dict[str, Any]:
    """Times of both sides, each with its result ready; of gett in a queue and on the host, too."""
    if on_gpu:
        import cupy
        import torch

        def finish() -> None:
            cupy.cuda.Device().synchronize()
            torch.cuda.synchronize()
    else:

        def finish() -> None:
            return None

    for _ in range(3):  # kernels that are compiled meanwhile, graphs
        found, wanted = ours(), theirs()
    us = {"gett": wall_us(ours, finish), "rival": wall_us(theirs, finish, 8)}
    if on_gpu:
        us["queued"] = GpuTimer().measure(lambda _: ours()).median_us or 0.0
        us["host"] = host_time_us(ours, finish, calls=20)
    apart = max(float(abs(_host(x) - _host(y)).max() / abs(_host(y)).max()) for x, y in zip(found, wanted, strict=True))
    return {"name": name, "us": us, "apart": apart}


def _host(x: Any) -> Any:
    return x.get() if hasattr(x, "get") else x.cpu().numpy() if hasattr(x, "cpu") else np.asarray(x)


def network_row(name: str, task: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
    """A network of `first_calls.tasks`, with its plan compiled before."""
    ours, theirs = _both(gpus.random_arrays(np, task["shapes"], task["dtype"]), on_gpu)
    path = [tuple(p) for p in task["path"]]
    start = time.perf_counter()
    plan = gett.plan(task["subscripts"], *ours, optimize=path).compile()
    seconds = time.perf_counter() - start
    rival = opt_einsum.contract_expression(task["subscripts"], *task["shapes"], optimize=path)
    found = _row(name, lambda: [plan(*ours)], lambda: [rival(*theirs)], on_gpu)
    return found | {"dtype": task["dtype"], "steps": len(plan.steps), "compiled_s": seconds}


def ccsd_row(on_gpu: bool) -> dict[str, Any]:
    """An iteration of CCSD, einsum by einsum."""
    terms, host = ccsd_terms(), ccsd_arrays(*SIZES[on_gpu])
    names = list(host)
    first, second = (dict(zip(names, x, strict=True)) for x in _both(list(host.values()), on_gpu))

    def ours() -> list[Any]:
        return [gett.einsum(spec, *(first[x] for x in operands)) for spec, operands in terms]

    def theirs() -> list[Any]:
        return [opt_einsum.contract(spec, *(second[x] for x in operands)) for spec, operands in terms]

    o, v = SIZES[on_gpu]
    found = _row(f"CCSD, o {o}, v {v}: {len(terms)} einsums", ours, theirs, on_gpu)
    return found | {"dtype": "float64", "steps": len(terms)}


def _both(host: Sequence[Any], on_gpu: bool) -> tuple[list[Any], list[Any]]:
    """The arrays as gett takes them, and as the rival does."""
    if not on_gpu:
        return list(host), list(host)
    import cupy
    import torch

    ours = [cupy.asarray(x) for x in host]
    return ours, [torch.from_dlpack(x) for x in ours]


def planning_row(rows: int = 100, columns: int = 10) -> dict[str, Any]:
    """Seconds of planning a lattice of tensors with a given path, for an H200."""
    spec, shapes = gpus.grid(rows, columns, 2)
    path, _ = opt_einsum.contract_path(spec, *shapes, shapes=True, optimize="greedy")
    gett.plan("ab,bc->ac", *[((8, 8), "float32")] * 2, arch="H200")  # modules
    start = time.perf_counter()
    gett.plan(spec, *[(s, "float32") for s in shapes], optimize=path, arch="H200")
    return {"name": f"planning a lattice of {rows * columns} tensors", "s": time.perf_counter() - start}


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The figures for people."""
    lines = []
    for row in rows:
        us = row["us"]
        shown = [f"{us[x]:.0f}" if x in us else "-" for x in ("gett", "queued", "host", "rival")]
        lines.append([row["name"], *shown, f"{us['rival'] / us['gett']:.2f}", f"{row['apart']:.0e}"])
    return [*format_table(["warm, us of a call", "gett", "queued", "host", "rival", "rival/gett", "apart"], lines)]


def main(*, on_gpu: bool, json_path: str | None = None, only: Sequence[str] = ()) -> int:
    """Measure, print, and write JSON where asked; 1 when a result is far from the rival's."""
    tasks = {name: x for name, x in first_calls.tasks().items() if x["path"] is not None}
    if unknown := [name for name in only if name not in (*tasks, "ccsd")]:
        raise ValueError(f"unknown network {unknown[0]!r}; choose from {', '.join((*tasks, 'ccsd'))}")
    rows = [network_row(name, x, on_gpu) for name, x in tasks.items() if name in only or (not only and on_gpu)]
    rows += [ccsd_row(on_gpu)] if not only or "ccsd" in only else []
    planned = planning_row()
    if json_path:
        figures = {"environment": environment.describe() | {"clocks": environment.clocks()}, "rows": rows}
        write_text(json.dumps(figures | {"planning": planned}, indent=1) + "\n", json_path)
    print("\n".join(table(rows)))
    print(f"{planned['name']}: {planned['s']:.2f} s")
    wrong = [row["name"] for row in rows if not row["apart"] <= APART[row["dtype"]]]
    if wrong:
        print("far from the rival's result:", ", ".join(wrong))
    return 1 if wrong else 0
