"""`gett.plan(..., constants=)`: exact in every place, steps of constants run once, and what excludes them is named."""

from __future__ import annotations

import itertools
import pickle
import threading
from typing import Any

import numpy as np
import opt_einsum
import pytest
from opt_einsum.testing import rand_equation

import gett
from gett.arrays import held
from gett.distributed.contract import plan_of
from gett.reuse import constant_plan as module
from gett.reuse.constant_plan import ConstantPlan
from tests.cpu.strategies import integers_of

integers = integers_of(np.random.default_rng(4))
RING = "ab,bc,cd,da->bd"
A, B, C, D = OPERANDS = integers(3, 4), integers(4, 5), integers(5, 6), integers(6, 3)
WANT = np.ascontiguousarray(np.einsum(RING, *OPERANDS))
PLACES = [places for r in range(5) for places in itertools.combinations(range(4), r)]


def split(operands: Any, places: Any) -> tuple[list[Any], list[Any]]:
    """Arrays in some places and pairs elsewhere, and the arrays of the other places."""
    given = [x if i in places else (x.shape, x.dtype) for i, x in enumerate(operands)]
    return given, [x for i, x in enumerate(operands) if i not in places]


@pytest.mark.parametrize("optimize", [True, False, "greedy", [(2, 3), (1, 2), (0, 1)], [(0, 1, 2, 3)]], ids=str)
def test_constants_in_every_place(optimize):
    for places in PLACES:
        given, arrays = split(OPERANDS, places)
        plan = gett.plan(RING, *given, constants=places, optimize=optimize)
        for _ in range(2):
            np.testing.assert_array_equal(plan(*arrays), WANT)
        out = np.full_like(WANT, np.nan)
        assert plan(*arrays, out=out) is out
        np.testing.assert_array_equal(out, WANT)


@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed):
    rng = np.random.default_rng(seed)
    spec, shapes = rand_equation(7, 3, n_out=2, d_min=2, d_max=4, seed=seed)
    kinds = ["int64", "float32", "float64", "complex128"]
    operands = [rng.integers(-1, 2, s).astype(rng.choice(kinds)) for s in shapes]
    operands = [x * (1 + 1j) if x.dtype.kind == "c" else x for x in operands]
    conj = [bool(x) for x in rng.integers(0, 2, 7)]
    want = np.einsum(spec, *(x.conj() if y else x for x, y in zip(operands, conj, strict=True)), optimize=True)
    places = [int(x) for x in rng.choice(7, 4, replace=False)]
    given, arrays = split(operands, places)
    plan = gett.plan(spec, *given, constants=places, conj=conj)
    found = plan(*arrays)
    np.testing.assert_array_equal(found, want)
    assert found.dtype == want.dtype


def test_what_is_summed_broadcast_or_a_diagonal():
    square, wide, one = integers(3, 3), integers(1, 5), integers(5, 2)
    spec, operands = "ii,i...,...k,zy,ya->...ka", [square, integers(3, 5), one, A, integers(4, 3)]
    want = np.einsum(spec, *operands)
    for places in ([0, 3], [0, 3, 4], [1, 2], [0, 1, 2, 3, 4]):
        given, arrays = split(operands, places)
        plan = gett.plan(spec, *given, constants=places)
        np.testing.assert_array_equal(plan(*arrays), want)
    broadcast = [wide, integers(4, 5), integers(4, 5)]
    for places in ([0], [1], [0, 1], [1, 2]):
        given, arrays = split(broadcast, places)
        plan = gett.plan("ab,ab,ab->ab", *given, constants=places)
        np.testing.assert_array_equal(plan(*arrays), np.einsum("ab,ab,ab->ab", *broadcast))
    empty = [np.zeros((3, 0)), np.zeros((0, 4)), integers(4, 2)]
    given, arrays = split(empty, [0, 2])
    np.testing.assert_array_equal(gett.plan("ab,bc,cd->ad", *given, constants=[0, 2])(*arrays), np.zeros((3, 2)))


def test_calls_are_those_of_any_plan():
    c, out = integers(4, 6), np.zeros((6, 4)).T
    plan = gett.plan(RING, *OPERANDS, constants=[1, 2], c=c, out=out)
    plan(A, D, c=c, alpha=2, beta=3, out=out)
    np.testing.assert_array_equal(out, 2 * WANT + 3 * c)
    plan(A, D, out=out, beta=1)
    np.testing.assert_array_equal(out, 3 * WANT + 3 * c)
    plan = gett.plan(RING, *OPERANDS, constants=[1, 2], epilogue=lambda d, x: d + x, epilogue_args=(c,))
    np.testing.assert_array_equal(plan(A, D, epilogue_args=(c,)), WANT + c)
    overlapping = integers(4, 4)
    plan = gett.plan("ab,bc->ac", overlapping, overlapping.copy(), constants=[1])
    want = overlapping @ overlapping
    np.testing.assert_array_equal(plan(overlapping, out=overlapping), want)


