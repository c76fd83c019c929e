"""The general door of the Hopper family: candidates where tensor maps refuse, the index along K, compiled kernels."""

from __future__ import annotations

import json

import pytest
from gett.codegen.render_common import strides_of
from gett.codegen.render_gather import gather_index, gathered, reach

from gett.codegen.index import ParamTable
from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import A, B, GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.gather import gather_candidates
from gett.schedule.realize import realize
from gett.schedule.records import Gather, Schedule
from gett.schedule.select import select_schedule
from gett.tune.codec import decode, encode
from tests.cases import Case

FACTS = arch_facts("sm_90a")
CASES = (
    Case("k-mn", "ik,kj->ij", {"i": 2047, "j": 1949, "k": 1031}),
    Case("mn-mn", "ki,kj->ij", {"i": 2047, "j": 1949, "k": 515}),
    Case("k-k", "ik,jk->ij", {"i": 1001, "j": 777, "k": 1999}),
    Case("short-unit", "kil,jkl->ij", {"i": 383, "j": 383, "k": 77, "l": 11}),
    Case("one-aligned", "ik,kj->ij", {"i": 1024, "j": 1023, "k": 1024}),
    Case("split", "lki,kjl->ji", {"i": 95, "j": 91, "k": 251, "l": 97}),
    Case("two-ragged", "imk,jmk->ij", {"i": 301, "j": 305, "k": 23, "m": 15}),
)


def plan_of(case: Case, dtype: str = "float16") -> GemmPlan:
    return make_gemm_plan(case.contraction(dtype))


def found(case: Case) -> list[Schedule]:
    out = gather_candidates(plan_of(case), FACTS)
    assert out, f"nothing for {case}"
    return out


@pytest.mark.parametrize("case", [c for c in CASES if c.name in ("k-mn", "mn-mn", "k-k")], ids=repr)
def test_odd_strides_go_through_the_general_door(case: Case) -> None:
    chosen = select_schedule(plan_of(case), "sm_90a")
    assert chosen.family == "sm90"
    assert chosen.roles is not None
    assert gathered(chosen.roles)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_candidates_keep_the_rules(case: Case) -> None:
    for s in found(case):
        assert s.roles is not None
        assert gathered(s.roles)
        assert s.smem_bytes <= FACTS.smem_per_block
        assert s.block[2] == s.box_k.size
        assert s.block[2] % 16 == 0
        real = realize(plan_of(case), s)
        for name, tensor, box, modes in (("a", A, s.box_m, real.m), ("b", B, s.box_n, real.n)):
            way = s.roles.way(name)
            assert way.major == ("k" if any(x.strides[tensor] == 2 for x in real.k) else "mn")
            if isinstance(way, Gather):
                inner, group = (s.box_k, real.k) if way.major == "k" else (box, modes)
                lead = inner.dims[0]
                assert [group[m].strides[tensor] for m in lead.modes] == [2]
                assert lead.box % way.run == 0
                assert way.run % 8 == 0
                assert (inner.size * 2) % way.span == 0


def test_an_aligned_operand_keeps_its_tensor_map() -> None:
    case = next(c for c in CASES if c.name == "one-aligned")
    ways = {type(found(case)[0].roles.way(x)).__name__ for x in "ab"}  # type: ignore[union-attr]
    assert ways == {"BulkMove", "Gather"}


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_the_index_along_k_is_the_box(case: Case) -> None:
    for s in found(case)[:3]:
        assert s.roles is not None
        real = realize(plan_of(case), s)
        tensors = strides_of(real, real.k, gathered(s.roles))
        _, functions = gather_index(real, s, tensors, ParamTable())
        by = {f.name: f for f in functions}
        box = s.box_k
        for tile in (0, box.tiles // 2, box.tiles - 1):
            k = by["k_tile"].evaluate(tile=tile)
            env = {f"k.{name}": value for name, value in k.items()}
            inside = 0
            for local in range(box.size if tile == 0 else 0):  # only a box longer than K ends in the first k-tile
                assert bool(by["k_ok"].evaluate(local=local)[""]) == (box.coordinates(0, local) is not None)
            for local in range(box.size):
                at = box.coordinates(tile, local)
                inside += at is not None
                for t in tensors:
                    room = by[f"valid_k_{t.tensor}"].evaluate(**env, local=local)[""]
                    assert (room > 0) == (at is not None)
                    if at is not None:
                        offset = k[t.tensor] + by[f"k_{t.tensor}"].evaluate(local=local)[""]
                        assert offset == sum(x * st for x, st in zip(at, t.values, strict=True))
                        along = next((m for m, st in enumerate(t.values) if st == 1), None)
                        if along is not None:
                            assert room >= min(box.size, 1)
                            assert at[along] + room <= real.k[along].extent or room >= 1 << 20
            assert bool(by["k_whole"].evaluate(**env)[""]) == (inside == box.size)


def test_reach_ends_behind_the_last_element() -> None:
    plan = plan_of(CASES[0])
    assert {reach(plan, A), reach(plan, B)} == {2047 * 1031, 1031 * 1949}


@pytest.mark.parametrize("change", [(-1, 1), (1, 1 << 20)], ids=["backwards", "too far"])
def test_the_door_is_closed_to_what_it_cannot_address(change: tuple[int, int]) -> None:
    from dataclasses import replace

    plan = plan_of(CASES[0])
    sign, far = change
    bent = tuple(replace(s, strides=(sign * far * s.strides[0], *s.strides[1:])) for s in plan.m)
    assert not gather_candidates(replace(plan, m=bent), FACTS)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_schedules_survive_json(case: Case) -> None:
    for s in found(case):
        assert decode(Schedule, json.loads(json.dumps(encode(s)))) == s


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_kernels_compile_without_spills(case: Case) -> None:
    plan = plan_of(case)
    for s in found(case)[:1]:
        kernel = render_kernel(plan, s)
        for entry in resources(compile_kernel(kernel.source, kernel.arch)).values():
            assert entry.local_bytes == 0
