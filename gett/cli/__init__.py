"""The command line: `python -m gett run | explain | demo | cache`.

Owns the arguments and the exit codes: 0 done, 1 a result was wrong, 2 bad input or a machine that cannot do it (one
line on stderr, no traceback), above 128 a signal's number as shells count. The commands live in the modules beside it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from gett.errors import GettError

EXTENTS_HELP = "extent of each mode, e.g. a=24,b=20; a bare number stands for all others, e.g. a=24,16"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `argv` without the program's name, default `sys.argv[1:]`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments[:1] == ["cache"]:
            return _cache(arguments[1:])
        options = _parser().parse_args(arguments)
        return _dispatch(options)
    except GettError as error:
        text = " ".join(str(error).split())
        print(f"gett: {text}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (`head`, a pager) has seen enough; Python's own flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("gett: interrupted", file=sys.stderr)
        return 130


def _cache(arguments: Sequence[str]) -> int:
    """Show or clear the compiled kernels, and the schedules that were remembered with them."""
    from gett.jit import cache_cli
    from gett.tune.store import schedule_store

    code = cache_cli(arguments)
    store = schedule_store()
    if code or store.directory is None:
        return code
    if arguments:
        print(f"removed {store.clear()} remembered schedules")
    else:
        tuned, chosen = store.count()
        print(f"schedules  {tuned} tuned, {chosen} chosen by the model")
    return 0


def _dispatch(options: argparse.Namespace) -> int:
    if options.command == "demo":
        from gett.cli.demo import run_demo

        return run_demo(options.device)
    from gett.cli.problem import parse_problem

    problem = parse_problem(options.subscripts, options.extents, options.dtype)
    if options.command == "explain":
        from gett.cli.explain import run_explain

        return run_explain(problem, options.arch, options.precision)
    from gett.cli.run import run_run

    return run_run(problem, options.device, options.precision, options.repeat)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gett", description="Tensor contractions, planned, explained and run.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="plan, run on random data, verify, and time beside the rivals installed")
    explain = commands.add_parser("explain", help="plan only, for any architecture; needs no GPU")
    demo = commands.add_parser("demo", help="three real contractions on whatever this machine has")
    commands.add_parser("cache", help="show the caches of kernels and schedules on disk; --clear empties them")
    for command in (run, explain):
        command.add_argument("subscripts", help='einsum subscripts, e.g. "amji,cbkm->kjicba"')
        command.add_argument("--extents", required=True, metavar="a=24,b=20,...", help=EXTENTS_HELP)
        command.add_argument("--dtype", default="float32", help="of all operands (default: float32)")
        command.add_argument("--precision", default=None, help="how products are formed: ieee (default) or tf32")
    for command in (run, demo):
        command.add_argument("--device", choices=("cpu", "gpu"), help="default: the GPU where there is one")
    run.add_argument("--repeat", type=_positive, default=None, help="timed calls (default: by the time of one)")
    explain.add_argument("--arch", default=None, help="sm_90a, sm_80, ..., cpu (default: this machine's)")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
