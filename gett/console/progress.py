"""A progress bar on stderr: shown once a second has passed, where tqdm is installed, and nothing otherwise.

Owns when a bar is shown. Knows nothing of what is counted.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gett.console.formatting import printable

Step = Callable[[str], None]
"""Called once for each unit that is done; the text says which it was."""

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
        yield lambda text: None
        return

    def step(text: str) -> None:
        bar.set_postfix_str(printable(text), refresh=False)
        bar.update()

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
