"""`optimize=` of `gett.einsum`: paths, limits on intermediates, and what is refused."""

from __future__ import annotations

import numpy as np
import opt_einsum
import pytest

import gett
from tests.cpu.strategies import integers_of

integers = integers_of(np.random.default_rng(5))


@pytest.mark.parametrize("value", ["zz", 3, {"a": 1}, [(0,), "x"], 2.5])
@pytest.mark.parametrize("count", [2, 3])
def test_bad_optimize(value, count):
    with pytest.raises(gett.OptionError, match="optimize"):
        gett.einsum(",".join(["i"] * count), *[np.ones(2)] * count, optimize=value)


PATHS = [  # what is refused for two operands, and the error
    ([(0, 5)], gett.OptionError),
    ([(0, 0)], gett.OptionError),
    ([], gett.PathError),
    (["einsum_path", (0,)], gett.PathError),
    ([(0, 1.0)], gett.OptionError),
    ([(0, 1), (0, 1)], gett.OptionError),
    (1, gett.OptionError),
    (np.True_, gett.OptionError),
    (0, gett.OptionError),
    (1.0, gett.OptionError),
    (("greedy", 0), gett.OptionError),
    (("greedy", -2), gett.OptionError),
    (("greedy", np.nan), gett.OptionError),
    (("greedy", True), gett.OptionError),
    (("autotune", 5), gett.OptionError),
]


@pytest.mark.parametrize(("optimize", "error"), PATHS)
@pytest.mark.parametrize("warm", [False, True])
def test_optimize_is_checked_for_two_operands_and_in_cached_calls(optimize, error, warm):
    a, b = np.ones((3, 4)), np.ones((4, 5))
    gett.plan_cache.clear()
    if warm:
        for good in (True, False, [(0, 1)], "greedy"):
            gett.einsum("ij,jk", a, b, optimize=good)
    for call in (gett.einsum, gett.contract, gett.plan):
        with pytest.raises(error, match="optimize"):
            call("ij,jk", a, b, optimize=optimize)


@pytest.mark.parametrize("limit", [np.inf, -1, None, 100, 1e9, np.float32(50), np.int64(60), "max_input"])
def test_limits_on_intermediates(limit):
    a = integers(3, 3)
    for operands in ((a, a), (a, a, a)):
        subscripts = ",".join(["ij", "jk", "kl"][: len(operands)]) + "->i" + "jkl"[len(operands) - 1]
        result = gett.einsum(subscripts, *operands, optimize=("greedy", limit))
        np.testing.assert_array_equal(result, np.linalg.multi_dot(operands))


def test_a_limit_that_cannot_be_kept_is_an_error():
    """opt_einsum would take all operands at once; in pairs they have an intermediate beyond the limit."""
    a = np.ones((10, 10))
    for limit in (50, 99):
        with pytest.raises(gett.OptionError, match=rf"to {limit} elements, but the path found has one of 100"):
            gett.einsum("ab,bc,cd,de->ae", a, a, a, a, optimize=("greedy", limit))
    for limit in (100, "max_input"):
        plan = gett.plan("ab,bc,cd,de->ae", a, a, a, a, optimize=("greedy", limit))
        assert plan.intermediate_bytes <= 2 * 800
    with pytest.raises(gett.OptionError, match="to 3 elements, but"):
        gett.einsum("a,b,c->abc", *[np.ones(3)] * 3, optimize=("greedy", "max_input"))


def test_autotuning_needs_the_gpu_that_is_planned_for():
    with pytest.raises(gett.OptionError, match="optimize='autotune' measures on the GPU at hand"):
        gett.plan("ij,jk", ((3, 3), "f4"), ((3, 3), "f4"), arch="sm_90a", optimize="autotune")


def test_a_path_for_one_operand():
    a = integers(3, 4)
    np.testing.assert_array_equal(gett.einsum("ij->ji", a, optimize=[(0,)]), a.T)
    np.testing.assert_array_equal(gett.einsum("ij->ji", a, optimize=[]), a.T)
    with pytest.raises(gett.OptionError, match="path step"):
        gett.einsum("ij->ji", a, optimize=[(0, 1)])


def test_a_path_search_that_recurses_too_deeply_is_an_option_error():
    class Search(opt_einsum.paths.PathOptimizer):
        def __call__(self, *arguments):
            return self(*arguments)

    a = np.ones((2, 2))
    with pytest.raises(gett.OptionError, match="found no path: maximum recursion depth"):
        gett.einsum("ij,jk,kl->il", a, a, a, optimize=Search())