def test_a_plan_computes_what_opt_einsum_s_expression_does():
    theirs = opt_einsum.contract_expression("ab,bc,cd->ad", A.shape, B, C, constants=[1, 2])
    ours = gett.plan("ab,bc,cd->ad", A, B, C, constants=[1, 2])
    np.testing.assert_array_equal(ours(A), theirs(A))


def chain(count: int) -> tuple[str, list[Any]]:
    """A product of so many matrices and a vector, whose path is fixed from the left: the vector comes last."""
    labels = [chr(97 + i) for i in range(count + 1)]
    spec = ",".join(x + y for x, y in itertools.pairwise(labels)) + "," + labels[-1] + "->" + labels[0]
    return spec, [*(integers(6, 6) % 2 for _ in range(count)), integers(6)]


def test_steps_of_constants_run_once(monkeypatch):
    """Four of five steps are constant: a call after the first runs one."""
    spec, operands = chain(5)
    plan = gett.plan(spec, *operands, constants=range(5), optimize=False)
    assert (plan.held_steps, len(plan.steps)) == (4, 1)
    assert plan.held_bytes == 6 * 6 * 8
    ran: list[str] = []
    real = module.ContractionPlan.__call__

    def call(self: Any, *arrays: Any, **options: Any) -> Any:
        ran.append(f"{self.subscripts}: {len(self.steps)}")
        return real(self, *arrays, **options)

    monkeypatch.setattr(module.ContractionPlan, "__call__", call)
    want = np.einsum(spec, *operands, optimize=True)
    np.testing.assert_array_equal(plan(operands[-1]), want)
    assert [x.split(": ")[1] for x in ran] == ["4", "1"]
    ran.clear()
    for _ in range(3):
        np.testing.assert_array_equal(plan(operands[-1] * 2), 2 * want)
    assert [x.split(": ")[1] for x in ran] == ["1"] * 3
    plan.forget()
    ran.clear()
    np.testing.assert_array_equal(plan(operands[-1]), want)
    assert len(ran) == 2
    fresh = gett.plan(spec, *operands, constants=range(5), optimize=False)
    ran.clear()
    fresh.compile()
    assert len(ran) == 1
    fresh(operands[-1])
    assert len(ran) == 2


def test_constants_that_changed_in_place_are_read_again_once_forgotten():
    a, b = integers(3, 4), integers(4, 5)
    plan = gett.plan("ab,bc,c->a", a, b, ((5,), "float64"), constants=[0, 1], optimize=[(0, 1), (0, 1)])
    x = integers(5)
    before = plan(x)
    a += 1
    np.testing.assert_array_equal(plan(x), before)
    plan.forget()
    np.testing.assert_array_equal(plan(x), a @ b @ x)


def test_a_searched_path_contracts_constants_first_where_calls_do_less_then():
    """Left to right the vector takes part in each product; with a matrix of vectors their product is worth it."""
    operands = [np.ones((40, 40)), np.ones((40, 40)), np.ones((40, 40)), np.ones((40, 30))]
    plan = gett.plan("ab,bc,cd,de->ae", *operands, constants=[0, 1, 2])
    assert (plan.held_steps, len(plan.steps)) == (2, 1)
    usual = gett.plan("ab,bc,cd,de->ae", *operands)
    assert plan.flops * 3 == usual.flops
    given = [(0, 3), (0, 2), (0, 1)]  # a path that is given is used as it is
    assert gett.plan("ab,bc,cd,de->ae", *operands, constants=[0, 1, 2], optimize=given).path == tuple(given)
    large = [np.ones((20, 2)), np.ones((2, 20)), np.ones(20)]  # the product of the constants would take more
    thin = gett.plan("ab,bc,c->a", *large, constants=[0, 1])
    assert thin.held_steps == 0
    assert thin(large[2]).shape == (20,)


def test_the_text_says_what_is_held():
    spec, operands = chain(5)
    plan = gett.plan(spec, *operands, constants=range(5), optimize=False)
    line = "results of 4 steps are held between calls, 288 B"
    assert line in plan.explain()
    assert line in plan.explain(detail=True)
    assert "held between calls" in plan._repr_html_()
    assert plan.to_dict()["held_bytes"] == 288
    assert not plan._held  # the text computes nothing
    assert plan.peak_bytes >= plan.held_bytes + 6 * 8
    assert repr(plan).startswith("<ConstantPlan ab,bc,cd,de,ef,f->a on cpu, 5 constants, 1 step>")
    assert plan.flops == 2 * 36
    assert "held" not in gett.plan("ij,jk->ik", A, B).explain()


def test_plans_for_gpus_are_made_without_one():
    spec = "ab,bc,cd->ad"
    operands = [np.ones((64, 64), "float16") for _ in range(3)]
    plan = gett.plan(spec, *operands[:2], ((64, 64), "float16"), constants=[0, 1], arch="sm_90a", optimize=False)
    assert plan.arch == "sm_90a"
    assert plan.held_bytes == 64 * 64 * 2
    assert "held" in plan.explain()


