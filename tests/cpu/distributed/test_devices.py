"""Contractions that several devices share: on NumPy, and on arrays that have a place, so that reads are watched."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placed_arrays import KIND, PlacedLink, State, cut, exact, gpu_of, in_form, on

import gett
from gett.slices import devices as module
from gett.slices.work import SliceRun

CASES = ["abef,ijef->ijab", "ij,jk->ik", "bij,bjk->bik", "ij,kj->", "ij->j", "xab,xbc,xcd->ad", "ab,bc,cd,de->ae"]


@pytest.fixture
def placed(monkeypatch):
    """Plans for NumPy's arrays share work among devices with memory of their own."""
    monkeypatch.setattr(module, "_link", lambda plan, kind: PlacedLink())
    gett.plan_cache.clear()
    State.moved.clear()
    added = SliceRun.add

    def watched(self, outer, number, sums, **options):
        place = {**outer, **self._work.grid.slice(number)}
        for x in (*self._views(place), *self._kept, sums):
            assert gpu_of(x) == State.current
        added(self, outer, number, sums, **options)

    monkeypatch.setattr(SliceRun, "add", watched)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(CASES), st.integers(1, 4), st.integers(0, 10**6), st.data())
def test_shared_contractions_are_exact(case, count, seed, data):
    arrays = exact(case, np.random.default_rng(seed))
    devices = list(range(count))
    want = np.einsum(case, *arrays, optimize=True)
    given = [
        gett.Sharded.cut(x, devices, data.draw(st.integers(0, x.ndim - 1))) if data.draw(st.booleans()) else x
        for x in arrays
    ]
    shard = data.draw(st.sampled_from([None, *case.split("->")[1]]))
    found = gett.einsum(case, *given, devices=devices, shard=shard)
    assert isinstance(found, gett.Sharded) == (shard is not None)
    np.testing.assert_array_equal(np.asarray(found), want)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("form", ["arrays", "sharded", "mixed"])
def test_devices_read_and_write_their_own_memory(placed, case, count, form):
    rng, devices = np.random.default_rng(0), list(range(count))
    arrays = exact(case, rng, 3)
    want = np.einsum(case, *arrays, optimize=True)
    for shard in (None, *case.split("->")[1]):
        for axis in range(2):
            given = in_form(form, arrays, devices, axis)
            plan = gett.plan(case, *given, devices=devices, shard=shard)
            with PlacedLink().on(0):
                found = plan(*given)
            if shard is None:
                np.testing.assert_array_equal(found, want)
                continue
            assert found.devices == (-1,) * count
            assert [x.gpu for x in found.parts] == devices
            np.testing.assert_array_equal(np.asarray(found), want)


def test_operands_that_are_cut_where_the_contraction_is_do_not_move(placed):
    rng = np.random.default_rng(0)
    a, b = exact("ik,kj->ij", rng, 8, 9)
    plan = gett.plan("ik,kj->ij", cut(a, [0, 1], 1), cut(b, [0, 1], 0), devices=[0, 1])
    with PlacedLink().on(0):
        found = plan(cut(a, [0, 1], 1), cut(b, [0, 1], 0))
    np.testing.assert_array_equal(found, a @ b)
    assert State.moved == [(1, 0, found.nbytes)]  # the sums alone
    assert (plan.cut.moved, plan.cut.returned) == (0, found.nbytes)


