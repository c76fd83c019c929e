"""Rivals of the benchmarks: transposition with a matrix product, and cuTENSOR."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import accuracy
from benchmarks.rivals.cutensor import ALGORITHMS, load_cutensor
from benchmarks.rivals.table import Libraries, Setting
from benchmarks.rivals.ttgt import Ttgt, choose_orders
from gett.errors import MissingPackageError, OutputError, ShapeError, SubscriptsError
from tests.cpu.benchmark.benchmark_cases import CASES

TINY = [c.scaled(2e-5) for c in CASES]


@pytest.mark.parametrize("case", TINY, ids=lambda c: c.name)
def test_ttgt_equals_einsum_on_integers(case):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, s).astype(float) for s in case.shapes[:2])
    plan = Ttgt(case.einsum, a, b, np)
    out = np.full(plan.shape, np.nan)
    assert plan(a, b, out) is out
    np.testing.assert_array_equal(out, np.einsum(case.einsum, a, b))


@pytest.mark.parametrize(
    ("subscripts", "copies"),
    [("mk,kn->mn", 0), ("km,nk->mn", 0), ("km,nk->nm", 0), ("zkm,znk->zmn", 0), ("akb,jk->jba", 1), ("mkl,lnk->mn", 1),
     ("bmji,cakm->kjicba", 2), ("amb,ncm->anbc", 2), ("amb,nmc->anbc", 3), ("kzm,znk->zmn", 1)],
)  # fmt: skip
def test_ttgt_copies_only_what_it_must(subscripts, copies):
    sizes = dict(zip("zmnkabcijl", (2, 3, 4, 5, 2, 3, 4, 5, 6, 2), strict=True))
    ma, mb, md = subscripts.replace("->", ",").split(",")
    a, b = (np.arange(math.prod(sizes[x] for x in m), dtype=float).reshape([sizes[x] for x in m]) for m in (ma, mb))
    orders = choose_orders(ma, mb, md, (a.size, b.size, math.prod(sizes[x] for x in md)))
    assert [orders.a_view, orders.b_view, orders.d_view].count(None) == copies
    plan = Ttgt(subscripts, a, b, np)
    assert (plan.extra_bytes == 0) == (copies == 0)
    np.testing.assert_array_equal(plan(a, b, np.empty(plan.shape)), np.einsum(subscripts, a, b))


def test_ttgt_refuses_what_it_cannot_do():
    a = np.ones((2, 3))
    for subscripts in ("ij,jk", "ij->ji", "ii,ij->ij", "ij,jk->i", "ij,j...->i", "ij,jk,kl->il"):
        with pytest.raises(SubscriptsError):
            Ttgt(subscripts, a, a, np)
    with pytest.raises(ShapeError, match=r"'j' has extent 3 in A and 2 in B"):
        Ttgt("ij,jk->ik", a, a, np)
    with pytest.raises(OutputError, match=r"shape \(2, 2\)"):
        Ttgt("ij,kj->ik", a, a, np)(a, a, np.empty((2, 2)).T)


def test_cutensor_says_what_to_install_or_loads():
    try:
        library = load_cutensor()
    except MissingPackageError as error:
        assert "pip install" in str(error)  # noqa: PT017 - either outcome is right, by what is installed
    else:
        assert {library.ALGO_DEFAULT, library.ALGO_GETT} <= set(ALGORITHMS.values())


def test_accuracy_asks_cutensor_for_an_algorithm_that_it_has(monkeypatch):
    """On a GPU alone, so that a name that it lacks would be found there alone."""
    asked = []
    monkeypatch.setattr(Setting, "cutensor", lambda self, algorithm: asked.append(algorithm))
    shapes = (accuracy.SIDE, 64), (64, accuracy.SIDE), (accuracy.SIDE, accuracy.SIDE)
    setting = Setting("mk,kn->mn", "float32", None, [tuple(np.ones(x, "float32") for x in shapes)], Libraries())
    for way, (_, call) in accuracy.ways(True, "float32").items():
        if way.startswith("cutensor"):
            call(setting)
    assert len(asked) == 4
    assert set(asked) <= set(ALGORITHMS)


def test_a_product_with_two_contracted_modes_is_the_same_product():
    rng = np.random.default_rng(6)
    a, b = rng.integers(-3, 4, (accuracy.SIDE, 32)), rng.integers(-3, 4, (32, accuracy.SIDE))
    made = accuracy.two_modes(Setting("mk,kn->mn", "int64", None, [(a, b, a @ b)], Libraries()))
    ((left, right, _),) = made.sets
    np.testing.assert_array_equal(np.einsum(made.einsum, left, right), a @ b)
