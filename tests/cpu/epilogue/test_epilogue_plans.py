"""Plans with an epilogue: which calls share one, its own checks, and what it says."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import gett
from gett.explain.record import plan_record
from gett.ir.gemm import EXTRA
from gett.plans import plan_cache
from tests.cpu.helpers import seeded

ops = gett.ops


def test_plans_are_kept_by_what_the_function_computes() -> None:
    a, b, x = seeded(4, 5), seeded(5, 6, seed=1), seeded(6, seed=2)
    plan_cache.plan_cache.clear()

    def misses() -> int:
        return gett.plan_cache.info().misses

    def call(factor: float) -> Any:
        return gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: d * factor + x, epilogue_args=(x,))

    for factor in (2.0, 3.0, 2.0, 3.0):
        np.testing.assert_array_equal(call(factor), a @ b * factor + x)
    assert misses() == 2
    np.testing.assert_array_equal(gett.contract("ij,jk->ik", a, b), a @ b)
    assert misses() == 3
    for scale in (1.0, 2.0):  # numbers among the arguments are no part of the plan
        found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, s: d * s, epilogue_args=(scale,))
        np.testing.assert_array_equal(found, a @ b * scale)
    assert misses() == 4
    plan_cache.plan_cache.clear()


def test_plans() -> None:
    a, b, x = seeded(4, 5), seeded(5, 6, seed=1), seeded(4, 6, seed=2)
    calls = []

    def function(d: Any, x: Any, s: Any) -> Any:
        calls.append(d)
        return ops.relu(d + x) * s

    arguments = (((4, 6), "float64"), 2.0)
    plan = gett.plan(
        "ij,jk->ik", (a.shape, "float64"), (b.shape, "float64"), epilogue=function, epilogue_args=arguments
    )

    def expected(x: Any, s: Any) -> Any:
        return np.maximum(a @ b + x, 0) * s

    np.testing.assert_array_equal(plan(a, b, epilogue_args=(x, 2.0)), expected(x, 2))
    np.testing.assert_array_equal(plan(a, b, epilogue_args=[x, 3]), expected(x, 3))
    np.testing.assert_array_equal(plan(a, b, epilogue_args=(x[:, ::-1], np.float32(1))), expected(x[:, ::-1], 1))
    np.testing.assert_array_equal(plan(a, b, epilogue_args=(x.astype(np.int8), True)), expected(x, 1))
    np.testing.assert_array_equal(plan(a, b, epilogue_args=(x[:1], 2)), expected(x[:1], 2))
    np.testing.assert_array_equal(
        plan(a, b, c=x, alpha=2, beta=3, epilogue_args=(x, 2)), np.maximum(2 * (a @ b) + 4 * x, 0) * 2
    )
    out = np.empty((4, 6))
    assert plan(a, b, out=out, epilogue_args=(x, 2)) is out
    np.testing.assert_array_equal(out, expected(x, 2))
    assert len(calls) == 1
    for other in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        np.testing.assert_array_equal(other(a, b, epilogue_args=(x, 2.0)), expected(x, 2))
    for arguments, message in (
        ((), "takes 2 epilogue_args, 0 were given"),
        ((x,), "takes 2 epilogue_args, 1 were given"),
        ((x[0], 2), r"epilogue_args\[0\] has shape \(6,\), the plan was made for one of 2 axes"),
        ((x[:, :5], 2), r"epilogue_args\[0\] of shape \(4, 5\) does not broadcast"),
        ((x * 1j, 2), r"epilogue_args\[0\] has dtype complex128"),
        (x, "epilogue_args must be a tuple"),
    ):
        with pytest.raises(gett.EpilogueError, match=message):
            plan(a, b, epilogue_args=arguments)
    with pytest.raises(gett.EpilogueError, match="takes 2 epilogue_args, 0"):
        plan(a, b)
    plain = gett.plan("ij,jk->ik", a, b)
    with pytest.raises(gett.EpilogueError, match="there is no epilogue="):
        plain(a, b, epilogue_args=(x,))
    activated = gett.plan("ij,jk->ik", a, b, epilogue=np.tanh)
    np.testing.assert_array_equal(activated(a, b), np.tanh(a @ b))
    np.testing.assert_array_equal(activated(a, b, alpha=2.0, out=out), np.tanh(2 * (a @ b)))
    with pytest.raises(gett.EpilogueError, match="takes 0 epilogue_args, 1"):
        activated(a, b, epilogue_args=(x,))


def test_a_plan_says_what_its_epilogue_is() -> None:
    a, b, x = seeded(4, 5), seeded(5, 6, seed=1), seeded(6, seed=2)

    def function(d: Any, x: Any, y: Any) -> Any:
        return np.maximum(d + x, 0) / y[:, None]

    plan = gett.plan("ij,jk->ik", a, b, epilogue=function, epilogue_args=(x, x[:4]))
    text = plan.explain(detail=True)
    assert "epilogue  divide(maximum(add(d, x0), 0), x1[:, None]), in float64, before D is stored" in text
    assert "stride x0" in text
    assert "stride x1[:, None]" in text
    (step,) = plan_record(plan)["steps"]
    assert step["epilogue"] == "divide(maximum(add(d, x0), 0), x1[:, None])"
    assert [m["strides"] for m in step["groups"]["m"]] == [{"a": 40, "b": 0, "d": 48, "x0": 0, "x1[:, None]": 8}]
    assert plan.bytes == gett.plan("ij,jk->ik", a, b).bytes + x.nbytes + x[:4].nbytes
    assert "epilogue" not in gett.plan("ij,jk->ik", a, b).explain(detail=True)
    assert plan_record(gett.plan("ij,jk->ik", a, b))["steps"][0]["epilogue"] is None
    (mode,) = plan.steps[0].gemm.n
    assert mode.strides[EXTRA:] == (8, 0)
