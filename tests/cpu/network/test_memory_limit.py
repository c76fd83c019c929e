"""`memory_limit=`: slices give the bits of the whole, plans keep their limit, and what they say they take is taken."""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import opt_einsum.testing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gett
from gett.network import limits as limits_module
from gett.network.limits import Elements, Share, parse_limit, resolved
from gett.network.optimize import Bytes
from gett.network.path import NEVER, find_steps
from gett.network.slicing import Network, slicing, slicings
from tests.cpu.strategies import DTYPES, contractions, integers_of, outputs
from tests.sampling import slow_but

integers = integers_of(np.random.default_rng(27))
CHAIN = "ab,bc,cd,de->ae"


def tightest(subscripts: str, *operands: Any, **options: Any) -> int:
    """The least limit that does, as the error says it."""
    with pytest.raises(gett.OptionError, match="the least that would do is") as caught:
        gett.plan(subscripts, *operands, memory_limit="1B", **options)
    return int(str(caught.value).partition("the least that would do is ")[2].split()[0])


def limits(free: int, least: int) -> list[str]:
    return [f"{least + (free - least) * i // 4}B" for i in range(4)]


def seen_bytes(plan: Callable[..., Any], *operands: Any) -> int:
    plan(*operands)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        plan(*operands)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


# --- bits


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_slices_give_the_bits_of_the_whole(data):
    case = data.draw(contractions(operands=data.draw(st.integers(1, 4)), extents=(1, 2, 3, 5), misaligned=False))
    operands, subscripts = case.operands, case.subscripts
    conj = [data.draw(st.booleans()) for _ in operands]
    free = gett.plan(subscripts, *operands, conj=conj)
    expected = free(*operands)
    try:
        least = tightest(subscripts, *operands, conj=conj)
    except pytest.fail.Exception:
        return  # it takes no memory at all
    for limit in limits(free.peak_bytes, least):
        plan = gett.plan(subscripts, *operands, conj=conj, memory_limit=limit)
        assert plan.peak_bytes <= int(limit[:-1])
        found = plan(*operands)
        np.testing.assert_array_equal(found, expected, strict=True)
        out = data.draw(outputs(case.shape, expected.dtype))
        assert gett.einsum(subscripts, *operands, conj=conj, memory_limit=limit, out=out) is out
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", slow_but(DTYPES, ["float16", "int8", "complex64"]))
@pytest.mark.parametrize("subscripts", ["ab,bc,cd->ad", "ab,bc,cb->", "abx,bcx,cdx->dxa", "aab,bc,cbd->d"])
def test_factors_an_addend_and_an_epilogue_enter_once(dtype, subscripts):
    *terms, output = subscripts.replace("->", ",").split(",")
    extents = {"a": 4, "b": 6, "c": 5, "d": 3, "x": 2}
    operands = [integers(*(extents[m] for m in t), dtype=dtype) for t in terms]
    shape = tuple(extents[m] for m in output)
    c = integers(*shape[1:], dtype=dtype)
    real = np.dtype(dtype).kind not in "bc"
    epilogue = (
        {}
        if not real
        else {"epilogue": lambda d, x: np.maximum(d + x, 1), "epilogue_args": (integers(*shape, dtype=dtype),)}
    )
    plain = {"alpha": 1 if dtype == "bool" else 2}
    for options in (plain, plain | {"c": c}, {"c": c} | epilogue, epilogue):
        whole = gett.contract(subscripts, *operands, **options)
        announced = {k: v for k, v in options.items() if k not in ("alpha", "beta")}
        free = gett.plan(subscripts, *operands, **announced)
        least = tightest(subscripts, *operands, **announced)
        for limit in limits(free.peak_bytes, least):
            found = gett.contract(subscripts, *operands, memory_limit=limit, **options)
            np.testing.assert_array_equal(found, whole, strict=True)
            out = np.zeros(shape, dtype)
            gett.contract(subscripts, *operands, memory_limit=limit, out=out, **options)
            np.testing.assert_array_equal(out, whole)
    start = np.asarray(integers(*shape, dtype=dtype))
    for alpha in {1, plain["alpha"]}:
        expected, found = np.array(start), np.array(start)
        gett.contract(subscripts, *operands, beta=1, alpha=alpha, out=expected)
        plan = gett.plan(
            subscripts, *operands, out=found, memory_limit=f"{tightest(subscripts, *operands, out=found) + 4096}B"
        )
        plan(*operands, beta=1, alpha=alpha, out=found)
        np.testing.assert_array_equal(found, expected)


