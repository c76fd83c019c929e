"""`python -m benchmarks COMMAND`; `--help` lists the commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks import (
    accuracy,
    calibrate,
    conversions,
    environment,
    epilogue,
    first_calls,
    gemm_sizes,
    gpus,
    gradients,
    grouped,
    jax_speed,
    known_schedules,
    networks,
    overhead,
    refit,
    regret,
    schedule_times,
    workloads,
)
from benchmarks.cases import ELEMENT_TYPES, load_cases
from benchmarks.random_cases import COUNT, SEED
from benchmarks.rivals.table import KNOWN, ON_GPU
from benchmarks.tasks import prepare_random, prepare_tccg, prepare_workloads, run_task
from gett.cli import device_numbers
from gett.cli.exits import exit_code
from gett.ir.tensors import PRECISIONS


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description="Times gett beside its rivals, in one run.")
    commands = top.add_subparsers(dest="command", required=True)
    tccg = commands.add_parser("tccg", help="the 24 contractions of the TCCG benchmark and one more")
    drawn = commands.add_parser("random", help="generated contractions that nobody tuned for")
    real = commands.add_parser("workloads", help="contractions of public programs, in the dtypes of their users")
    for command, usual in (
        (tccg, "float16; CPU: float32"),
        (drawn, "float16; CPU: float32"),
        (real, "those of a case"),
    ):
        command.add_argument("--dtype", default=None, help=f"list of {', '.join(ELEMENT_TYPES)} ({usual})")
        command.add_argument("--precision", default=None, help="how products are formed, e.g. tf32 (float32 on a GPU)")
        command.add_argument("--case", action="append", default=[], metavar="NAME", help="only this; may be repeated")
        command.add_argument("--no-check", action="store_true", help="do not compare gett's results with a reference")
        command.add_argument("--cpu", action="store_true", help="run on NumPy even where there is a GPU")
        command.add_argument("--json", metavar="FILE", help="write every figure there")
        command.add_argument("--plot", metavar="FILE", help="write a chart there, e.g. tccg.png")
        command.add_argument("--label", help="a remark to keep with the figures")
    fields = ", ".join(f"{name}: {text}" for name, text in workloads.FIELDS.items())
    real.add_argument("--field", default="", help=f"list of fields (all); {fields}")
    real.add_argument("--large", action="store_true", help="also cases of more than 12 GB")
    real.add_argument("--gflop", type=float, metavar="G", help="on a CPU: at most G billion operations a case")
    real.add_argument(
        "--rivals", default="", help="comma-separated, on a GPU (cuTENSOR's with their emulations, PyTorch's, cuBLAS)"
    )
    known = ", ".join(ON_GPU)
    tccg.add_argument("--rivals", default="", help=f"comma-separated, on a GPU: {known} (all)")
    tccg.add_argument("--scale", type=float, default=None, help="share of each case's elements (1; CPU: 1/16)")
    tccg.add_argument("--gflop", type=float, metavar="G", help="shrink each case to G billion operations instead")
    tccg.add_argument("--odd", action="store_true", help="make every even extent one less")
    tccg.add_argument("--quick", action="store_true", help="six cases that meet every shape class, fewer repetitions")
    drawn.add_argument("--rivals", default="", help=f"comma-separated, on a GPU: {known} (cuTENSOR's and torch.einsum)")
    drawn.add_argument("--count", type=int, default=COUNT, help=f"number of cases ({COUNT}); 20 meet every kind")
    drawn.add_argument("--seed", type=int, default=SEED, help=f"another seed, other cases ({SEED})")
    host = commands.add_parser("overhead", help="host time of a call, and of a first call")
    host.add_argument("--json", metavar="FILE", help="write every figure there")
    host.add_argument("--cpu", action="store_true", help="run on NumPy even where there is a GPU")
    host.add_argument("--no-first", action="store_true", help="leave out the first calls, which start processes")
    first = commands.add_parser("first-calls", help="first calls with an empty cache: networks, many modes")
    first.add_argument("--case", action="append", default=[], metavar="NAME", help="only this; may be repeated")
    first.add_argument("--rounds", type=int, default=1, help="how often each is measured, the fastest counts (1)")
    first.add_argument("--json", metavar="FILE", help="write every figure there")
    first.add_argument("--cpu", action="store_true", help="plan and compile only, even where there is a GPU")
    whole = commands.add_parser("networks", help="whole networks and an iteration of CCSD, warm, beside PyTorch")
    whole.add_argument("--case", action="append", default=[], metavar="NAME", help="only this; may be repeated")
    whole.add_argument("--json", metavar="FILE", help="write every figure there")
    whole.add_argument("--cpu", action="store_true", help="run on NumPy even where there is a GPU")
    function = commands.add_parser("epilogue", help="functions fused into the store, and as kernels of their own")
    function.add_argument("--json", metavar="FILE", help="write every figure there")
    function.add_argument("--cpu", action="store_true", help="run on NumPy even where there is a GPU")
    gradient = commands.add_parser("gradients", help="forward and backward in PyTorch, beside torch.einsum")
    gradient.add_argument("--json", metavar="FILE", help="write every figure there")
    gradient.add_argument("--cpu", action="store_true", help="run on the CPU even where there is a GPU")
    sizes = commands.add_parser("gemm", help="matrix products of many sizes, beside cuBLAS")
    sizes.add_argument("--dtype", action="append", choices=gemm_sizes.KINDS, help="only this; may be repeated (all)")
    sizes.add_argument("--step", type=int, default=gemm_sizes.STEP, help="between sizes (128)")
    sizes.add_argument("--most", type=int, default=gemm_sizes.MOST, help="the largest square (4096)")
    sizes.add_argument("--json", metavar="FILE", help="write every figure there")
    sizes.add_argument("--cpu", action="store_true", help="run on NumPy even where there is a GPU")
    many = commands.add_parser("grouped", help="many contractions in one launch, beside loops and torch._grouped_mm")
    many.add_argument("--json", metavar="FILE", help="write every figure there")
    many.add_argument("--cpu", action="store_true", help="run on NumPy even where there is a GPU")
    several = commands.add_parser("gpus", help="several GPUs beside one, limits of memory, ranks of MPI")
    several.add_argument("--devices", type=device_numbers, help="numbers of GPUs, comma-separated (all)")
    several.add_argument("--json", metavar="FILE", help="write every figure there")
    several.add_argument("--plot", metavar="FILE", help="write a chart there, e.g. gpus.png")
    several.add_argument("--cpu", action="store_true", help="run on NumPy even where there is a GPU")
    traced = commands.add_parser("jax", help="products in JAX, beside jnp.einsum, under jax.jit")
    traced.add_argument("--case", action="append", default=[], metavar="NAME", help="only this; may be repeated")
    traced.add_argument("--dtype", action="append", choices=jax_speed.DTYPES, help="only this; may be repeated (both)")
    traced.add_argument("--json", metavar="FILE", help="write every figure there")
    traced.add_argument("--cpu", action="store_true", help="run on the CPU even where there is a GPU")
    mixed = commands.add_parser("conversions", help="operands of several dtypes, and converted by hand")
    mixed.add_argument("--json", metavar="FILE", help="write every figure there")
    mixed.add_argument("--cpu", action="store_true", help="run on the CPU even where there is a GPU")
    exact = commands.add_parser("accuracy", help="errors of products, by precision and library")
    exact.add_argument("--dtype", default="float32", choices=list(accuracy.PRODUCTS), help="of the operands (float32)")
    exact.add_argument("--json", metavar="FILE", help="write every figure there")
    exact.add_argument("--plot", metavar="FILE", help="write a chart there, e.g. accuracy.png")
    exact.add_argument("--cpu", action="store_true", help="run on NumPy even where there is a GPU")
    fit = commands.add_parser(
        "calibrate",
        help="rates of the machine, and the cost model's choice against the best (GPU)",
        description="Measures the machine, and the cost model's choices against the best schedules. "
        "The numbers of main loops come from schedule-times and refit.",
    )
    fit.add_argument("--dtype", default="float16", choices=list(ELEMENT_TYPES), help="of the cases (float16)")
    fit.add_argument("--case", action="append", default=[], metavar="NAME", help="only this; may be repeated")
    fit.add_argument("--candidates", type=int, default=8, metavar="N", help="schedules measured for each case (8)")
    fit.add_argument("--cases-only", action="store_true", help="leave out the measurements of the machine")
    fit.add_argument("--no-cases", action="store_true", help="leave out the comparison of the model with the clock")
    fit.add_argument("--record", metavar="FILE", help="write the device's record there (a module of gett.hw.measured)")
    fit.add_argument("--no-record", action="store_true", help="write no record")
    fit.add_argument(
        "--reference", metavar="FILE", help="JSON of a calibration on the device that the record starts from"
    )
    fit.add_argument("--json", metavar="FILE", help="write every figure there")
    timed = commands.add_parser("schedule-times", help="times of many schedules, as data that load again (GPU)")
    timed.add_argument("file", help="written there, compressed")
    timed.add_argument("--seconds", type=float, default=600.0, help="no contraction is begun later (600)")
    again = commands.add_parser("regret", help="what the cost model's choices cost, by stored times")
    again.add_argument(
        "files", nargs="*", type=Path, help="of schedule-times (those of an H200, seen and unseen, and of an H100)"
    )
    write = commands.add_parser("known", help="write the known schedules that the package ships, from stored times")
    write.add_argument("files", nargs="*", type=Path, help="of schedule-times (those of an H200 and an H100)")
    numbers = commands.add_parser("refit", help="the numbers of the Hopper main loops, by stored times")
    numbers.add_argument("files", nargs="*", type=Path, help="of schedule-times (those of an H200 and an H100)")
    numbers.add_argument("--passes", type=int, default=4, help="how often each number is tried (4)")
    numbers.add_argument("--every", type=int, default=1, metavar="N", help="fit to each N-th contraction alone (1)")
    numbers.add_argument("--record", metavar="FILE", help="write the device's record there")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 when all of gett's results are right, 1 when one is wrong or missing, 2 for a bad option."""
    return exit_code("benchmarks", lambda: _dispatch(arguments))


