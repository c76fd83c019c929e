"""From candidates to kernels: one way for plans with and without a GPU."""

from __future__ import annotations

import contextlib
import logging
import threading
import types
from dataclasses import replace

import pytest

import gett
import gett.jit.compile
import gett.jit.workers
import gett.runtime.compiling
from benchmarks import first_calls
from gett.codegen.render import render_kernel
from gett.errors import MissingPackageError, PoorKernelError, SpillError
from gett.jit.compile import CompileResult, kernel_key
from gett.jit.diskcache import kernel_cache
from gett.runtime.compiled import CompiledKernel
from gett.runtime.compiling import compile_best, compile_schedule
from gett.schedule.search.select import candidates
from gett.schedule.spec.epilogue import RowStore
from gett.slices.finder import find_plan
from tests.cpu.tuning import FACTS, GEMM, compile_by, request

PAIR = ((512, 512), "float16")


def test_a_plan_for_an_architecture_shows_the_schedule_that_runs(first_is_poor):
    plan = gett.plan(GEMM, PAIR, PAIR, arch="sm_90a")
    listed = candidates(plan.steps[0].gemm, "sm_90a")
    text = plan.explain(detail=True)
    assert plan.steps[0].schedule == listed[1]
    assert listed[1].forecast.reason in text
    assert plan.explain(detail=True) == text
    assert len(first_is_poor) == 1


def test_a_plan_for_an_architecture_runs_as_einsum_does(first_is_poor):
    plan = gett.plan(GEMM, PAIR, PAIR, arch="sm_90a")
    plan._bind_to(0)
    listed = candidates(plan.steps[0].gemm, "sm_90a", FACTS.planning)
    assert plan.steps[0].schedule == listed[1]
    assert find_plan(request(512, 512, 512, "float16")).steps[0].schedule == listed[1]


def test_a_bound_plan_is_not_compiled_again(fake_gpu):
    plan = find_plan(request(512, 512, 512, "float16"))
    count = len(fake_gpu.compiled)
    assert plan.compile() is plan
    assert plan.explain(detail=True)
    assert len(fake_gpu.compiled) == count == 1


def test_without_a_compiler_the_text_shows_the_first_choice(monkeypatch):
    def missing(source, arch, **options):
        raise MissingPackageError("no NVRTC")

    compile_by(monkeypatch, missing)
    plan = gett.plan(GEMM, PAIR, PAIR, arch="sm_90a")
    assert candidates(plan.steps[0].gemm, "sm_90a")[0].forecast.reason in plan.explain(detail=True)
    with pytest.raises(MissingPackageError, match="no NVRTC"):
        plan.compile()


@pytest.mark.slow
def test_a_contraction_whose_first_kernel_was_poor():
    shapes = (((16, 11, 11, 29, 70), "f2"), ((38, 29, 3, 39, 11), "f2"))
    plan = gett.plan("jlwte,ftrpl->rfewpj", *shapes, arch="sm_90a").compile()
    assert compile_schedule(plan.steps[0].gemm, plan.steps[0].schedule).cubin


def test_where_every_candidate_is_poor_the_first_runs(fake_gpu, monkeypatch, caplog):
    real = gett.jit.compile.compile_kernel

    def compile_kernel(source, arch, *, allow_spills=False, **options):
        if not allow_spills:
            raise PoorKernelError("it spills")
        return real(source, arch, allow_spills=True)

    compile_by(monkeypatch, compile_kernel)
    gemm = gett.plan(GEMM, PAIR, PAIR, arch="sm_90a").steps[0].gemm
    with caplog.at_level(logging.INFO, "gett"):
        made = compile_best(gemm, "sm_90a")
    assert (made.schedule, made.spills) == (candidates(gemm, "sm_90a")[0], True)
    assert [r.levelname for r in caplog.records].count("WARNING") == 1
    assert "mk,kn->mn compiles well" in caplog.text


NAMED = {name: case for name, *case in first_calls.SINGLES}


