"""Operands that stay: every element of every k-tile arrives once, where wgmma reads it; when an operand stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.mainloops.hopper import row_bytes
from gett.schedule.mainloops.wgmma_ss import stationary_bytes
from gett.schedule.spec.loader import Stationary, Tma
from gett.schedule.spec.schedule import PersistentPanel, Schedule
from layouts.box import Box
from tests.cases import Case
from tests.cpu.smem_places import coordinates, mma_box, places, read_at
from tests.sampling import few_or_every, slow_but
from tests.spec_parts import has_k_residue
from tests.specs import FAMILIES, Spec, SpecsOf, few, few_specs, specs, ss_schedules

FACTS = arch_facts("sm_90a")
SCOPES = ("stationary", "each_panel", "one_panel")


@cache
def found(family: str, every: bool = True) -> tuple[Spec, ...]:
    """One kernel of every combination of parts; not `every` one: of the first case."""
    out: dict[frozenset[str], Spec] = {}
    for spec in (specs if every else few_specs)(family):
        out.setdefault(spec.parts, spec)
    return tuple(out.values())


def kept(schedule: Schedule) -> tuple[str, Tma, Box]:
    """The operand that stays, its copies and the box of its rows."""
    loop = schedule.hopper
    ((name, loader, box),) = (
        (name, loader, box)
        for name, loader, box in (("a", loop.a, mma_box(schedule)), ("b", loop.b, schedule.tiling.n))
        if isinstance(loader, Stationary)
    )
    return name, loader.load, box


def panel(schedule: Schedule) -> PersistentPanel:
    assert isinstance(schedule.scheduler, PersistentPanel)
    return schedule.scheduler


def reads(name: str, load: Tma, rows: int, depth: int) -> Iterator[int]:
    """Bytes of a tile that instructions end before: whole blocks of 64 rows of A, of 8 columns of B."""
    grain = 64 if name == "a" else 8
    last = -(-rows // grain) * grain - 1
    swizzle = load.map.swizzle_bytes
    if load.major == "mn":  # atoms behind the last are whole ones
        yield (last // (swizzle // 2) + 1) * depth * swizzle
    else:
        yield (-(-2 * depth // swizzle) - 1) * -(-rows // 8) * 8 * swizzle + (last + 1) * swizzle


@pytest.mark.slow
@pytest.mark.parametrize("family", SCOPES)
def test_every_case_has_an_operand_that_stays(family: str) -> None:
    assert {spec.case for spec in specs(family)} == {case for case, _ in FAMILIES[family].cases}
    parts = frozenset().union(*(spec.parts for spec in specs(family)))
    assert {kept(spec.schedule)[0] for spec in specs(family)} == {"a", "b"}
    assert parts >= {"K residue", "k-tiles", "cooperative"}
    assert {has_k_residue(spec.schedule) for spec in specs(family)} == {True, False}
    assert ("ping-pong" in parts) == (family != "one_panel")
    if family == "stationary":
        loads = [kept(spec.schedule)[1] for spec in specs(family)]
        assert {load.major for load in loads} == {"k", "mn"}
        assert any(load.run for load in loads)
        assert any(load.repeats for load in loads)


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", SCOPES)
def test_every_element_arrives_once_where_it_is_read(family: str, step: int) -> None:
    """Of every row, or in the quick tests of rows in every place of a swizzle's pattern."""
    seen = set()
    for spec in found(family, every=step == 1):
        name, load, box = kept(spec.schedule)
        box_k, depth = spec.schedule.tiling.k, spec.schedule.tiling.shape[2]
        rows = load.rows(box.size)
        deep = row_bytes(load, depth, 2)
        pitch = stationary_bytes(name, rows, deep, 2) - stationary_bytes(name, rows, deep, 1)
        whole = stationary_bytes(name, rows, deep, box_k.tiles)
        assert pitch % 1024 == 0
        for end in reads(name, load, rows, depth):
            assert (box_k.tiles - 1) * pitch + end <= whole, "instructions stay inside what was reserved"
        assert whole < FACTS.smem_per_block
        if (load, box, box_k) in seen:
            continue
        seen.add((load, box, box_k))
        taken = set()
        fixed = len(load.map.modes) - len(box.extents) - len(box_k.extents)
        for row in range(0, box.size, step):
            for k in range(box_k.size):
                at = load.map.coordinates([0] * fixed + coordinates(box, row) + coordinates(box_k, k))
                byte = read_at(load, rows if load.major == "k" else box.size, depth, row, k)
                assert places(load, at, 0) == [byte]
                assert byte < pitch
                taken.add(byte)
        assert len(taken) == len(range(0, box.size, step)) * box_k.size


