"""JAX's arrays in the public functions, on a stand-in for JAX: JAX's come back, or a clear error."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import gett
from tests.cpu.arrays.foreign_arrays import Capsule, View, integers, logging_cupy
from tests.cpu.public_calls import calls_with


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield from logging_cupy(monkeypatch)


class JaxArray:
    """As much of `jax.Array` as is used."""

    def __init__(self, host: np.ndarray, device_type: int = 1) -> None:
        self.host, self.device_type = host, device_type
        self.host.flags.writeable = False
        self.shape, self.dtype, self.ndim = host.shape, host.dtype, host.ndim

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        assert self.device_type == 1, "an array on a GPU was copied to the host"
        return self.host

    def __dlpack__(self, **options: Any) -> Any:
        return self.host.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, 0


class Tracer:
    """The base of what JAX passes to functions that it traces."""

    shape, ndim = (2, 2), 2

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError("a tracer was read")


class DynamicJaxprTracer(Tracer):
    """One kind of tracer."""


JaxArray.__module__ = "jaxlib._jax"
Tracer.__module__ = DynamicJaxprTracer.__module__ = "jax._src.interpreters.partial_eval"


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in where JAX is imported."""
    package, module = types.ModuleType("jax"), types.ModuleType("jax.numpy")
    module.asarray = lambda x: JaxArray(np.array(x))  # type: ignore[attr-defined]
    module.from_dlpack = lambda x: JaxArray(x.host.copy(), 2)  # type: ignore[attr-defined]
    package.numpy = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax", package)
    monkeypatch.setitem(sys.modules, "jax.numpy", module)


def test_jax_in_jax_out(jax: Any) -> None:
    a, b, c = integers(3, 4), integers(4, 5), integers(3, 5)
    ja, jb, jc = (JaxArray(x.copy()) for x in (a, b, c))
    plan = gett.plan("ij,jk", ja, jb)
    for expected, call in (
        (a @ b, lambda: gett.einsum("ij,jk", ja, jb)),
        (a @ b, lambda: gett.einsum("ij,jk", ja, b)),
        (a @ b, lambda: gett.einsum(ja, [0, 1], jb, [1, 2])),
        (a @ b + c, lambda: gett.contract("ij,jk", ja, jb, jc)),
        (a @ b + c, lambda: gett.contract("ij,jk", a, b, jc)),
        (a @ b, lambda: plan(ja, jb)),
        (a @ b + 2 * c, lambda: plan(ja, jb, c=jc, beta=2)),
        (a @ b, lambda: gett.tensordot(ja, jb, 1)),
        (a.T, lambda: gett.transpose(ja)),
        (a.sum(), lambda: gett.einsum("ij->", ja)),
        (np.diagonal(a), lambda: gett.einsum("ii->i", JaxArray(a[:, :3].copy()))),
    ):
        for _ in range(2):
            result = call()
            assert type(result) is JaxArray
            np.testing.assert_array_equal(result.host, expected)


def test_epilogues_read_jax_arrays(jax: Any) -> None:
    a, b, x = integers(3, 4), integers(4, 5), integers(5)
    for things in ((JaxArray(a.copy()), JaxArray(b.copy()), JaxArray(x.copy())), (a, b, JaxArray(x.copy()))):
        *operands, added = things
        result = gett.contract("ij,jk", *operands, epilogue=lambda d, x: d * x, epilogue_args=(added,))
        assert type(result) is JaxArray
        np.testing.assert_array_equal(result.host, a @ b * x)
    plan = gett.plan("ij,jk", a, b, epilogue=lambda d, x: d * x, epilogue_args=(JaxArray(x.copy()),))
    result = plan(a, b, epilogue_args=(JaxArray(x.copy()),))
    assert type(result) is JaxArray
    np.testing.assert_array_equal(result.host, a @ b * x)
    with pytest.raises(gett.DTypeError, match=r"epilogue_args\[0\] is a JAX tracer"):
        gett.contract("ij,jk", a, b, epilogue=lambda d, x: d * x, epilogue_args=(DynamicJaxprTracer(),))


def test_out_is_numpys_or_nobodys(jax: Any) -> None:
    a, out = integers(3, 3), np.zeros((3, 3), "f4")
    assert gett.einsum("ij,jk", JaxArray(a.copy()), a, out=out) is out
    np.testing.assert_array_equal(out, a @ a)
    for call in (gett.einsum, gett.contract, gett.plan("ij,jk", a, a)):
        arguments = (a, a) if isinstance(call, gett.ContractionPlan) else ("ij,jk", a, a)
        with pytest.raises(gett.OutputError, match="out is a JAX array, which cannot be written"):
            call(*arguments, out=JaxArray(a.copy()))


def test_tracers_are_refused(jax: Any) -> None:
    a, tracer = integers(2, 2), DynamicJaxprTracer()
    for call in calls_with(a, tracer):
        with pytest.raises(
            gett.DTypeError, match=r"operand 1 is a JAX tracer \(DynamicJaxprTracer\).*gett\.jax\.einsum"
        ):
            call()


def test_without_jax_numpy_there_is_an_error_and_no_numpy_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax.numpy", None)
    a = JaxArray(integers(2, 2))
    with pytest.raises(gett.MissingPackageError, match=r"jax\.numpy.* cannot be imported"):
        gett.einsum("ij,jk", a, a)


def test_jax_arrays_on_a_gpu_come_back_through_dlpack(jax: Any, cupy: Any) -> None:
    a, b = integers(3, 4), integers(4, 5)
    ja, jb = JaxArray(a.copy(), 2), JaxArray(b.copy(), 2)
    for call in (
        lambda: gett.einsum("ij,jk", ja, jb),
        lambda: gett.tensordot(ja, jb, 1),
        lambda: gett.plan("ij,jk", ja, jb)(ja, jb),
        lambda: gett.einsum("ij,jk", ja, View.of(b, 0)),
    ):
        result = call()
        assert (type(result), result.device_type) == (JaxArray, 2)
        np.testing.assert_array_equal(result.host, a @ b)
    with pytest.raises(gett.MixedArraysError, match="operand 0 is a CuPy array, operand 1 is a numpy"):
        gett.einsum("ij,jk", ja, JaxArray(b.copy()))
    assert type(gett.einsum("ij,jk", View.of(a, 0), Capsule(b))) is View
