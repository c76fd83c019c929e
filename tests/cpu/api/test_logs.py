"""What planning and compiling log: a line each, and nothing by default."""

from __future__ import annotations

import logging
import re

import numpy as np

import gett
from gett.jit.compile import CompileResult
from gett.plans.executables import bind_steps
from gett.runtime.compiling import compile_schedule
from gett.schedule.search.select import candidates
from gett.slices.finder import find_plan
from tests.cpu.tuning import request

TIME = r"[\d.]+ [mun]?s"


def test_what_is_planned_compiled_and_found_is_logged(fake_gpu, caplog):
    with caplog.at_level(logging.INFO, "gett"):
        find_plan(request(64, 64, 64))
        gett.plan_cache.clear()
        find_plan(request(64, 64, 64))
    planned, _, again, found = caplog.messages
    for line in (planned, again):
        assert re.fullmatch(rf"planned mk,kn->mn for sm_90a in 1 step, {TIME}", line)
    assert re.fullmatch(r"found mk,kn->mn for sm_90a in the store: [a-z ]+, chosen by the model", found)


def test_a_kernel_that_is_compiled_is_told_from_one_of_the_cache(caplog):
    gemm = gett.plan("ab,bc->ac", ((9, 77), "f4"), ((77, 13), "f4"), arch="sm_80").steps[0].gemm
    schedule = candidates(gemm, "sm_80")[0]
    with caplog.at_level(logging.INFO, "gett"):
        for _ in range(2):
            compile_schedule(gemm, schedule, compiler=lambda *args, **options: CompileResult(b"cubin", ""))
    tile = " x ".join(map(str, schedule.tiling.shape))
    compiled, found = caplog.messages
    assert re.fullmatch(rf"compiled ab,bc->ac for sm_80 in {TIME}: {schedule.kind}, tile {tile}", compiled)
    assert found == f"found ab,bc->ac for sm_80 in the cache: {schedule.kind}, tile {tile}"


def test_kernels_of_a_network_are_counted_and_timed(fake_gpu, caplog):
    pairs = [((n, m), "float32") for n, m in ((64, 64), (64, 48), (48, 32))]
    with caplog.at_level(logging.INFO, "gett"):
        bound = gett.plan("ab,bc,cd->ad", *pairs, optimize=[(1, 2), (0, 1)], arch="sm_90a")
        bind_steps(bound.steps, "sm_90a", False)
        gett.precompile(bound)
    lines = [x for x in caplog.messages if re.match(r"(built|loaded) \d", x)]
    assert re.fullmatch(rf"built 0 kernels in {TIME}, found 2 in the cache", lines[0])  # the stand-in takes no time
    assert re.fullmatch(rf"loaded 2 kernels in {TIME}", lines[1])
    assert len(lines) == 3


def test_a_plan_of_the_cpu_is_one_line_of_the_log(caplog):
    with caplog.at_level(logging.INFO, "gett"):
        gett.plan("ab,bc,cd->ad", *[((3, 3), "f8")] * 3)
    (line,) = caplog.messages
    assert re.fullmatch(rf"planned ab,bc,cd->ad for cpu in 2 steps, {TIME}", line)


def test_nothing_is_logged_by_default(capfd):
    gett.einsum("ij,jk->ik", np.ones((3, 3)), np.ones((3, 3)))
    assert capfd.readouterr() == ("", "")
