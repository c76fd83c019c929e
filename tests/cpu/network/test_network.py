"""More than two operands: paths, steps, the mode order of intermediates, their lifetime."""

from __future__ import annotations

import gc
import itertools
import pickle
import threading
import weakref
from dataclasses import replace

import numpy as np
import opt_einsum
import pytest
from hypothesis import strategies as st

import gett
from gett.ir.tensors import TensorSpec
from gett.network.optimize import freeze_optimize
from gett.network.path import NEVER, find_steps
from gett.slices.finder import find_plan
from tests.cpu.strategies import Case, contractions, integers_of
from tests.sampling import given_few

DTYPES = ("bool", "int64", "float64", "complex128")
integers = integers_of(np.random.default_rng(11))


@given_few(
    20, 40, contractions(operands=3, dtypes=DTYPES), st.sampled_from([True, False, "greedy", "optimal", [(0, 1, 2)]])
)
def test_three_operands(case: Case, optimize):
    result = gett.einsum(case.subscripts, *case.operands, optimize=optimize)
    np.testing.assert_array_equal(result, case.reference())


@given_few(20, 40, contractions(operands=5, dtypes=DTYPES, max_modes=8, extents=(1, 2, 3)), st.booleans())
def test_five_operands(case: Case, optimize):
    result = gett.einsum(case.subscripts, *case.operands, optimize=optimize)
    np.testing.assert_array_equal(result, case.reference())


@pytest.mark.parametrize(
    "optimize",
    [
        True,
        False,
        None,
        "auto",
        "greedy",
        "optimal",
        "dp",
        "branch-2",
        ("greedy", 1000),
        ["einsum_path", (0, 1), (0, 2), (0, 1)],
        [(1, 2), (0, 1), (0, 1)],
        [(0, 1, 2, 3)],
        [(0,), (0, 1, 3), (0, 1)],
        ((3, 0), [1, 0], (0, 1)),
    ],
)
def test_optimize_takes_what_opt_einsum_and_numpy_take(optimize):
    operands = [integers(3, 4), integers(4, 5), integers(5, 2), integers(2, 3)]
    for subscripts in ("ab,bc,cd,de->ae", "ab,bc,cd,da", "ab,bc,cd,ea->eb"):
        expected = np.einsum(subscripts, *operands)
        np.testing.assert_array_equal(gett.einsum(subscripts, *operands, optimize=optimize), expected)
        np.testing.assert_array_equal(gett.einsum(subscripts, *operands, optimize=optimize), expected)


@pytest.mark.parametrize("path", [[(0, 3), (0, 1)], [(0, 1)], [(0, 0), (0, 1)], [(0, 1), (0, 1), (0, 1)], [(-1, 0)]])
def test_paths_that_do_not_fit(path):
    with pytest.raises(gett.OptionError, match="path"):
        gett.einsum("ab,bc,cd", *[np.ones((2, 2))] * 3, optimize=path)


def test_path_optimizer_objects():
    operands = [integers(3, 4), integers(4, 5), integers(5, 2), integers(2, 3)]
    optimizer = opt_einsum.RandomGreedy(max_repeats=2)
    expected = np.einsum("ab,bc,cd,de->ae", *operands)
    np.testing.assert_array_equal(gett.einsum("ab,bc,cd,de->ae", *operands, optimize=optimizer), expected)
    with pytest.raises(gett.OptionError, match="new instance"):  # opt_einsum ties an optimizer to one contraction
        gett.einsum("ab,bc,cd,da->", *operands, optimize=optimizer)


def test_a_mode_along_which_no_operand_varies_still_counts():
    ones = np.broadcast_to(2, (3, 4))
    np.testing.assert_array_equal(gett.einsum("ab,b,->b", ones, np.ones(4, int), 1), [6] * 4)
    np.testing.assert_array_equal(gett.einsum("ab,ba,a->b", ones, ones.T, ones[:, 0]), [24] * 4)
    np.testing.assert_array_equal(gett.einsum("ab,,->ba", ones, 1, 1), ones.T)


def test_broadcast_and_repeated_labels_in_a_network():
    a, b, c = integers(3, 3, 4), integers(1, 5), integers(4, 1, 5)
    for subscripts in ("iij,jk,jlk->il", "iij,jk,jlk->lki", "iij,...k,jlk->...i"):
        np.testing.assert_array_equal(gett.einsum(subscripts, a, b, c), np.einsum(subscripts, a, b, c))


def test_steps_are_spelled_and_chain():
    plan = gett.plan("ab,bc,cd->ad", *[((8, 8), "f4")] * 3, optimize=[(0, 1), (0, 1)])
    assert [(s.name, s.inputs, s.output) for s in plan.steps] == [("ab,bc->ac", (0, 1), 3), ("cd,ac->ad", (2, 3), 4)]
    assert plan.path_info.path == [(0, 1), (0, 1)]
    assert plan.flops == 2 * 2 * 8**3
    assert plan.intermediate_bytes == 8 * 8 * 4
    assert plan.bytes == sum(s.gemm.bytes for s in plan.steps)


def test_an_intermediate_lies_as_its_consumer_wants():
    """Kept modes first in the order of the result, then the summed ones as the partner has them in memory."""
    extents = [4] * 6
    a, b, c, d, e, f = range(6)
    terms = [(a, e), (e, b, c, d), (d, c, f)]
    for memory in ([d, c, f], [c, f, d]):
        steps, _ = find_steps(terms, (f, b, a), extents, [[a, e], [e, b, c, d], memory], [(0, 1), (0, 1)], NEVER)
        assert steps[0].modes == (b, a, *[m for m in memory if m in (c, d)])
        assert steps[1].modes == (f, b, a)


