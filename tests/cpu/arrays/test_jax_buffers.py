"""How `gett.jax` runs on XLA's buffers of a GPU, on stand-ins for CuPy and for the buffers."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gett.api import executables
from gett.ir.tensors import BFLOAT16
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
        yield module


def product(dtype: str = "float32", **options: Any) -> Any:
    usual = {"alpha": 1, "beta": 0, "precision": None, "limit": 1 << 20}
    return running.Product(("ij", "jk"), "ki", (False, False), dtype=jax.numpy.dtype(dtype), **usual | options)


def spec(*shape: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def write(what: Any, out: Any, *arrays: Any) -> None:
    run = running.GpuProduct(what, arrays)
    for _ in range(2):
        assert run(types.SimpleNamespace(stream=7), Exporter(out), *map(Exporter, arrays)) is None


def test_products_are_written_to_the_results_buffer_in_xlas_stream(cupy: Any) -> None:
    a, b, c, out = integers(3, 4), integers(4, 5), integers(3), np.zeros((5, 3), "f4")
    write(product(), out, a, b)
    np.testing.assert_array_equal(out, (a @ b).T)
    write(product(alpha=2, beta=3), out, a, b, c)
    np.testing.assert_array_equal(out, 2 * (a @ b).T + 3 * c)
    assert cupy.log == [("launch", 7)] * 4
    assert cupy.current.ptr == 0


def test_bfloat16_stands_in_arrays_of_uint16(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def build(gemms: Any, *options: Any) -> Any:
        seen.extend(gemms)
        return [lambda a, b, c, d, alpha, beta: seen.append((a.dtype, d.dtype)) for _ in gemms]

    monkeypatch.setattr(executables, "_build_executables", build)
    operands = spec(3, 4, dtype="bfloat16"), spec(4, 5, dtype="bfloat16")
    buffers = [Exporter(np.zeros(shape, "u2")) for shape in ((5, 3), (3, 4), (4, 5))]
    running.GpuProduct(product("bfloat16"), operands)(types.SimpleNamespace(stream=7), *buffers)
    gemm, launched = seen
    assert {x.dtype for x in (gemm.contraction.a, gemm.contraction.b, gemm.contraction.d)} == {"bfloat16"}
    assert launched == (np.uint16, np.uint16)


def test_only_what_takes_no_memory_goes_into_a_cuda_graph(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "local_devices", lambda backend: [types.SimpleNamespace(local_hardware_id=0)])
    avals = spec(3, 4), spec(4, 5)
    assert not running.GpuProduct(product(), avals).takes_memory()

    class Run:
        workspace_bytes = 64

    monkeypatch.setattr(executables, "_build_executables", lambda gemms, *options: [Run() for _ in gemms])
    assert running.GpuProduct(product(limit=1 << 21), avals).takes_memory()


def test_kernels_read_the_dtypes_of_buffers(cupy: Any) -> None:
    kind = running.GpuProduct(product("bfloat16"), (spec(3, 4), spec(4, 5))).kind
    array = kind.empty((2, 3), BFLOAT16)
    assert array.dtype == np.uint16
    assert kind.describe(array).dtype is BFLOAT16
    plain = running.GpuProduct(product("int32"), (spec(3, 4, dtype="uint16"), spec(4, 5, dtype="int32"))).kind
    assert plain.describe(plain.empty((2,), np.dtype("u2"))).dtype == np.uint16
