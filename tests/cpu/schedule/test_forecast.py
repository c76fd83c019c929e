"""The forecast of a schedule depends on the schedule alone: it is the one that its search gave it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.forecast import LOOPS, Forecaster
from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.schedule.search.select import candidates
from gett.schedule.spec.schedule import Forecast
from tests.cases import Case
from tests.sampling import slow_but

FACTS = arch_facts("sm_90a")
MATRICES = Case("", "mk,nk->mn", {"m": 2048, "n": 1536, "k": 512})
COLUMNS = Case("", "km,kn->mn", {"m": 2048, "n": 1536, "k": 512})
LONG = Case("", "mk,nk->mn", {"m": 256, "n": 256, "k": 65536})
MODES = Case("", "aebf,dfce->abcd", {"a": 48, "b": 32, "c": 24, "d": 32, "e": 24, "f": 48})
TALL = Case("", "mk,nk->mn", {"m": 60000, "n": 512, "k": 512})
ODD = Case("", "mk,nk->mn", {"m": 1023, "n": 1023, "k": 1023})
BATCHES = Case("", "bmk,bkn->bmn", {"b": 64, "m": 256, "n": 256, "k": 64})
TYPES = (
    ("float16", "ieee"),
    ("float32", "bf16x6"),
    ("float32", "tf32"),
    ("float64", "ieee"),
    ("complex64", "bf16x6"),
    ("complex128", "ieee"),
)


@pytest.mark.parametrize(("dtype", "precision"), slow_but(TYPES, TYPES[1:2]))
def test_a_schedule_has_the_forecast_that_its_search_gave_it(dtype: str, precision: str) -> None:
    kinds = set()
    for case in (MATRICES, COLUMNS, LONG, MODES, TALL, ODD, BATCHES):
        plan = make_gemm_plan(case.contraction(dtype, precision=precision))
        found = [s for s in candidates(plan, "sm_90a") if type(s.mainloop) in LOOPS and s.packing is None]
        for s in found:
            bare = replace(s, forecast=Forecast())
            assert Forecaster(plan, FACTS).us(bare) == pytest.approx(s.forecast.us, rel=1e-9), s
        kinds |= {s.kind for s in found}
    assert kinds
