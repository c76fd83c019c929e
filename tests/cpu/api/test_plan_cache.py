"""The plan cache: what it counts, keeps and drops, and threads that share it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import gett
from gett.plans.plan_cache import PlanCache
from tests.cpu.strategies import integers_of

integers = integers_of(np.random.default_rng(23))


def test_plan_cache_counts(empty_cache):
    a = integers(3, 3)
    assert empty_cache.info()[:4] == (0, 0, 0, 1024)
    for _ in range(3):
        gett.einsum("ij,jk", a, a)
    assert empty_cache.info()[:3] == (2, 1, 1)
    assert empty_cache.info().bytes > 0
    gett.einsum("ij,jk", a, a.T)  # other strides
    gett.einsum("ij,jk", a.astype("f4"), a.astype("f4"))  # other dtypes
    gett.einsum("ij,jk", a, a, order="F")
    gett.einsum("ij,jk", a, a, optimize=[(0, 1)])
    assert empty_cache.info()[:3] == (2, 5, 5)
    gett.einsum("ij,jk", a, a, optimize=[(0, 1)])
    assert empty_cache.info().hits == 3
    empty_cache.clear()
    assert empty_cache.info()[:3] == (0, 0, 0)


def test_plan_cache_drops_the_least_recently_used(empty_cache):
    empty_cache.resize(2)
    for subscripts in ("i,i", "i,j", "i,i", "i,i->i"):
        gett.einsum(subscripts, np.ones(2), np.ones(2))
    assert empty_cache.info()[:4] == (1, 3, 2, 2)
    gett.einsum("i,i", np.ones(2), np.ones(2))
    assert empty_cache.info().hits == 2
    empty_cache.resize(0)
    assert gett.einsum("i,i", np.ones(2), np.ones(2)) == 2
    assert empty_cache.info().size == 0
    for bad in (-1, 2.5, None):
        with pytest.raises(gett.OptionError):
            empty_cache.resize(bad)


def test_plan_cache_drops_in_the_order_of_use_whatever_that_was():
    cache, rng = PlanCache(6), np.random.default_rng(5)
    kept: list[int] = []
    hits = misses = 0
    for key in rng.integers(0, 9, 3000).tolist():
        found = cache.get(key)
        assert found == (f"plan {key}" if key in kept else None)
        assert cache.peek(rng.integers(0, 9)) != "nothing"  # which is no use
        if found is None:
            misses += 1
            cache.put(key, f"plan {key}")
        else:
            hits += 1
            kept.remove(key)
        kept = [*kept, key][-6:]
        if rng.random() < 0.01:
            assert cache.info()[:3] == (hits, misses, len(kept))


def test_plan_cache_under_threads():
    cache = PlanCache(8)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for key in rng.integers(0, 16, 2000).tolist():
                found = cache.get(key)
                if found is None:
                    found = cache.put(key, (key,))
                assert found == (key,)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    info = cache.info()
    assert info.hits + info.misses == 8000
    assert info.size == 8


def test_plan_cache_keeps_the_first_of_two_plans():
    cache = PlanCache(2)
    first, second = object(), object()
    assert cache.put("key", first) is first
    assert cache.put("key", second) is first


def test_equal_plans_are_planned_once():
    a = ((3, 4), "f8"), ((4, 5), "f8")
    assert gett.plan("ij,jk", *a) is gett.plan("ij,jk", *a)