def test_an_ellipsis_broadcast_axes_and_lists_of_labels():
    a, b, c = integers(3, 1, 4, 5), integers(6, 5, 4), integers(4, 7)
    for arguments in (
        ("...ij,...jk,kl->...il", a, b, c),
        (a, [..., "i", "j"], b, [..., "j", "k"], c, ["k", "l"], [..., "i", "l"]),
    ):
        free = gett.plan(*arguments)
        for limit in limits(free.peak_bytes, tightest(*arguments)):
            np.testing.assert_array_equal(gett.einsum(*arguments, memory_limit=limit), gett.einsum(*arguments))


def test_sums_of_sixteen_bits_are_rounded_once():
    a = np.ones((1, 4096), "f2")
    b = np.full((4096, 64), 0.75, "f2")
    c = np.ones((64, 1), "f2") / 64
    whole = gett.einsum("ab,bc,cd->ad", a, b, c)
    plan = gett.plan("ab,bc,cd->ad", a, b, c, optimize=[(1, 2), (0, 1)], memory_limit="2KiB")
    assert plan.slices > 1
    np.testing.assert_array_equal(plan(a, b, c), whole)


def test_out_may_overlap_what_slices_read():
    a, b = integers(8, 8), integers(8, 8)
    plan = gett.plan("ab,bc,cd->ad", a, b, b, out=a, memory_limit=f"{tightest('ab,bc,cd->ad', a, b, b, out=a) + 64}B")
    assert plan.slices > 1
    expected = a @ b @ b
    plan(a, b, b, out=a)
    np.testing.assert_array_equal(a, expected)


def test_runs_have_the_same_bits():
    rng = np.random.default_rng(1)
    operands = [rng.standard_normal((24, 24)) for _ in range(4)]
    plan = gett.plan(CHAIN, *operands, memory_limit="13KiB")
    assert plan.slices > 1
    first = plan(*operands)
    assert all((plan(*operands) == first).all() for _ in range(5))
    np.testing.assert_allclose(first, np.linalg.multi_dot(operands), rtol=1e-12)


# --- what a plan says


@cache
def networks(count: int) -> list[tuple[str, list[tuple[int, ...]], str]]:
    """Networks whose calls take some megabytes."""
    found: list[tuple[str, list[tuple[int, ...]], str]] = []
    seed = 0
    while len(found) < count:
        seed += 1
        rng = np.random.default_rng(seed)
        operands, outer = int(rng.integers(3, 7)), int(rng.integers(1, 4))
        subscripts, *views = opt_einsum.testing.rand_equation(
            operands, int(rng.integers(2, 4)), n_out=outer, d_min=6, d_max=40, seed=seed
        )
        shapes = [tuple(x) for x in views[0]]
        dtype = ("f8", "f4", "c16", "c8")[seed % 4]
        if max(map(math.prod, shapes)) > 1e6:
            continue
        plan = gett.plan(subscripts, *[(s, dtype) for s in shapes])
        if 1.5e6 < plan.peak_bytes < 1.5e7 and plan.flops < 3e8:
            found.append((subscripts, shapes, dtype))
    return found


@pytest.fixture
def one_thread(monkeypatch):
    """Two threads may hold their tiles at the same time, or not."""
    monkeypatch.setattr("gett.cpu.executable.available_threads", lambda: 1)
    gett.plan_cache.clear()
    yield
    gett.plan_cache.clear()


