"""Arrays that move between the GPUs of a host, in the order of streams and without waiting on the host.

Owns events, copies and what must stay alive while a copy reads it. Knows neither plans nor slices.
"""

# ruff: noqa: D102 - the first class documents the methods of both

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from gett.arrays.kinds import NUMPY, ArrayKind, CupyKind, cupy_kind
from gett.arrays.torch import TorchKind, torch_library
from gett.errors import DeviceError


class Link:
    """Moves between places that share one memory: NumPy's arrays, for programs that are tried without GPUs.

    Attributes:
        name: The library of the arrays.
        moved: Bytes that were copied between devices since the last `begin`.
        lock: Held from `begin` to `end`, since threads may share a plan.
    """

    name = "NumPy"
    moved = 0

    def __init__(self) -> None:
        """For all devices."""
        self.lock = threading.RLock()

    def kind_on(self, device: int) -> ArrayKind:
        """Of the arrays of a device."""
        return NUMPY

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

    def fetch(self, array: Any, device: int, after: Any = None) -> tuple[Any, Any]:
        """A dense copy on a device, made beside what the device computes, and what to `wait` for before it is read.

        Args:
            array: What is copied.
            device: Where to.
            after: What `fetch` gave with `array`, where that is a copy.
        """
        return np.asarray(array, order="C"), None

    def wait(self, device: int, event: Any) -> None:
        """Let what a device is asked for from here on wait for an event."""

    def move(self, array: Any, device: int) -> Any:
        """The array on another device, as soon as what its device was asked for is done."""
        return array

    def end(self, devices: Sequence[int], home: int) -> None:
        """From here on the home waits for all devices; what copies have read may go."""


class StreamLink(Link, ABC):
    """GPUs, whose streams keep the order: what the libraries of arrays share."""

    def __init__(self, module: Any) -> None:
        """For all GPUs; `module` is the library."""
        super().__init__()
        self._module = module
        self._sides: dict[int, Any] = {}
        self._alive: list[Any] = []
        self._ready: dict[int, Any] = {}

    def number(self, device: int) -> int:
        return device

    @abstractmethod
    def _stream(self, device: int) -> Any:
        """The current stream of a device."""

    @abstractmethod
    def _new_stream(self, device: int) -> Any:
        """Another stream of a device."""

    @abstractmethod
    def _new_event(self) -> Any:
        """An event of the current device."""

    @abstractmethod
    def _dense(self, array: Any) -> Any:
        """The array itself, or a dense copy on the current device."""

    @abstractmethod
    def _copied(self, array: Any, ready: Any, device: int) -> Any:
        """A copy on a device of a dense array, made by the streams beside the current ones once an event is over."""

    def _side(self, device: int) -> Any:
        """The stream beside the current one, for copies."""
        found = self._sides.get(device)
        return self._sides.setdefault(device, self._new_stream(device)) if found is None else found

    def _event(self, device: int, stream: Any = None) -> Any:
        """What is done once a device has done what it was asked for."""
        with self.on(device):
            event = self._new_event()
            event.record(self._stream(device) if stream is None else stream)
        return event

    def wait(self, device: int, event: Any) -> None:
        with self.on(device):
            self._stream(device).wait_event(event)

    def begin(self, devices: Sequence[int], places: Sequence[int]) -> None:
        self.moved = 0
        for place in dict.fromkeys(places):
            event = self._ready[place] = self._event(place)
            for device in devices:
                if device != place:
                    self.wait(device, event)

    def fetch(self, array: Any, device: int, after: Any = None) -> tuple[Any, Any]:
        source = self.place(array)
        assert source is not None
        with self.on(source):
            dense = self._dense(array)
        if source == device:
            return dense, None
        ready = self._ready.get(source) if after is None else after
        if ready is None or dense is not array:
            ready = self._event(source)
        self.moved += int(dense.nbytes)
        with self.on(device):
            copy = self._copied(dense, ready, device)
        self._alive += [dense, copy]
        return copy, self._event(device, self._side(device))

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
        for device, side in self._sides.items():
            self.wait(device, self._event(device, side))
        others = [device for device in devices if device != home]
        for device in others:
            self.wait(home, self._event(device))
        over = self._event(home) if others else None
        for device in others:
            self.wait(device, over)  # what is freed now is used again behind its last reader, wherever that was
        self._alive.clear()
        self._ready.clear()


class CupyLink(StreamLink):
    """CuPy's arrays: copies by the copy engines, with peer access where the hardware has it."""

    name = "CuPy"

    def kind_on(self, device: int) -> ArrayKind:
        found = cupy_kind()
        assert found is not None
        return found

    def place(self, array: Any) -> int | None:
        return int(array.data.device_id)

    def on(self, device: int) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._module.cuda.Device(device)
        return context

    def _stream(self, device: int) -> Any:
        return self._module.cuda.get_current_stream()

    def _new_stream(self, device: int) -> Any:
        return self._module.cuda.Stream(non_blocking=True)

    def _new_event(self) -> Any:
        return self._module.cuda.Event(disable_timing=True)

    def _dense(self, array: Any) -> Any:
        return self._module.asarray(array, order="C")

    def _copied(self, array: Any, ready: Any, device: int) -> Any:
        copy = self._module.empty(array.shape, array.dtype)
        side = self._side(device)
        side.wait_event(self._event(device))  # the memory may have had another use
        side.wait_event(ready)
        copy.data.copy_from_device_async(array.data, array.nbytes, side)
        return copy


class TorchLink(StreamLink):
    """PyTorch's tensors. A copy between two GPUs runs in the source's stream, so both have a stream beside."""

    name = "PyTorch"

    def kind_on(self, device: int) -> ArrayKind:
        library = torch_library()
        assert library is not None
        return library.kind(device)

    def place(self, array: Any) -> int | None:
        return int(array.get_device())

    def on(self, device: int) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._module.cuda.device(device)
        return context

    def _stream(self, device: int) -> Any:
        return self._module.cuda.current_stream(device)

    def _new_stream(self, device: int) -> Any:
        return self._module.cuda.Stream(device)

    def _new_event(self) -> Any:
        return self._module.cuda.Event()

    def _dense(self, array: Any) -> Any:
        return array if array.is_contiguous() else array.contiguous()

    def _copied(self, array: Any, ready: Any, device: int) -> Any:
        copy = self._module.empty(array.shape, dtype=array.dtype, device=self._module.device("cuda", device))
        source, target = self._side(array.get_device()), self._side(device)
        target.wait_event(self._event(device))
        source.wait_event(ready)
        with self._module.cuda.stream(source), self._module.cuda.stream(target):
            copy.copy_(array, non_blocking=True)
        return copy


def link_for(kind: ArrayKind) -> Link:
    """What moves arrays of a kind.

    Raises:
        DeviceError: Nothing does.
    """
    if kind is NUMPY:
        return Link()
    if isinstance(kind, CupyKind):
        return CupyLink(kind.module)
    library = torch_library()
    if library is not None and isinstance(kind, TorchKind):
        return TorchLink(library.module)
    raise DeviceError(f"devices= takes NumPy's, CuPy's and PyTorch's arrays, these are {kind.name}'s")


def peer_access(devices: Sequence[int]) -> bool:
    """Whether all GPUs read each other's memory; without it copies go through the host."""
    from gett.runtime.device import require_cupy

    can = require_cupy().cuda.runtime.deviceCanAccessPeer
    return all(can(x, y) for x in devices for y in devices if x != y)