def test_summed_modes_agree_between_two_intermediates():
    terms = [(0, 2), (2, 3, 4), (3, 4, 5), (5, 1)]
    memory = [list(t) for t in terms]
    steps, _ = find_steps(terms, (1, 0), [3] * 6, memory, [(0, 1), (0, 1), (0, 1)], NEVER)
    assert [s.modes for s in steps] == [(0, 3, 4), (1, 3, 4), (1, 0)]


def test_k_fuses_into_one_mode_in_a_chain():
    plan = gett.plan("aij,ijkl,klb->ab", ((5, 4, 3), "f8"), ((4, 3, 2, 6), "f8"), ((2, 6, 7), "f8"))
    for step in plan.steps:
        assert len(step.gemm.k) == 1
        assert len(step.gemm.m) == len(step.gemm.n) == 1


def test_a_single_operand_step_sums_early():
    plan = gett.plan("ab,bc,cd->ad", ((3, 4), "f8"), ((4, 5), "f8"), ((5, 2), "f8"), optimize=[(1,), (0, 1, 2)])
    assert len(plan.steps) == 2  # every mode of the operand is still needed: there is nothing to do for it alone
    plan = gett.plan("abx,bc,cd->ad", ((3, 4, 9), "f8"), ((4, 5), "f8"), ((5, 2), "f8"), optimize=[(0,), (0, 1, 2)])
    assert plan.steps[0].name == "abx->ab"
    assert len(plan.steps) == 3


def test_intermediates_are_freed_as_soon_as_used(request):
    gc.freeze()  # what other tests keep is not looked at
    request.addfinalizer(gc.unfreeze)
    operands = [integers(6, 6) for _ in range(5)]
    plan = gett.plan("ab,bc,cd,de,ef->af", *operands, optimize=False)
    alive: list[weakref.ref[np.ndarray]] = []
    counts: list[int] = []
    wrapped = []
    for step in plan.steps:

        def watch(a, b, c, d, alpha, beta, execute=step.executable):
            gc.collect()
            counts.append(sum(ref() is not None for ref in alive))
            alive.append(weakref.ref(d))
            execute(a, b, c, d, alpha, beta)

        wrapped.append(replace(step, executable=watch))

    read = [x.dtype for x in operands]
    fresh = type(plan)(plan._request, plan.subscripts, tuple(wrapped), plan.path, plan._d, "C", read, plan._replan)
    result = fresh(*operands)
    np.testing.assert_array_equal(result, np.linalg.multi_dot(operands))
    assert counts == [0, 1, 1, 1]  # when a step runs, only the previous result is alive


def test_more_than_52_labels():
    count = 70
    operands = [integers(2, 2) for _ in range(count)]
    args = [x for i, a in enumerate(operands) for x in (a % 2, [i, i + 1])]
    expected = np.linalg.multi_dot([a % 2 for a in operands])
    np.testing.assert_array_equal(gett.einsum(*args, [0, count]), expected)


def test_out_dtype_and_order_of_a_network():
    operands = [integers(3, 4, dtype="float32"), integers(4, 5, dtype="int16"), integers(5, 2)]
    expected = np.einsum("ab,bc,cd->da", *operands)
    result = gett.einsum("ab,bc,cd->da", *operands, order="F")
    assert result.dtype == expected.dtype
    assert result.flags.f_contiguous
    np.testing.assert_array_equal(result, expected)
    out = np.zeros((4, 6))[::-2, ::2]
    assert gett.einsum("ab,bc,cd->da", *operands, out=out) is out
    np.testing.assert_array_equal(out, expected)


def test_empty_network():
    for shapes in itertools.permutations([(0, 3), (3, 4), (4, 0)]):
        a, b, c = (np.ones(s) for s in shapes)
        letters = {0: "z", 3: "x", 4: "y"}
        subscripts = ",".join("".join(letters[e] for e in s) for s in shapes)
        for output in ("", "x", "zy"):
            expected = np.einsum(f"{subscripts}->{output}", a, b, c)
            np.testing.assert_array_equal(gett.einsum(f"{subscripts}->{output}", a, b, c), expected)


def test_freeze_optimize():
    assert freeze_optimize([[0, 1], (0, 1)]) == ((0, 1), (0, 1))
    assert freeze_optimize("greedy") == "greedy"


def test_intermediates_lie_as_new_arrays_do_whatever_the_result_does():
    shapes = [((64, 48), "float32"), ((48, 32), "float32"), ((32, 40), "float32")]
    request = gett.plan("ij,jk,kl->il", *shapes, arch="sm_90a").request
    places = [TensorSpec((64, 40), (160, 4), np.dtype("float32"), alignment) for alignment in (4, 16)]
    first, second = (find_plan(replace(request, out=place)).steps for place in places)
    assert first[0].gemm.signature == second[0].gemm.signature
    assert first[-1].gemm.signature != second[-1].gemm.signature


def test_plans_pickle_without_what_is_bound_to_devices():
    plan = gett.plan("ij,jk,kl->il", *[((6, 6), "float64")] * 3)
    plan._bound[7] = (threading.Lock(),)
    text = pickle.dumps(plan)
    gett.plan_cache.clear()
    other = pickle.loads(text)
    assert 7 not in other._bound
    x = np.arange(36.0).reshape(6, 6)
    np.testing.assert_array_equal(other(x, x, x), x @ x @ x)