def test_more_than_two_devices_add_shares_and_copy_copies(placed):
    """No device sends or gets all of what moves."""
    rng, devices = np.random.default_rng(0), [0, 1, 2, 3]
    a, b = rng.integers(-3, 4, (8, 16)).astype(float), rng.integers(-3, 4, (16, 8)).astype(float)
    given = cut(a, devices, 1), cut(b, devices, 0)
    plan = gett.plan("ik,kj->ij", *given, devices=devices)
    with PlacedLink().on(0):
        np.testing.assert_array_equal(plan(*given), a @ b)
    whole = 8 * 8 * 8
    assert sum(n for x, y, n in State.moved if y == 0) == 2 * whole * 3 // 4  # shares of the others, then their sums
    assert all(sum(n for x, y, n in State.moved if y == d) == whole * 3 // 4 for d in (1, 2, 3))
    State.moved.clear()
    a, b = rng.integers(-3, 4, (400, 3)).astype(float), on(rng.integers(-3, 4, (3, 3)).astype(float), 0)
    plan = gett.plan("ik,kj->ij", cut(a, devices, 0), b, devices=devices, shard="i")
    with PlacedLink().on(0):
        np.testing.assert_array_equal(plan(cut(a, devices, 0), b).get(), a @ b)
    assert [(x, y) for x, y, _ in State.moved] == [(0, 1), (0, 2), (1, 3)]


def test_bytes_that_cross_the_link_are_those_planned(placed):
    rng = np.random.default_rng(0)
    a, b = (on(x, 0) for x in exact("ik,kj->ij", rng, 8, 9))
    plan = gett.plan("ik,kj->ij", a, b, devices=[0, 1])
    with PlacedLink().on(0):
        plan(a, b)
    assert sum(n for _, _, n in State.moved) == plan.cut.moved + plan.cut.returned


def test_factors_addend_result_and_epilogue_of_a_shared_contraction():
    rng = np.random.default_rng(0)
    a, b = exact("ik,kj->ij", rng, 6, 9)
    c = rng.integers(-3, 4, (a.shape[0], b.shape[1])).astype(float)
    out = np.empty(c.shape)
    found = gett.contract(
        "ik,kj->ij", a, b, c=c, alpha=2, beta=-1, out=out, devices=[0, 1], epilogue=lambda d: gett.ops.relu(d)
    )
    assert found is out
    np.testing.assert_array_equal(out, np.maximum(2 * (a @ b) - c, 0))
    held = out.copy()
    gett.contract("ik,kj->ij", a, b, beta=1, out=out, devices=[0, 1, 2])
    np.testing.assert_array_equal(out, held + a @ b)


def test_a_plan_with_slices_of_its_own_is_shared():
    arrays = exact("xab,xbc,xcd->ad", np.random.default_rng(0), 12, 16)
    limited = gett.plan("xab,xbc,xcd->ad", *arrays, memory_limit="14kB")
    assert limited.slices > 2
    plan = gett.plan("xab,xbc,xcd->ad", *arrays, memory_limit="14kB", devices=[0, 1])
    assert plan.slices >= limited.slices
    np.testing.assert_array_equal(plan(*arrays), np.einsum("xab,xbc,xcd->ad", *arrays, optimize=True))
    one = gett.plan("xab,xbc,xcd->ad", *arrays, memory_limit="14kB", devices=[0])
    assert one.slices == limited.slices
    np.testing.assert_array_equal(one(*arrays), plan(*arrays))


def test_the_text_says_who_computes_what():
    big = ((200, 200, 200, 200), "float64"), ((40, 40, 200, 200), "float64")
    plan = gett.plan("abef,ijef->ijab", *big, devices=[0, 1], arch="H200")
    text = str(plan)
    assert "on 2 devices [0, 1]" in text
    assert "cut       along " in text
    assert "device 1 " in text
    assert "of operands, 244.1 MiB of sums" in text  # it is cut along a kept mode, in chunks that lie together
    assert "on one device" in text
    small = gett.plan("ij,jk->ik", ((64, 64), "float64"), ((64, 64), "float64"), devices=[0, 1], arch="H200")
    assert "one device takes less time" in str(small)
    assert repr(plan) == "<DevicesPlan abef,ijef->ijab on sm_90a, 2 devices>"


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("form", ["arrays", "sharded", "mixed"])
@pytest.mark.parametrize("second", ["i", "e"])
def test_parts_that_go_through_another_mode_in_chunks(placed, monkeypatch, count, form, second):
    """Each device has a share of `a`, and chunks of a kept or a summed mode of what all of them read."""
    case, rng, devices = "abef,ijef->ijab", np.random.default_rng(0), list(range(count))
    arrays = [rng.integers(-3, 4, (6,) * 4).astype(float) for _ in range(2)]
    number, extent = {"i": (4, arrays[1].shape[0]), "e": (2, arrays[0].shape[2])}[second]

    def twice(self, layout, shard):
        lengths = (0, -(-arrays[0].shape[0] // count)), (number, -(-extent // 2))
        return replace(self.of(lengths[:1], layout, shard), lengths=lengths)

    monkeypatch.setattr(module.Costs, "best", twice)
    for shard in (None, "a", "i"):
        given = in_form(form, arrays, devices, 0)
        plan = gett.plan(case, *given, devices=devices, shard=shard)
        assert [m for m, _ in plan.cut.lengths] == [0, number]
        with PlacedLink().on(0):
            found = plan(*given)
        np.testing.assert_array_equal(np.asarray(found), np.einsum(case, *arrays, optimize=True))
        if form == "sharded" and shard == "a":  # each device gets what it lacks of the operand that all read
            assert sum(n for x, y, n in State.moved if x != y) == plan.cut.moved == arrays[1].nbytes * (count - 1)
        State.moved.clear()
    gett.plan_cache.clear()


def test_copies_of_what_all_devices_read_run_beside_the_computation():
    whole = [np.broadcast_to(np.float64(0), s) for s in ((200, 200, 200, 200), (40, 40, 200, 200))]
    devices = range(8)
    parts = [gett.Sharded.cut(x, devices, 0) for x in whole]
    plan = gett.plan("abef,ijef->ijab", *parts, devices=devices, shard="a", arch="H200")
    (first, length), (_, chunk) = plan.cut.lengths
    assert (first, length) == (0, 25)
    assert chunk < 40
    assert plan.alone.cost > 7 * plan.cut.cost
    assert "cut       along a (kept, 25 of 200), " in str(plan)


def test_plans_are_kept_by_their_devices():
    a, b = np.ones((6, 6)), np.ones((6, 6))
    first = gett.plan("ij,jk->ik", a, b, devices=[0, 1])
    assert gett.plan("ij,jk->ik", a, b, devices=[0, 1]) is first
    assert gett.plan("ij,jk->ik", a, b, devices=[0, 1, 2]) is not first
    assert gett.plan("ij,jk->ik", a, b, devices=[0, 1], shard="i") is not first


def test_threads_share_a_plan():
    arrays = exact("xab,xbc,xcd->ad", np.random.default_rng(0), 6, 9)
    plan = gett.plan("xab,xbc,xcd->ad", *arrays, devices=[0, 1, 2])
    want = np.einsum("xab,xbc,xcd->ad", *arrays, optimize=True)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: plan(*arrays), range(40)):
            np.testing.assert_array_equal(found, want)


def test_sharded_tensors():
    x = np.arange(24.0).reshape(2, 6, 2)
    made = gett.Sharded.cut(x, [0, 1, 2, 3], axis=-2)
    assert [p.shape for p in made.parts] == [(2, 2, 2), (2, 2, 2), (2, 2, 2), (2, 0, 2)]
    assert (made.shape, made.ndim, made.nbytes, made.dtype) == ((2, 6, 2), 3, 192, np.dtype(float))
    assert all(np.shares_memory(p, x) for p in made.parts[:3])
    np.testing.assert_array_equal(np.asarray(made), x)
    assert np.asarray(made, dtype="float32").dtype == np.float32
    assert repr(made) == "<Sharded (2, 6, 2) float64, axis 1: 2 + 2 + 2 + 0 on [-1, -1, -1, -1]>"
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(made, copy=False)


@pytest.mark.parametrize(
    ("parts", "axis", "error", "message"),
    [
        ([], 0, gett.OptionError, "needs a part at least"),
        ([np.ones((2, 3))], 2, gett.OptionError, "axis=2: the parts have 2 axes"),
        ([np.ones((2, 3))], True, gett.OptionError, "axis=True"),
        ([np.ones((2, 3)), np.ones((2, 4))], 0, gett.ShapeError, r"part 1 has shape \(2, 4\), part 0 has \(2, 3\)"),
        ([np.ones(2), np.ones(2, "float32")], 0, gett.DTypeError, "part 1 has dtype float32, part 0 has float64"),
    ],
)
def test_parts_that_do_not_fit_are_named(parts, axis, error, message):
    with pytest.raises(error, match=message):
        gett.Sharded(parts, axis)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"devices": []}, gett.OptionError, r"devices=\[\]; it must list numbers of GPUs"),
        ({"devices": 2}, gett.OptionError, "devices=2; it must list"),
        ({"devices": [0, -1]}, gett.OptionError, r"devices=\[0, -1\]; it must list"),
        ({"devices": [1, 1]}, gett.OptionError, "names a GPU twice"),
        ({"devices": [0, 1], "shard": "z"}, gett.OptionError, "shard='z' is no label of the result of ij,jk->ik"),
        ({"devices": [0, 1], "shard": "j"}, gett.OptionError, "shard='j' is no label of the result"),
        ({"shard": "i"}, gett.OptionError, "shards the result over devices=, which are not given"),
        ({"devices": [0, 1], "shard": "i", "out": np.ones((4, 4))}, gett.OptionError, "out= does not go with sharded"),
    ],
)
def test_bad_devices_are_named(options, error, message):
    a = np.ones((4, 4))
    with pytest.raises(error, match=message):
        gett.einsum("ij,jk->ik", a, a, **options)