@pytest.mark.parametrize("family", SCOPES)
@few_or_every
def test_shared_memory_has_a_place_for_it(family: str, specs: SpecsOf) -> None:
    """Behind the stages and before the staged tile; twice for panels that a block makes one after the other."""
    for spec in specs(family):
        name, load, box = kept(spec.schedule)
        smem, tiling = spec.schedule.smem, spec.schedule.tiling
        tiles = tiling.k.tiles * (2 if family == "each_panel" else 1)
        room = stationary_bytes(name, load.rows(box.size), row_bytes(load, tiling.shape[2], 2), tiles)
        assert smem.stationary == spec.schedule.hopper.stages * smem.stage
        assert smem.stationary + room == smem.staging <= smem.barriers < smem.size <= FACTS.smem_per_block


@pytest.mark.parametrize("every", slow_but([False, True], [False]))
def test_the_copies_of_a_stage_are_those_of_the_other(every: bool) -> None:
    for spec in found("stationary", every):
        name, load, _ = kept(spec.schedule)
        other = "b" if name == "a" else "a"
        text = render_kernel(spec.plan, spec.schedule).source.text
        start = text.index("void load_stage(const Params")
        loads = text[start : text.index("}\n", start)]
        start = text.index("void load_stationary(const Params")
        once = text[start : text.index("}\n", start)]
        assert f"map_{name}" not in loads
        assert f"map_{other}" in loads
        assert once.count(f"map_{name}") == (1 if "for (int" in once else load.copies)
        assert f"map_{other}" not in once
        members = text[text.index(f"struct LoaderTraits{name.upper()} {{") :].split("}", 1)[0]
        assert "kKind = gett::kLoaderStationary;" in members
        assert f"kTransactionBytes = {load.bytes};" in members


def test_operands_that_come_with_every_k_tile_stay_candidates() -> None:
    for case, _ in FAMILIES["stationary"].cases:
        found = ss_schedules(make_gemm_plan(case.contraction("float16")), few(FACTS, 2), 40)
        ways = {any(isinstance(x, Stationary) for x in (s.hopper.a, s.hopper.b)) for s in found}
        assert ways == {True, False}


def test_an_operand_stays_only_where_every_tile_needs_it() -> None:
    for subscripts, extents in (
        ("bmk,bkn->bmn", {"b": 500, "m": 64, "k": 64, "n": 64}),  # each batch has its own
        ("mk,kn->mn", {"m": 4096, "k": 4096, "n": 64}),  # too large
        ("mk,kn->mn", {"m": 256, "k": 128, "n": 64}),  # too few tiles
    ):
        plan = make_gemm_plan(Case("x", subscripts, extents).contraction("float16"))
        schedules = ss_schedules(plan, FACTS, 60)
        assert schedules
        for s in schedules:
            if any(isinstance(x, Stationary) for x in (s.hopper.a, s.hopper.b)):
                assert not panel(s).one_panel


