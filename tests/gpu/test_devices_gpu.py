"""Contractions that GPUs share, and slices over executors on GPUs. With one GPU the shared ones run on it alone."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gett
from gett.slices.links import CupyLink, peer_access

CASES = {
    "abef,ijef->ijab": {"a": 24, "b": 24, "e": 24, "f": 24, "i": 12, "j": 12},
    "ij,jk->ik": {"i": 300, "j": 500, "k": 260},
    "bij,bjk->bki": {"b": 6, "i": 100, "j": 120, "k": 90},
    "ij,kj->": {"i": 200, "j": 300, "k": 100},
    "xab,xbc,xcd->ad": {"x": 12, "a": 40, "b": 50, "c": 60, "d": 70},
}
DTYPES = ("float16", "float32", "float64", "complex64")


@pytest.fixture(scope="module")
def devices(cupy: Any) -> list[int]:
    """All GPUs, at most four."""
    return list(range(min(4, cupy.cuda.runtime.getDeviceCount())))


def integers(case: str, extents: dict[str, int], dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    high = 2 if dtype == "float16" else 4  # sums that every dtype holds
    terms = case.split("->")[0].split(",")
    found = [rng.integers(1 - high, high, [extents[x] for x in term]).astype(dtype) for term in terms]
    if dtype == "float16":
        found = [x * (rng.random(x.shape) < 0.25) for x in found]
    return [x.astype(dtype) for x in found]


def right(case: str, arrays: list[Any], dtype: str) -> Any:
    wide = "complex128" if dtype.startswith("c") else "float64"
    return np.einsum(case, *(x.astype(wide) for x in arrays), optimize=True).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_shared_contractions_are_exact(cupy, devices, case, dtype, monkeypatch):
    monkeypatch.setattr("gett.slices.cuts.SHARING_US", -1e6)  # they are cut, however small
    arrays = integers(case, CASES[case], dtype)
    want = right(case, arrays, dtype)
    here = [cupy.asarray(x) for x in arrays]
    for shard in (None, *case.split("->")[1]):
        plan = gett.plan(case, *here, devices=devices, shard=shard)
        assert len(devices) == 1 or plan.is_shared
        for _ in range(2):
            found = plan(*here)
            np.testing.assert_array_equal(found.get(), want)
    for axis in range(2):
        cut = [gett.Sharded.cut(x, devices, axis % x.ndim) for x in here]
        assert [part.device.id for part in cut[0].parts] == devices
        for shard in (None, *case.split("->")[1]):
            found = gett.einsum(case, *cut, devices=devices, shard=shard)
            assert shard is None or list(found.devices) == devices
            np.testing.assert_array_equal(found.get(), want)
    gett.plan_cache.clear()


def test_operands_that_move_in_chunks(cupy, devices, monkeypatch):
    monkeypatch.setattr("gett.slices.cuts.Costs.crossing", lambda self, nbytes: nbytes / 1e5)  # all takes long
    monkeypatch.setattr("gett.slices.cuts.expected_us", lambda plan: plan.flops / 1e6)
    monkeypatch.setattr("gett.slices.cuts.ASKED_US", 0.0)
    rng = np.random.default_rng(0)
    v, t = rng.integers(-2, 3, (64,) * 4).astype("float64"), rng.integers(-2, 3, (8, 8, 64, 64)).astype("float64")
    here = cupy.asarray(v), cupy.asarray(t)
    plan = gett.plan("abef,ijef->ijab", *here, devices=devices)
    assert len(devices) == 1 or plan.slices > len(devices)
    want = gett.einsum("abef,ijef->ijab", *here).get()
    for _ in range(3):
        np.testing.assert_array_equal(plan(*here).get(), want)
        np.testing.assert_array_equal(gett.contract("abef,ijef->ijab", *here, alpha=2, devices=devices).get(), 2 * want)
    gett.plan_cache.clear()


def test_results_of_a_queue_of_shared_calls(cupy, devices, monkeypatch):
    """Operands may be written over as soon as the call has returned: streams keep the order."""
    monkeypatch.setattr("gett.slices.cuts.SHARING_US", -1e6)
    a, b = cupy.ones((512, 512)), cupy.ones((512, 512))
    plan = gett.plan("ij,jk->ik", a, b, devices=devices)
    results = []
    for i in range(20):
        a[...] = i
        results.append(plan(a, b))
    for i, found in enumerate(results):
        assert bool((found == 512 * i).all())
    gett.plan_cache.clear()


def test_results_have_the_same_bits_on_every_run(cupy, devices):
    rng = cupy.random.default_rng(0)
    a, b = (rng.standard_normal((700, 700)) for _ in range(2))
    plan = gett.plan("ij,jk->ik", a, b, devices=devices)
    first = plan(a, b).get()
    for _ in range(5):
        assert plan(a, b).get().tobytes() == first.tobytes()


def test_the_text_says_whether_gpus_read_each_other(cupy, devices):
    big = ((4096, 4096), "float64")
    plan = gett.plan("ij,jk->ik", big, big, devices=devices)
    a = cupy.ones((4096, 4096))
    text = str(gett.plan("ij,jk->ik", a, a, devices=devices))
    assert ("through the host" in text) is (len(devices) > 1 and not peer_access(devices))
    assert plan.arch == "cpu"


def test_devices_that_do_not_exist_are_named(cupy):
    a = cupy.ones((8, 8))
    with pytest.raises(gett.DeviceError, match="there is no GPU 63 here"):
        gett.einsum("ij,jk->ik", a, a, devices=[0, 63])


def test_arrays_move_in_the_order_of_streams(cupy, devices):
    link = CupyLink(cupy)
    x = cupy.arange(1 << 20, dtype="float64").reshape(1024, 1024)
    link.begin(devices, [0])
    for device in devices:
        with link.on(device):
            there, event = link.fetch(x[:, ::2], device)
            if event is not None:
                link.wait(device, event)
            assert there.device.id == device
            back = link.move(there + 1, 0)
        assert bool((back == x[:, ::2] + 1).all())
    link.end(devices, 0)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_slices_over_an_executor_on_gpus(cupy, devices, dtype):
    case = "xab,xbc,xcd->ad"
    arrays = integers(case, CASES[case], dtype)
    here = [cupy.asarray(x) for x in arrays]
    plan = gett.plan(case, *here)
    results = []
    for workers in (1, 2):
        with ThreadPoolExecutor(workers) as pool:
            found = gett.distributed.contract(plan, here, executor=pool, slices=12)
        assert isinstance(found, cupy.ndarray)
        results.append(found.get())
        np.testing.assert_array_equal(results[-1], right(case, arrays, dtype))
    assert math.prod(results[0].shape) == math.prod(results[1].shape)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_tensors_of_pytorch_are_shared(devices, dtype, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("gett.slices.cuts.SHARING_US", -1e6)
    gett.plan_cache.clear()
    a, b = (torch.randint(-2, 3, s, device="cuda:0").to(getattr(torch, dtype)) for s in ((160, 130), (130, 90)))
    want = a.cpu() @ b.cpu()
    found = gett.einsum("ij,jk->ik", a, b, devices=devices)
    assert found.device == a.device
    assert found.dtype == a.dtype
    assert torch.equal(found.cpu(), want)
    for axis in (0, 1):
        cut = gett.Sharded.cut(a, devices, axis)
        assert [x.get_device() for x in cut.parts] == devices
        assert torch.equal(gett.einsum("ij,jk->ik", cut, b, devices=devices).cpu(), want)
        parts = gett.einsum("ij,jk->ik", cut, b, devices=devices, shard="k")
        assert torch.equal(torch.cat([x.cpu() for x in parts.parts], 1), want)
    gett.plan_cache.clear()


def test_plans_of_one_layout_are_kept_apart_by_library(cupy, devices):
    torch = pytest.importorskip("torch")
    a = cupy.ones((96, 96))
    for x in (a, torch.ones(96, 96, device="cuda", dtype=torch.float64), a):
        assert float(gett.einsum("ij,jk->", x, x, devices=devices)) == 96**3


def test_tensors_of_pytorch_over_an_executor():
    torch = pytest.importorskip("torch")
    a, b = (torch.randint(-2, 3, s, device="cuda").double() for s in ((160, 130), (130, 90)))
    with ThreadPoolExecutor(2) as pool:
        found = gett.distributed.contract(gett.plan("ij,jk->ik", a, b), (a, b), executor=pool, slices=8)
    assert found.device == a.device
    assert torch.equal(found, a @ b)
