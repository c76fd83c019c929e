"""How a command ends: its exit code, and at most one line on stderr for what a user or the machine caused.

Owns the exit codes: what the command returns (0 done, 1 a result was wrong), 2 for bad input, a machine that cannot do
it or an output that cannot be written, above 128 a signal's number as shells count. Knows no command.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from gett.console.formatting import printable
from gett.errors import GettError

BAD = 2
INTERRUPTED = 130
PIPE_CLOSED = 141


def exit_code(program: str, command: Callable[[], int]) -> int:
    """Run a command and return its exit code.

    What is no fault of user or machine passes as the error that it is, and so does argparse's `SystemExit`.

    Args:
        program: Begins the line on stderr.
        command: Prints to stdout and returns its code.
    """
    if sys.stdout is None:
        return _refuse(program, "the output is closed")
    try:
        with _any_character():
            try:
                return command()
            finally:
                sys.stdout.flush()  # while a failure can still be told
    except GettError as error:
        return _refuse(program, str(error))
    except BrokenPipeError:  # the reader (`head`, a pager) has seen enough
        _drop(sys.stdout)
        return PIPE_CLOSED
    except OSError as error:
        _drop(sys.stdout)
        return _refuse(program, str(error))
    except MemoryError as error:
        return _refuse(program, f"there is not enough memory: {error}")
    except KeyboardInterrupt:
        return _refuse(program, "interrupted", INTERRUPTED)


def say(text: str, end: str = "\n") -> None:
    """Write to stderr, if there is one that takes it: no command fails for want of it."""
    if sys.stderr is None:
        return
    try:
        print(printable(text), end=end, file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


def _refuse(program: str, reason: str, code: int = BAD) -> int:
    say(f"{program}: {' '.join(reason.split())}")
    return code


@contextlib.contextmanager
def _any_character() -> Iterator[None]:
    """Let stdout escape what its encoding lacks; labels may be any letters."""
    stream = sys.stdout
    before = getattr(stream, "errors", None)
    change = getattr(stream, "reconfigure", None)
    if change is None or before != "strict":
        yield
        return
    change(errors="backslashreplace")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            change(errors=before)


def _drop(stream: TextIO) -> None:
    """Send what a stream still holds to nowhere, so that Python's own flush at exit does not fail again."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
