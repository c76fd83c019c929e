"""How much code the kernels are that take longest to compile: a plan's first call must not wait for the compiler.

Machine code is counted, not time, so that the machine makes no difference. Where a limit is passed, look for copies of
a loop's body: of wgmma above all, each of which costs ptxas up to 30 ms beside 200 live registers.
"""

from __future__ import annotations

import pytest

from gett.codegen.render import render_kernel
from gett.ir.gemm import make_gemm_plan
from gett.jit import compile_kernel
from gett.jit.elf import code_bytes
from gett.schedule.search.select import candidates
from tests.cases import Case, tccg

INSTRUCTION = 16  # bytes

LIMITS = {
    # Rows along two contracted modes: a body of eight products.
    ("ijkl-minl-njmk", 0): 1750,
    # 1500 where A is not shared: warps send it on, and half a batch moves to registers of its own.
    ("ij-kil-lkj", 0): 1900,
    # Gathered operands, the last with one that is turned (3060, 3180 and 3520 with all of the shift twice).
    # Of the first the rows of D take 300 more, four at a time, than one at a time (2650).
    ("abrs-qb-aqrs", 1): 3050,
    ("ijkl-imjn-nlmk", 1): 3000,
    ("ijkl-minl-njmk", 1): 3250,
    # Tensor maps: one copy of the stores, whatever alpha is (1184 with two).
    ("ij-ik-kj", 0): 1100,
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "odd"), LIMITS, ids=str)
def test_the_first_candidate_is_good_and_small(name: str, odd: int) -> None:
    whole = next(case for case in tccg() if case.name == name)
    case = Case(name, whole.subscripts, {label: extent - odd for label, extent in whole.extents.items()})
    plan = make_gemm_plan(case.contraction("float16"))
    first = candidates(plan, "sm_90a")[0]
    # No second try: what spills is refused here.
    size = code_bytes(compile_kernel(render_kernel(plan, first).source, "sm_90a"))
    assert 0 < size // INSTRUCTION <= LIMITS[name, odd]
