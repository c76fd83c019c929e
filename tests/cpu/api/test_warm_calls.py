"""Warm calls, whose plans are in the cache: what they find, and how many functions of this package they go through."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gett
from gett.arrays import kinds
from gett.plans import executables
from gett.plans.fit import Fit
from tests.cpu.fake_cupy import GpuArray, State, use_device
from tests.cpu.fake_torch import State as TorchState
from tests.cpu.fake_torch import tensor
from tests.cpu.strategies import integers_of

integers = integers_of(np.random.default_rng(7))


@pytest.fixture
def cupy(monkeypatch):
    """A stand-in for CuPy, and executables that do nothing."""
    cuda = types.SimpleNamespace(Device=use_device, runtime=types.SimpleNamespace(getDevice=lambda: State.device))
    kind = kinds.CupyKind(types.SimpleNamespace(ndarray=GpuArray, cuda=cuda))
    monkeypatch.setattr(kind, "arch", lambda device: "sm_90a")
    monkeypatch.setattr(kind, "memory", lambda device: 1 << 37)
    monkeypatch.setattr(kinds, "_cupy_kind", kind)
    monkeypatch.setattr(
        executables, "_build_executables", lambda gemms, arch, tuned, limit: [lambda *x: None for _ in gemms]
    )
    gett.plan_cache.clear()
    yield
    gett.plan_cache.clear()


@pytest.fixture
def empty_cache():
    gett.plan_cache.clear()
    yield gett.plan_cache
    gett.plan_cache.clear()


# --- what they go through


def entered(call: Callable[[], Any]) -> list[str]:
    """The functions between the public one and what runs a step that a warm call enters, with comprehensions."""
    call()
    call()
    found: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith(("gett.api", "gett.plans", "gett.network", "gett.arrays")):
            found.append(f"{module}.{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_an_operand_of_many_whose_shape_was_set_is_looked_at_again(cupy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [GpuArray.of(np.ones((4, 4), "float32"), 0) for _ in range(9)]
    out, ran = GpuArray.of(np.ones((4, 4), "float32"), 0), list[Any]()
    plan: Any = gett.plan("ab,bc,cd,de,ef,fg,gh,hi,ij->aj", *[((4, 4), "float32")] * 9, arch="sm_90a")
    plan._request = replace(plan.request, device=0)
    plan._fit = Fit(plan.request, plan.result.d)
    monkeypatch.setattr(type(plan), "run", lambda self, kind, device, operands, c, into, *rest: ran.append(into))
    for _ in range(4):
        plan(*given)
        plan(*given, out=out)
    assert ran == [None, out] * 4
    given[5].host.shape = (2, 8)
    with pytest.raises(gett.ShapeError, match="operand 5"):
        plan(*given)
    assert ran[8:] == [None]  # the shapes are looked at while the GPU works
    with pytest.raises(gett.ShapeError, match="operand 5"):
        plan(*given, out=out)
    assert ran[9:] == []  # and before anything is written that is the caller's


def arrays_of(library: str, count: int) -> list[Any]:
    hosts = [integers(4, 4, dtype="float32") for _ in range(count)]
    if library == "NumPy":
        return hosts
    return [GpuArray.of(x, 0) if library == "CuPy" else tensor(x) for x in hosts]


@pytest.fixture(params=["NumPy", "CuPy", "PyTorch"])
def arrays(request) -> list[Any]:
    if request.param != "NumPy":
        request.getfixturevalue("cupy" if request.param == "CuPy" else "torch")
    return arrays_of(request.param, 7)


def test_a_warm_contract_goes_where_a_warm_einsum_goes(arrays):
    """And through two functions of its own: one looks for `c` among the operands, one for what beta scales."""
    a, b, c, out, *_ = arrays
    own = {"gett.api.contract.contract", "gett.api.contract.split_factors", "gett.plans.checks.resolve_addend"}
    for subscripts, operands, options in (
        ("ij,jk->ik", (a, b), {}),
        ("ij,jk->ik", (a, b), {"out": out}),
        ("ij,jk->ik", (a, b), {"precision": "ieee", "workspace_limit": "1MiB"}),
        ("ij,jk,kl->il", (a, b, c), {}),
        ("ij,jk,kl->il", (a, b, c), {"out": out}),
    ):
        plain = entered(lambda s=subscripts, x=operands, o=options: gett.einsum(s, *x, **o))
        found = entered(lambda s=subscripts, x=operands, o=options: gett.contract(s, *x, **o))
        assert [x for x in found if x not in own] == [x for x in plain if x != "gett.api.einsum.einsum"]
        assert len(found) == len(plain) + 2


def test_factors_and_c_cost_a_few_functions_more(arrays):
    """Factors are asked whether they are complex, and checked against the plan's dtype; `c`, whether it is read."""
    a, b, c, out, *_ = arrays
    plain = len(entered(lambda: gett.einsum("ij,jk->ik", a, b)))
    into = len(entered(lambda: gett.einsum("ij,jk->ik", a, b, out=out)))
    assert len(entered(lambda: gett.contract("ij,jk->ik", a, b, alpha=2.5))) <= plain + 8
    assert len(entered(lambda: gett.contract("ij,jk->ik", a, b, c))) <= plain + 9
    assert len(entered(lambda: gett.contract("ij,jk->ik", a, b, beta=1, out=out))) <= into + 11


