"""More than one device: networks and contractions on several GPUs beside one, under a limit of memory, over MPI ranks.

Owns the cases and what each reports. Rivals are cuTENSORMg, cuTENSOR with NCCL, and cotengra's slices through PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from opt_einsum import get_symbol
from opt_einsum.testing import rand_equation

import gett
from benchmarks import environment, gpus_report
from benchmarks.records import write_text
from benchmarks.rivals.cutensor import load_cutensor
from benchmarks.timing import GpuTimer, measure_cpu
from gett.slices.cuts import expected_us

LADDER = "abef,ijef->ijab"
# A name, the axis along which each operand of the ladder is cut, and the label of the result.
CUTS = (
    ("summed mode cut", (2, 2), None),
    ("summed mode cut, result sharded", (2, 2), "a"),
    ("kept mode cut", (0, 0), "a"),
)
OCCUPIED, VIRTUAL = (40, 200), (4, 24)  # on GPUs, and without: occupied is the first of each pair
GRID = (7, 7, 12, "complex64"), (5, 5, 8, "complex64")  # rows, columns and bond of a network, on GPUs and without
PEAKS = 30
RANKS_GRID, RANKS_SLICES = (6, 6, 7), 64  # rows, columns and bond


def grid(rows: int, columns: int, bond: int) -> tuple[str, list[tuple[int, ...]]]:
    """The contraction of a lattice of tensors to a number: subscripts and shapes."""
    names: dict[tuple[Any, ...], str] = {}
    terms = []
    for i in range(rows):
        for j in range(columns):
            bonds = [("r", i, j), ("r", i, j - 1), ("d", i, j), ("d", i - 1, j)]
            inside = [b for b in bonds if 0 <= b[1] < rows - (b[0] == "d") and 0 <= b[2] < columns - (b[0] == "r")]
            terms.append("".join(names.setdefault(b, get_symbol(len(names))) for b in inside))
    return ",".join(terms) + "->", [(bond,) * len(t) for t in terms]


def random_arrays(xp: Any, shapes: Sequence[tuple[int, ...]], dtype: str, seed: int = 0) -> list[Any]:
    """Random data, scaled so that products of many tensors stay in range."""
    rng = np.random.default_rng(seed)
    found = []
    for shape in shapes:
        x = rng.standard_normal(shape)
        if dtype.startswith("complex"):
            x = x + 1j * rng.standard_normal(shape)
        found.append(xp.asarray((x / np.sqrt(max(1, x.size) ** 0.5)).astype(dtype)))
    return found


def measured(calls: dict[str, Callable[[], object]], on_gpu: bool) -> dict[str, float | str | None]:
    """Microseconds of each call, or why there are none."""
    if not on_gpu:
        found = measure_cpu(calls, rounds=3, budget_s=20.0)
    else:
        timer = GpuTimer(budget_us=2e6, most=20)
        found = {name: timer.measure(lambda _, call=call: call()) for name, call in calls.items()}
    return {name: m.median_us if m.error is None else m.error for name, m in found.items()}


def network_row(xp: Any, devices: Sequence[int], on_gpu: bool) -> dict[str, Any]:
    """A sliced network on one device and on all."""
    rows, columns, bond, dtype = GRID[0 if on_gpu else 1]
    spec, shapes = grid(rows, columns, bond)
    arrays = random_arrays(xp, shapes, dtype)
    whole = gett.plan(spec, *arrays)
    limit = f"{max(whole.peak_bytes // 8, 1 << 16)}B"
    one = gett.plan(spec, *arrays, memory_limit=limit)
    all_of_them = gett.plan(spec, *arrays, memory_limit=limit, devices=list(devices))
    x, y = complex(one(*arrays)), complex(all_of_them(*arrays))
    return {
        "name": f"{rows} x {columns} lattice, bond {bond}, {one.slices} slices",
        "apart": abs(x - y) / abs(x),
        "us": measured({"one": lambda: one(*arrays), "all": lambda: all_of_them(*arrays)}, on_gpu),
    }


def ladder_rows(xp: Any, devices: Sequence[int], on_gpu: bool) -> list[dict[str, Any]]:
    """The particle ladder: operands cut along a summed and along a kept mode, and whole on the first GPU."""
    o, v = OCCUPIED if on_gpu else VIRTUAL
    big, small = random_arrays(xp, [(v, v, v, v), (o, o, v, v)], "float64")
    out = xp.empty((o, o, v, v))
    one = gett.plan(LADDER, big, small, out=out)
    want = one(big, small, out=out).copy()
    single = measured({"one": lambda: one(big, small, out=out)}, on_gpu)["one"]
    rows = []
    for name, axes, shard in CUTS:
        given = [x if k is None else gett.Sharded.cut(x, devices, k) for x, k in zip((big, small), axes, strict=True)]
        rows.append(_ladder_row(name, devices, given, want, single, shard, on_gpu))
        del given
    rows.append(_ladder_row("operands on one device", devices, [big, small], want, single, None, on_gpu))
    rows[0]["us"] |= measured(ladder_rivals(xp, devices, big, small, out) if on_gpu else {}, on_gpu)
    return rows


def _ladder_row(
    name: str, devices: Sequence[int], given: list[Any], want: Any, single: Any, shard: str | None, on_gpu: bool
) -> dict[str, Any]:
    plan = gett.plan(LADDER, *given, devices=list(devices), shard=shard)
    found = plan(*given)
    host = found.get() if hasattr(found, "get") else found
    wanted = want.get() if hasattr(want, "get") else want
    return {
        "name": f"ladder, {name}",
        "apart": float(np.abs(host - wanted).max() / np.abs(wanted).max()),
        "planned": {"bytes": plan.cut.moved + plan.cut.returned, "us": plan.cut.cost},
        "bytes": plan.engine.link.moved,
        "us": {"one": single, **measured({"all": lambda: plan(*given)}, on_gpu)},
    }


def expected_rows() -> list[dict[str, Any]]:
    """What the cost model expects of the ladder on 2, 4 and 8 H200, with operands that are sharded already."""
    o, v = OCCUPIED
    rows = []
    whole = gett.plan(LADDER, ((v,) * 4, "float64"), ((o, o, v, v), "float64"), arch="H200")
    one = expected_us(whole)
    for name, axes, shard in CUTS:
        for count in (2, 4, 8):
            given = [_zeros(shape, axis, count) for shape, axis in zip(((v,) * 4, (o, o, v, v)), axes, strict=True)]
            plan = gett.plan(LADDER, *given, devices=range(count), shard=shard, arch="H200")
            rows.append({"name": f"ladder, {name}", "devices": count, "us": plan.cut.cost, "one": one})
    return rows


def _zeros(shape: tuple[int, ...], axis: int | None, count: int) -> Any:
    """A tensor without memory, in parts along an axis."""
    whole = np.broadcast_to(np.float64(0), shape)
    return whole if axis is None else gett.Sharded.cut(whole, range(count), axis)


def ladder_rivals(xp: Any, devices: Sequence[int], big: Any, small: Any, out: Any) -> dict[str, Callable[[], object]]:
    """CuTENSORMg on the same arrays, and cuTENSOR on each GPU with a reduction of NCCL's."""
    calls: dict[str, Callable[[], object]] = {}
    modes = tuple("abef"), tuple("ijef"), tuple("ijab")
    with suppress(Exception):  # a rival that is not there, or fails, has no time
        load_cutensor()
        from cupyx import cutensor

        def several() -> object:
            return cutensor.contractionMg(
                1.0, big, modes[0], small, modes[1], 0.0, out, modes[2], devices=list(devices)
            )  # fmt: skip

        several()
        calls["cuTENSORMg"] = several
    with suppress(Exception):
        from cupy.cuda import nccl
        from cupyx import cutensor

        shards = [gett.Sharded.cut(x, devices, 2) for x in (big, small)]
        ranks = nccl.NcclCommunicator.initAll(list(devices))
        sums = []
        for d in devices:
            with xp.cuda.Device(d):
                sums.append(xp.empty(out.shape))

        def reduced() -> object:
            for i, d in enumerate(devices):
                with xp.cuda.Device(d):
                    cutensor.contraction(
                        1.0, shards[0].parts[i], modes[0], shards[1].parts[i], modes[1], 0.0, sums[i], modes[2]
                    )
            nccl.groupStart()
            for i, d in enumerate(devices):
                with xp.cuda.Device(d):
                    stream = xp.cuda.get_current_stream().ptr
                    target = out if i == 0 else sums[i]
                    ranks[i].reduce(
                        sums[i].data.ptr, target.data.ptr, out.size, nccl.NCCL_FLOAT64, nccl.NCCL_SUM, 0, stream
                    )
            nccl.groupEnd()
            return out

        reduced()
        calls["cuTENSOR and NCCL"] = reduced
    return calls


