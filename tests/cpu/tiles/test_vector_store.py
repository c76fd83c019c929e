"""Vectors of D that go over several modes: neighbours in D, neighbours in the staged tile, all there or none."""

from __future__ import annotations

import numpy as np
import pytest

from gett.codegen.common import store_order
from gett.codegen.tiles import d_unpack
from gett.hw.archs import arch_facts
from gett.ir.gemm import D, itemsize, make_gemm_plan
from gett.schedule.lower import lower_plan
from gett.schedule.spec.epilogue import VectorStore
from gett.schedule.spec.vectors import store_vector
from tests.cases import DENSE, Case
from tests.cpu.walk import element_offsets
from tests.sampling import slow_but
from tests.specs import Spec, specs, ss_schedules, stores_vectors

NAMES = ("vector_store", "vector_store_split", "vector_store_dmma")


def check(spec: Spec) -> None:
    """All tiles of a batch: each vector of the store."""
    s, t = spec.schedule, spec.schedule.tiling
    store, real = s.epilogue.store, lower_plan(spec.plan, t)
    assert isinstance(store, VectorStore)
    assert store.stage is not None
    steps = {"m": store.stage.m, "n": store.stage.n}
    place = d_unpack({"m": t.m, "n": t.n}, store_order(real, s), steps).evaluate(i=np.arange(t.m.size * t.n.size))
    size = itemsize(spec.plan.contraction.d.dtype)
    at = place["at"].reshape(-1, store.vector)
    assert (at == at[:, :1] + np.arange(store.vector)).all()
    assert not (at[:, 0] % store.vector).any()
    seen = np.zeros(sum(x.strides[D] * (x.extent - 1) for g in (real.m, real.n) for x in g) // size + 1, np.int64)
    for tile_m in range(t.m.tiles):
        for tile_n in range(t.n.tiles):
            m = element_offsets(t.m, tile_m, real.m, D, size)[place["m"]].reshape(at.shape)
            n = element_offsets(t.n, tile_n, real.n, D, size)[place["n"]].reshape(at.shape)
            inside = (m >= 0) & (n >= 0)
            assert (inside == inside[:, :1]).all()
            to = (m + n)[inside[:, 0]]
            assert (to == to[:, :1] + np.arange(store.vector)).all()
            assert not (to[:, 0] % store.vector).any()
            np.add.at(seen, to, 1)
    assert (seen == 1).all()


@pytest.mark.parametrize("family", slow_but(NAMES, NAMES[:1]))
def test_vectors_are_whole_and_lie_together(family: str) -> None:
    found = specs(family)
    assert {spec.case.name for spec in found} >= {"run-of-two"}
    for spec in found:
        t, real = spec.schedule.tiling, lower_plan(spec.plan, spec.schedule.tiling)
        assert store_vector(real, t.m, t.n) == 1  # along the first mode alone
        check(spec)


def test_c_and_slices_of_k_forbid_it() -> None:
    """C is read by its own strides, and slices are added up as the accumulators lay."""
    case = Case("x", "uw,ziu->zwi", {"u": 4096, "w": 16, "i": 9, "z": 7})
    added = make_gemm_plan(case.contraction("float16", with_c=DENSE))
    assert not any(stores_vectors(s) for s in ss_schedules(added, arch_facts("sm_90a")))
    sliced = [
        s for s in ss_schedules(make_gemm_plan(case.contraction("float16")), arch_facts("sm_90a")) if s.split_k > 1
    ]
    assert sliced
    assert not any(stores_vectors(s) for s in sliced)
