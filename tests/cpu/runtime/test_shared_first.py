"""Shared kernels that make a network's steps until its own are compiled; compilers and launches are stand-ins."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
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
from gett.errors import DeviceError
from gett.network.optimize import AUTOTUNE, Bytes
from gett.network.request import PlanRequest
from gett.network.steps import last_uses, launch_numbers, peak_bytes
from gett.plans.plan_cache import plan_cache
from gett.slices.finder import find_plan
from tests.cpu.runtime.shared_machine import (
    ROOT,
    SIDES,
    SPEC,
    compiled,
    numbers,
    request,
    run,
    used,
)
from tests.cpu.tuning import matrix, new_process


def test_the_first_calls_run_on_shared_kernels_and_later_ones_on_their_own(machine: Any) -> None:
    plan, (arrays, exact) = find_plan(request()), numbers()
    assert plan.stands_in
    assert not plan.settled
    assert machine.now == []  # nothing but the classes was waited for
    assert len(set(machine.classes)) == 2
    for _ in range(3):
        np.testing.assert_array_equal(run(plan, arrays), exact)
        assert used(machine) == {"shared"}
    shared = plan._standing[0].executables
    machine.go.set()
    compiled(plan)
    for _ in range(3):
        np.testing.assert_array_equal(run(plan, arrays), exact)
        assert used(machine) == {"shared", "own"}  # small steps are together as before
    assert not plan.stands_in
    assert plan.settled
    past = plan._past[0]
    assert past.executables is shared  # a graph that somebody recorded launches them still
    assert (past._load, past._background) == (None, None)  # but no cubin is kept for them
    own = [s for s in plan.steps if s.together is None]
    assert 0 < len(own) == machine.loaded
    assert all(s.schedule is not None and s.executable is not None for s in plan.steps if s.together is None)
    assert len(machine.behind) == len({s.gemm.signature for s in own})


def test_the_plan_tells_its_own_steps_and_that_others_stand_in(machine: Any) -> None:
    plan = find_plan(request())
    told = str(plan)
    assert "shared kernels make its steps until its own are compiled" in told
    alone = gett.plan(
        SPEC, *[((n, m), "float64") for n, m in itertools.pairwise(SIDES)], arch="sm_90a", optimize="greedy"
    )
    assert [s.together for s in plan.steps] == [s.together for s in alone.steps]
    assert [s.schedule for s in plan.steps] == [s.schedule for s in alone.steps]
    assert plan.peak_bytes == alone.peak_bytes
    machine.go.set()
    assert plan.compile() is plan
    assert "shared kernels" not in str(plan)


def test_a_call_holds_no_more_memory_than_the_plan_says(machine: Any) -> None:
    plan = find_plan(request())
    told, standing = plan.steps, plan._standing[0].steps
    assert [s.output for s in standing] == [s.output for s in told]
    assert launch_numbers(standing) == launch_numbers(told)
    assert last_uses(standing) == last_uses(told)
    assert peak_bytes(standing, last_uses(standing)) <= peak_bytes(told, last_uses(told))


def test_counting_what_plans_hold_is_no_matter_of_what_is_compiled(machine: Any) -> None:
    plan = find_plan(request())
    assert plan_cache.info().size == 1
    assert not [x for x in plan._standing[0].__slots__ if type(getattr(plan._standing[0], x)).__name__ == "Kernels"]


def test_compile_waits_for_what_is_compiled_and_compiles_nothing_twice(machine: Any) -> None:
    plan, (arrays, exact) = find_plan(request()), numbers()
    threading.Timer(0.1, machine.go.set).start()
    plan.compile()
    assert not plan.stands_in
    assert machine.now == []
    assert len(machine.behind) == len(set(machine.behind))
    np.testing.assert_array_equal(run(plan, arrays), exact)
    assert "own" in used(machine)
    before = len(machine.behind)
    plan.compile()
    assert (machine.now, len(machine.behind)) == ([], before)


def test_a_filled_cache_needs_no_shared_kernels(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.go.set()
    find_plan(request()).compile()
    before = len(machine.behind)
    new_process(monkeypatch)
    plan = find_plan(request())
    assert not plan.stands_in
    gett.tune.store.schedule_store().clear()  # kernels that another machine compiled, whose schedules are unknown here
    plan_cache.clear()
    plan = find_plan(request())
    assert not plan.stands_in
    assert (machine.now, len(machine.behind)) == ([], before)


@pytest.mark.parametrize("how", ["variable", "memory_limit", "few steps", "remember", "constants", "autotune"])
def test_who_waits(machine: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    made = request()
    if how == "variable":
        monkeypatch.setenv("GETT_SHARED_FIRST", "0")
        plan = find_plan(made)
    elif how == "memory_limit":
        plan = find_plan(request(memory_limit=Bytes(1 << 30)))
    elif how == "few steps":
        plan = find_plan(PlanRequest("ab,bc->ac", made.operands[:2], arch="sm_90a", device=0))
    elif how == "remember":
        from gett.reuse.remembering_plan import RememberingPlan

        plan = RememberingPlan(made)
    elif how == "constants":
        from gett.reuse.constant_plan import ConstantPlan

        plan = ConstantPlan(made, {0: numbers()[0][0]})
    else:
        monkeypatch.setattr(gett.plans.executables, "_tune", lambda gemm, arch, limit: object())
        plan = find_plan(replace(made, optimize=AUTOTUNE))
    assert not plan.stands_in
    assert machine.behind == []
    assert how == "autotune" or machine.now


def test_a_factor_waits(machine: Any) -> None:
    plan, (arrays, exact) = find_plan(request()), numbers()
    threading.Timer(0.1, machine.go.set).start()
    np.testing.assert_array_equal(run(plan, arrays, alpha=3), 3 * exact)
    assert not plan.stands_in


def test_a_second_network_finds_its_classes_and_waits_for_nothing(machine: Any) -> None:
    find_plan(request())
    sides = (800, 2, 7, 90, 200, 210, 5, 4, 130, 3, 7, 2, 600)
    plan, (arrays, exact) = find_plan(request(sides)), numbers(sides)
    assert plan.stands_in
    assert len(set(machine.classes)) == 2
    np.testing.assert_array_equal(run(plan, arrays), exact)
    assert machine.now == []
    machine.go.set()
    plan.compile()
    np.testing.assert_array_equal(run(plan, arrays), exact)


def test_steps_that_no_shared_kernel_makes_keep_their_own(machine: Any) -> None:
    labels = "abcdefghijklm"
    spec = ",".join(labels[i : i + 2] for i in range(11)) + ",llm->am"
    sides = (*SIDES[:11], 5, 3)
    operands = [matrix(n, m, "float64") for n, m in itertools.pairwise(sides[:12])]
    cube = (np.arange(75.0).reshape(5, 5, 3) % 3) - 1
    operands.append(gett.ir.tensors.TensorSpec((5, 5, 3), (120, 24, 8), np.dtype("float64")))
    made = PlanRequest(spec=spec, operands=tuple(operands), arch="sm_90a", device=0, optimize="greedy")
    plan = find_plan(made)
    assert plan.stands_in
    arrays = [*numbers(sides)[0][:11], cube]
    exact = np.linalg.multi_dot([*arrays[:11], np.einsum("llm->lm", cube)])
    np.testing.assert_array_equal(run(plan, arrays), exact)
    alone = [s for s in plan._standing[0].steps if s.together is None]
    assert len(machine.now) == len({s.gemm.signature for s in alone})
    machine.go.set()
    plan.compile()
    np.testing.assert_array_equal(run(plan, arrays), exact)


def test_tuned_schedules_replace_what_stands_in(machine: Any) -> None:
    plan = find_plan(request())
    name = next(s.gemm.signature for s in plan.planned_steps if s.together is None)
    assert gett.plans.executables.drop_plans({"another"}, tuned=False) == 0
    assert gett.plans.executables.drop_plans({name}, tuned=False) == 1


def test_searches_leave_the_interpreter_to_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    module = gett.plans.standing_in
    monkeypatch.setattr(module, "MOST_S", 0.2)
    for asked, least, most in ((0.0, 0.0, 0.05), (0.1, 0.05, 0.15), (5.0, 0.15, 1.0)):
        monkeypatch.setattr(module, "_quiet_until", 0.0)
        module.hush(asked)
        start = time.monotonic()
        module._wait_for_calls()
        assert least <= time.monotonic() - start < most + 0.5


def test_a_device_error_of_the_search_is_no_stand_in(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise DeviceError("the device is lost")

    monkeypatch.setattr(gett.tune.recall, "device_facts", lost)
    with pytest.raises(DeviceError, match="is lost"):
        find_plan(request())


def test_a_plan_by_architecture_has_stand_ins_unless_it_was_compiled(machine: Any) -> None:
    pairs = [((n, m), "float64") for n, m in itertools.pairwise(SIDES)]
    arrays, exact = numbers()
    plan = gett.plan(SPEC, *pairs, arch="sm_90a", optimize="greedy")
    np.testing.assert_array_equal(run(plan, arrays), exact)
    assert plan.stands_in
    machine.go.set()
    plan.take_own()
    np.testing.assert_array_equal(run(plan, arrays), exact)
    plan_cache.clear()
    compiled_before = gett.plan(SPEC, *pairs, arch="sm_90a", optimize="greedy").compile()
    gett.jit.diskcache.kernel_cache().clear()
    machine.go.clear()
    np.testing.assert_array_equal(run(compiled_before, arrays), exact)
    assert not compiled_before.stands_in


ENDING = """
import sys, time, types
import gett, gett.tune.recall, gett.runtime.together, gett.plans.standing_in, gett.jit.background
from tests.cpu.runtime.shared_machine import Own, Together, request
from tests.cpu.tuning import FACTS
from tests.cpu.fake_driver import FakeHost
from gett.slices.finder import find_plan
gett.tune.recall.device_facts = lambda: FACTS
gett.tune.recall.CupyHost = FakeHost
gett.tune.recall.load_executable = lambda gemm, made: Own(gemm, made, [])
gett.runtime.together.build_together = lambda launches: {n: Together(x[1], []) for n, x in launches.items()}
plan = find_plan(request(range(101, 114), "complex64"))
assert plan.stands_in
while not (crews := gett.jit.background._crews):
    time.sleep(0.01)
(crew,) = crews
time.sleep(float(sys.argv[1]))
assert gett.jit.background._crews
print(crew._started[0].popen.pid, time.time())
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.4])
def test_a_program_ends_while_kernels_are_compiled(tmp_path: Path, seconds: float) -> None:
    environment = {
        "GETT_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", ENDING, str(seconds)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        cwd=ROOT,
    )
    ended = time.time()
    assert (done.returncode, done.stderr) == (0, "")
    pid, at_end = done.stdout.split()
    assert ended - float(at_end) < 2.0
    assert not Path("/proc", pid).exists()
    assert not [x for x in tmp_path.rglob("*") if x.is_file() and "tmp" in x.suffix]
