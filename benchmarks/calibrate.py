"""`python -m benchmarks calibrate`: measures what the cost models rest on, and writes the record of the GPU at hand.

First the machine (`probes`): memory and L2 by run, rows of the copy engine, launches. Of that a
`gett.hw.device.DeviceModel` is made and written as a module of `gett.hw.measured`. Then the model itself: the best few
schedules of each case are measured, and the model's choice is compared with the fastest.

The numbers of main loops are not measured here. `python -m benchmarks schedule-times` times schedules, and
`python -m benchmarks refit` fits the numbers to those times. Owns the order and the tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import environment, probes
from benchmarks.cases import Case
from benchmarks.device_record import Value, calibrated, field_at, taken, write_record
from benchmarks.records import write_text
from benchmarks.report import geometric_mean
from benchmarks.timing import GpuTimer
from gett.console.formatting import format_table
from gett.console.progress import progress
from gett.hw.device import DeviceModel, measured, nearest

TABLE_RUNS = (16, 32, 64, 128, 256)  # bytes, of the record


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
            "kind": t.schedule.kind, "shape": list(t.schedule.tiling.shape), "split_k": t.schedule.split_k,
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
        "best": f"{best.schedule.kind} {' x '.join(map(str, best.schedule.tiling.shape))}",
        "trials": trials,
    }


def machine_table(figures: Mapping[str, Value], model: DeviceModel) -> list[str]:
    """What the machine does beside what the record says."""
    rows = []
    for path, figure in figures.items():
        old = field_at(model, path)
        if isinstance(figure, Sequence):
            pairs = zip(TABLE_RUNS, figure, old, strict=True)
            rows += [[f"{path}, {run} B", f"{new:.3g}", f"{was:.3g}"] for run, new, was in pairs]
        else:
            rows.append([path, f"{figure:.3g}", f"{old:.3g}"])
    return format_table(["field", "measured", "record"], rows)


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


def machine_figures(cupy: Any, timer: GpuTimer, arch: str) -> dict[str, Value]:
    """Fields of the record that microbenchmarks measure."""
    from benchmarks.run_gpu import copy_bandwidth

    runs = probes.measure_runs(cupy, timer)
    figures: dict[str, Value] = {
        "memory.copy_tbps": copy_bandwidth(timer) * 1e-12,
        "memory.load_tbps": [runs["load"][r] for r in TABLE_RUNS],
        "memory.store_tbps": [runs["store"][r] for r in TABLE_RUNS],
        "l2.read_tbps": probes.measure_l2(cupy, timer),
        "launches.launch_us": probes.measure_launch(cupy, timer),
    }
    if int(arch.strip("sm_a")) >= 90:  # there is a copy engine
        bulk = probes.measure_bulk(cupy, timer)
        clocks = probes.measure_row_clocks(cupy)
        figures |= {
            "memory.bulk_load_tbps": [bulk["load"][r] for r in TABLE_RUNS],
            "memory.bulk_store_tbps": [bulk["store"][r] for r in TABLE_RUNS],
            "memory.cut_store_tbps": bulk["store"][48],
            "l2.tma_bytes_per_clock": 128 / clocks["l2"][128],
            "tma.row_clocks": (clocks["l2"][16] + clocks["l2"][32]) / 2,
            "tma.stored_row_clocks": (clocks["stored"][16] + clocks["stored"][32]) / 2,
        }
    cupy.get_default_memory_pool().free_all_blocks()
    return figures


def remarks(paths: Sequence[str], described: Mapping[str, Any], base: DeviceModel, scaled: bool) -> list[str]:
    """Lines of the record's docstring."""
    clocks = described.get("clocks") or {}
    shown = ", ".join(f"{k} {v}" for k, v in clocks.items() if k != "name")
    lines = [f"By `python -m benchmarks calibrate` on {described['date'][:10]}, commit {described['commit']}."]
    lines += [f"{shown[0].upper()}{shown[1:]}."] if shown else []
    how = f"times the fitted values of {base.name}" if scaled else "as they are"
    lines += [f"Measured ({how}):", *(f"  {path}" for path in paths), f"All else is {base.name}'s."]
    return lines


def main(
    *,
    cases: Sequence[Case],
    dtype: str,
    candidates: int,
    machine: bool = True,
    json_path: str | None = None,
    record_path: str | None = None,
    reference_path: str | None = None,
    write: bool = True,
) -> int:
    """Measure, print, write the record and JSON where asked; 1 when a case failed."""
    import cupy

    from gett.runtime.device import device_facts

    facts = device_facts()
    described = environment.describe() | {"clocks": environment.clocks()}
    found: dict[str, Any] = {"device": facts.name, "arch": facts.arch, "dtype": dtype, "environment": described}
    if machine:
        reference = json.loads(Path(reference_path).read_text(encoding="utf-8")) if reference_path else None
        base = nearest(facts.planning)
        if reference is not None:
            base = next((m for m in measured() if m.name == reference["device"]), base)
        figures = machine_figures(cupy, GpuTimer(budget_us=60_000.0), facts.arch)
        print("\n".join(machine_table(figures, base)), flush=True)
        found["figures"] = figures
        if json_path:
            write_text(json.dumps(found, indent=1) + "\n", json_path)
        if write:
            known = reference["figures"] if reference is not None else None
            record = calibrated(base, figures, known)
            plain = facts.planning
            record = replace(
                record, name=facts.name, arch=facts.arch, sm_count=facts.sm_count, clock_ghz=plain.clock_ghz
            )
            told = remarks(taken(figures, known), described, base, known is not None)
            path = write_record(record, told, record_path)
            print(f"\nwrote {path}", flush=True)
    found["cases"] = compare_cases(cupy, cases, dtype, candidates, facts) if cases else []
    if json_path:
        write_text(json.dumps(found, indent=1) + "\n", json_path)
    print("\n" + "\n".join(case_table(found["cases"])))
    return 1 if any("error" in r for r in found["cases"]) else 0
