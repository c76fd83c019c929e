"""`python -m benchmarks calibrate`: the measurements that the cost model rests on, repeated on the GPU at hand.

First the machine: copy rate, memory rates by length of the contiguous run, L2 rate, launch cost, tensor rate by width
of the tile. Each stands beside what the model assumes (`layouts.access`, `gett.hw.archs`, `cost`, `cost_sm90`).
Then the model itself: the best few schedules of each case are measured, and the model's choice is compared with the
fastest. Owns the measuring kernels and the tables; schedules and tuning are gett's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import environment
from benchmarks.cases import Case
from benchmarks.records import write_text
from benchmarks.report import geometric_mean
from benchmarks.timing import GpuTimer
from gett.console.formatting import format_table
from gett.console.progress import progress

RUNS = (16, 32, 64, 128, 256, 512, 1024)  # bytes
PIECES = 17  # a pass over memory takes every 17th run; the next passes take the others
BUFFER = 1 << 30
L2_BUFFER = 16 << 20
L2_ROUNDS = 24
BLOCKS, THREADS = 132 * 16, 256
GEMM = (8192, 8192, 4096)  # m, n (rounded to the tile's width), k of the tensor-rate measurement
PER_WIDTH = 3  # schedules measured for each width

_KERNELS = r"""
// Chunk i of 16 bytes belongs to run i / length; runs are visited every `pieces`-th, pass after pass.
__device__ long long scattered(long long i, int length, long long pass, int pieces) {
    long long run = i / length;
    return (run % pass * pieces + run / pass) * length + i % length;
}
extern "C" __global__ void scattered_copy(const uint4* from, uint4* to, long long chunks, int length, long long pass,
                                          int pieces, int store) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < chunks; i += step) {
        long long far = scattered(i, length, pass, pieces);
        if (store) to[far] = from[i]; else to[i] = from[far];
    }
}
extern "C" __global__ void reread(const uint4* from, uint4* to, int chunks, int rounds) {
    uint4 sum = make_uint4(0, 0, 0, 0);
    int step = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < rounds; ++round)
        for (int i = first; i < chunks; i += step) {
            uint4 v;
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from + i));
            sum.x ^= v.x; sum.y ^= v.y; sum.z ^= v.z; sum.w ^= v.w;
        }
    if (sum.x == 0x12345678u && sum.y == 1u) to[0] = sum;
}
extern "C" __global__ void nothing() {}
"""


def run_passes(run_bytes: int, buffer_bytes: int = BUFFER) -> tuple[int, int]:
    """Runs of one pass, and 16-byte chunks of all passes: a whole number of runs in each of `PIECES` passes."""
    per_pass = buffer_bytes // run_bytes // PIECES
    return per_pass, per_pass * PIECES * (run_bytes // 16)


def measured_us(timer: GpuTimer, call: Callable[[int], object]) -> float:
    """Median microseconds.

    Raises:
        RuntimeError: The call failed.
    """
    found = timer.measure(call)
    if found.median_us is None:
        raise RuntimeError(f"a measurement failed: {found.error}")
    return found.median_us


def measure_runs(cupy: Any, timer: GpuTimer) -> dict[str, dict[int, float]]:
    """TB/s, read plus written, of copies of which one side comes in runs of so many bytes, by side and run."""
    kernel = cupy.RawModule(code=_KERNELS).get_function("scattered_copy")
    source, target = cupy.zeros(BUFFER, "uint8"), cupy.empty(BUFFER, "uint8")
    found: dict[str, dict[int, float]] = {}
    for side in ("load", "store"):
        found[side] = {}
        for run in RUNS:
            per_pass, chunks = run_passes(run)
            arguments = (
                source, target, np.int64(chunks), np.int32(run // 16), np.int64(per_pass), np.int32(PIECES),
                np.int32(side == "store"),
            )  # fmt: skip
            us = measured_us(timer, lambda _, a=arguments: kernel((BLOCKS,), (THREADS,), a))
            found[side][run] = 2 * 16 * chunks / us * 1e-6
    return found


def measure_l2(cupy: Any, timer: GpuTimer) -> float:
    """TB/s of reading a buffer that the L2 cache holds, past the caches above it."""
    kernel = cupy.RawModule(code=_KERNELS).get_function("reread")
    source, target = cupy.zeros(L2_BUFFER, "uint8"), cupy.empty(16, "uint8")
    arguments = (source, target, np.int32(L2_BUFFER // 16), np.int32(L2_ROUNDS))
    return L2_BUFFER * L2_ROUNDS / measured_us(timer, lambda _: kernel((BLOCKS,), (THREADS,), arguments)) * 1e-6


def measure_launches(cupy: Any, timer: GpuTimer) -> dict[str, float]:
    """Microseconds from one kernel to the next in a full queue: one that does nothing, and a tiny contraction."""
    import gett

    empty = cupy.RawModule(code=_KERNELS).get_function("nothing")
    a, d = cupy.ones((16, 16), "float32"), cupy.empty((16, 16), "float32")
    plan = gett.plan("ij,jk->ik", a, a)
    return {
        "empty kernel": measured_us(timer, lambda _: empty((1,), (32,), ())),
        "16 x 16 matrices": measured_us(timer, lambda _: plan(a, a, out=d)),
    }


def measure_tensor_rates(cupy: Any, dtype: str, facts: Any) -> dict[int, dict[str, float]]:
    """By width of the tile: TFLOP/s of the best of a few schedules for a large matrix product, and its rows."""
    import gett
    from gett.schedule.search.base import best_schedules
    from gett.schedule.search.wgmma import both_roles
    from gett.schedule.search.wgmma_ss import WgmmaSSSearch
    from gett.tune.measure import Bench
    from gett.tune.tuner import compile_all

    found: dict[int, dict[str, float]] = {}
    m, n, k = GEMM
    for width in (256, 192, 128, 96, 64, 32):
        pairs = (((m, k), dtype), ((n // width * width, k), dtype))
        plan = gett.plan("mk,nk->mn", *pairs, arch=facts.arch).steps[0].gemm
        found_all = best_schedules(both_roles(WgmmaSSSearch, plan, facts.planning), 400)
        listed = [s for s in found_all if s.tiling.block[1] == width][:PER_WIDTH]
        built = [(s, b) for s, b in compile_all(plan, listed, lambda text: None) if not isinstance(b, Exception)]
        if not built:
            continue
        bench = Bench(cupy, plan, 0)
        bench.shuffle()
        us, rows = min((bench.time(b, 10), s.tiling.block[0]) for s, b in built)
        found[width] = {"tflops": plan.flops / us * 1e-6, "rows": rows, "us": us}
        del bench
        cupy.get_default_memory_pool().free_all_blocks()
    return found


def compare_cases(
    cupy: Any, cases: Sequence[Case], dtype: str, candidates: int, facts: Any, repeat: int = 10
) -> list[dict[str, Any]]:
    """The model's choice and the best measured of each case; a case that fails gives its error."""
    import gett
    from gett.tune.tuner import tune

    rows: list[dict[str, Any]] = []
    with progress(len(cases), f"model against clock, {dtype}") as step:
        for case in cases:
            pairs = [(shape, dtype) for shape in case.shapes[:2]]
            try:
                plan = gett.plan(case.einsum, *pairs, arch=facts.arch).steps[0].gemm
                tuning = tune(plan, candidates=candidates, repeat=repeat, store=False)
                if tuning.best is None:
                    raise RuntimeError(f"no kernel compiles well: {tuning.trials[0].note}")
            except Exception as error:  # e.g. out of memory: the next case may fit
                rows.append({"case": case.name, "error": f"{type(error).__name__}: {error}"[:300]})
            else:
                rows.append(describe(case.name, tuning))
                del tuning
                cupy.get_default_memory_pool().free_all_blocks()
            step(case.name)
    return rows


