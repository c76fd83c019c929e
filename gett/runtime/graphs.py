"""Launches that are recorded once as a CUDA graph, whose arguments change in place, and that one call plays.

Owns the driver's graph and the order of its nodes. Knows neither arrays nor plans.

Calls follow the CUDA Driver API reference manual (Stream Management, Graph Management).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gett.runtime.driver import Driver, LaunchConfig

_NON_BLOCKING = 1  # CUstream_flags: not ordered with the default stream
_SET = 1  # CUstreamUpdateCaptureDependencies_flags: in place of those there are
_THREAD_LOCAL = 1  # CUstreamCaptureMode: other threads may do what disturbs a capture


class _KernelNode(ctypes.Structure):
    """`CUDA_KERNEL_NODE_PARAMS_v2`."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem_bytes", ctypes.c_uint),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


Call = tuple[Any, ...]
"""Arguments of `DriverApi.launch`."""


class Recorder:
    """A stream whose launches go into a graph."""

    def __init__(self, driver: Driver) -> None:
        """Begin to record.

        Raises:
            DeviceError: The driver does not record.
        """
        self._driver, self._nodes = driver, list[int]()
        self._calls: list[Call] = []
        self._waits_for_one = True
        stream = ctypes.c_void_p()
        self._do("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        self._stream, self._recording = stream, False
        try:
            self._do("cuStreamBeginCapture_v2", stream, _THREAD_LOCAL)
        except Exception:
            self.close()
            raise
        self._recording = True

    @property
    def stream(self) -> int:
        """The handle of the stream."""
        return self._stream.value or 0

    def _do(self, name: str, *arguments: Any) -> None:
        code = self._driver.function(name)(*arguments)
        if code:
            raise self._driver.error(code, name)

    def after(self, launches: Iterable[int]) -> None:
        """Have the next launch wait for some of those before it, by number, in place of the last one.

        Raises:
            DeviceError: The driver does not take them.
        """
        found = [self._nodes[n] for n in launches]
        nodes = (ctypes.c_void_p * max(1, len(found)))(*found)
        self._do("cuStreamUpdateCaptureDependencies", self._stream, nodes, ctypes.c_size_t(len(found)), _SET)
        self._waits_for_one = len(found) == 1

    def launch(self, call: Call, what: str) -> None:
        """Launch a kernel, which becomes a node.

        Args:
            call: Its arguments, whose stream is this one.
            what: What it is, for an error's text.

        Raises:
            DeviceError: The launch failed, the stream does not record, or the launch is no node of its own.
        """
        config = LaunchConfig.from_address(call[0].value)
        attributes = config.num_attributes
        if not self._waits_for_one:
            config.num_attributes = 0  # it begins before the launch ahead of it ends, of which there is none or several
        code = self._driver.launch(*call)
        config.num_attributes, self._waits_for_one = attributes, True
        if code:
            raise self._driver.error(code, "cuLaunchKernelEx", what)
        status, number = ctypes.c_int(), ctypes.c_uint64()
        graph, nodes, edges, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        places = map(ctypes.byref, (status, number, graph, nodes, edges, count))
        self._do("cuStreamGetCaptureInfo_v3", self._stream, *places)
        if count.value != 1:
            raise self._driver.error(1, "cuStreamGetCaptureInfo_v3", f"{count.value} nodes")
        assert nodes.value is not None
        self._nodes.append(ctypes.c_void_p.from_address(nodes.value).value or 0)
        self._calls.append(call)

    def end(self) -> LaunchGraph:
        """The graph of all launches."""
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        self._recording = False
        self._do("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        try:
            self._do("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_uint64(0))
        except Exception:
            self._driver.function("cuGraphDestroy")(graph)
            raise
        return LaunchGraph(self._driver, graph, made, self._nodes, self._calls)

    def close(self) -> None:
        """Give up what is being recorded, and the stream."""
        graph = ctypes.c_void_p()
        if self._recording:
            self._driver.function("cuStreamEndCapture")(self._stream, ctypes.byref(graph))
        if graph.value:
            self._driver.function("cuGraphDestroy")(graph)
        self._driver.function("cuStreamDestroy_v2")(self._stream)


class LaunchGraph:
    """Launches in a fixed order."""

    def __init__(
        self, driver: Driver, graph: ctypes.c_void_p, made: ctypes.c_void_p, nodes: Sequence[int], calls: Sequence[Call]
    ) -> None:
        """Made by `Recorder.end`."""
        self._driver, self._made = driver, made
        self._set: Callable[..., int] = driver.function("cuGraphExecKernelNodeSetParams_v2")
        self._launch: Callable[..., int] = driver.function("cuGraphLaunch")
        self._changes = []
        for node, (config, function, arguments, _) in zip(nodes, calls, strict=True):
            c = LaunchConfig.from_address(config.value)
            params = _KernelNode(function.value, (c.grid_x, c.grid_y, c.grid_z), (c.block_x, c.block_y, c.block_z),
                                 c.smem_bytes, arguments.value, None, None, None)  # fmt: skip
            self._changes.append((ctypes.c_void_p(node), ctypes.byref(params), params))
        weakref.finalize(self, _destroy, driver, graph, made).atexit = False  # the process's end frees them itself

    def change(self, number: int) -> int:
        """Give a launch the arguments that its call has now; returns the driver's code."""
        node, params, _ = self._changes[number]
        return self._set(self._made, node, params)

    def play(self, stream: ctypes.c_void_p) -> int:
        """All launches, in order; returns the driver's code."""
        return self._launch(self._made, stream)


def _destroy(driver: Driver, graph: ctypes.c_void_p, made: ctypes.c_void_p) -> None:
    driver.function("cuGraphExecDestroy")(made)
    driver.function("cuGraphDestroy")(graph)


def is_capturing(driver: Driver, stream: ctypes.c_void_p) -> bool:
    """Whether a stream's work goes into somebody's graph, or cannot be asked about now."""
    status = ctypes.c_int()
    return bool(driver.function("cuStreamIsCapturing")(stream, ctypes.byref(status))) or status.value != 0
