"""A progress bar on stderr: shown once a second has passed, where tqdm is installed, and nothing otherwise.

Owns when a bar is shown. Knows nothing of what is counted.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Protocol

from gett.console.formatting import printable


class Step(Protocol):
    """Called when units are done; the text says which they were."""

    def __call__(self, text: str, units: int = 1, /) -> None: ...  # noqa: D102


DELAY_S = 1.0  # work that is done sooner needs no bar


@contextlib.contextmanager
def progress(total: int, title: str, shown: bool = True) -> Iterator[Step]:
    """A bar of `total` units, closed on leaving; what is given is called once for each unit done.

    Args:
        total: How many units there are.
        title: What stands in front of the bar.
        shown: Whether there is a bar at all; without tqdm there is none.
    """
    bar = _bar(total, title) if shown else None
    if bar is None:
        yield lambda text, units=1: None
        return

    def step(text: str, units: int = 1, /) -> None:
        bar.set_postfix_str(printable(text), refresh=False)
        bar.update(units)

    try:
        yield step
    finally:
        bar.close()


def on_terminal() -> bool:
    """Whether somebody may be looking: what nobody asked to see progress of shows it only then."""
    return sys.stderr is not None and sys.stderr.isatty()


def _bar(total: int, title: str) -> Any:
    if sys.stderr is None:  # a program without a console
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(
        total=total, desc=title, file=sys.stderr, leave=False, dynamic_ncols=True, delay=DELAY_S, mininterval=0.2
    )
