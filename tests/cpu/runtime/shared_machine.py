"""A GPU that computes on the host, where shared kernels stand in for a network's own until these are compiled."""

from __future__ import annotations

import ctypes
import itertools
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gett
import gett.jit.background
import gett.jit.compile
import gett.jit.diskcache
import gett.plans.standing_in
import gett.runtime.compiling
import gett.runtime.device
import gett.runtime.graphs
import gett.runtime.grouped
import gett.runtime.together
import gett.tune.recall
from gett.arrays.kinds import NumpyKind
from gett.graphs.replay import Replay
from gett.jit.compile import CompileResult
from gett.network.request import PlanRequest
from tests.cpu.tuning import FACTS, compile_by, matrix

SPEC = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am"
SIDES = (900, 3, 5, 130, 140, 150, 3, 4, 170, 2, 6, 5, 700)
ROOT = Path(__file__).parents[3]


class Kind(NumpyKind):
    """NumPy's arrays, which say that they lie on a GPU."""

    def stream(self) -> int:
        return 5

    def memory(self, device: int) -> int:
        return 1 << 40

    def arch(self, device: int) -> str:
        return "sm_90a"


KIND = Kind()


def at(address: int, operand: Any, extents: Any) -> Any:
    """The tensor at an address."""
    shape = [extents[m] for m in operand.modes]
    reach = sum(s * (e - 1) for s, e in zip(operand.strides, shape, strict=True))
    raw = (ctypes.c_char * (reach + np.dtype(operand.dtype).itemsize)).from_address(address)
    return np.lib.stride_tricks.as_strided(np.frombuffer(raw, operand.dtype), shape, operand.strides)


def contract(gemm: Any, a: int, b: int, d: int, alpha: Any = 1) -> None:
    """What a kernel does, on the host's memory."""
    k = gemm.contraction
    found = [at(x, o, k.extents) for x, o in ((a, k.a), (b, k.b)) if o is not None]
    modes = [list(o.modes) for o in (k.a, k.b) if o is not None]
    at(d, k.d, k.extents)[...] = alpha * np.einsum(
        *[x for pair in zip(found, modes, strict=True) for x in pair], list(k.d.modes)
    )


class Own:
    """A kernel of a step's own."""

    workspace_bytes, device, measured = 0, 0, None

    def __init__(self, gemm: Any, made: Any, log: list[str]) -> None:
        self.gemm, self.schedule, self.log = gemm, made.schedule, log

    def __call__(self, a: Any, b: Any, c: Any, d: Any, alpha: Any = 1, beta: Any = 0) -> None:
        self.log.append("own")
        pointers = [0 if x is None else KIND.pointer(x) for x in (a, b, d)]
        contract(self.gemm, *pointers, alpha)

    def record(self) -> None:
        raise AssertionError("no graph is recorded here")


class Together:
    """A launch of steps that are made together."""

    workspace_bytes, device, measured = 0, 0, None

    def __init__(self, gemms: Any, log: list[str]) -> None:
        self.gemms, self.log = gemms, log

    def run_together(self, addresses: Any, stream: int) -> None:
        assert stream == 5
        self.log.append("shared")
        for gemm, (a, b, c, d) in zip(self.gemms, addresses, strict=True):
            assert c == 0
            contract(gemm, a, b, d)


class Crew:
    """Compilers that wait until they may go on."""

    def __init__(self, state: Any, count: int) -> None:
        self.state, self.count = state, count

    def compile(self, text: str, arch: str, **options: Any) -> CompileResult:
        assert self.state.go.wait(30)
        if self.state.error is not None:
            raise self.state.error
        self.state.behind.append(text)
        return CompileResult(f"cubin {hash(text)}".encode(), "")

    def close(self) -> None:
        pass


@pytest.fixture
def machine(fake_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU that computes on the host, and compilers behind the calls that wait until `go` is set."""
    state = types.SimpleNamespace(go=threading.Event(), error=None, behind=[], now=[], classes=[], log=[], loaded=0)
    state.load_error = state.table_error = None

    def here(text: str, arch: str, **options: Any) -> CompileResult:
        state.now.append(text)
        return CompileResult(f"cubin {hash(text)}".encode(), "")

    def compile_kernel(source: Any, arch: str, *, compiler: Any = None, **options: Any) -> bytes:
        options.pop("sparing", None)
        key = gett.jit.compile.kernel_key(source, arch, **options)
        return gett.jit.diskcache.kernel_cache().get_or_build(key, lambda: compiler(source.text, arch).cubin)

    def load(gemm: Any, made: Any) -> Own:
        if state.load_error is not None:
            raise state.load_error
        state.loaded += 1
        return Own(gemm, made, state.log)

    def build(launches: Any) -> dict[int, Together]:
        if state.table_error is not None:
            raise state.table_error
        return {number: Together(gemms, state.log) for number, (_, gemms) in launches.items()}

    compile_by(monkeypatch, compile_kernel)
    monkeypatch.setattr(gett.runtime.compiling, "compile_uncached", here)
    monkeypatch.setattr(gett.runtime.device, "device_facts", lambda *_: FACTS)
    monkeypatch.setattr(gett.tune.recall, "load_executable", load)
    monkeypatch.setattr(gett.runtime.together, "build_together", build)
    monkeypatch.setattr(gett.runtime.grouped, "compile_grouped", state.classes.append)
    monkeypatch.setattr(gett.jit.background, "Workers", lambda count: Crew(state, count))
    monkeypatch.setattr(gett.plans.standing_in, "_records", lambda kind: False)
    monkeypatch.setattr(Replay, "__call__", lambda *_: False)
    monkeypatch.delenv("GETT_SHARED_FIRST", raising=False)
    yield state
    state.go.set()
    for thread in threading.enumerate():
        if thread.name == "gett kernels":
            thread.join(30)


def request(sides: Any = SIDES, dtype: str = "float64", **options: Any) -> PlanRequest:
    operands = tuple(matrix(n, m, dtype) for n, m in itertools.pairwise(sides))
    return PlanRequest(spec=SPEC, operands=operands, arch="sm_90a", device=0, optimize="greedy", **options)


def numbers(sides: Any = SIDES, dtype: str = "float64", seed: int = 0) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-2, 3, pair).astype(dtype) for pair in itertools.pairwise(sides)]
    return arrays, np.linalg.multi_dot([x.astype(complex if dtype.startswith("c") else float) for x in arrays])


def run(plan: Any, arrays: Any, alpha: Any = 1) -> Any:
    return plan.run(KIND, 0, arrays, alpha=alpha)


def compiled(plan: Any) -> None:
    """Wait for the kernels, but not for a call that takes them."""
    plan._standing[0].wait()


def used(state: Any) -> set[str]:
    found, state.log[:] = set(state.log), []
    return found
