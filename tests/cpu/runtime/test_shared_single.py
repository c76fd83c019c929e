"""Shared kernels that make a single product until its own kernel is compiled; compilers and launches are stand-ins."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gett.plans.standing_in
from gett.slices.finder import find_plan
from tests.cpu.runtime.shared_machine import KIND, compiled, numbers, request, run, used
from tests.cpu.tuning import new_process

SIDES = (300, 200, 400)
FEW = (300, 200, 400, 150)


def asked(dtype: str, sides: tuple[int, ...] = SIDES, **options: Any) -> Any:
    made = request(sides, dtype, **options)
    spec = {3: "ab,bc->ac", 4: "ab,bc,cd->ad"}[len(sides)]
    return replace(made, spec=spec)


@pytest.mark.parametrize("sides", [SIDES, FEW])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_products_in_planes_are_not_waited_for(machine: Any, dtype: str, sides: tuple[int, ...]) -> None:
    plan, (arrays, exact) = find_plan(asked(dtype, sides)), numbers(sides, dtype)
    assert plan.stands_in
    assert not plan.settled
    assert machine.now == []
    assert len(set(machine.classes)) == 1
    for _ in range(3):
        np.testing.assert_array_equal(run(plan, arrays), exact)
        assert used(machine) == {"shared"}
    machine.go.set()
    compiled(plan)
    for _ in range(3):
        np.testing.assert_array_equal(run(plan, arrays), exact)
        assert used(machine) == {"own"}
    assert plan.settled
    assert not plan.stands_in


@pytest.mark.parametrize("dtype", ["float64", "float16", "complex128", "int32"])
def test_what_saves_no_time_is_compiled_at_once(machine: Any, dtype: str) -> None:
    plan = find_plan(asked(dtype))
    assert not plan.stands_in
    assert machine.classes == []
    assert len(machine.now) == 1


@pytest.mark.parametrize("spec", ["ab,bc->abc", "ab,ab->", "ab,b->a"])
def test_what_memory_bounds_is_compiled_at_once(machine: Any, spec: str) -> None:
    made, ranks = asked("float32"), [len(x) for x in spec.split("->")[0].split(",")]
    first, second = made.operands
    second = {1: replace(second, shape=(200,), strides=(4,)), 2: first if spec == "ab,ab->" else second}[ranks[1]]
    plan = find_plan(replace(made, spec=spec, operands=(first, second)))
    assert not plan.stands_in
    assert machine.classes == []


def test_numbers_of_one_plane_are_compiled_at_once(machine: Any) -> None:
    assert not find_plan(asked("float32", precision="tf32")).stands_in
    assert machine.classes == []


def test_a_factor_waits(machine: Any) -> None:
    plan, (arrays, exact) = find_plan(asked("float32")), numbers(SIDES, "float32")
    threading.Timer(0.1, machine.go.set).start()
    np.testing.assert_array_equal(run(plan, arrays, alpha=3), 3 * exact)
    assert not plan.stands_in


def test_who_keeps_a_kernel_waits_for_the_own_one(machine: Any) -> None:
    plan = find_plan(asked("float32"))
    assert plan.stands_in
    threading.Timer(0.1, machine.go.set).start()
    own = plan.executable_on(0)
    assert own.gemm.signature == plan.steps[0].gemm.signature
    assert not plan.stands_in
    assert plan.executable_on(0) is own


def test_whoever_says_so_waits(machine: Any) -> None:
    plan = find_plan(asked("float32", waits=True))
    assert not plan.stands_in
    assert (len(machine.now), machine.classes) == (1, [])


def test_a_filled_cache_needs_no_shared_kernels(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.go.set()
    find_plan(asked("float32")).compile()
    new_process(monkeypatch)
    before = len(machine.classes)
    assert not find_plan(asked("float32")).stands_in
    assert len(machine.classes) == before


def test_long_products_wait(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gett.plans.standing_in, "LONGEST_US", 1.0)
    assert not find_plan(asked("float32")).stands_in
    assert len(machine.now) == 1


def test_the_plan_says_that_another_kernel_stands_in(machine: Any) -> None:
    plan = find_plan(asked("float32"))
    told = str(plan)
    assert "now       shared kernels make its steps until its own are compiled" in told
    assert len(told.splitlines()) <= 10
    machine.go.set()
    plan.compile()
    assert "shared kernels" not in str(plan)


def test_the_result_may_go_into_an_array(machine: Any) -> None:
    plan, (arrays, exact) = find_plan(asked("float32")), numbers(SIDES, "float32")
    out = np.full(exact.shape, 7, "float32")
    assert plan.run(KIND, 0, arrays, None, out) is out
    np.testing.assert_array_equal(out, exact)
    assert used(machine) == {"shared"}