@pytest.mark.slow
def test_panels_are_made_one_by_one() -> None:
    for family in ("each_panel", "one_panel"):
        for spec in specs(family):
            s, (name, _, box) = spec.schedule, kept(spec.schedule)
            assert (s.cluster, s.split_k) == ((1, 1), 1)
            assert panel(s).tensor == name
            # Neighbouring numbers (scheduler/raster.cuh) are tiles of one panel: along M where B's rows stay.
            assert panel(s).group_m == (1 if name == "a" else s.tiling.m.tiles)
            if family == "one_panel":
                assert 1 < box.tiles <= panel(s).blocks, "every panel has a block"
    panels = {kept(spec.schedule)[2].tiles for spec in specs("one_panel")}
    assert panels >= {2, 3, 4}
    early = {s.tiling.k.tiles * s.tiling.k.size > s.tiling.k.volume for s in (x.schedule for x in specs("one_panel"))}
    assert early == {True, False}


@pytest.mark.parametrize(
    ("subscripts", "extents"),
    [
        ("lmk,lnk->lmn", {"l": 2, "m": 5000, "n": 256, "k": 256}),  # each batch has rows of its own
        ("mk,kn->mn", {"m": 5000, "n": 192, "k": 256}),  # a third of a second panel would be padding
        ("mk,kn->mn", {"m": 5000, "n": 256, "k": 96}),  # so few k that D is what takes time
        ("mk,kn->mn", {"m": 400, "n": 256, "k": 256}),  # too few tiles
        ("mk,kn->mn", {"m": 5000, "n": 256, "k": 1024}),  # its rows do not fit
    ],
)
def test_blocks_keep_to_one_panel_only_where_it_gains(subscripts: str, extents: dict[str, int]) -> None:
    plan = make_gemm_plan(Case("x", subscripts, extents).contraction("float16"))
    for s in ss_schedules(plan, few(FACTS, 6), 60):
        if isinstance(s.scheduler, PersistentPanel) and s.scheduler.one_panel:
            _, _, box = kept(s)
            assert box.tiles * box.size <= 1.07 * box.volume
            assert extents["k"] == 256
            assert (extents["n"], extents["m"]) == (192, 5000)


def test_the_model_takes_one_panel_where_it_was_measured_faster() -> None:
    faster = (
        ("lki,jl->kji", {"i": 384, "j": 376, "k": 376, "l": 384}),
        ("mk,kn->nm", {"m": 150000, "n": 384, "k": 384}),
    )
    slower = (
        ("km,kn->mn", {"m": 150000, "n": 256, "k": 128}),
        ("mk,kn->mn", {"m": 65536, "n": 128, "k": 1024}),
        ("mk,nk->mn", {"m": 60000, "n": 512, "k": 512}),
    )
    for wanted, contractions in ((True, faster), (False, slower)):
        for subscripts, extents in contractions:
            plan = make_gemm_plan(Case("x", subscripts, extents).contraction("float16"))
            best = ss_schedules(plan, FACTS)[0].scheduler
            assert (isinstance(best, PersistentPanel) and best.one_panel) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("family", SCOPES)
def test_the_kernel_agrees_on_the_layout(family: str) -> None:
    """With both operands that may stay."""
    for spec in {kept(spec.schedule)[0]: spec for spec in found(family)}.values():
        name, load, box = kept(spec.schedule)
        tiling, source = spec.schedule.tiling, render_kernel(spec.plan, spec.schedule).source
        rows, deep = load.rows(box.size), row_bytes(load, tiling.shape[2], 2)
        pitch = stationary_bytes(name, rows, deep, 2) - stationary_bytes(name, rows, deep, 1)
        whole = stationary_bytes(name, rows, deep, tiling.k.tiles * (2 if family == "each_panel" else 1))
        storage = "typedef Mainloop::Storage Parts;\n"
        check = f'static_assert(Parts::kStationaryPitch == {pitch} && Parts::kStationaryBytes == {whole}, "layout");'
        compile_kernel(replace(source, text=f"{source.text}{storage}{check}\n"), "sm_90a")