@pytest.mark.parametrize("number", slow_but(range(30), range(0, 30, 4)))
def test_the_peak_that_is_told_is_the_peak_that_is_seen(number, one_thread):
    subscripts, shapes, dtype = networks(30)[number]
    operands = [integers(*s, dtype=dtype) for s in shapes]
    free = gett.plan(subscripts, *operands)
    assert seen_bytes(free, *operands) == pytest.approx(free.peak_bytes, rel=0.05)
    try:
        plan = gett.plan(subscripts, *operands, memory_limit=f"{free.peak_bytes // 2}B")
    except gett.OptionError:
        return  # half of it is the result
    if plan.slices < 64 and plan.peak_bytes > 500_000:
        assert plan.peak_bytes <= free.peak_bytes // 2
        assert seen_bytes(plan, *operands) == pytest.approx(plan.peak_bytes, rel=0.05)
        expected = np.asarray(free(*operands))  # beyond the integers that single precision holds
        np.testing.assert_allclose(plan(*operands), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_sliced_plan_tells_its_slices():
    pairs = [((64, 64), "f8")] * 4
    free = gett.plan(CHAIN, *pairs)
    assert (free.slices, free.sliced, free.once, free.overhead) == (1, "", 0, 1.0)
    plan = gett.plan(CHAIN, *pairs, memory_limit="90kB")
    assert plan.slices > 1
    assert plan.once == 1
    assert f"{plan.slices} slices along {' '.join(plan.sliced)}, 1 step computed once" in str(plan)
    assert f"{plan.slices} slices along" in plan.explain(detail=True)
    assert repr(plan) == f"<SlicedPlan ab,bc,cd,de->ae on cpu, {plan.slices} slices>"
    told = plan.to_dict()
    assert (told["slices"], told["sliced"], told["peak_bytes"]) == (plan.slices, [*plan.sliced], plan.peak_bytes)
    assert plan.peak_bytes <= 90 << 10 < free.peak_bytes
    assert plan.intermediate_bytes < plan.peak_bytes
    assert plan.compile() is plan


def test_a_plan_for_a_gpu_is_sliced_by_description_alone():
    pairs = [((256, 256, 64), "f4"), ((256, 64, 256), "f4"), ((256, 256, 32), "f4")]
    options = {"arch": "sm_90a", "workspace_limit": 0}
    free = gett.plan("abx,bxc,acd->d", *pairs, **options)
    plan = gett.plan("abx,bxc,acd->d", *pairs, memory_limit=f"{free.peak_bytes // 4}B", **options)
    assert plan.slices > 1
    assert plan.peak_bytes <= free.peak_bytes // 4
    assert all(s.schedule is not None for s in plan.steps)
    short = gett.plan("ab,bc,cd->ad", *[((512, 512), "f2")] * 3, memory_limit="900kB", **options)
    assert short.slices > 1


def test_a_limit_that_is_kept_anyway_changes_nothing():
    pairs = [((32, 32), "f8")] * 4
    free = gett.plan(CHAIN, *pairs)
    plan = gett.plan(CHAIN, *pairs, memory_limit=f"{free.peak_bytes}B")
    assert plan.steps == free.steps
    assert plan.path == free.path
    a = np.ones((32, 32))
    np.testing.assert_array_equal(plan(a, a, a, a, c=a), np.full((32, 32), 32.0**3 + 1))


# --- limits


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (None, None), (-1, None), (math.inf, None), (100, Elements(100)), (1e6, Elements(10**6)), (0.5, Share(0.5)),
        ("0.25", Share(0.25)), ("8GiB", Bytes(8 << 30)), ("max_input", Elements(0)), (np.int64(7), Elements(7)),
    ],
)  # fmt: skip
def test_what_limits_mean(value, limit):
    assert parse_limit(value) == limit


@pytest.mark.parametrize("value", [0, 0.0, 1.0, 1.5, -0.5, -2, True, "0", "lots", "-1GiB", [5], math.nan, "2 XB"])
def test_limits_that_mean_nothing(value):
    a = np.ones((3, 3))
    for call in (gett.einsum, gett.contract, gett.plan):
        with pytest.raises(gett.OptionError, match="memory_limit"):
            call("ij,jk", a, a, memory_limit=value)