def test_constants_travel():
    plan = gett.plan(RING, *OPERANDS, constants=[1, 2])
    plan(A, D)
    made = pickle.loads(pickle.dumps(plan))
    assert isinstance(made, ConstantPlan)
    assert not made._held
    np.testing.assert_array_equal(made(A, D), WANT)


def test_threads_compute_once(monkeypatch):
    spec, operands = chain(5)
    plan = gett.plan(spec, *operands, constants=range(5), optimize=False)
    want, found, computed = np.einsum(spec, *operands, optimize=True), [], []
    real, barrier = ConstantPlan._compute, threading.Barrier(4)
    monkeypatch.setattr(ConstantPlan, "_compute", lambda self, x: computed.append(1) or real(self, x))

    def call() -> None:
        barrier.wait()
        found.append(plan(operands[-1]))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(computed) == 1
    assert len(found) == 4
    for x in found:
        np.testing.assert_array_equal(x, want)


def test_slices_view_what_is_held():
    operands = [integers(24, 24, 24) % 2 for _ in range(4)]
    spec = "xab,xbc,xcd,xde->ae"
    want = np.einsum(spec, *operands, optimize=True)
    given, arrays = split(operands, [0, 1])
    path = [(0, 1), (0, 1), (0, 1)]
    whole = gett.plan(spec, *given, constants=[0, 1], optimize=path)
    assert whole.slices == 1
    assert whole.held_bytes == 24**3 * 8
    limit = whole.held_bytes + 100_000
    plan = gett.plan(spec, *given, constants=[0, 1], optimize=path, memory_limit=f"{limit}B")
    assert plan.slices > 1
    assert plan.peak_bytes <= limit
    np.testing.assert_array_equal(plan(*arrays), want)
    np.testing.assert_array_equal(plan(*arrays), want)
    assert "slices" in plan.explain()
    assert "held" in plan.explain()
    with pytest.raises(gett.OptionError, match="results of constants take 110592 bytes"):
        gett.plan(spec, *given, constants=[0, 1], optimize=path, memory_limit=f"{24**3 * 8}B")


class Tree:
    """A sliced tree as cotengra has it."""

    def __init__(self, inputs: list[str], path: list[tuple[int, int]], sliced: str) -> None:
        self.inputs, self._path, self.sliced_inds = [tuple(x) for x in inputs], path, dict.fromkeys(sliced)

    def get_path(self) -> list[tuple[int, int]]:
        return self._path


@pytest.mark.parametrize("sliced", ["c", "b", "bd"])
def test_slices_of_a_tree_are_those_of_the_tensors_that_have_the_labels(sliced):
    spec, operands = "ab,bc,cd,de->ae", [integers(4, 4) for _ in range(4)]
    tree = Tree(spec.split("->")[0].split(","), [(0, 1), (0, 1), (0, 1)], sliced)
    given, arrays = split(operands, [0, 1])
    plan = gett.plan(spec, *given, constants=[0, 1], optimize=tree)
    assert plan.slices == {"c": 4, "b": 1, "bd": 4}[sliced]
    np.testing.assert_array_equal(plan(*arrays), np.einsum(spec, *operands, optimize=True))


def test_what_is_held_is_waited_for_once(monkeypatch):
    waited: list[Any] = []
    monkeypatch.setattr(module, "finish", waited.append)
    plan = gett.plan(RING, *OPERANDS, constants=[1, 2], optimize=[(1, 2), (0, 1), (0, 1)])
    for _ in range(3):
        plan(A, D)
    assert len(waited) == 1
    monkeypatch.setattr(held, "is_recorded", lambda x: True)
    plan(A, D)  # what is there may be read by a recorded call
    plan.forget()
    with pytest.raises(gett.OptionError, match="constants cannot be contracted while a CUDA graph is recorded"):
        plan(A, D)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"constants": 3}, "it must be a list of places"),
        ({"constants": [4]}, "4 is no place of 4 operands"),
        ({"constants": [True]}, "True is no place"),
        ({"constants": [1], "remember": True}, "give one of them"),
        ({"constants": [1], "optimize": "autotune"}, "constants= finds a path"),
        ({"constants": [1], "devices": [0, 1]}, "without devices= and shard="),
        ({"remember": 1}, "remember=1; it must be True or False"),
    ],
)
def test_options_that_mean_nothing_are_named(options, text):
    with pytest.raises(gett.OptionError, match=text):
        gett.plan(RING, *OPERANDS, **options)


def test_bad_calls_are_named():
    with pytest.raises(gett.OptionError, match="constants= names operand 1, so it must be an array"):
        gett.plan(RING, A, (B.shape, "float64"), C, D, constants=[1])
    plan = gett.plan(RING, *OPERANDS, constants=[1, 2])
    with pytest.raises(gett.ShapeError, match=r"takes 2 operands beside 2 constants, 4 were given"):
        plan(*OPERANDS)
    with pytest.raises(gett.ShapeError, match="operand 1 has shape"):
        plan(A, D.T)
    with pytest.raises(gett.OptionError, match="remember=True"):
        plan(A, D, changed=[0])
    with pytest.raises(gett.OptionError, match="holds constants"):
        plan_of(plan, [A, D])
