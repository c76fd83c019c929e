"""How `gett.jax` runs on XLA's buffers of a GPU, on stand-ins for CuPy and for the buffers."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from gett.cpu import NumpyExecutable
from gett.ir.tensors import BFLOAT16
from gett.plans import executables
from tests.cpu.arrays.foreign_arrays import Exporter, integers, logging_cupy

jax = pytest.importorskip("jax")
running = pytest.importorskip("gett.jax.running")


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, whose streams can be made current."""
    for module in logging_cupy(monkeypatch):

        @contextlib.contextmanager
        def stream(pointer: int, module: Any = module) -> Iterator[None]:
            module.current.ptr, before = pointer, module.current.ptr
            yield
            module.current.ptr = before

        module.cuda.ExternalStream = stream
        monkeypatch.setattr(running.BufferKind, "arch", lambda self, device: "sm_90a")
        monkeypatch.setattr(running.BufferKind, "memory", lambda self, device: 1 << 37)
        monkeypatch.setattr(jax, "local_devices", lambda backend: [types.SimpleNamespace(local_hardware_id=0)])
        monkeypatch.setattr(executables, "_build_executables", partial(built, module=module))
        yield module


class Buffer(Exporter):
    """A buffer of XLA's, which tells its device."""

    known: ClassVar[dict[int, np.ndarray]] = {}  # by address

    def __init__(self, host: np.ndarray) -> None:
        super().__init__(host)
        self.known[address(host)] = host

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class Launcher:
    """A stand-in for an executable that launches on addresses."""

    def __init__(self, workspace_bytes: int = 0) -> None:
        self.workspace_bytes, self.seen = workspace_bytes, []

    def run_at(self, *arguments: Any) -> None:
        self.seen.append(arguments)


class Computing:
    """A stand-in for an executable that computes; the log has the stream, which is CuPy's current one for arrays."""

    workspace_bytes = 0

    def __init__(self, gemm: Any, module: Any) -> None:
        self.gemm, self.module = gemm, module

    def run(self, *things: Any) -> None:
        NumpyExecutable(self.gemm)(*things)

    def __call__(self, *things: Any) -> None:
        self.module.log.append(("arrays", self.module.current.ptr))
        self.run(*(getattr(x, "host", x) for x in things))

    def run_at(self, a: int, b: int, c: int, d: int, stream: int, workspace: int, alpha: Any, beta: Any) -> None:
        self.module.log.append(("addresses", stream))
        self.run(*(Buffer.known[x] if x else None for x in (a, b, c, d)), alpha, beta)


def built(gemms: Any, *options: Any, module: Any) -> list[Computing]:
    return [Computing(gemm, module) for gemm in gemms]


def launching(monkeypatch: pytest.MonkeyPatch, launcher: Any) -> None:
    monkeypatch.setattr(executables, "_build_executables", lambda gemms, *options: [launcher for _ in gemms])


def address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


def aligned(*shape: int, shift: int = 0) -> np.ndarray:
    """Zeros of which the address has as many low bits as XLA's buffers, and then some bytes more."""
    size = 4 * int(np.prod(shape))
    raw = np.zeros(size + 256, np.uint8)
    start = -address(raw) % 128 + shift
    return raw[start : start + size].view("f4").reshape(shape)


def product(dtype: str = "float32", **options: Any) -> Any:
    usual = {"alpha": 1, "beta": 0, "precision": None, "limit": 1 << 20}
    return running.Product(("ij", "jk"), "ki", (False, False), dtype=jax.numpy.dtype(dtype), **usual | options)


