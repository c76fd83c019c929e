"""Arrays of other libraries in the public functions: on a stand-in for CuPy, PyTorch's CPU tensors for real."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gett
from gett.arrays import torch as torch_arrays
from tests.cpu.arrays.foreign_arrays import Capsule, Exporter, View, integers, logging_cupy
from tests.cpu.fake_driver import PARAMS, FakeDriver, FakeHost, addresses, build, launch, product_plan
from tests.cpu.fake_torch import make_torch, tensor

RNG = np.random.default_rng(5)
ROOT = Path(__file__).parents[3]
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield from logging_cupy(monkeypatch)


def test_addresses_of_any_origin_reach_the_kernel() -> None:
    for swapped in (False, True):
        run, _, driver = build(product_plan(swapped=swapped), workspace=64)
        run.run_at(0x1000, 0x2000, 0x3000, 0x4000, 0x99, 0x5000, 2, -1)
        (seen,) = driver.launches
        a, b = (0x2000, 0x1000) if swapped else (0x1000, 0x2000)
        assert addresses(seen) == {"a": a, "b": b, "c": 0x3000, "d": 0x4000, "workspace": 0x5000}
        assert seen.stream == 0x99
        assert seen.params[48:] == PARAMS[48:]


def test_a_workspace_that_is_needed_is_not_left_out() -> None:
    """At address 0 the kernel's stores would end the process's context."""
    run, _, driver = build(product_plan(swapped=False), workspace=64)
    with pytest.raises(AssertionError, match="workspace"):
        run.run_at(0x1000, 0x2000, 0x3000, 0x4000, 0x99, 0)
    assert not driver.launches


def test_addresses_on_another_device_switch_to_it() -> None:
    host = FakeHost(device=1, count=2)
    run, _, driver = build(product_plan(swapped=False), launch(), host=host, driver=FakeDriver(len(PARAMS)))
    host.device = 0
    run.run_at(1, 2, 3, 4, 5, 0)
    assert host.switches == [1]
    assert len(driver.launches) == 1


# Other libraries' GPU arrays, on a stand-in for CuPy


def test_exporters_go_in_without_a_copy(cupy: Any) -> None:
    a, b = integers(4, 6)[:, ::2], integers(3, 5)
    wanted = a @ b
    for _ in range(2):
        result = gett.einsum("ij,jk", Exporter(a), Exporter(b, strides=None))
        assert type(result) is View
        np.testing.assert_array_equal(result.host, wanted)
    assert gett.plan_cache.info()[:3] == (1, 1, 1)
    assert cupy.log == [("launch", 0)] * 2  # no stream was named, so none is waited for
    out = np.zeros((5, 4), "f4")
    target = Exporter(out.T)
    assert gett.einsum("ij,jk", Exporter(a), Capsule(b), out=target) is target
    np.testing.assert_array_equal(out.T, wanted)
    assert gett.contract("ij,jk", Capsule(a), Exporter(b), target, beta=-1, out=target) is target
    np.testing.assert_array_equal(out, 0)
    plan = gett.plan("ij,jk", Exporter(a), Exporter(b))
    assert plan.arch == "sm_90a"
    np.testing.assert_array_equal(plan(Exporter(a), Capsule(b)).host, wanted)
    np.testing.assert_array_equal(gett.tensordot(Exporter(a), Exporter(b), 1).host, wanted)
    np.testing.assert_array_equal(gett.transpose(Exporter(a)).host, a.T)
    np.testing.assert_array_equal(gett.einsum("ij,jk", Exporter(a), View.of(b, 0)).host, wanted)
    np.testing.assert_array_equal(gett.einsum(",ij", 3, Exporter(a)).host, 3 * a)
    np.testing.assert_array_equal(gett.einsum("ij,jk", Exporter(a[:, :0]), Exporter(b[:0])).host, 0 * wanted)


def test_streams_of_exporters_are_waited_for_and_wait(cupy: Any) -> None:
    a = integers(3, 3)
    gett.einsum("ij,jk", Exporter(a, stream=0x77), Exporter(a, stream=1))  # 1 is the default stream, CuPy's current one
    assert cupy.log == [("record", 0x77), ("wait", 0), ("launch", 0), ("record", 0), ("wait", 0x77)]
    cupy.log.clear()
    cupy.current.ptr = 0x77
    gett.einsum("ij,jk", Exporter(a, stream=0x77), Exporter(a, stream=1))
    assert cupy.log == [("record", 1), ("wait", 0x77), ("launch", 0x77), ("record", 0x77), ("wait", 1)]


def test_exporters_that_do_not_fit(cupy: Any) -> None:
    a = integers(2, 2)
    with pytest.raises(gett.MixedArraysError, match="operand 0 is a CuPy array, operand 1 is a numpy"):
        gett.einsum("ij,jk", Exporter(a), a)
    address = a.__array_interface__["data"][0]
    with pytest.raises(gett.OutputError, match="out is read-only"):
        gett.einsum("ij,jk", View.of(a, 0), View.of(a, 0), out=Exporter(a, data=(address, True)))
    with pytest.raises(gett.DTypeError, match=r"operand 1 .*masked"):
        gett.einsum("ij,jk", View.of(a, 0), Exporter(a, mask=Exporter(a)))
    with pytest.raises(
        gett.DTypeError, match=r"operand 0 .*Capsule cannot become .*; for bfloat16, .*torch\.from_dlpack"
    ):
        gett.einsum("ij,jk", Capsule(a.view("V4")), View.of(a, 0))
    with pytest.raises(gett.DTypeError, match="CuPy has no arrays of dtype bfloat16"):
        gett.einsum("ij,jk", View.of(a, 0), View.of(a, 0), dtype="bfloat16", casting="same_kind")
    before, out = a.copy(), Exporter(a)
    assert gett.einsum("ij,jk", Exporter(a), View.of(a.copy(), 0), out=out) is out
    np.testing.assert_array_equal(a, before @ before)


def test_host_memory_through_dlpack_is_numpys(cupy: Any) -> None:
    a = integers(2, 2)
    result = gett.einsum("ij,jk", Capsule(a, device_type=1), a)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, a @ a)


def test_tensors_and_exporters_do_not_mix(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_arrays, "_library", torch_arrays.TorchLibrary(make_torch()))
    a = integers(2, 2)
    with pytest.raises(gett.MixedArraysError, match=r"operand 0 is a PyTorch tensor, operand 1 is a .*Exporter"):
        gett.einsum("ij,jk", tensor(a), Exporter(a))


# PyTorch's CPU tensors: for real in a process of their own, where PyTorch is installed

CPU_TENSORS = """
import numpy as np, opt_einsum, sys, gett
assert "torch" not in sys.modules
import torch
from tests.cpu.arrays.torch_cpu import check
check(torch)
assert "cupy" not in sys.modules
print("all", "right")
"""


if HAS_TORCH:

    def test_cpu_tensors() -> None:
        done = subprocess.run(
            [sys.executable, "-c", CPU_TENSORS], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == ["all", "right"], done.stderr
