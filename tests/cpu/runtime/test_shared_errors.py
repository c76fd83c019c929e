"""Shared kernels where something fails or happens meanwhile: errors, recorded graphs, threads."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest

import gett
import gett.jit.background
import gett.jit.compile
import gett.jit.diskcache
import gett.plans.standing_in
import gett.runtime.compiling
import gett.runtime.device
import gett.runtime.graphs
import gett.runtime.grouped
import gett.runtime.together
import gett.tune.recall
from gett.errors import CompileError, OutOfMemoryError
from gett.slices.finder import find_plan
from tests.cpu.runtime.shared_machine import (
    KIND,
    Together,
    compiled,
    numbers,
    request,
    run,
    used,
)


def test_what_cannot_be_compiled_leaves_shared_kernels(machine: Any, caplog: pytest.LogCaptureFixture) -> None:
    machine.error = CompileError("no such luck")
    machine.go.set()
    plan, (arrays, exact) = find_plan(request()), numbers()
    with pytest.raises(CompileError, match="no such luck"):
        compiled(plan)
    for _ in range(2):
        np.testing.assert_array_equal(run(plan, arrays), exact)
    assert used(machine) == {"shared"}
    with pytest.raises(CompileError, match="no such luck"):
        plan.compile()
    with pytest.raises(CompileError, match="no such luck"):
        run(plan, arrays, alpha=2)
    assert plan.settle() is plan
    warnings = [x for x in caplog.records if x.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "no such luck" in warnings[0].getMessage()


def test_what_cannot_be_loaded_leaves_shared_kernels(machine: Any, caplog: pytest.LogCaptureFixture) -> None:
    machine.go.set()
    plan, (arrays, exact) = find_plan(request()), numbers()
    compiled(plan)
    machine.load_error = OutOfMemoryError("no room")
    for _ in range(2):
        np.testing.assert_array_equal(run(plan, arrays), exact)
    assert used(machine) == {"shared"}
    assert [x.levelno for x in caplog.records if x.levelno >= logging.WARNING] == [logging.WARNING]
    with pytest.raises(OutOfMemoryError, match="no room"):
        plan.compile()
    machine.load_error = None
    plan.compile()  # there is room again
    np.testing.assert_array_equal(run(plan, arrays), exact)
    assert "own" in used(machine)


@pytest.mark.parametrize("processors", [1, 16])
def test_without_memory_for_tables_the_error_is_the_usual_one(
    machine: Any, monkeypatch: pytest.MonkeyPatch, processors: int
) -> None:
    monkeypatch.setattr(gett.plans.standing_in.os, "cpu_count", lambda: processors)
    machine.table_error = OutOfMemoryError("bytes of tables")
    machine.go.set()
    with pytest.raises(OutOfMemoryError, match="bytes of tables"):
        find_plan(request())
    machine.table_error = None
    assert not find_plan(request()).stands_in  # what was compiled by then is found


def test_a_class_that_does_not_compile_waits_for_own_kernels(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(schedule: Any) -> None:
        if schedule.tile.shape[0] > 32:
            raise CompileError("no large tile")

    monkeypatch.setattr(gett.runtime.grouped, "compile_grouped", refuse)
    machine.go.set()
    plan, (arrays, exact) = find_plan(request()), numbers()
    assert not plan.stands_in
    np.testing.assert_array_equal(run(plan, arrays), exact)


def test_who_records_a_graph_waits_for_own_kernels(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, (arrays, exact) = find_plan(request()), numbers()
    np.testing.assert_array_equal(run(plan, arrays), exact)
    assert plan.stands_in
    used(machine)
    monkeypatch.setattr(gett.plans.standing_in, "_records", lambda kind: kind is not None)
    threading.Timer(0.1, machine.go.set).start()
    np.testing.assert_array_equal(run(plan, arrays), exact)
    assert used(machine) == {"shared", "own"}
    assert not plan.stands_in


def test_a_graph_has_shared_kernels_where_there_are_no_own_ones(
    machine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan, (arrays, exact) = find_plan(request()), numbers()
    machine.load_error = OutOfMemoryError("no room")
    machine.go.set()
    monkeypatch.setattr(gett.plans.standing_in, "_records", lambda kind: kind is not None)
    for _ in range(2):
        np.testing.assert_array_equal(run(plan, arrays), exact)
        assert used(machine) == {"shared"}
        assert plan.stands_in
    assert [x.getMessage() for x in caplog.records if "no room" in x.getMessage()]


def test_whether_a_stream_records_is_asked_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("gett.runtime.driver.load_driver", lambda: "driver")
    monkeypatch.setattr(gett.runtime.graphs, "is_capturing", lambda driver, stream: asked.append(stream.value) or True)
    assert gett.plans.standing_in._records(KIND)
    assert asked == [5]
    assert not gett.plans.standing_in._records(None)


def test_stripped_calls_run_on_either(machine: Any) -> None:
    plan, (arrays, exact) = find_plan(request()), numbers()
    for kernels in ({"shared"}, {"shared", "own"}):
        mantissa, exponent = plan.stripped(KIND, 0, arrays)
        np.testing.assert_allclose(mantissa * 10.0**exponent, exact, rtol=1e-12)
        assert used(machine) == kernels
        machine.go.set()
        compiled(plan) if plan.stands_in else None


def test_a_call_that_has_begun_keeps_what_it_has(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread stops within its first call; another one exchanges the kernels meanwhile."""
    plan, (arrays, exact) = find_plan(request()), numbers()
    inside, on = threading.Event(), threading.Event()
    real = Together.run_together

    def slow(self: Any, addresses: Any, stream: int) -> None:
        if threading.current_thread().name == "slow":
            inside.set()
            assert on.wait(30)
        real(self, addresses, stream)

    monkeypatch.setattr(Together, "run_together", slow)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run(plan, arrays)), name="slow")
    thread.start()
    assert inside.wait(30)
    machine.go.set()
    compiled(plan)
    np.testing.assert_array_equal(run(plan, arrays), exact)
    assert not plan.stands_in
    used(machine)
    on.set()
    thread.join()
    np.testing.assert_array_equal(found[0], exact)
    assert used(machine) == {"shared"}


def test_threads_that_call_while_kernels_are_exchanged(machine: Any) -> None:
    plan, (arrays, exact) = find_plan(request()), numbers()
    wrong: list[Any] = []
    own: list[int] = []

    def call() -> None:
        for _ in range(30):
            if not np.array_equal(run(plan, arrays), exact):
                wrong.append("result")
            if not plan.stands_in:
                own.append(1)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for t in threads:
        t.start()
    machine.go.set()
    for t in threads:
        t.join()
    compiled(plan) if plan.stands_in else None
    run(plan, arrays)
    assert not wrong
    assert not plan.stands_in
    assert machine.loaded == sum(s.together is None for s in plan.steps)  # once, though three threads called