def code_of(schedule):
    """The parts of a kernel that differ among main loops of a kind."""
    return schedule.mainloop.a, schedule.mainloop.b, schedule.epilogue.store


def outputs(schedule):
    """Elements of a thread."""
    m, n, _ = schedule.tiling.shape
    return m * n * schedule.tiling.batches / schedule.threads


@pytest.fixture
def attempts(monkeypatch):
    """Schedules that `compile_best` tried, with whether registers were spared, and what says that one spills."""
    tried, state = [], types.SimpleNamespace(spills=lambda schedule, sparing: False, error=SpillError)

    def compile_schedule(plan, schedule, *, sparing=None, allow_spills=False, **options):
        tried.append((schedule, sparing))
        if not allow_spills and state.spills(schedule, sparing):
            raise state.error("it spills")
        return CompiledKernel(schedule, None, b"", allow_spills)

    monkeypatch.setattr(gett.runtime.compiling, "compile_schedule", compile_schedule)
    state.tried = tried
    return state


def plain(attempts):
    """What was tried without sparing registers, in order."""
    return [schedule for schedule, sparing in attempts.tried if sparing is False]


def product():
    """A plan with candidates of several main loops."""
    pair = ((4096, 1024), "complex64"), ((1024, 1024), "complex64")
    return gett.plan("mk,kn->mn", *pair, arch="sm_90a").steps[0].gemm


@pytest.mark.slow
@pytest.mark.parametrize("name", ["circuit, complex64", "26 modes, float32", "26 modes, simt"])
def test_candidates_that_need_as_many_registers_as_one_that_spilled_are_not_tried(name, attempts):
    subscripts, shapes, dtype = NAMED[name]
    gemm = gett.plan(subscripts, *((shape, dtype) for shape in shapes), arch="sm_90a").steps[0].gemm
    first, *others = candidates(gemm, "sm_90a")

    def spills(schedule, sparing=False):
        alike = all(type(x) is type(y) for x, y in zip(code_of(schedule), code_of(first), strict=True))
        return alike and schedule.kind == first.kind and outputs(schedule) >= outputs(first)

    attempts.spills = spills
    assert spills(others[0])  # who went down the list would meet it again
    found, wanted = compile_best(gemm, "sm_90a").schedule, next(s for s in others if not spills(s))
    assert not spills(found)
    assert found.forecast.us < 1.01 * wanted.forecast.us  # the next search may keep another of nearly equal ones
    assert len(plain(attempts)) == 2


def test_another_main_loop_is_tried_where_one_always_spills(attempts):
    gemm = product()
    kind = candidates(gemm, "sm_90a")[0].kind
    attempts.spills = lambda schedule, sparing: schedule.kind == kind
    made = compile_best(gemm, "sm_90a")
    assert made.schedule.kind != kind
    assert not made.spills
    tiles = [outputs(s) for s in plain(attempts)[:-1]]
    assert tiles == sorted(set(tiles), reverse=True)  # each needs less than the one before


def test_tiles_like_one_that_spilled_come_last():
    """Though other loaders or stores make them another kernel."""
    gemm = product()
    first, *others = candidates(gemm, "sm_90a", every=False)
    like = replace(first, epilogue=replace(first.epilogue, store=RowStore(1, first.epilogue.store.stage)))
    other = next(x for x in others if not gett.runtime.compiling._spills_like(x, first) and x.tiling != first.tiling)
    ordered = gett.runtime.compiling._after_spill(first, [like, other])
    assert ordered == [other, like]
    assert gett.runtime.compiling._after_spill(other, [like]) == [like]


@pytest.mark.slow
def test_complex_numbers_that_threads_copy_have_registers_for_vectors_of_d(own_cache, caplog):
    """A step of an MPS of 60 sites, of which two kernels of 40 columns spilled before one did not."""
    operands = ((256, 256, 2), "c8"), ((256, 5, 256), "c8")
    (step,) = gett.plan("xkb,nyk->xnyb", *operands, arch="sm_90a").steps
    with caplog.at_level(logging.DEBUG, "gett"):
        assert not compile_best(step.gemm, "sm_90a").spills
    assert "replaced candidate" not in caplog.text


