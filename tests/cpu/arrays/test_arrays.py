"""CuPy arrays as the public functions handle them, on a stand-in for CuPy whose memory is NumPy's.

What is real: dispatch, devices, alignment, overlap, conversion, errors. What is not: the kernels.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import gett
from gett.arrays import kinds
from gett.cpu import NumpyExecutable
from gett.plans import executables
from tests.cpu.fake_cupy import GpuArray, State, use_device
from tests.cpu.strategies import integers_of

integers = integers_of(np.random.default_rng(3))


@pytest.fixture
def cupy(monkeypatch):
    """The stand-in in place of CuPy; plans run on the NumPy executor, on the memory below the arrays."""
    module = types.SimpleNamespace(
        ndarray=GpuArray,
        asarray=lambda x: GpuArray.of(np.asarray(x), State.device),
        cuda=types.SimpleNamespace(Device=use_device, runtime=types.SimpleNamespace(getDevice=lambda: State.device)),
    )

    def build(gemm: Any, arch: str) -> Any:
        if arch == "cpu":
            return NumpyExecutable(gemm)
        run, device = NumpyExecutable(gemm), State.device

        def execute(a, b, c, d, alpha, beta):
            assert State.device == device
            assert all(x.device_id == device for x in (a, b, c, d) if x is not None)
            State.calls += 1
            run(*(None if x is None else x.host for x in (a, b, c, d)), alpha, beta)

        return execute

    kind = kinds.CupyKind(module)
    monkeypatch.setattr(kind, "arch", lambda device: "sm_90a")
    monkeypatch.setattr(kind, "memory", lambda device: 1 << 37)
    monkeypatch.setattr(kinds, "_cupy_kind", kind)
    monkeypatch.setattr(
        executables, "_build_executables", lambda gemms, arch, tuned, limit: [build(g, arch) for g in gemms]
    )
    monkeypatch.setattr(State, "device", 0)
    gett.plan_cache.clear()
    yield module
    gett.plan_cache.clear()


def gpu(host: Any, device: int = 0) -> GpuArray:
    return GpuArray.of(np.asarray(host), device)


@pytest.mark.parametrize("device", [0, 1])
def test_results_stay_on_the_operands_device(cupy, device):
    a, b, c = integers(3, 4), integers(4, 5), integers(5, 2)
    for _ in range(2):  # planned, then from the cache
        result = gett.einsum("ij,jk->ki", gpu(a, device), gpu(b, device))
        assert isinstance(result, GpuArray)
        assert result.device_id == device
        np.testing.assert_array_equal(result.host, (a @ b).T)
        chain = gett.einsum("ij,jk,kl->il", *(gpu(x, device) for x in (a, b, c)))
        np.testing.assert_array_equal(chain.host, a @ b @ c)
    assert State.device == 0


@pytest.mark.parametrize("limit", ["700B", 0.5])
@pytest.mark.parametrize("device", [0, 1])
def test_slices_run_on_the_operands_device(cupy, device, limit, monkeypatch):
    monkeypatch.setattr(kinds.cupy_kind(), "free", lambda device: 1400)
    a, b, c = integers(8, 8), integers(8, 8), integers(8, 8)
    operands = [gpu(x, device) for x in (a, b, c)]
    plan = gett.plan("ij,jk,kl->il", *operands, memory_limit=limit)
    assert plan.slices > 1
    found = gett.einsum("ij,jk,kl->il", *operands, memory_limit=limit)
    assert found.device_id == device
    np.testing.assert_array_equal(found.host, a @ b @ c)
    out = gpu(integers(8, 8), device)
    expected = a @ b @ c + out.host
    assert gett.contract("ij,jk,kl->il", *operands, beta=1, out=out, memory_limit=limit) is out
    np.testing.assert_array_equal(out.host, expected)
    assert State.device == 0


def test_rank_0_results_are_arrays(cupy):
    result = gett.einsum("i,i->", gpu([1.0, 2.0]), gpu([3.0, 4.0]))
    assert isinstance(result, GpuArray)
    assert (result.shape, result.host[()]) == ((), 11)


def test_scalars_join_cupy_arrays_but_numpy_arrays_do_not(cupy):
    a = integers(2, 2)
    np.testing.assert_array_equal(gett.einsum(",ij->ij", 3, gpu(a)).host, 3 * a)
    with pytest.raises(gett.MixedArraysError, match=r"operand 1 is a CuPy array, operand 0 is a numpy\.ndarray"):
        gett.einsum("ij,jk", a, gpu(a))
    with pytest.raises(gett.MixedArraysError, match="operand 0 is on GPU 0, operand 1 on GPU 1"):
        gett.einsum("ij,jk", gpu(a), gpu(a, 1))
    with pytest.raises(gett.MixedArraysError, match="out must be a CuPy array"):
        gett.einsum("ij,jk", gpu(a), gpu(a), out=a)
    with pytest.raises(gett.MixedArraysError, match="out must be a NumPy array"):
        gett.einsum("ij,jk", a, a, out=gpu(a))
    with pytest.raises(gett.MixedArraysError, match="out is on device 1"):
        gett.einsum("ij,jk", gpu(a), gpu(a), out=gpu(a, 1))


def test_out_and_overlap(cupy):
    memory = gpu(np.zeros((4, 8)))
    evens, odds, b = memory[:, ::2], memory[:, 1::2], integers(4, 4)
    evens.host[...] = integers(4, 4)
    for _ in range(2):
        assert gett.einsum("ij,jk->ik", gpu(b), evens, out=odds) is odds
        np.testing.assert_array_equal(odds.host, b @ evens.host)
    plan = gett.plan("ij,jk->ik", gpu(b), evens, out=odds)
    for run in (plan, lambda *x, **y: gett.einsum("ij,jk->ik", *x, **y)):
        assert run(gpu(b), evens, out=odds) is odds
        before = evens.host.copy()
        same = memory[:, :8:2]
        assert run(gpu(b), evens, out=same) is same  # through an array of its own
        np.testing.assert_array_equal(evens.host, b @ before)
        evens.host[...] = before
    c = odds.host.copy()
    gett.contract("ij,jk->ik", gpu(b), evens, odds, alpha=2, beta=3, out=odds)
    np.testing.assert_array_equal(odds.host, 2 * b @ evens.host + 3 * c)


def test_conversion_keeps_layouts(cupy):
    a = np.broadcast_to(integers(4, 1, 3, dtype="int16").transpose(2, 1, 0), (3, 5, 4))[::-1]
    b = integers(4, 5)
    result = gett.einsum("ijk,kj->ij", gpu(a), gpu(b))
    np.testing.assert_array_equal(result.host, np.einsum("ijk,kj->ij", a, b))
    fortran = gett.einsum("ijk,kj->ij", gpu(a), gpu(b), order="F")
    assert fortran.host.flags.f_contiguous
    narrow = gpu(np.zeros((3, 5), "f4"))
    gett.einsum("ijk,kj->ij", gpu(a), gpu(b), out=narrow, casting="same_kind")
    np.testing.assert_array_equal(narrow.host, result.host)


def test_alignment_is_part_of_the_key_and_of_a_plan(cupy):
    memory = np.zeros(40, "f8")
    start = -memory.__array_interface__["data"][0] % 16 // 8
    even, odd = memory[start : start + 16].reshape(4, 4), memory[start + 1 : start + 17].reshape(4, 4)
    b = gpu(integers(4, 4))
    for x in (even, odd, even, odd):
        gett.einsum("ij,kj->ik", gpu(x), b)
    assert gett.plan_cache.info()[:3] == (2, 2, 2)
    plan = gett.plan("ij,kj->ik", gpu(even), b)
    with pytest.raises(gett.ShapeError, match="operand 0 is aligned to 8 bytes, the plan was made for 16"):
        plan(gpu(odd), b)
    relaxed = gett.plan("ij,kj->ik", gpu(odd), b)
    relaxed(gpu(even), b)


def test_empty_sums_are_a_step_and_empty_results_are_none(cupy):
    before = State.calls
    result = gett.contract("ij,jk->ik", gpu(np.ones((2, 0))), gpu(np.ones((0, 3))), gpu([1.0, 2, 3]), beta=2)
    np.testing.assert_array_equal(result.host, [[2, 4, 6]] * 2)
    np.testing.assert_array_equal(gett.einsum("ij,jk", gpu(np.ones((2, 0))), gpu(np.ones((0, 3)))).host, 0)
    assert State.calls == before + 2
    assert gett.einsum("ij,jk", gpu(np.ones((0, 2))), gpu(np.ones((2, 3)))).shape == (0, 3)
    assert State.calls == before + 2


def test_out_of_memory_names_the_bytes(cupy, monkeypatch):
    a = gpu(np.ones((10, 10)))
    monkeypatch.setattr(State, "limit", 1000)
    with pytest.raises(gett.OutOfMemoryError, match="80000 bytes of device memory") as caught:
        gett.einsum("ij,kl->ijkl", a, a)
    assert isinstance(caught.value, MemoryError)


def test_plans_know_where_they_run(cupy):
    a = integers(3, 3)
    plan = gett.plan("ij,jk", gpu(a), gpu(a))
    assert plan.arch == "sm_90a"
    with pytest.raises(gett.DeviceError, match="the operands are NumPy arrays"):
        plan(a, a)
    np.testing.assert_array_equal(plan(gpu(a, 1), gpu(a, 1)).host, a @ a)  # bound to the other device on first use
    with pytest.raises(gett.DeviceError, match="the plan was made for cpu"):
        gett.plan("ij,jk", a, a)(gpu(a), gpu(a))
    with pytest.raises(gett.OptionError, match="arch='cpu'"):
        gett.plan("ij,jk", gpu(a), gpu(a), arch="cpu")