def describe(name: str, tuning: Any) -> dict[str, Any]:
    """A tuning as plain data."""
    chosen, best = tuning.chosen, tuning.best
    trials = [
        {
            "kind": t.schedule.kind, "block": list(t.schedule.tiling.block), "split_k": t.schedule.split_k,
            "estimate_us": t.schedule.forecast.us, "bound": t.schedule.forecast.bound, "measured_us": t.measured_us,
            "note": t.note,
        }
        for t in tuning.trials
    ]  # fmt: skip
    return {
        "case": name,
        "bytes": tuning.plan.bytes,
        "flops": tuning.plan.flops,
        "estimate_us": chosen.schedule.forecast.us,
        "choice_us": chosen.measured_us,
        "best_us": best.measured_us,
        "ratio": best.measured_us / chosen.measured_us,
        "best": f"{best.schedule.kind} {' x '.join(map(str, best.schedule.tiling.block))}",
        "trials": trials,
    }


def machine_table(figures: dict[str, Any], facts: Any) -> list[str]:
    """What the machine does beside what the model assumes."""
    from gett.schedule.cost.estimate import LAUNCH_US
    from layouts.access import COPY, run_bandwidth

    nominal = facts.planning
    rows = [
        ["copy, TB/s", f"{figures['copy_tbps']:.2f}", f"{nominal.dram_tbps:.2f}"],
        ["L2 reads, TB/s", f"{figures['l2_tbps']:.2f}", f"{nominal.l2_tbps:.2f}"],
    ]
    for side, rates in figures["runs_tbps"].items():
        for run, rate in rates.items():
            expected = run_bandwidth(int(run), store=side == "store") * COPY
            rows.append([f"{side}s in runs of {run} B, TB/s", f"{rate:.2f}", f"{expected:.2f}"])
    rows += [[f"launch, {what}, us", f"{us:.2f}", f"{LAUNCH_US:.2f}"] for what, us in figures["launch_us"].items()]
    peak = nominal.tensor_tflops.get(figures["dtype"])
    for width, got in figures["tensor"].items():
        share = f"{got['tflops'] / peak:.0%} of {peak:.0f}" if peak else ""
        rows.append([f"tensor cores, tile {got['rows']} x {width}, TFLOP/s", f"{got['tflops']:.0f}", share])
    return format_table(["measured on " + facts.name, "now", "model"], rows)