def limit_row(xp: Any, on_gpu: bool) -> dict[str, Any]:
    """A network under a quarter of its peak: beside no limit, and beside cotengra's slices run through PyTorch."""
    rows, columns, bond, dtype = GRID[0 if on_gpu else 1]
    spec, shapes = grid(rows, columns, bond)
    arrays = random_arrays(xp, shapes, dtype)
    whole = gett.plan(spec, *arrays)
    plan = gett.plan(spec, *arrays, memory_limit=f"{whole.peak_bytes // 4}B")
    calls: dict[str, Callable[[], object]] = {"unlimited": lambda: whole(*arrays), "limited": lambda: plan(*arrays)}
    with suppress(ImportError):
        import cotengra
        import torch

        inputs, output = [list(t) for t in spec.split("->")[0].split(",")], []
        sizes = dict.fromkeys(set("".join(spec)) - set(",->"), bond)
        tree = cotengra.ContractionTree.from_path(inputs, output, sizes, path=whole.path)
        elements = max(1, whole.peak_bytes // 4 // arrays[0].dtype.itemsize // 3)
        tree = tree.slice(target_size=elements, seed=0)
        tensors = [torch.as_tensor(x, device="cuda" if on_gpu else "cpu") for x in arrays]
        calls["cotengra and PyTorch"] = lambda: tree.contract(tensors, implementation=(torch.einsum, torch.tensordot))
    return {
        "name": f"{rows} x {columns} lattice, bond {bond}, a quarter of its peak in {plan.slices} slices",
        "us": measured(calls, on_gpu),
    }


def peak_rows(xp: Any, on_gpu: bool) -> list[dict[str, Any]]:
    """Peak bytes of random networks as planned and as seen, half of them under a limit."""
    rows = []
    for seed in range(PEAKS):
        spec, shapes = rand_equation(8, 3, n_out=2, d_min=8, d_max=20 if on_gpu else 13, seed=seed)
        arrays = random_arrays(xp, shapes, "float64", seed)
        plan = gett.plan(spec, *arrays).compile()
        if seed % 2:
            with suppress(gett.OptionError):
                plan = gett.plan(spec, *arrays, memory_limit=f"{plan.peak_bytes // 2}B")
        plan(*arrays)
        rows.append({"name": spec, "slices": plan.slices, "planned": plan.peak_bytes,
                     "seen": _peak(partial(plan, *arrays), on_gpu)})  # fmt: skip
    return rows


def _peak(call: Callable[[], object], on_gpu: bool) -> int:
    if not on_gpu:
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak
    from cupy.cuda import memory_hook

    class Watch(memory_hook.MemoryHook):  # type: ignore[misc]
        name = "watch"
        held = most = 0

        def malloc_postprocess(self, **facts: Any) -> None:
            self.held += facts["mem_size"]
            self.most = max(self.most, self.held)

        def free_preprocess(self, **facts: Any) -> None:
            self.held -= facts["mem_size"]

    watch = Watch()
    with watch:
        call()
    return int(watch.most)


def rank_program() -> None:
    """What each rank runs: a network of 64 slices; rank 0 prints the seconds of the best of three."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    spec, shapes = grid(*RANKS_GRID)
    arrays = random_arrays(np, shapes, "complex64")
    plan = gett.plan(spec, *arrays) if comm.rank == 0 else None
    best = float("inf")
    for _ in range(3):
        comm.Barrier()
        start = time.perf_counter()
        gett.distributed.contract(
            plan, arrays if comm.rank == 0 else None, comm=comm, slices=RANKS_SLICES, root=0, progress=False
        )
        best = min(best, time.perf_counter() - start)
    if comm.rank == 0:
        print(best)


def rank_rows() -> list[dict[str, Any]]:
    """Seconds of one rank, and of as many as there are cores; nothing where there is no MPI."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.exists():
        return []
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rows = []
    for ranks in sorted({1, min(2, cores), min(4, cores)}):
        command = [
            str(mpiexec),
            "-n",
            str(ranks),
            sys.executable,
            "-c",
            "from benchmarks import gpus; gpus.rank_program()",
        ]
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        done = subprocess.run(command, env={**os.environ, **one}, capture_output=True, text=True, check=True)
        rows.append({"ranks": ranks, "s": float(done.stdout.split()[-1])})
    return rows


def main(
    *, on_gpu: bool, devices: Sequence[int] | None = None, json_path: str | None = None, plot_path: str | None = None
) -> int:
    """Measure, print, and write JSON and a chart where asked; 1 when devices give another result than one."""
    if on_gpu:
        import cupy as xp

        devices = list(devices or range(xp.cuda.runtime.getDeviceCount()))
    else:
        xp, devices = np, list(devices or (0, 1))
    record = {
        "environment": environment.describe() | ({"clocks": environment.clocks()} if on_gpu else {}),
        "devices": len(devices),
        "network": network_row(xp, devices, on_gpu),
        "ladder": ladder_rows(xp, devices, on_gpu),
        "expected": expected_rows(),
        "limit": limit_row(xp, on_gpu),
        "peaks": peak_rows(xp, on_gpu),
        "ranks": rank_rows(),
    }
    if json_path:
        write_text(json.dumps(record, indent=1) + "\n", json_path)
    if plot_path:
        gpus_report.chart(record, plot_path)
    print("\n".join(gpus_report.table(record)))
    apart = {"complex64": 1e-3, "float64": 1e-10}
    wrong = [x["name"] for x in record["ladder"] if x["apart"] > apart["float64"]]
    if record["network"]["apart"] > apart["complex64"]:
        wrong.append(record["network"]["name"])
    if wrong:
        print("far from the result of one device:", ", ".join(wrong))
    return 1 if wrong else 0
