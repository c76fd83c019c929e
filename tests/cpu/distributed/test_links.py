"""The order in which GPUs are asked: a stand-in for CuPy checks that nothing reads what is not written yet.

Each stream knows which operations are over when it goes on: its own, and those of events that it has waited for.
"""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace
from typing import Any

import pytest

from gett.slices import links


class Streams:
    """What each stream has done and waited for, and who wrote and read each buffer last."""

    def __init__(self) -> None:
        self.done: dict[Any, set[int]] = {}
        self.writes: dict[int, int] = {}
        self.reads: dict[int, list[int]] = {}
        self.count = 0

    def operation(self, stream: Any, reads: list[int], writes: list[int]) -> None:
        known = self.done.setdefault(stream, set())
        for buffer in reads:
            assert self.writes.get(buffer) in (None, *known), f"stream {stream} reads buffer {buffer} too early"
        for buffer in writes:
            before = [self.writes.get(buffer), *self.reads.get(buffer, [])]
            assert all(x is None or x in known for x in before), f"stream {stream} writes buffer {buffer} too early"
        self.count += 1
        known.add(self.count)
        for buffer in reads:
            self.reads.setdefault(buffer, []).append(self.count)
        for buffer in writes:
            self.writes[buffer], self.reads[buffer] = self.count, []


class Array:
    """A buffer on a device."""

    def __init__(self, cupy: Any, device: int, dense: bool = True, buffer: int | None = None):
        self.cupy, self.shape, self.dtype, self.nbytes, self.dense = cupy, (4,), float, 32, dense
        self.buffer = cupy.fresh() if buffer is None else buffer
        self.data = SimpleNamespace(device_id=device, copy_from_device_async=self.copy, array=self)
        self.flags = SimpleNamespace(c_contiguous=dense)

    def copy(self, source: Any, size: int, stream: Any) -> None:
        assert size == self.nbytes
        self.cupy.streams.operation(stream.key, [source.array.buffer], [self.buffer])


class Cupy:
    """As much of CuPy as `CupyLink` uses. Memory that is freed is given to the next array of its device."""

    def __init__(self) -> None:
        self.streams, self.current, self.number = Streams(), 0, 0
        self.free: dict[int, list[int]] = {}
        outer = self

        class Stream:
            def __init__(self, non_blocking: bool = False, key: Any = None) -> None:
                outer.number += 1
                self.key = (outer.current, f"copies {outer.number}") if key is None else key

            def wait_event(self, event: Any) -> None:
                outer.streams.done.setdefault(self.key, set()).update(event.seen)

        class Event:
            def __init__(self, disable_timing: bool = False) -> None:
                self.seen: set[int] = set()

            def record(self, stream: Any) -> None:
                self.seen = set(outer.streams.done.get(stream.key, set()))

        @contextlib.contextmanager
        def device(number: int) -> Any:
            before, outer.current = outer.current, number
            yield
            outer.current = before

        self.cuda = SimpleNamespace(
            Stream=Stream, Event=Event, Device=device,
            get_current_stream=lambda: Stream(key=(outer.current, "main")),
        )  # fmt: skip

    def fresh(self) -> int:
        self.number += 1
        return self.number

    def empty(self, shape: Any, dtype: Any) -> Array:
        free = self.free.setdefault(self.current, [])
        return Array(self, self.current, buffer=free.pop() if free else None)

    def release(self, array: Array) -> None:
        self.free.setdefault(array.data.device_id, []).append(array.buffer)

    def asarray(self, array: Array, order: str) -> Array:
        if array.dense:
            return array
        made = self.empty(array.shape, array.dtype)
        self.streams.operation((self.current, "main"), [array.buffer], [made.buffer])
        return made

    def compute(self, device: int, reads: list[Array], write: Array) -> None:
        self.streams.operation((device, "main"), [x.buffer for x in reads], [write.buffer])


@pytest.fixture
def cupy():
    """The stand-in, and a link over it."""
    made = Cupy()
    return made


@pytest.mark.parametrize("dense", [True, False])
def test_streams_keep_the_order(cupy, dense):
    link = links.CupyLink(cupy)
    a = Array(cupy, 0, dense)
    result = Array(cupy, 0)
    for _ in range(3):
        cupy.compute(0, [], a)
        link.begin([0, 1], [0])
        with link.on(1):
            there, event = link.fetch(a, 1)
        own = cupy.empty((4,), float)
        cupy.compute(0, [a], own)
        with link.on(1):
            link.wait(1, event)
            sums = cupy.empty((4,), float)
            cupy.compute(1, [there], sums)
        with link.on(0):
            back = link.move(sums, 0)
            cupy.compute(0, [own, back], result)
        link.end([0, 1], 0)
        for x in (there, own, sums, back):
            cupy.release(x)
        with link.on(1):  # somebody else has work there
            other = cupy.empty((4,), float)
            cupy.compute(1, [], other)
            cupy.release(other)
    assert link.moved == 2 * a.nbytes
    assert cupy.streams.count >= 15


def test_copies_of_copies_keep_the_order(cupy):
    """Device 2 copies what device 1 has copied; nobody writes over it meanwhile."""
    link = links.CupyLink(cupy)
    a = Array(cupy, 0)
    for _ in range(3):
        cupy.compute(0, [], a)
        link.begin([0, 1, 2], [0])
        with link.on(1):
            first, event = link.fetch(a, 1)
        with link.on(2):
            second, after = link.fetch(first, 2, event)
        with link.on(1):
            link.wait(1, event)
            cupy.compute(1, [first], Array(cupy, 1))
        with link.on(2):
            link.wait(2, after)
            cupy.compute(2, [second], Array(cupy, 2))
        link.end([0, 1, 2], 0)
        cupy.release(first)
        cupy.release(second)
        for device in (1, 2):
            with link.on(device):
                other = cupy.empty((4,), float)
                cupy.compute(device, [], other)
                cupy.release(other)
    assert link.moved == 2 * a.nbytes


def test_the_check_sees_what_is_too_early(cupy):
    link = links.CupyLink(cupy)
    a, d = Array(cupy, 0), Array(cupy, 1)
    cupy.compute(0, [], a)
    with pytest.raises(AssertionError, match="too early"):
        cupy.compute(1, [a], d)
    link.begin([0, 1], [0])
    with link.on(1):
        there, event = link.fetch(a, 1)
    with pytest.raises(AssertionError, match="too early"):
        cupy.compute(1, [there], d)
    with pytest.raises(AssertionError, match="too early"):
        cupy.compute(0, [], a)
    link.wait(1, event)
    cupy.compute(1, [there], d)
    link.end([0, 1], 0)
    cupy.compute(0, [], a)
    assert math.isfinite(link.moved)


def test_what_is_on_the_device_stays(cupy):
    link = links.CupyLink(cupy)
    a = Array(cupy, 1)
    assert link.move(a, 1) is a
    with link.on(1):
        assert link.fetch(a, 1) == (a, None)
    assert link.moved == 0


def test_arrays_that_no_link_moves_are_named():
    import gett

    with pytest.raises(gett.DeviceError, match="these are JAX's"):
        links.link_for(SimpleNamespace(name="JAX"))
