"""From candidates to kernels: one way for plans with and without a GPU; many kernels side by side."""

from __future__ import annotations

import logging
import re
import threading

import numpy as np
import pytest

import gett
import gett.jit.compile
import gett.runtime.compiled
from gett.api.planner import find_plan
from gett.console.progress import progress
from gett.errors import CompileError, MissingPackageError, PoorKernelError
from gett.jit.compile import CompileResult
from gett.runtime.compiled import compile_best, compile_schedule, side_by_side
from gett.schedule.search.select import candidates
from gett.tune.store import signature
from tests.cpu.tuning import FACTS, GEMM, request

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

    monkeypatch.setattr(gett.jit.compile, "compile_kernel", missing)
    plan = gett.plan(GEMM, PAIR, PAIR, arch="sm_90a")
    assert candidates(plan.steps[0].gemm, "sm_90a")[0].forecast.reason in plan.explain(detail=True)
    with pytest.raises(MissingPackageError, match="no NVRTC"):
        plan.compile()


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

    monkeypatch.setattr(gett.jit.compile, "compile_kernel", compile_kernel)
    gemm = gett.plan(GEMM, PAIR, PAIR, arch="sm_90a").steps[0].gemm
    with caplog.at_level(logging.INFO, "gett"):
        made = compile_best(gemm, "sm_90a")
    assert (made.schedule, made.spills) == (candidates(gemm, "sm_90a")[0], True)
    assert [r.levelname for r in caplog.records].count("WARNING") == 1
    assert "mk,kn->mn compiles well" in caplog.text


def test_steps_that_are_alike_are_compiled_once_and_others_side_by_side(fake_gpu, monkeypatch):
    """Two compilers wait for each other here, so one after the other would never end."""
    real, together = gett.jit.compile.compile_kernel, threading.Barrier(2, timeout=30)

    def compile_kernel(source, arch, **options):
        together.wait()
        return real(source, arch, **options)

    monkeypatch.setattr(gett.jit.compile, "compile_kernel", compile_kernel)
    monkeypatch.setattr(gett.runtime.compiled.os, "cpu_count", lambda: 2)
    pairs = [((n, m), "float32") for n, m in ((64, 64), (64, 48), (48, 32), (32, 16), (16, 8))]
    plan = gett.plan("ab,bc,cd,de,ef->af", *pairs, optimize=False, arch="sm_90a")
    bound = gett.api.executables.bind_steps(plan.steps * 2, "sm_90a", False)
    assert len(bound) == 8
    assert len(fake_gpu.compiled) == len({signature(s.gemm) for s in plan.steps}) == 4
    assert len({id(s.executable) for s in bound}) == 8


def test_the_first_error_ends_it_and_nothing_new_begins(monkeypatch):
    monkeypatch.setattr(gett.runtime.compiled.os, "cpu_count", lambda: 1)
    begun = []

    def make(task, compiler):
        begun.append(task)
        raise CompileError(f"task {task}")

    with progress(5, "test", False) as step, pytest.raises(CompileError, match="task 0"):
        side_by_side(make, range(5), step)
    assert len(begun) < 5


def test_what_is_planned_compiled_and_found_is_logged(fake_gpu, caplog):
    with caplog.at_level(logging.INFO, "gett"):
        find_plan(request(64, 64, 64))
        gett.plan_cache.clear()
        find_plan(request(64, 64, 64))
    planned, _, again, found = caplog.messages
    assert planned == again == "planned mk,kn->mn for sm_90a in 1 step"
    assert re.fullmatch(r"found mk,kn->mn for sm_90a in the store: [a-z ]+, chosen by the model", found)


def test_a_kernel_that_is_compiled_is_told_from_one_of_the_cache(caplog):
    gemm = gett.plan("ab,bc->ac", ((9, 77), "f4"), ((77, 13), "f4"), arch="sm_80").steps[0].gemm
    schedule = candidates(gemm, "sm_80")[0]
    with caplog.at_level(logging.INFO, "gett"):
        for _ in range(2):
            compile_schedule(gemm, schedule, compiler=lambda *args, **options: CompileResult(b"cubin", ""))
    tile = " x ".join(map(str, schedule.tiling.shape))
    compiled, found = caplog.messages
    assert re.fullmatch(rf"compiled ab,bc->ac for sm_80 in [\d.]+ [mun]?s: {schedule.kind}, tile {tile}", compiled)
    assert found == f"found ab,bc->ac for sm_80 in the cache: {schedule.kind}, tile {tile}"


def test_a_plan_of_the_cpu_is_one_line_of_the_log(caplog):
    with caplog.at_level(logging.INFO, "gett"):
        gett.plan("ab,bc,cd->ad", *[((3, 3), "f8")] * 3)
    assert caplog.messages == ["planned ab,bc,cd->ad for cpu in 2 steps"]


def test_nothing_is_logged_by_default(capfd):
    gett.einsum("ij,jk->ik", np.ones((3, 3)), np.ones((3, 3)))
    assert capfd.readouterr() == ("", "")