def test_operands_that_do_not_fit_a_shared_plan_are_named():
    a = np.ones((4, 4))
    s = gett.Sharded.cut(a, [0, 1])
    plan = gett.plan("ij,jk->ik", s, a, devices=[0, 1])
    for operands, error, message in (
        ((s,), gett.ShapeError, "takes 2 operands, 1 were given"),
        ((a, s), gett.ShapeError, "operand 0 is an array, planned was sharded along axis 0"),
        ((gett.Sharded.cut(a, [0, 1], 1), a), gett.ShapeError, "operand 0 is sharded along axis 1, planned"),
        ((gett.Sharded.cut(np.ones((4, 5)), [0, 1]), a), gett.ShapeError, r"operand 0 has shape \(4, 5\)"),
        ((gett.Sharded.cut(a.astype("float32"), [0, 1]), a), gett.DTypeError, "operand 0 has dtype float32"),
    ):
        with pytest.raises(error, match=message):
            plan(*operands)
    with pytest.raises(gett.OptionError, match="alpha= does not go with sharded tensors"):
        plan(s, a, alpha=2)
    with pytest.raises(gett.OptionError, match="c= and epilogue_args= are arrays of the first GPU"):
        gett.contract("ij,jk->ik", s, a, c=s, devices=[0, 1])