def test_a_share_is_one_of_what_is_free():
    assert resolved(Share(0.5), 1000) == Bytes(480)
    assert resolved(Bytes(7), 1) == Bytes(7)
    a = np.ones((4, 4))
    assert gett.plan("ij,jk", a, a, memory_limit=0.5)._request.memory_limit.size > 1 << 20
    np.testing.assert_array_equal(gett.einsum("ij,jk", a, a, memory_limit=0.5), a @ a)
    with pytest.raises(gett.OptionError, match="give a size"):
        gett.plan("ij,jk", a, a, memory_limit=0.5, arch="sm_90a")


def test_elements_limit_the_largest_intermediate_and_slices_keep_them():
    operands = [integers(10, 10) for _ in range(4)]
    for limit in (1, 9, 50, 99, 100):
        plan = gett.plan(CHAIN, *operands, memory_limit=limit)
        assert plan.largest_intermediate <= limit
        assert (plan.slices > 1) is (limit < 100)
        np.testing.assert_array_equal(plan(*operands), np.linalg.multi_dot(operands))


def test_a_limit_that_no_slices_keep_says_the_least_that_does():
    operands = [integers(12, 12) for _ in range(4)]
    least = tightest(CHAIN, *operands)
    assert least >= operands[0].nbytes
    assert gett.plan(CHAIN, *operands, memory_limit=f"{least}B").peak_bytes == least
    with pytest.raises(gett.OptionError, match="the least that would do"):
        gett.plan(CHAIN, *operands, memory_limit=f"{least - 1}B")


def test_the_environment_s_limit_holds_where_a_call_has_none(monkeypatch):
    operands = [integers(16, 16) for _ in range(4)]
    monkeypatch.setenv("GETT_MEMORY_LIMIT", "3KiB")
    limits_module._process.clear()
    try:
        assert gett.plan(CHAIN, *operands).slices > 1
        assert gett.plan(CHAIN, *operands, memory_limit=-1).slices == 1
        assert gett.plan(CHAIN, *operands, optimize=("greedy", 1000)).slices == 1
        np.testing.assert_array_equal(gett.einsum(CHAIN, *operands), np.linalg.multi_dot(operands))
        monkeypatch.setenv("GETT_MEMORY_LIMIT", "lots")
        limits_module._process.clear()
        with pytest.raises(gett.OptionError, match="GETT_MEMORY_LIMIT"):
            gett.einsum(CHAIN, *operands)
    finally:
        monkeypatch.undo()
        limits_module._process.clear()


def test_plans_are_kept_by_their_limit():
    operands = [integers(16, 16) for _ in range(4)]
    for limit in ("3KiB", "3KiB", "4KiB", None, "3KiB"):
        gett.einsum(CHAIN, *operands, memory_limit=limit)
    one, two, three = (gett.plan(CHAIN, *operands, memory_limit=x) for x in ("3KiB", "3072B", "4KiB"))
    assert one is two
    assert one is not three


# --- the model


@settings(max_examples=50, deadline=None)
@given(contractions(operands=4, empty=False, broadcast=False, zero_strides=False))
def test_each_way_holds_less_until_all_is_sliced(case):
    *terms, output = case.subscripts.replace("->", ",").split(",")
    number = {x: i for i, x in enumerate(case.extents)}
    modes = [tuple(dict.fromkeys(number[x] for x in t)) for t in terms]
    extents, result = tuple(case.extents.values()), tuple(number[x] for x in output)
    steps, _ = find_steps(modes, result, extents, modes, True, NEVER)
    network = Network(tuple(modes), result, extents, steps)
    ways = [way for way in slicings(network, {}) if way.keeps or not way.lengths]
    assert ways[0] == slicing(network, {})
    last = dict(ways[-1].lengths)
    assert len(ways) <= 1 + sum(max(0, e - 1).bit_length() + 1 for e in extents)
    assert all(n < extents[m] for m, n in last.items())


