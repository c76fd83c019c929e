"""Graphs of launches, on a driver that keeps what it is asked for."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest

from gett.errors import DeviceError
from gett.runtime.driver import LaunchConfig
from gett.runtime.graphs import Recorder, _KernelNode, is_capturing


class Library:
    """Functions of a driver: each call is kept, with a code that may be chosen."""

    def __init__(self, **codes: int) -> None:
        self.codes, self.calls, self.nodes = codes, [], 0
        self.node = ctypes.c_void_p()
        self.params: list[tuple[int, int, tuple[int, ...], int]] = []
        self.capturing = 0
        self.launched: list[int] = []  # attributes of each

    def function(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if self.codes.get(name):
                return self.codes[name]
            getattr(self, name, lambda *_: None)(*arguments)
            return 0

        return call

    def launch(self, *call: Any) -> int:
        self.launched.append(LaunchConfig.from_address(call[0].value).num_attributes)
        return 0

    def error(self, code: int, call: str, detail: str = "") -> DeviceError:
        return DeviceError(f"{call} failed: {code} {detail}")

    def cuStreamCreate(self, stream: Any, flags: int) -> None:
        stream._obj.value = 0x77

    def cuStreamGetCaptureInfo_v3(self, stream: Any, status: Any, number: Any, graph: Any, nodes: Any, edges: Any,
                                  count: Any) -> None:  # fmt: skip
        self.nodes += 1
        self.node.value = 0xA00 + self.nodes
        nodes._obj.value = ctypes.addressof(self.node)
        count._obj.value = self.codes.get("count", 1)

    def cuGraphExecKernelNodeSetParams_v2(self, made: Any, node: Any, params: Any) -> None:
        p: _KernelNode = params._obj
        self.params.append((node.value, p.function, tuple(p.grid) + tuple(p.block), p.arguments))

    def cuStreamIsCapturing(self, stream: Any, status: Any) -> None:
        status._obj.value = self.capturing


def calls() -> list[Any]:
    """Two launches, and what keeps their configurations alive."""
    configs = [LaunchConfig(8, 2, 1, 128, 1, 1, 1024, None, None, 0), LaunchConfig(3, 1, 1, 64, 1, 1, 0, None, None, 0)]
    return [
        (ctypes.c_void_p(ctypes.addressof(c)), ctypes.c_void_p(0xF0 + i), ctypes.c_void_p(0xE0 + i), None, c)
        for i, c in enumerate(configs)
    ]


def test_launches_are_recorded_changed_and_played() -> None:
    library, made = Library(), calls()
    recorder = Recorder(library)
    assert recorder.stream == 0x77
    for call in made:
        recorder.launch(call[:4], "a kernel")
    graph = recorder.end()
    recorder.close()
    assert library.calls.count("cuStreamEndCapture") == 1
    assert library.calls[-1] == "cuStreamDestroy_v2"
    assert graph.change(1) == 0
    assert graph.change(0) == 0
    assert library.params == [(0xA02, 0xF1, (3, 1, 1, 64, 1, 1), 0xE1), (0xA01, 0xF0, (8, 2, 1, 128, 1, 1), 0xE0)]
    assert graph.play(ctypes.c_void_p(5)) == 0
    assert library.calls[-1] == "cuGraphLaunch"
    del graph
    gc.collect()
    assert library.calls[-2:] == ["cuGraphExecDestroy", "cuGraphDestroy"]


def test_what_fails_leaves_nothing_behind() -> None:
    library = Library(cuStreamBeginCapture_v2=7)
    with pytest.raises(DeviceError, match="cuStreamBeginCapture_v2 failed: 7"):
        Recorder(library)
    assert library.calls[-1] == "cuStreamDestroy_v2"
    assert "cuStreamEndCapture" not in library.calls
    library = Library(cuGraphInstantiateWithFlags=2)
    recorder = Recorder(library)
    with pytest.raises(DeviceError, match="cuGraphInstantiateWithFlags failed: 2"):
        recorder.end()
    assert library.calls[-1] == "cuGraphDestroy"
    library = Library(count=2)
    recorder = Recorder(library)
    with pytest.raises(DeviceError, match="2 nodes"):
        recorder.launch(calls()[0][:4], "a kernel")
    recorder.close()
    assert library.calls[-2:] == ["cuStreamEndCapture", "cuStreamDestroy_v2"]


def test_a_stream_that_records_or_cannot_be_asked_counts_as_one() -> None:
    library = Library()
    assert not is_capturing(library, ctypes.c_void_p(0))
    library.capturing = 1
    assert is_capturing(library, ctypes.c_void_p(0))
    assert is_capturing(Library(cuStreamIsCapturing=906), ctypes.c_void_p(0))