def test_sharded_tensors_without_devices_are_those_of_the_host():
    a = np.arange(16.0).reshape(4, 4)
    s = gett.Sharded.cut(a, [0, 1])
    np.testing.assert_array_equal(gett.einsum("ij,jk->ik", s, a), a @ a)
    s.kind = KIND
    with pytest.raises(gett.OperandError, match="operand 0"):
        gett.einsum("ij,jk->ik", s, a)


NETWORKS = ["ab,bc,cd,de->ae", "xab,xbc,xcd->ad", "abc,cd,bde,ef->af", "ab,bc,ca->", "ii,ij,jk->k", "ab,ac,ad->bcd"]


@pytest.fixture
def by_steps(monkeypatch):
    """Networks are shared step by step, whatever a cut of all would take."""
    of = module.Costs.of

    def dear(self, lengths, layout, shard):
        return replace(of(self, lengths, layout, shard), cost=math.inf)

    monkeypatch.setattr(module.Costs, "of", dear)
    monkeypatch.setattr(module.Costs, "crossing", lambda self, nbytes: 1e-3 * nbytes)
    gett.plan_cache.clear()


@pytest.mark.parametrize("case", NETWORKS)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("form", ["arrays", "sharded", "mixed"])
def test_steps_are_shared_one_by_one(placed, by_steps, case, count, form):
    rng, devices = np.random.default_rng(1), list(range(count))
    arrays = exact(case, rng, 3, 9)
    if case.startswith("ii"):
        arrays[0] = np.ascontiguousarray(arrays[0][:, : arrays[0].shape[0]])
    want = np.einsum(case, *arrays, optimize=True)
    shared = 0
    for shard in (None, *case.split("->")[1]):
        for axis in range(2):
            given = in_form(form, arrays, devices, axis)
            plan = gett.plan(case, *given, devices=devices, shard=shard)
            shared += plan.by_step is not None
            with PlacedLink().on(0):
                found = plan(*given)
            np.testing.assert_array_equal(np.asarray(found), want)
            if shard is not None:
                assert found.axis == case.split("->")[1].index(shard)
                assert [gpu_of(x) for x in found.parts] == devices
    assert shared
    gett.plan_cache.clear()


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_factors_and_epilogue_of_steps(by_steps, dtype):
    rng = np.random.default_rng(0)
    arrays = [(x % 2).astype(dtype) for x in exact("ab,bc,cd->ad", rng, 4, 8)]
    c = np.full((arrays[0].shape[0], arrays[2].shape[1]), 2, dtype)
    want = gett.contract("ab,bc,cd->ad", *arrays, c=c, alpha=2, beta=-1, epilogue=lambda d: d * 0.5)
    out = np.empty_like(want)
    found = gett.contract(
        "ab,bc,cd->ad", *arrays, c=c, alpha=2, beta=-1, out=out, epilogue=lambda d: d * 0.5, devices=[0, 1]
    )
    assert found is out
    assert out.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(out, want)
    plan = gett.plan("ab,bc,cd->ad", *arrays, devices=[0, 1])
    assert plan.by_step is not None
    assert "steps     " in str(plan)
    gett.plan_cache.clear()


@pytest.mark.slow
def test_large_steps_of_a_network_are_shared_and_small_ones_are_not():
    """A chain of eight large matrices, contracted as a balanced tree, and two small ones at its end."""
    shapes = [*[(6000, 6000)] * 8, (6000, 16), (16, 16)]
    path = [*[(0, 1)] * 7, (1, 2), (0, 1)]
    specs = [(s, "float64") for s in shapes]
    plan = gett.plan("ab,bc,cd,de,ef,fg,gh,hi,ij,jk->ak", *specs, devices=[0, 1], arch="H200", optimize=path)
    assert plan.by_step is not None
    assert 0 < plan.by_step.count < len(plan.by_step.steps)
    assert plan.by_step.cost < 0.75 * plan.alone.cost
    text = str(plan)
    assert f"{plan.by_step.count} of 9 are shared, the others run on device 0" in text
    assert "  step 1    cut along " in text