def test_a_step_of_a_network_costs_a_new_array_and_a_launch(arrays):
    """Nothing is worked out at a step but the memory of its intermediate."""
    a, b, c, d, e, f, _ = arrays
    short = entered(lambda: gett.einsum("ij,jk,kl->il", a, b, c, optimize=False))
    long = entered(lambda: gett.einsum("ij,jk,kl,lm,mn,no->io", a, b, c, d, e, f, optimize=False))
    arguments = 2 * sum(x.endswith(".layouts") for x in short)
    assert len(long) - len(short) <= 3 * 2 + arguments  # NumPy's and CuPy's `empty`; PyTorch's, and `launch`


def test_a_warm_plan_goes_through_less_than_a_warm_einsum(arrays):
    a, b, _, out, *_ = arrays
    plan = gett.plan("ij,jk->ik", a, b)
    plain = len(entered(lambda: gett.einsum("ij,jk->ik", a, b, out=out)))
    assert len(entered(lambda: plan(a, b, out=out))) <= plain


# --- what they find


def test_einsum_and_contract_share_plans_whatever_the_factors(empty_cache):
    a, b = integers(3, 4), integers(4, 5)
    gett.einsum("ij,jk->ik", a, b)
    for alpha in (1, 2, 2.5, np.float64(3), 128):
        np.testing.assert_array_equal(gett.contract("ij,jk->ik", a, b, alpha=alpha), alpha * (a @ b))
    assert empty_cache.info()[:3] == (5, 1, 1)
    c = integers(3, 5)
    for beta in (1, 2, -3.5):
        np.testing.assert_array_equal(gett.contract("ij,jk->ik", a, b, c, beta=beta), a @ b + beta * c)
    assert empty_cache.info()[:3] == (7, 2, 2)
    for beta in (0, 0.0):  # c is not read: another plan
        np.testing.assert_array_equal(gett.contract("ij,jk->ik", a, b, c * np.nan, beta=beta), a @ b)
    assert empty_cache.info()[:3] == (8, 3, 3)
    with pytest.raises(gett.ShapeError, match="c of shape"):
        gett.contract("ij,jk->ik", a, b, np.ones(2), beta=0)


def test_a_plan_that_the_user_made_is_taken(empty_cache, monkeypatch):
    a, b = integers(3, 4), integers(4, 5)
    gett.plan("ij,jk->ik", a, b)
    monkeypatch.setattr("gett.slices.finder.make_plan", None)
    for call in (gett.einsum, gett.contract):
        np.testing.assert_array_equal(call("ij,jk->ik", a, b), a @ b)


def test_warm_factors_are_checked(empty_cache):
    whole, real = integers(3, 3, dtype="int32"), integers(3, 3)
    for _ in range(2):
        assert gett.contract("ij,jk->ik", whole, whole, alpha=2.0).dtype == np.int32
        with pytest.raises(gett.DTypeError, match="no integer"):
            gett.contract("ij,jk->ik", whole, whole, alpha=0.5)
        with pytest.raises(gett.DTypeError, match="complex"):
            gett.contract("ij,jk->ik", real, real, real, beta=1j)
        with pytest.raises(gett.OptionError, match="beta=1 scales c"):
            gett.contract("ij,jk->ik", real, real, beta=1)


def test_complex_factors_of_mixed_operands_have_a_plan_of_their_own(empty_cache):
    x, z = integers(6, 7), integers(7, 8, dtype="complex128")
    for _ in range(2):
        for alpha in (2, 1 + 2j):
            np.testing.assert_array_equal(gett.contract("ij,jk->ik", x, z, alpha=alpha), alpha * (x @ z))
            np.testing.assert_array_equal(gett.contract("ij,kj->ik", z, z, alpha=alpha), alpha * (z @ z.T))
    assert empty_cache.info().size == 3  # one of the complex operands


def test_a_warm_c_that_is_conjugated_lazily_is_read_as_what_it_is(torch):
    a, b, c = (tensor(integers(4, 4, dtype="complex64")) for _ in range(3))
    for other in (c, c.conj(), c, c.conj()):
        found = gett.contract("ij,jk->ik", a, b, other)
        np.testing.assert_array_equal(found.values(), a.values() @ b.values() + other.values())
    assert TorchState.resolved == 2


def test_a_warm_out_that_overlaps_c_is_written_last(empty_cache):
    a, b = integers(3, 3), integers(3, 3)
    memory = integers(4, 3)
    for _ in range(3):
        for c, out in ((memory[1:], memory[:3]), (memory[0], memory[:3]), (memory[:3], memory[:3])):
            expected = a @ b + c
            assert gett.contract("ij,jk->ik", a, b, c, out=out) is out
            np.testing.assert_array_equal(out, expected)
            memory[...] %= 16