def spec(*shape: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def write(what: Any, out: Any, *arrays: Any) -> None:
    run = running.GpuProduct(what, arrays)
    for _ in range(2):
        assert run(types.SimpleNamespace(stream=7), [Buffer(out)], *map(Buffer, arrays)) is None


@pytest.mark.parametrize(("shift", "way"), [(0, "addresses"), (4, "arrays")])
def test_products_are_written_to_the_results_buffer_in_xlas_stream(cupy: Any, shift: int, way: str) -> None:
    """Buffers that start within 16 bytes have plans of their own, which take CuPy's arrays."""
    a, b, c, out = aligned(3, 4, shift=shift), aligned(4, 5), aligned(3), aligned(5, 3)
    for x in (a, b, c):
        x[:] = integers(*x.shape)
    write(product(), out, a, b)
    np.testing.assert_array_equal(out, (a @ b).T)
    write(product(alpha=2, beta=3), out, a, b, c)
    np.testing.assert_array_equal(out, 2 * (a @ b).T + 3 * c)
    assert cupy.log == [(way, 7)] * 4
    assert cupy.current.ptr == 0


def test_bfloat16_stands_in_arrays_of_uint16(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def build(gemms: Any, *options: Any) -> Any:
        seen.extend(gemms)
        return [types.SimpleNamespace(workspace_bytes=0, run_at=lambda *x: seen.append(x[4])) for _ in gemms]

    monkeypatch.setattr(executables, "_build_executables", build)
    operands = spec(3, 4, dtype="bfloat16"), spec(4, 5, dtype="bfloat16")
    out, *buffers = [Buffer(np.zeros(shape, "u2")) for shape in ((5, 3), (3, 4), (4, 5))]
    running.GpuProduct(product("bfloat16"), operands)(types.SimpleNamespace(stream=7), [out], *buffers)
    gemm, stream = seen
    assert {x.dtype for x in (gemm.contraction.a, gemm.contraction.b, gemm.contraction.d)} == {"bfloat16"}
    assert stream == 7


def test_a_call_reads_addresses_and_launches(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher()
    launching(monkeypatch, launcher)
    out, a, b, c = aligned(5, 3), aligned(3, 4), aligned(4, 5), aligned(3)
    monkeypatch.setattr(running, "from_interface", None)  # no array is made
    write(product(), out, a, b)
    write(product(alpha=2, beta=3), out, a, b, c)
    plain = address(a), address(b), 0, address(out), 7, 0, 1, 0
    added = address(a), address(b), address(c), address(out), 7, 0, 2, 3
    assert launcher.seen == [plain, plain, added, added]


def test_xla_makes_the_workspace(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher(workspace_bytes=64)
    launching(monkeypatch, launcher)
    run = running.GpuProduct(product(limit=1 << 21), (spec(3, 4), spec(4, 5)))
    assert run.workspace_bytes == 64
    assert run.only_launches
    out, a, b, workspace = aligned(5, 3), aligned(3, 4), aligned(4, 5), aligned(16)
    run(types.SimpleNamespace(stream=7), [Buffer(out), Buffer(workspace)], Buffer(a), Buffer(b))
    assert launcher.seen == [(address(a), address(b), 0, address(out), 7, address(workspace), 1, 0)]


@pytest.mark.parametrize(("dtype", "launches"), [("bfloat16", True), ("float32", False)])
def test_only_launches_go_into_a_cuda_graph(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, launches: bool
) -> None:
    """An operand that is converted first is copied to memory of CuPy's pool."""
    launching(monkeypatch, Launcher(workspace_bytes=64))
    seen: list[Any] = []

    def record(run: Any, results: Any, *, command_buffer_compatible: bool) -> Any:
        seen.append((command_buffer_compatible, [(x.shape, x.dtype.name) for x in results]))
        return lambda *arrays: [jax.numpy.zeros(x.shape, x.dtype) for x in results]

    monkeypatch.setattr(running, "buffer_callback", record)
    arrays = jax.numpy.zeros((3, 4), dtype), jax.numpy.zeros((4, 5), "bfloat16")
    found = running._on_gpu(*arrays, product=product("bfloat16"))
    assert (found.shape, found.dtype) == ((5, 3), "bfloat16")
    workspace = [((64,), "uint8")] if launches else []
    assert seen == [(launches, [((5, 3), "uint16"), *workspace])]


def test_kernels_read_the_dtypes_of_buffers(cupy: Any) -> None:
    kind = running.GpuProduct(product("bfloat16"), (spec(3, 4), spec(4, 5))).kind
    array = kind.empty((2, 3), BFLOAT16)
    assert array.dtype == np.uint16
    assert kind.describe(array).dtype is BFLOAT16
    plain = running.GpuProduct(product("int32"), (spec(3, 4, dtype="uint16"), spec(4, 5, dtype="int32"))).kind
    assert plain.describe(plain.empty((2,), np.dtype("u2"))).dtype == np.uint16
