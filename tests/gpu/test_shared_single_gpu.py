"""Single products in planes whose first calls run on shared kernels: exact before and after their own take over."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gett
from tests.gpu.support import until_own

CASES = {
    "ladder": ("abef,ijef->ijab", ((30, 20, 25, 30), (8, 9, 25, 30))),
    "batches": ("abck,cbkd->badc", ((5, 17, 6, 90), (6, 17, 90, 33))),
    "twos": ("tabdefghik,tcjlmnrsuv->abcdefghijklmnrsuv", ((2,) * 10, (2,) * 10)),
    "few rows": ("mk,kn->nm", ((3, 700), (700, 900))),
    "three steps": ("ab,bc,cd,de->ae", ((90, 80), (80, 300), (300, 200), (200, 150))),
}
DTYPES = ["float32", "complex64"]
pytestmark = pytest.mark.usefixtures("shared_kernels_first")


def numbers(shapes: Any, dtype: str, seed: int = 0) -> list[Any]:
    """Small integers, so that every sum is exact."""
    rng = np.random.default_rng(seed)
    most = 2 if len(shapes) == 2 else 1
    found = [rng.integers(-most, most + 1, s) * (rng.random(s) < 0.3) for s in shapes]
    if dtype.startswith("c"):
        found = [x + 1j * rng.integers(-1, 2, x.shape) * (rng.random(x.shape) < 0.3) for x in found]
    return [x.astype(dtype) for x in found]


def exact_of(spec: str, arrays: Any) -> Any:
    wide = [x.astype("complex128" if x.dtype.kind == "c" else "float64") for x in arrays]
    found = np.einsum(spec, *wide, optimize=True)
    assert max(abs(found.real).max(), abs(found.imag).max()) < 2**24
    return found.astype(arrays[0].dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_every_call_is_exact(cupy: Any, name: str, dtype: str) -> None:
    spec, shapes = CASES[name]
    host = numbers(shapes, dtype)
    exact, arrays = exact_of(spec, host), [cupy.asarray(x) for x in host]
    plan = gett.plan(spec, *arrays)
    assert plan.stands_in
    np.testing.assert_array_equal(plan(*arrays).get(), exact)
    out = cupy.full(exact.shape, 9, dtype)
    assert gett.einsum(spec, *arrays, out=out) is out
    np.testing.assert_array_equal(out.get(), exact)
    until_own(plan, arrays, exact)
    for _ in range(3):
        np.testing.assert_array_equal(plan(*arrays).get(), exact)
        np.testing.assert_array_equal(gett.einsum(spec, *arrays).get(), exact)
    assert plan(*arrays, out=out) is out
    np.testing.assert_array_equal(out.get(), exact)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_else_a_call_may_have(cupy: Any, dtype: str) -> None:
    spec, shapes = CASES["ladder"]
    host = numbers(shapes, dtype)
    exact, arrays = exact_of(spec, host), [cupy.asarray(x) for x in host]
    plan = gett.plan(spec, *arrays)
    assert plan.stands_in
    mantissa, exponent = plan(*arrays, strip_exponent=True)
    np.testing.assert_allclose(mantissa.get() * 10.0 ** float(exponent), exact, rtol=1e-6, atol=1e-6)
    ones = cupy.ones(exact.shape, dtype)
    np.testing.assert_array_equal(gett.contract(spec, *arrays, c=ones, alpha=2, beta=-1).get(), 2 * exact - 1)
    np.testing.assert_array_equal(plan(*arrays, alpha=2).get(), 2 * exact)  # waits
    assert not plan.stands_in


def test_conjugates_and_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    spec, shapes = CASES["batches"]
    a, b = numbers(shapes, "complex64")
    exact = exact_of(spec, [a, b.conj()])
    given = torch.as_tensor(a, device="cuda"), torch.as_tensor(b, device="cuda").conj()
    for _ in range(3):
        np.testing.assert_array_equal(gett.einsum(spec, *given).cpu().numpy(), exact)
    given[0].requires_grad_()
    np.testing.assert_array_equal(gett.einsum(spec, *given).detach().cpu().numpy(), exact)


@pytest.mark.parametrize("name", ["ladder", "three steps"])
def test_a_graph_that_is_recorded_has_own_kernels(cupy: Any, name: str) -> None:
    spec, shapes = CASES[name]
    host = numbers(shapes, "float32")
    exact, arrays = exact_of(spec, host), [cupy.asarray(x) for x in host]
    plan, out = gett.plan(spec, *arrays), cupy.zeros(exact.shape, "float32")
    plan(*arrays, out=out)
    assert plan.stands_in
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        stream.begin_capture()
        plan(*arrays, out=out)
        graph = stream.end_capture()
        assert not plan.stands_in
        for value in (5, 6):
            out[...] = value
            graph.launch()
            stream.synchronize()
            np.testing.assert_array_equal(out.get(), exact)


def test_a_graph_of_pytorch_has_own_kernels() -> None:
    torch = pytest.importorskip("torch")
    spec, shapes = CASES["ladder"]
    host = numbers(shapes, "float32")
    exact, given = exact_of(spec, host), [torch.as_tensor(x, device="cuda") for x in host]
    out = torch.zeros(exact.shape, device="cuda")
    gett.einsum(spec, *given, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gett.einsum(spec, *given, out=out)
    for value in (5, 6):
        out.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(out.cpu().numpy(), exact)


def test_many_shapes_one_after_the_other(cupy: Any) -> None:
    """Their own kernels are compiled side by side meanwhile."""
    plans, begun = [], time.monotonic()
    for n in range(130, 142):
        host = numbers(((n, 60), (60, 2 * n)), "float32", n)
        exact, arrays = exact_of("ab,bc->ac", host), [cupy.asarray(x) for x in host]
        plan = gett.plan("ab,bc->ac", *arrays)
        np.testing.assert_array_equal(plan(*arrays).get(), exact)
        plans.append((plan, arrays, exact))
    took = time.monotonic() - begun
    assert any(plan.stands_in for plan, _, _ in plans), f"all took {took:.2f} s"
    for plan, arrays, exact in plans:
        until_own(plan, arrays, exact)
        np.testing.assert_array_equal(plan(*arrays).get(), exact)
