"""Shared kernels that make a network's steps until its own are compiled; compilers and launches are stand-ins."""

from __future__ import annotations

import ctypes
import itertools
import logging
import subprocess
import sys
import threading
import time
import types
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
from gett.arrays.kinds import NumpyKind
from gett.errors import CompileError, DeviceError, OutOfMemoryError
from gett.graphs.replay import Replay
from gett.jit.compile import CompileResult
from gett.network.optimize import AUTOTUNE, Bytes
from gett.network.request import PlanRequest
from gett.network.steps import last_uses, launch_numbers, peak_bytes
from gett.plans.plan_cache import plan_cache
from gett.slices.finder import find_plan
from tests.cpu.tuning import FACTS, compile_by, matrix, new_process

SPEC = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am"
SIDES = (900, 3, 5, 130, 140, 150, 3, 4, 170, 2, 6, 5, 700)
ROOT = Path(__file__).parents[3]


class Kind(NumpyKind):
    """NumPy's arrays, which say that they lie on a GPU."""

    def stream(self) -> int:
        return 5

    def memory(self, device: int) -> int:
        return 1 << 40

    def arch(self, device: int) -> str:
        return "sm_90a"


KIND = Kind()


def at(address: int, operand: Any, extents: Any) -> Any:
    """The tensor at an address."""
    shape = [extents[m] for m in operand.modes]
    reach = sum(s * (e - 1) for s, e in zip(operand.strides, shape, strict=True))
    raw = (ctypes.c_char * (reach + np.dtype(operand.dtype).itemsize)).from_address(address)
    return np.lib.stride_tricks.as_strided(np.frombuffer(raw, operand.dtype), shape, operand.strides)


def contract(gemm: Any, a: int, b: int, d: int, alpha: Any = 1) -> None:
    """What a kernel does, on the host's memory."""
    k = gemm.contraction
    found = [at(x, o, k.extents) for x, o in ((a, k.a), (b, k.b)) if o is not None]
    modes = [list(o.modes) for o in (k.a, k.b) if o is not None]
    at(d, k.d, k.extents)[...] = alpha * np.einsum(
        *[x for pair in zip(found, modes, strict=True) for x in pair], list(k.d.modes)
    )


class Own:
    """A kernel of a step's own."""

    workspace_bytes, device, measured = 0, 0, None

    def __init__(self, gemm: Any, made: Any, log: list[str]) -> None:
        self.gemm, self.schedule, self.log = gemm, made.schedule, log

    def __call__(self, a: Any, b: Any, c: Any, d: Any, alpha: Any = 1, beta: Any = 0) -> None:
        self.log.append("own")
        pointers = [0 if x is None else KIND.pointer(x) for x in (a, b, d)]
        contract(self.gemm, *pointers, alpha)

    def record(self) -> None:
        raise AssertionError("no graph is recorded here")


class Together:
    """A launch of steps that are made together."""

    workspace_bytes, device, measured = 0, 0, None

    def __init__(self, gemms: Any, log: list[str]) -> None:
        self.gemms, self.log = gemms, log

    def run_together(self, addresses: Any, stream: int) -> None:
        assert stream == 5
        self.log.append("shared")
        for gemm, (a, b, c, d) in zip(self.gemms, addresses, strict=True):
            assert c == 0
            contract(gemm, a, b, d)


class Crew:
    """Compilers that wait until they may go on."""

    def __init__(self, state: Any, count: int) -> None:
        self.state, self.count = state, count

    def compile(self, text: str, arch: str, **options: Any) -> CompileResult:
        assert self.state.go.wait(30)
        if self.state.error is not None:
            raise self.state.error
        self.state.behind.append(text)
        return CompileResult(f"cubin {hash(text)}".encode(), "")

    def close(self) -> None:
        pass


@pytest.fixture
def machine(fake_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU that computes on the host, and compilers behind the calls that wait until `go` is set."""
    state = types.SimpleNamespace(go=threading.Event(), error=None, behind=[], now=[], classes=[], log=[], loaded=0)
    state.load_error = state.table_error = None

    def here(text: str, arch: str, **options: Any) -> CompileResult:
        state.now.append(text)
        return CompileResult(f"cubin {hash(text)}".encode(), "")

    def compile_kernel(source: Any, arch: str, *, compiler: Any = None, **options: Any) -> bytes:
        options.pop("sparing", None)
        key = gett.jit.compile.kernel_key(source, arch, **options)
        return gett.jit.diskcache.kernel_cache().get_or_build(key, lambda: compiler(source.text, arch).cubin)

    def load(gemm: Any, made: Any) -> Own:
        if state.load_error is not None:
            raise state.load_error
        state.loaded += 1
        return Own(gemm, made, state.log)

    def build(launches: Any) -> dict[int, Together]:
        if state.table_error is not None:
            raise state.table_error
        return {number: Together(gemms, state.log) for number, (_, gemms) in launches.items()}

    compile_by(monkeypatch, compile_kernel)
    monkeypatch.setattr(gett.runtime.compiling, "compile_uncached", here)
    monkeypatch.setattr(gett.runtime.device, "device_facts", lambda *_: FACTS)
    monkeypatch.setattr(gett.tune.recall, "load_executable", load)
    monkeypatch.setattr(gett.runtime.together, "build_together", build)
    monkeypatch.setattr(gett.runtime.grouped, "compile_grouped", state.classes.append)
    monkeypatch.setattr(gett.jit.background, "Workers", lambda count: Crew(state, count))
    monkeypatch.setattr(gett.plans.standing_in, "_records", lambda kind: False)
    monkeypatch.setattr(Replay, "__call__", lambda *_: False)
    monkeypatch.delenv("GETT_SHARED_FIRST", raising=False)
    yield state
    state.go.set()


def request(sides: Any = SIDES, dtype: str = "float64", **options: Any) -> PlanRequest:
    operands = tuple(matrix(n, m, dtype) for n, m in itertools.pairwise(sides))
    return PlanRequest(spec=SPEC, operands=operands, arch="sm_90a", device=0, optimize="greedy", **options)


def numbers(sides: Any = SIDES, dtype: str = "float64", seed: int = 0) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-2, 3, pair).astype(dtype) for pair in itertools.pairwise(sides)]
    return arrays, np.linalg.multi_dot([x.astype(float) for x in arrays])


def run(plan: Any, arrays: Any, alpha: Any = 1) -> Any:
    return plan.run(KIND, 0, arrays, alpha=alpha)


def compiled(plan: Any) -> None:
    """Wait for the kernels, but not for a call that takes them."""
    plan._standing[0].wait()


def used(state: Any) -> set[str]:
    found, state.log[:] = set(state.log), []
    return found


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


def test_nothing_is_exchanged_while_a_graph_is_recorded(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gett.plans.standing_in, "_records", lambda kind: kind is not None)
    machine.go.set()
    plan, (arrays, exact) = find_plan(request()), numbers()
    compiled(plan)
    np.testing.assert_array_equal(run(plan, arrays), exact)
    assert plan.stands_in
    monkeypatch.setattr(gett.plans.standing_in, "_records", lambda kind: False)
    run(plan, arrays)
    assert not plan.stands_in


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
from tests.cpu.runtime.test_shared_first import Own, Together, request
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
