"""Arrays that move between the GPUs of a host, in the order of streams and without waiting on the host.

Owns events, copies and what must stay alive while a copy reads it. Knows neither plans nor slices.
"""

# ruff: noqa: D102 - the first class documents the methods of both

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from gett.arrays.kinds import NUMPY, ArrayKind, cupy_kind
from gett.errors import DeviceError


class Link:
    """Moves between places that share one memory: NumPy's arrays, for programs that are tried without GPUs.

    Attributes:
        kind: Of the arrays.
        moved: Bytes that were copied between devices since the last `begin`.
    """

    kind: Any = NUMPY
    moved = 0

    def place(self, array: Any) -> int | None:
        """The device of an array; None where every device reads it."""
        return None

    def number(self, device: int) -> int:
        """The device's number as plans have it."""
        return -1

    def on(self, device: int) -> AbstractContextManager[Any]:
        """A context in which a device is current."""
        return nullcontext()

    def begin(self, devices: Sequence[int], places: Sequence[int]) -> None:
        """From here on devices wait for what was asked for at these places before."""

    def fetch(self, array: Any, device: int) -> tuple[Any, Any]:
        """A dense copy on a device, made beside what the device computes, and what to `wait` for before it is read."""
        return np.asarray(array, order="C"), None

    def wait(self, device: int, event: Any) -> None:
        """Let what a device is asked for from here on wait for an event."""

    def move(self, array: Any, device: int) -> Any:
        """The array on another device, as soon as what its device was asked for is done."""
        return array

    def end(self, devices: Sequence[int], home: int) -> None:
        """From here on the home waits for all devices; what copies have read may go."""


class CupyLink(Link):
    """CuPy's arrays: copies by the copy engines, with peer access where the hardware has it."""

    def __init__(self) -> None:
        """For all GPUs."""
        self.kind = cupy_kind()
        assert self.kind is not None
        self._cupy = self.kind.module
        self._copies: dict[int, Any] = {}
        self._alive: list[Any] = []
        self._ready: dict[int, Any] = {}

    def place(self, array: Any) -> int | None:
        return int(array.data.device_id)

    def number(self, device: int) -> int:
        return device

    def on(self, device: int) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._cupy.cuda.Device(device)
        return context

    def _event(self, device: int, stream: Any = None) -> Any:
        """What is done once a device has done what it was asked for."""
        cuda = self._cupy.cuda
        with cuda.Device(device):
            event = cuda.Event(disable_timing=True)
            event.record(cuda.get_current_stream() if stream is None else stream)
        return event

    def wait(self, device: int, event: Any) -> None:
        cuda = self._cupy.cuda
        with cuda.Device(device):
            cuda.get_current_stream().wait_event(event)

    def begin(self, devices: Sequence[int], places: Sequence[int]) -> None:
        self.moved = 0
        for place in dict.fromkeys(places):
            event = self._ready[place] = self._event(place)
            for device in devices:
                if device != place:
                    self.wait(device, event)

    def fetch(self, array: Any, device: int) -> tuple[Any, Any]:
        cuda, cupy = self._cupy.cuda, self._cupy
        source = self.place(array)
        assert source is not None
        with cuda.Device(source):
            dense = cupy.asarray(array, order="C")
        if source == device:
            return dense, None
        ready = self._ready.get(source)
        if ready is None or dense is not array:
            ready = self._event(source)
        self.moved += dense.nbytes
        with cuda.Device(device):
            copy = cupy.empty(dense.shape, dense.dtype)
            stream = self._copies.get(device)
            if stream is None:
                stream = self._copies[device] = cuda.Stream(non_blocking=True)
            stream.wait_event(self._event(device))  # the memory may have had another use
            stream.wait_event(ready)
            copy.data.copy_from_device_async(dense.data, dense.nbytes, stream)
        self._alive += [dense, copy]
        return copy, self._event(device, stream)

    def move(self, array: Any, device: int) -> Any:
        source = self.place(array)
        assert source is not None
        if source == device:
            return array
        self._ready.pop(source, None)  # it was made since then
        copy, event = self.fetch(array, device)
        self.wait(device, event)
        return copy

    def end(self, devices: Sequence[int], home: int) -> None:
        for device in devices:
            if device in self._copies:
                self.wait(device, self._event(device, self._copies[device]))
            if device != home:
                self.wait(home, self._event(device))
                self.wait(device, self._event(home))  # what is freed now is used again behind its last reader
        self._alive.clear()
        self._ready.clear()


def link_for(kind: ArrayKind) -> Link:
    """What moves arrays of a kind.

    Raises:
        DeviceError: Nothing does.
    """
    if kind is NUMPY:
        return Link()
    if kind is cupy_kind():
        return CupyLink()
    raise DeviceError(
        f"devices= takes CuPy arrays, these are {kind.name}'s: cupy.from_dlpack(x) is a tensor's memory as an array"
    )


def peer_access(devices: Sequence[int]) -> bool:
    """Whether all GPUs read each other's memory; without it copies go through the host."""
    from gett.runtime.device import require_cupy

    can = require_cupy().cuda.runtime.deviceCanAccessPeer
    return all(can(x, y) for x in devices for y in devices if x != y)
