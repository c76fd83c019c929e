"""Networks whose first calls run on shared kernels: exact before, while and after their own take over."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from opt_einsum.testing import rand_equation

import gett
from tests.gpu.support import until_own

SPEC = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am"
SIDES = (640, 200, 170, 90, 200, 210, 5, 4, 130, 3, 7, 2, 600)
OTHERS = (560, 120, 190, 80, 210, 220, 3, 5, 120, 2, 6, 4, 500)
DTYPES = ["complex64", "float64", "float16", "complex128", "float32"]
pytestmark = pytest.mark.usefixtures("shared_kernels_first")


def chain(xp: Any, sides: tuple[int, ...], dtype: str, seed: int = 0) -> tuple[list[Any], Any]:
    """Matrices and their product, every part of which is exact in the dtype."""
    rng = np.random.default_rng(seed)
    host = []
    for rows, columns in itertools.pairwise(sides):
        x = np.zeros((rows, columns), "complex128")
        for _ in range(1 if dtype == "float16" else 2):  # few numbers in a row, so that no part of a result is large
            values = rng.choice([-1, 1], rows) + (1j * rng.choice([-1, 0, 1], rows) if dtype.startswith("c") else 0)
            x[np.arange(rows), rng.integers(0, columns, rows)] = values
        host.append(x if dtype.startswith("c") else x.real)
    exact = np.linalg.multi_dot(host)
    most = {"float16": 2**11, "float32": 2**24, "complex64": 2**24}.get(dtype, 2**53)
    assert max(abs(exact.real).max(), abs(exact.imag).max()) < most
    return [xp.asarray(x.astype(dtype)) for x in host], exact.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_call_is_exact(cupy: Any, dtype: str) -> None:
    arrays, exact = chain(cupy, SIDES, dtype)
    plan = gett.plan(SPEC, *arrays)
    assert plan.stands_in
    np.testing.assert_array_equal(plan(*arrays).get(), exact)
    until_own(plan, arrays, exact)
    for _ in range(4):  # one launch after the other, then a graph
        np.testing.assert_array_equal(plan(*arrays).get(), exact)
    assert [x for x in plan._replays.values() if x is not None and x._graph is not None]
    out = cupy.full(exact.shape, 9, dtype)
    assert plan(*arrays, out=out) is out
    np.testing.assert_array_equal(out.get(), exact)
    others, other_exact = chain(cupy, SIDES, dtype, 1)
    for _ in range(2):
        np.testing.assert_array_equal(plan(*others).get(), other_exact)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_call_may_have_beside_its_operands(cupy: Any, dtype: str) -> None:
    arrays, exact = chain(cupy, SIDES, dtype)
    others, other_exact = chain(cupy, SIDES, dtype, 1)
    plan = gett.plan(SPEC, *arrays)
    out = cupy.full(exact.shape, 9, dtype)
    assert plan(*arrays, out=out) is out
    np.testing.assert_array_equal(out.get(), exact)
    np.testing.assert_array_equal(plan(*others).get(), other_exact)
    found = gett.contract(
        SPEC, *arrays, c=cupy.ones_like(out), alpha=2, beta=-1
    )  # its last step has a kernel of its own
    np.testing.assert_array_equal(found.get(), 2 * exact - 1)
    np.testing.assert_array_equal(plan(*arrays, alpha=2).get(), 2 * exact)  # waits
    assert not plan.stands_in


@pytest.mark.parametrize("dtype", ["complex64", "float64"])
def test_a_second_network_right_behind(cupy: Any, dtype: str) -> None:
    arrays, exact = chain(cupy, SIDES, dtype)
    others, other_exact = chain(cupy, OTHERS, dtype)
    first = gett.plan(SPEC, *arrays)
    np.testing.assert_array_equal(first(*arrays).get(), exact)
    second = gett.plan(SPEC, *others)
    assert second.stands_in
    np.testing.assert_array_equal(second(*others).get(), other_exact)
    until_own(second, others, other_exact)
    until_own(first, arrays, exact)


@pytest.mark.parametrize("dtype", ["complex64", "float64", "complex128", "float32"])
@pytest.mark.parametrize(("seed", "most"), [(2, 6), (5, 8), (0, 8)])
def test_networks_of_any_modes(cupy: Any, seed: int, most: int, dtype: str) -> None:
    """Orders of modes of all kinds."""
    spec, shapes = rand_equation(16, 3, n_out=3, d_min=2, d_max=most, seed=seed)
    rng = np.random.default_rng(seed)
    turns = 1j ** rng.integers(0, 4, len(shapes)) if dtype.startswith("c") else np.ones(len(shapes))
    host = [rng.integers(-1, 2, s) * turn.round() for s, turn in zip(shapes, turns, strict=True)]
    exact = np.einsum(spec, *host, optimize=True)
    assert abs(exact).max() < (2**24 if dtype in ("float32", "complex64") else 2**50)
    arrays = [cupy.asarray(x.astype(dtype)) for x in host]
    plan = gett.plan(spec, *arrays)
    np.testing.assert_array_equal(plan(*arrays).get(), exact.astype(dtype))
    plan.compile()
    assert not plan.stands_in
    for _ in range(3):
        np.testing.assert_array_equal(plan(*arrays).get(), exact.astype(dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_tensors_of_pytorch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    rng = torch.Generator("cuda").manual_seed(0)
    kind = getattr(torch, dtype)
    orders = [torch.randperm(128, device="cuda", generator=rng) for _ in range(11)]
    arrays = [torch.eye(128, device="cuda", dtype=kind)[order].contiguous() for order in orders]
    arrays.append(torch.randint(-3, 4, (128, 128), device="cuda", generator=rng).to(kind))
    wide = torch.complex128 if dtype.startswith("c") else torch.float64
    exact = torch.linalg.multi_dot([x.to(wide) for x in arrays])
    plan = gett.plan(SPEC, *arrays)
    assert plan.stands_in
    for _ in range(3):
        assert torch.equal(plan(*arrays).to(wide), exact)
    plan.compile()
    for _ in range(3):
        assert torch.equal(plan(*arrays).to(wide), exact)


def test_conjugated_tensors() -> None:
    torch = pytest.importorskip("torch")
    host = chain(np, SIDES, "complex64")[0]
    exact = np.linalg.multi_dot([x.astype("complex128").conj() if i % 3 == 1 else x for i, x in enumerate(host)])
    arrays = [torch.as_tensor(x, device="cuda") for x in host]
    arrays = [x.conj() if i % 3 == 1 else x for i, x in enumerate(arrays)]
    for _ in range(2):
        np.testing.assert_array_equal(gett.einsum(SPEC, *arrays).cpu().numpy(), exact)


def test_a_recorded_graph_outlives_the_exchange(cupy: Any) -> None:
    arrays, exact = chain(cupy, SIDES, "complex64")
    plan = gett.plan(SPEC, *arrays)
    out = cupy.zeros(exact.shape, "complex64")
    plan(*arrays, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        plan(*arrays, out=out)
        stream.synchronize()
        stream.begin_capture()
        plan(*arrays, out=out)
        graph = stream.end_capture()
    until_own(plan, arrays, exact)
    for value in (5, 6):
        with stream:
            out[...] = value
            graph.launch()
            stream.synchronize()
        np.testing.assert_array_equal(out.get(), exact)


def test_strip_exponent(cupy: Any) -> None:
    arrays, exact = chain(cupy, SIDES, "float64")
    plan = gett.plan(SPEC, *arrays)
    assert plan.stands_in
    for _ in range(2):
        mantissa, exponent = plan(*arrays, strip_exponent=True)
        np.testing.assert_allclose(mantissa.get() * 10.0 ** float(exponent), exact, rtol=1e-13, atol=0)
        plan.compile()
    bits, _ = plan(*arrays, strip_exponent=True)
    np.testing.assert_array_equal(bits.get(), mantissa.get())


def test_the_variable_turns_it_off(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GETT_SHARED_FIRST", "0")
    arrays, exact = chain(cupy, SIDES, "float64")
    plan = gett.plan(SPEC, *arrays)
    assert not plan.stands_in
    np.testing.assert_array_equal(plan(*arrays).get(), exact)


def test_a_filled_cache_needs_none(cupy: Any) -> None:
    arrays, exact = chain(cupy, SIDES, "float64")
    gett.plan(SPEC, *arrays).compile()
    gett.plan_cache.clear()
    plan = gett.plan(SPEC, *arrays)
    assert not plan.stands_in
    np.testing.assert_array_equal(plan(*arrays).get(), exact)