def test_what_is_poor_for_another_reason_rules_out_nothing(attempts):
    gemm = product()
    listed = candidates(gemm, "sm_90a")
    attempts.error, attempts.spills = PoorKernelError, lambda schedule, sparing: schedule == listed[0]
    assert compile_best(gemm, "sm_90a").schedule == listed[1]


def test_the_kernel_that_spares_registers_goes_before_the_next_candidate(attempts):
    gemm = product()
    listed = candidates(gemm, "sm_90a")
    attempts.spills = lambda schedule, sparing: not sparing and schedule == listed[0]
    assert compile_best(gemm, "sm_90a").schedule == listed[0]
    assert (listed[0], True) in attempts.tried


@pytest.mark.parametrize(("most", "found"), [(1, False), (2, True)])
def test_so_many_candidates_may_be_poor(most, found, attempts, monkeypatch):
    monkeypatch.setattr(gett.runtime.compiling, "ATTEMPTS", most)
    gemm = product()
    first = candidates(gemm, "sm_90a")[0]
    attempts.spills = lambda schedule, sparing: schedule == first
    made = compile_best(gemm, "sm_90a")
    assert (made.schedule != first, not made.spills) == (found, found)


def test_both_are_compiled_side_by_side(attempts, monkeypatch):
    """Two compilers wait for each other here, so one after the other would never end."""
    monkeypatch.setattr(gett.runtime.compiling.os, "cpu_count", lambda: 4)
    gemm, together = product(), threading.Barrier(2, timeout=30)
    first = candidates(gemm, "sm_90a")[0]

    def spills(schedule, sparing):
        if (schedule, sparing) != (first, False):
            together.wait()
        return schedule == first

    attempts.spills = spills
    assert compile_best(gemm, "sm_90a").schedule != first
    assert len(attempts.tried) == 3


@pytest.fixture
def beside(monkeypatch, own_cache):
    """Stand-ins for the compilers here and in processes: each says what it was given; `poor` says what spills."""
    state = types.SimpleNamespace(here=[], there=[], closed=0, poor=lambda text, sparing: False, before=lambda: None)

    def compiler(said):
        def compile_one(text, arch, *, sparing, **options):
            said.append((text, sparing))
            state.before()
            if state.poor(text, sparing):
                raise SpillError("it spills")
            return CompileResult(f"{sparing} {hash(text)}".encode(), "")

        return compile_one

    @contextlib.contextmanager
    def workers(count):
        assert count == 2
        yield types.SimpleNamespace(compile=compiler(state.there))
        state.closed += 1

    for module in (gett.jit.compile, gett.runtime.compiling):
        monkeypatch.setattr(module, "compile_uncached", compiler(state.here))
    monkeypatch.setattr(gett.runtime.compiling, "workers", workers)
    monkeypatch.setattr(gett.runtime.compiling.os, "cpu_count", lambda: 8)
    return state


def texts(gemm):
    """Of the first candidate, and of the first that does not spill like it."""
    first, *others = candidates(gemm, "sm_90a")
    other = next(x for x in others if not gett.runtime.compiling._spills_like(x, first))
    return [render_kernel(gemm, x).source.text for x in (first, other)]


def test_what_may_be_needed_is_compiled_while_a_kernel_is_that_may_spill(beside):
    """All three wait for each other."""
    gemm = product()
    first, other = texts(gemm)
    beside.before = threading.Barrier(3, timeout=30).wait
    made = compile_best(gemm, "sm_90a")
    assert made.kernel.source.text == first
    assert made.cubin == f"False {hash(first)}".encode()
    assert beside.here == [(first, False)]
    assert sorted(beside.there) == sorted([(first, True), (other, False)])
    assert beside.closed == 1


