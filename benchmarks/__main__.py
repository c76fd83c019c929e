"""`python -m benchmarks tccg` and `python -m benchmarks overhead`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import environment, overhead, report, run_cpu
from benchmarks.cases import ELEMENT_TYPES, load_cases
from benchmarks.records import Run, write_json
from benchmarks.rivals import all_rivals


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description="Times gett beside its rivals, in one run.")
    commands = top.add_subparsers(dest="command", required=True)
    tccg = commands.add_parser("tccg", help="the 24 contractions of the TCCG benchmark and one more")
    tccg.add_argument("--dtype", default=None, help=f"list of {', '.join(ELEMENT_TYPES)} (float16; CPU: float32)")
    tccg.add_argument("--precision", default=None, help="how products are formed, e.g. tf32 (float32 on a GPU)")
    tccg.add_argument("--case", action="append", default=[], metavar="NAME", help="only this case; may be repeated")
    tccg.add_argument("--rivals", default="", help=f"comma-separated, on a GPU: {', '.join(all_rivals())} (all)")
    tccg.add_argument("--scale", type=float, default=None, help="share of each case's elements (1; CPU: 1/16)")
    tccg.add_argument("--quick", action="store_true", help="six cases that meet every shape class, fewer repetitions")
    tccg.add_argument("--no-check", action="store_true", help="do not compare gett's results with a reference")
    tccg.add_argument("--cpu", action="store_true", help="run on NumPy even where there is a GPU")
    tccg.add_argument("--json", metavar="FILE", help="write every figure there")
    tccg.add_argument("--plot", metavar="FILE", help="write a chart there, e.g. tccg.png")
    tccg.add_argument("--label", help="a remark to keep with the figures")
    host = commands.add_parser("overhead", help="host time of a call, and of a first call")
    host.add_argument("--json", metavar="FILE", help="write every figure there")
    host.add_argument("--cpu", action="store_true", help="run on NumPy even where there is a GPU")
    host.add_argument("--no-first", action="store_true", help="leave out the first calls, which start processes")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 when all of gett's results are right, 1 when one is wrong or missing, 2 for a bad option."""
    top = parser()
    options = top.parse_args(arguments)
    on_gpu = not options.cpu and environment.gpu_available()
    if options.command == "overhead":
        return overhead.main(on_gpu=on_gpu, json_path=options.json, with_first=not options.no_first)
    dtypes = (options.dtype or ("float16" if on_gpu else "float32")).split(",")
    rivals = [r for r in options.rivals.split(",") if r]
    for kind, given, known in (("dtype", dtypes, ELEMENT_TYPES), ("rival", rivals, all_rivals())):
        for name in given:
            if name not in known:
                top.error(f"unknown {kind} {name!r}; choose from {', '.join(known)}")
    try:
        cases = load_cases(options.case, quick=options.quick)
        scale = options.scale if options.scale is not None else (1.0 if on_gpu else run_cpu.DEFAULT_SCALE)
        for case in cases:
            case.scaled(scale)
    except ValueError as error:
        top.error(str(error))
    if not on_gpu and (options.precision or rivals):
        top.error("--precision and --rivals need a GPU")
    runs: list[Run] = []
    for dtype in dtypes:
        if on_gpu:
            from benchmarks import run_gpu

            runs.append(
                run_gpu.run(
                    cases, dtype, precision=options.precision, rivals=rivals, scale=scale, check=not options.no_check,
                    label=options.label, budget_us=30_000.0 if options.quick else 150_000.0,
                )
            )  # fmt: skip
        else:
            rounds = 3 if options.quick else 5
            runs.append(
                run_cpu.run(cases, dtype, scale=scale, check=not options.no_check, label=options.label, rounds=rounds)
            )
        if options.json:  # after each dtype: a run that is cut short keeps what it has
            write_json(runs, options.json)
    if options.plot:
        report.plot(runs, options.plot)
    print("\n\n".join(report.table(r) for r in runs))
    return 1 if any(r.failed for r in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
