"""A progress bar on stderr where tqdm is installed, nothing where it is not."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol


class Bar(Protocol):
    """What a run tells a progress bar."""

    def step(self, text: str) -> None:
        """One unit is about to be done; `text` says which."""


class _Silent:
    def step(self, text: str) -> None:
        """Say nothing."""


class _Tqdm:
    def __init__(self, total: int, title: str) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=total, desc=title, file=sys.stderr, leave=False, dynamic_ncols=True, mininterval=0.2)
        self._begun = False

    def step(self, text: str) -> None:
        """Advance past the unit before and name this one."""
        self._bar.update(self._begun)
        self._begun = True
        self._bar.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        """Finish the bar."""
        self._bar.close()


@contextlib.contextmanager
def bar(total: int, title: str) -> Iterator[Bar]:
    """A bar of `total` units, closed on leaving."""
    try:
        shown = _Tqdm(total, title)
    except ImportError:
        yield _Silent()
        return
    try:
        yield shown
    finally:
        shown.close()
