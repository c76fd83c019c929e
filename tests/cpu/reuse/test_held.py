"""Streams of arrays that are held: a stand-in for CuPy says what was waited for."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import numpy as np
import pytest

import gett
from gett.arrays import held


class Array:
    """As much of a CuPy array as is asked for."""

    dtype = np.dtype("float64")

    def __init__(self, address: int, device: Any) -> None:
        self.data = types.SimpleNamespace(ptr=address)
        self.device = device
        self.shape, self.strides = (2,), (8,)


class Device(contextlib.nullcontext[None]):
    """A GPU, and what was asked of it."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    def synchronize(self) -> None:
        self._log.append("device")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in whose `current` is the handle of the current stream, and whose `log` says what was waited for."""
    found = types.SimpleNamespace(current=1, log=[], capturing=False)

    class Event:
        def __init__(self, disable_timing: bool) -> None:
            assert disable_timing

        def record(self, stream: Any) -> None:
            self.stream = stream.ptr

        def synchronize(self) -> None:
            found.log.append(f"event of {self.stream}")

    def current() -> Any:
        handle = found.current
        return types.SimpleNamespace(
            ptr=handle,
            synchronize=lambda: found.log.append(f"stream {handle}"),
            is_capturing=lambda: found.capturing,
        )

    cuda = types.SimpleNamespace(get_current_stream=current, Event=Event)
    kind = types.SimpleNamespace(type=Array, module=types.SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(held, "cupy_kind", lambda: kind)
    found.array = Array(512, Device(found.log))
    return found


def test_the_current_stream_is_waited_for(streams):
    held.finish(streams.array)
    held.finish_device(streams.array)
    assert streams.log == ["stream 1", "device"]
    held.finish(np.ones(2))
    assert len(streams.log) == 2


@pytest.mark.parametrize("first", [1, 0])
def test_a_mark_is_waited_for_on_other_streams_alone(streams, first):
    streams.current = first
    marked = held.mark(streams.array)
    held.follow(marked, streams.array)
    assert streams.log == []
    streams.current = 2
    held.follow(marked, streams.array)
    assert streams.log == [f"event of {first}"]
    held.follow(None, streams.array)
    assert held.mark(np.ones(2)) is None
    assert len(streams.log) == 1


def test_recordings_are_refused(streams):
    held.refuse_recording(streams.array, "nothing")
    streams.capturing = True
    with pytest.raises(gett.OptionError, match="it is not kept while a CUDA graph is recorded"):
        held.refuse_recording(streams.array, "it is not kept")
    held.refuse_recording(np.ones(2), "nothing")


def test_arrays_are_the_same_where_they_lie_alike(streams):
    x, y = streams.array, Array(512, streams.array.device)
    assert held.is_same(x, y)
    assert not held.is_same(x, Array(1024, x.device))
    y.strides = (16,)
    assert not held.is_same(x, y)
    a = np.arange(6.0)
    assert held.is_same(a, a[:])
    assert not held.is_same(a, a[::-1])
    assert not held.is_same(a, a.copy())
    assert not held.is_same([1, 2], [1, 2])
    assert held.is_same(2, 2)
    assert not held.is_same(2, 2.0)
