"""CUDA graphs without a driver: what executables record goes into a graph of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gett.runtime import driver, graphs


def record_into(monkeypatch: pytest.MonkeyPatch, state: Any, graph: Callable[[list[Any]], Any]) -> None:
    """Have recorders append to a list `made`, of which `graph` makes what is played.

    Args:
        monkeypatch: Takes it back.
        state: Its `graphs` are those that were recorded; `capturing` says whether streams are.
        graph: Given what was recorded.
    """

    class Recorder:
        def __init__(self, driver: Any) -> None:
            self.made: list[Any] = []
            self.waits: list[list[int]] = []

        def after(self, launches: Any) -> None:
            self.waits.append([*launches])

        def end(self) -> Any:
            state.graphs.append(graph(self.made))
            state.graphs[-1].waits = self.waits
            return state.graphs[-1]

        def close(self) -> None:
            pass

    monkeypatch.setattr(graphs, "Recorder", Recorder)
    monkeypatch.setattr(graphs, "is_capturing", lambda driver, stream: state.capturing)
    monkeypatch.setattr(driver, "load_driver", lambda: None)
