"""The command line: `python -m gett run | explain | precompile | demo | cache`.

Owns the arguments. The commands live in the modules beside it, and so do the exit codes (`exits.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import gett
from gett.cli.exits import exit_code, say
from gett.console.formatting import printable

EXTENTS_HELP = "extent of each mode, e.g. a=24,b=20; a bare number stands for all others, e.g. a=24,16"
OPTIMIZE_HELP = "for more than two operands: a path algorithm of opt_einsum (default: auto), none: from left to right"


class _Parser(argparse.ArgumentParser):
    """argparse, whose texts repeat arguments as they are: here they steer no terminal."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse's own is silent where help cannot be written.
        if file is sys.stdout:
            print(message, end="")
        else:
            say(message, end="")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `argv` without the program's name, default `sys.argv[1:]`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return exit_code("gett", lambda: _dispatch(arguments))


def _cache(clear: bool) -> int:
    """Show or clear the compiled kernels, and the schedules that were remembered with them."""
    from gett.jit import cache_cli
    from gett.tune.store import schedule_store

    code = cache_cli(["--clear"] if clear else [])
    store = schedule_store()
    if code or store.directory is None:
        return code
    if clear:
        print(f"removed {store.clear()} remembered schedules")
    else:
        tuned, chosen = store.count()
        print(f"schedules  {tuned} tuned, {chosen} chosen by the model")
    return 0


def _dispatch(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "cache":
        return _cache(options.clear)
    if options.command == "demo":
        from gett.cli.demo import run_demo

        return run_demo(options.device)
    if options.command == "precompile":
        from gett.cli.precompile import run_precompile

        return run_precompile(
            options.file, options.arch, shared=options.shared, precision=options.precision,
            workspace_limit=options.workspace_limit, memory_limit=options.memory_limit, processes=options.processes,
        )  # fmt: skip
    from gett.cli.problem import parse_problem

    problem = parse_problem(options.subscripts, options.extents, options.dtype)
    if options.command == "explain":
        from gett.cli.explain import run_explain

        return run_explain(
            problem, options.arch, precision=options.precision, order=options.order,
            optimize=False if options.optimize == "none" else options.optimize, form=options.form,
        )  # fmt: skip
    from gett.cli.run import run_run

    return run_run(problem, options.device, options.precision, options.repeat, options.devices)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gett", description="Tensor contractions, planned, explained and run.")
    parser.add_argument("--version", action="version", version=f"gett {gett.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="plan, run on random data, verify, and time beside the rivals installed")
    explain = commands.add_parser("explain", help="plan only, for any architecture; needs no GPU")
    ahead = commands.add_parser("precompile", help="compile the kernels of contractions, or of dtypes; needs no GPU")
    demo = commands.add_parser("demo", help="three real contractions on whatever this machine has")
    cache = commands.add_parser("cache", help="show the caches of kernels and schedules on disk; --clear empties them")
    cache.add_argument("--clear", action="store_true", help="remove every compiled kernel and remembered schedule")
    for command in (run, explain):
        command.add_argument("subscripts", help='einsum subscripts, e.g. "amji,cbkm->kjicba"')
        command.add_argument("--extents", required=True, metavar="a=24,b=20,...", help=EXTENTS_HELP)
        command.add_argument("--dtype", default="float32", help="of all operands (default: float32)")
    for command in (run, explain, ahead):
        command.add_argument(
            "--precision",
            default=None,
            help="how products are formed: ieee, for float32 also bf16x6 (default), fp16x3, bf16x3 or tf32",
        )
    ahead.add_argument(
        "file", nargs="?", help='JSON: {"name": {"eq": "ab,bc->ac", "shapes": [[9, 8], [8, 7]], "dtype": "float32"}}'
    )
    ahead.add_argument(
        "--shared", default="", metavar="DTYPES", help="also the kernels on which networks of these dtypes run at first"
    )
    ahead.add_argument("--arch", default=None, help="sm_90a, h100, a100, ... (default: this machine's GPU)")
    ahead.add_argument("--workspace-limit", default=None, metavar="SIZE", help="as workspace_limit= of gett.plan")
    ahead.add_argument("--memory-limit", default=None, metavar="SIZE", help="as memory_limit= of gett.plan")
    ahead.add_argument("--processes", type=_positive, default=None, help="kernels at one time (default: processors)")
    for command in (run, demo):
        command.add_argument("--device", choices=("cpu", "gpu"), help="default: the GPU where there is one")
    run.add_argument("--devices", type=device_numbers, metavar="0,1,...", help="GPUs that share it (default: one)")
    run.add_argument("--repeat", type=_positive, default=None, help="timed calls (default: by the time of one)")
    explain.add_argument("--arch", default=None, help="sm_90a, h100, a100, ..., cpu (default: this machine's)")
    explain.add_argument("--optimize", default="auto", metavar="NAME", help=OPTIMIZE_HELP)
    explain.add_argument("--order", default="K", help="memory order of the result: C, F, A or K (default)")
    forms = explain.add_mutually_exclusive_group()
    forms.add_argument("--detail", dest="form", action="store_const", const="detail", help="every part of every step")
    forms.add_argument("--json", dest="form", action="store_const", const="json", help="one line of JSON for programs")
    return parser


def device_numbers(text: str) -> list[int]:
    """The argument of `--devices`: numbers of GPUs, comma-separated."""
    parts = text.split(",")
    if not all(x.strip().isdecimal() for x in parts):
        raise argparse.ArgumentTypeError(f"it must be numbers of GPUs such as 0,1, got {text!r}")
    return [int(x) for x in parts]


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