def case_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The model's choice beside the best, case by case, and the geometric mean."""
    good = [r for r in rows if "error" not in r]
    cells = [
        [
            r["case"], f"{r['estimate_us']:.1f}", f"{r['choice_us']:.1f}", f"{r['best_us']:.1f}", f"{r['ratio']:.2f}",
            r["best"] if r["ratio"] < 1 else "",
        ]
        for r in good
    ]  # fmt: skip
    header = ["case", "model us", "choice us", "best us", "best/choice", "what was better"]
    lines = format_table(header, cells) if cells else []
    lines += [f"{r['case']}: {r['error']}" for r in rows if "error" in r]
    mean = geometric_mean([r["ratio"] for r in good])
    if mean is not None:
        error = geometric_mean([math.exp(abs(math.log(r["estimate_us"] / r["choice_us"]))) for r in good])
        lines.append(f"geometric mean of best/choice {mean:.3f}; estimates are off by a factor of {error:.2f}")
    return lines


def main(
    *, cases: Sequence[Case], dtype: str, candidates: int, machine: bool = True, json_path: str | None = None
) -> int:
    """Measure, print, and write JSON where asked; 1 when a case failed."""
    import cupy

    from benchmarks.run_gpu import copy_bandwidth
    from gett.runtime.device import device_facts

    facts = device_facts()
    figures: dict[str, Any] = {
        "device": facts.name,
        "arch": facts.arch,
        "dtype": dtype,
        "environment": environment.describe() | {"clocks": environment.clocks()},
    }
    if machine:
        timer = GpuTimer(budget_us=60_000.0)
        figures |= {
            "copy_tbps": copy_bandwidth(timer) * 1e-12,
            "runs_tbps": measure_runs(cupy, timer),
            "l2_tbps": measure_l2(cupy, timer),
            "launch_us": measure_launches(cupy, timer),
        }
        cupy.get_default_memory_pool().free_all_blocks()
        figures["tensor"] = measure_tensor_rates(cupy, dtype, facts)
        print("\n".join(machine_table(figures, facts)), flush=True)
    figures["cases"] = compare_cases(cupy, cases, dtype, candidates, facts)
    if json_path:
        write_text(json.dumps(figures, indent=1) + "\n", json_path)
    print("\n" + "\n".join(case_table(figures["cases"])))
    return 1 if any("error" in r for r in figures["cases"]) else 0