def _dispatch(arguments: Sequence[str] | None) -> int:
    top = parser()
    options = top.parse_args(arguments)
    with nullcontext() if options.command == "first-calls" else environment.own_kernels():
        return _run(top, options)


def _run(top: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.command == "calibrate":
        return _calibrate(top, options)
    if options.command == "regret":
        return regret.main(options.files or regret.REPLAYED)
    if options.command == "known":
        return known_schedules.main(options.files or regret.STORED)
    if options.command == "refit":
        if options.passes < 1 or options.every < 1:
            top.error("--passes and --every must be at least 1")
        return refit.main(options.files or regret.STORED, options.passes, options.every, options.record)
    if options.command == "schedule-times":
        if not environment.gpu_available():
            top.error("schedule-times measures a GPU, and CuPy finds none")
        return schedule_times.main(options.file, options.seconds)
    on_gpu = not options.cpu and environment.gpu_available()
    if options.command == "overhead":
        return overhead.main(on_gpu=on_gpu, json_path=options.json, with_first=not options.no_first)
    if options.command == "first-calls":
        if options.rounds < 1:
            top.error(f"--rounds is {options.rounds}; it must be at least 1")
        try:
            return first_calls.main(on_gpu=on_gpu, json_path=options.json, only=options.case, rounds=options.rounds)
        except ValueError as error:
            top.error(str(error))
    if options.command == "epilogue":
        return epilogue.main(on_gpu=on_gpu, json_path=options.json)
    if options.command == "grouped":
        return grouped.main(on_gpu=on_gpu, json_path=options.json)
    if options.command == "gradients":
        return gradients.main(on_gpu=on_gpu, json_path=options.json)
    if options.command == "gemm":
        if not 0 < 4 * options.step <= options.most:
            top.error(f"--step {options.step} --most {options.most}: the least square has four steps")
        kinds = options.dtype or gemm_sizes.KINDS
        return gemm_sizes.main(on_gpu=on_gpu, kinds=kinds, step=options.step, most=options.most, json_path=options.json)
    if options.command == "networks":
        try:
            return networks.main(on_gpu=on_gpu, json_path=options.json, only=options.case)
        except ValueError as error:
            top.error(str(error))
    if options.command == "gpus":
        return gpus.main(on_gpu=on_gpu, devices=options.devices, json_path=options.json, plot_path=options.plot)
    if options.command == "jax":
        return _jax(top, options, on_gpu)
    if options.command == "conversions":
        return conversions.main(on_gpu=on_gpu, json_path=options.json)
    if options.command == "accuracy":
        return accuracy.main(on_gpu=on_gpu, dtype=options.dtype, json_path=options.json, plot_path=options.plot)
    usual = "" if options.command == "workloads" else "float16" if on_gpu else "float32"
    dtypes = [t for t in (options.dtype or usual).split(",") if t]
    rivals = [r for r in options.rivals.split(",") if r]
    for kind, given, known in (("dtype", dtypes, ELEMENT_TYPES), ("rival", rivals, KNOWN)):
        for name in given:
            if name not in known:
                top.error(f"unknown {kind} {name!r}; choose from {', '.join(known)}")
    if not on_gpu and "bfloat16" in dtypes:
        top.error("bfloat16 needs a GPU, and PyTorch to hold the operands")
    if options.precision and options.precision not in PRECISIONS:
        top.error(f"unknown precision {options.precision!r}; choose from {', '.join(PRECISIONS)}")
    if not on_gpu and (options.precision or rivals):
        top.error("--precision and --rivals need a GPU")
    prepare = {"tccg": prepare_tccg, "random": prepare_random, "workloads": prepare_workloads}[options.command]
    try:
        task = prepare(options, on_gpu, dtypes, rivals)
    except ValueError as error:
        top.error(str(error))
    return run_task(task)


def _jax(top: argparse.ArgumentParser, options: argparse.Namespace, on_gpu: bool) -> int:
    try:
        dtypes = options.dtype or jax_speed.DTYPES
        return jax_speed.main(on_gpu=on_gpu, json_path=options.json, only=options.case, dtypes=dtypes)
    except ValueError as error:
        top.error(str(error))


def _calibrate(top: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.candidates < 1:
        top.error(f"--candidates is {options.candidates}; it must be at least 1")
    try:
        cases = load_cases(options.case)
    except ValueError as error:
        top.error(str(error))
    if not environment.gpu_available():
        top.error("calibrate measures a GPU, and CuPy finds none")
    return calibrate.main(
        cases=() if options.no_cases else cases, dtype=options.dtype, candidates=options.candidates,
        machine=not options.cases_only, json_path=options.json, record_path=options.record,
        reference_path=options.reference, write=not options.no_record,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