# --- cotengra


def test_a_sliced_tree_of_cotengra_is_run_as_it_is():
    ctg = pytest.importorskip("cotengra")
    a, b, c, d = integers(4, 5), integers(5, 6), integers(6, 7), integers(7, 4)
    tree = ctg.array_contract_tree([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")], (), dict(a=4, b=5, c=6, d=7))
    sliced = tree.slice(target_slices=8)
    plan = gett.plan("zy,yx,xw,wz->", a, b, c, d, optimize=sliced)
    assert plan.slices == sliced.nslices
    assert len(plan.sliced) == len(sliced.sliced_inds)
    for call in (gett.einsum, gett.contract):
        np.testing.assert_array_equal(call("zy,yx,xw,wz->", a, b, c, d, optimize=sliced), np.trace(a @ b @ c @ d))
    with pytest.raises(gett.PathError, match="slices"):
        gett.contract_path("zy,yx,xw,wz->", a, b, c, d, optimize=sliced)


def test_few_slices_are_taken_where_workspaces_rule_out_the_first(monkeypatch):
    """cotengra's way of many slices fits too, and takes 200 times as long."""
    spec, shapes = opt_einsum.testing.rand_equation(8, 3, n_out=2, d_min=8, d_max=20, seed=25)
    operands = [(s, "float64") for s in shapes]
    limit = gett.plan(spec, *operands, arch="sm_90a").peak_bytes // 2

    def many(network, path, room):
        yield slicing(network, dict.fromkeys((4, 5, 11), 1), keeps=False)

    monkeypatch.setattr("gett.slices.limited.cotengra_slicings", many)
    plan = gett.plan(spec, *operands, arch="sm_90a", memory_limit=f"{limit}B")
    assert 1 < plan.slices < 100
    assert plan.peak_bytes <= limit


# --- where no slices run


def test_numpy_s_own_dtypes_are_not_sliced():
    a = np.ones((10, 10), object)
    np.testing.assert_array_equal(gett.einsum("ab,bc,cd->ad", a, a, a, memory_limit="4kB"), np.full((10, 10), 100))
    with pytest.raises(gett.OptionError, match="memory_limit= limits a call to 900 bytes"):
        gett.einsum("ab,bc,cd->ad", a, a, a, memory_limit="900B")


def test_recorded_derivatives_are_not_sliced():
    torch = pytest.importorskip("torch")
    x = [torch.ones(10, 10, dtype=torch.float64, requires_grad=True) for _ in range(4)]
    assert gett.einsum(CHAIN, *x, memory_limit="4kB").requires_grad
    with pytest.raises(gett.OptionError, match=r"memory_limit=.*checkpoint="):
        gett.einsum(CHAIN, *x, memory_limit="1500B")
    with torch.no_grad():
        assert gett.einsum(CHAIN, *x, memory_limit="1500B").shape == (10, 10)


def test_a_compiled_graph_keeps_its_limit_or_says_so():
    torch = pytest.importorskip("torch")
    x = [torch.ones(10, 10, dtype=torch.float64) for _ in range(4)]

    def chain(limit):
        return torch.compile(lambda *x: gett.einsum(CHAIN, *x, memory_limit=limit), backend="eager")

    assert chain("4kB")(*x).shape == (10, 10)
    with pytest.raises(Exception, match=r"memory_limit= limits a call to 1500 bytes"):
        chain("1500B")(*x)


def test_a_plan_of_slices_records_no_derivatives():
    torch = pytest.importorskip("torch")
    x = [torch.ones(10, 10, dtype=torch.float64) for _ in range(4)]
    plan = gett.plan(CHAIN, *x, memory_limit="1500B")
    assert plan.slices > 1
    assert plan(*x).sum() == 100 * 1000
    with pytest.raises(gett.OptionError, match=r"memory_limit=.*checkpoint="):
        plan(*[t.requires_grad_() for t in x])