@pytest.mark.parametrize("processors", [1, 3])
def test_few_processors_compile_one_kernel_at_a_time(processors, beside, monkeypatch):
    monkeypatch.setattr(gett.runtime.compiling.os, "cpu_count", lambda: processors)
    gemm = product()
    first, other = texts(gemm)
    beside.poor = lambda text, sparing: text == first
    assert compile_best(gemm, "sm_90a").kernel.source.text == other
    assert beside.here == [(first, False), (first, True), (other, False)]
    assert beside.there == []


@pytest.mark.parametrize("sparing", [True, False])
def test_what_was_compiled_meanwhile_is_taken(sparing, beside):
    """And nothing is compiled twice; the kernel that spares registers goes first."""
    gemm = product()
    first, other = texts(gemm)
    beside.poor = lambda text, spared: text == first and not (spared and sparing)
    made = compile_best(gemm, "sm_90a")
    assert made.cubin == (f"True {hash(first)}" if sparing else f"False {hash(other)}").encode()
    assert kernel_cache().get(kernel_key(made.kernel.source, "sm_90a")) == made.cubin
    assert len(beside.here) == 1
    assert len(set(beside.there)) == len(beside.there) <= 2  # what has not begun when it is not needed never does


def test_nothing_is_compiled_meanwhile_where_the_cache_has_the_kernel_or_a_compiler_is_given(beside):
    gemm = product()
    compile_best(gemm, "sm_90a", compiler=gett.jit.compile.compile_uncached)
    compile_best(gemm, "sm_90a")
    assert (len(beside.here), beside.there, beside.closed) == (1, [], 0)


def test_a_compiler_that_is_given_compiles_two_once_one_has_spilled(beside):
    """The last two wait for each other."""
    gemm = product()
    first, other = texts(gemm)
    together = threading.Barrier(2, timeout=30)
    beside.poor = lambda text, sparing: text == first
    beside.before = lambda: together.wait() if len(beside.here) > 1 else None
    compile_best(gemm, "sm_90a", compiler=gett.jit.compile.compile_uncached)
    assert beside.here[0] == (first, False)
    assert sorted(beside.here[1:]) == sorted([(first, True), (other, False)])
    assert beside.there == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_one_of_the_first_two_candidates_of_many_modes_compiles_well(name, own_cache, monkeypatch):
    subscripts, shapes, dtype = NAMED[name]
    (step,) = gett.plan(subscripts, *((shape, dtype) for shape in shapes), arch="sm_90a").steps
    tried, real = [], compile_schedule

    def counted(plan, schedule, **options):
        tried.append(schedule)
        return real(plan, schedule, **options)

    monkeypatch.setattr(gett.runtime.compiling, "compile_schedule", counted)
    made = compile_best(step.gemm, "sm_90a")
    assert not made.spills
    assert made.schedule in list(dict.fromkeys(tried))[:2]
    assert len(tried) <= 3  # one, the same sparing, and the next
    assert all(needs.local_bytes == 0 for needs in gett.jit.resources(made.cubin).values())


@pytest.mark.slow
def test_a_network_has_no_product_whose_first_candidate_is_replaced(own_cache, caplog):
    """Of the circuit, the products in planes of the widest tiles: the others hold less."""
    n = first_calls.tasks()["rqc5x5_d16"]
    operands = [(tuple(shape), n["dtype"]) for shape in n["shapes"]]
    plan = gett.plan(n["subscripts"], *operands, optimize=[tuple(p) for p in n["path"]], arch="sm_90a")
    alone = [s for s in plan.steps if s.together is None and s.schedule.kind == "wgmma split"]
    widest = max(s.schedule.tiling.shape for s in alone)
    split = {s.gemm.signature: s.gemm for s in alone if s.schedule.tiling.shape == widest}
    assert len(split) >= 3
    with caplog.at_level(logging.DEBUG, "gett"):
        for gemm in split.values():
            assert not compile_best(gemm, "sm_90a").spills
    assert "replaced candidate" not in caplog.text
