"""Operands that stay: every element of every k-tile arrives once, where wgmma reads it; kernels that compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import pytest

from gett.api.explain import explain_gemm
from gett.codegen.render import render_kernel
from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.records import BulkMove, Schedule
from gett.schedule.resident import MOST, kept_bytes, kept_pitch
from gett.schedule.sm90 import sm90_candidates
from gett.schedule.tails import row_bytes
from gett.tune.codec import decode, encode
from layouts.box import Box
from tests.cases import DENSE, Case
from tests.clusters import clustered
from tests.cpu.test_cluster import places, read_at
from tests.cpu.test_d_box import coordinates
from tests.resident import CASES, LINES, ONE_LINES, few, lined, one_lined, resident

FACTS = arch_facts("sm_90a")


@cache
def found() -> tuple[tuple[Case, GemmPlan, Schedule], ...]:
    out = []
    for case in CASES:
        plan = make_gemm_plan(case.contraction("float16"))
        out += [(case, plan, s) for s in resident(plan, FACTS)]
    return tuple(out)


def kept(schedule: Schedule) -> tuple[str, BulkMove, Box]:
    """The operand that stays and the box of its rows."""
    roles = schedule.roles
    assert roles is not None
    move, box = (roles.a, schedule.box_m) if roles.resident == "a" else (roles.b, schedule.box_n)
    assert move is not None
    return roles.resident, move, box


def room(move: BulkMove, box: Box) -> int:
    """Rows of the tile in shared memory, those that chunks have to spare included."""
    return box.size // move.run * (move.map.span // 2) if move.run else box.size


def reads(name: str, move: BulkMove, rows: int, depth: int) -> Iterator[int]:
    """Bytes of a tile that instructions end before: whole blocks of 64 rows of A, of 8 columns of B."""
    grain = 64 if name == "a" else 8
    last = -(-rows // grain) * grain - 1
    if move.major == "mn":  # chunks behind the last are whole ones
        chunk = move.map.span // 2
        yield (last // chunk + 1) * depth * move.map.span
    else:
        span = move.map.span
        yield (-(-2 * depth // span) - 1) * -(-rows // 8) * 8 * span + (last + 1) * span


def test_every_case_has_an_operand_that_stays() -> None:
    kinds = set()
    for _, _, schedule in found():
        name, move, _ = kept(schedule)
        kinds |= {name, move.major, "run" if move.run else "", "repeats" if move.repeats else ""}
        kinds.add("tail" if schedule.box_k.size < schedule.block[2] else "full")
        kinds.add("turns" if schedule.roles is not None and schedule.roles.ping_pong else "together")
    assert {case.name for case, _, _ in found()} == {case.name for case in CASES}
    assert kinds >= {"a", "b", "k", "mn", "run", "repeats", "turns", "together", "tail", "full"}


def test_every_element_arrives_once_where_it_is_read() -> None:
    for _, _, schedule in found():
        name, move, box = kept(schedule)
        box_k = schedule.box_k
        rows, depth = room(move, box), schedule.block[2]
        deep = row_bytes(move, depth, 2)
        pitch, whole = kept_pitch(rows, deep), kept_bytes(name, rows, deep, box_k.tiles)
        assert pitch % 1024 == 0
        taken = set()
        fixed = len(move.map.modes) - len(box.extents) - len(box_k.extents)
        for row in range(box.size):
            for k in range(box_k.size):
                at = move.map.coordinates([0] * fixed + coordinates(box, row) + coordinates(box_k, k))
                byte = read_at(move, rows if move.major == "k" else box.size, depth, row, k)
                assert places(move, at, 0) == [byte]
                assert byte < pitch
                taken.add(byte)
        assert len(taken) == box.size * box_k.size
        for end in reads(name, move, rows, depth):
            assert (box_k.tiles - 1) * pitch + end <= whole, "instructions stay inside what was reserved"
        assert whole <= MOST


def test_the_copies_of_a_stage_are_those_of_the_other() -> None:
    for _, plan, schedule in found():
        name, move, _ = kept(schedule)
        other = "b" if name == "a" else "a"
        text = render_kernel(plan, schedule).source.text
        start = text.index("void load_stage(const Params")
        loads = text[start : text.index("}\n", start)]
        start = text.index("void load_stationary(const Params")
        once = text[start : text.index("}\n", start)]
        assert f"map_{name}" not in loads
        assert f"map_{other}" in loads
        assert once.count(f"map_{name}") == move.copies
        assert f"map_{other}" not in once
        assert f"kStationaryTransactionBytes = {move.map.transaction_bytes * move.copies};" in text


def test_the_old_way_stays_a_candidate() -> None:
    for case in CASES:
        found = sm90_candidates(make_gemm_plan(case.contraction("float16")), few(FACTS), 40)
        assert {bool(s.roles and s.roles.resident) for s in found} == {True, False}


def test_an_operand_stays_only_where_every_tile_needs_it() -> None:
    for subscripts, extents in (
        ("bmk,bkn->bmn", {"b": 500, "m": 64, "k": 64, "n": 64}),  # each batch has its own
        ("mk,kn->mn", {"m": 4096, "k": 4096, "n": 64}),  # too large
        ("mk,kn->mn", {"m": 256, "k": 128, "n": 64}),  # too few tiles
    ):
        plan = make_gemm_plan(Case("x", subscripts, extents).contraction("float16"))
        for s in sm90_candidates(plan, FACTS, 60):
            assert s.roles is not None
            assert s.roles.line == "each" or not s.roles.resident


def test_the_schedule_is_said_and_kept() -> None:
    _, plan, schedule = found()[0]
    assert schedule.roles is not None
    assert ", whole and once a block" in explain_gemm(plan, schedule)
    assert decode(Schedule, encode(schedule)) == schedule
    assert replace(schedule, roles=replace(schedule.roles, resident="")) != schedule


def test_kernels_compile_and_agree_on_the_layout(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    jobs = []
    for _, plan, schedule in found():
        kernel = render_kernel(plan, schedule)
        name, move, box = kept(schedule)
        rows = room(move, box)
        deep = row_bytes(move, schedule.block[2], 2)
        pitch, whole = kept_pitch(rows, deep), kept_bytes(name, rows, deep, schedule.box_k.tiles)
        check = (
            f'static_assert(Kernel::kStationaryPitch == {pitch} && Kernel::kStationaryBytes == {whole}, "layout");\n'
        )
        jobs.append(replace(kernel.source, text=kernel.source.text + check))
    case, _, _ = found()[0]
    added = make_gemm_plan(case.contraction("float16", with_c=DENSE))
    jobs += [render_kernel(added, s).source for s in resident(added, FACTS)[:2]]
    jobs += [render_kernel(p, clustered(s, (2, 1))).source for _, p, s in found()[:2]]
    with ThreadPoolExecutor(2) as pool:
        for cubin in pool.map(lambda source: compile_kernel(source, "sm_90a"), jobs):
            assert all(r.local_bytes == 0 for r in resources(cubin).values())


def test_lines_of_tiles_are_walked_one_by_one() -> None:
    kinds = set()
    for case in LINES:
        plan = make_gemm_plan(case.contraction("float16"))
        found = lined(plan, FACTS)
        assert found, case
        for s in found:
            assert s.roles is not None
            assert s.roles.cluster == (1, 1)
            assert s.split_k == 1
            # Neighbouring numbers (raster.cuh) are tiles of one line: along M where B's rows stay.
            assert s.group_m == (1 if s.roles.resident == "a" else s.box_m.tiles)
            kinds |= {s.roles.resident, s.box_k.tiles > 1, "turns" if s.roles.ping_pong else "together"}
            kinds.add("tail" if s.box_k.size < s.block[2] else "full")
            assert ", once for a line of tiles" in explain_gemm(plan, s)
            assert decode(Schedule, encode(s)) == s
    assert kinds >= {"a", "b", True, False, "turns", "together", "tail", "full"}


def test_blocks_that_keep_to_one_line() -> None:
    kinds = set()
    for case in ONE_LINES:
        plan = make_gemm_plan(case.contraction("float16"))
        found = one_lined(plan, FACTS)
        assert found, case
        for s in found:
            assert s.roles is not None
            assert (s.roles.cluster, s.split_k, s.roles.line, s.roles.ping_pong) == ((1, 1), 1, "own", False)
            name, _, box = kept(s)
            assert 1 < box.tiles <= s.blocks, "every line has a block"
            assert s.group_m == (1 if name == "a" else s.box_m.tiles)
            kinds |= {name, box.tiles, "tail" if s.box_k.size < s.block[2] else "full"}
            kinds.add("short" if s.box_k.tiles * s.box_k.size > s.box_k.volume else "whole")
            assert ", once for the block's one line of tiles" in explain_gemm(plan, s)
            assert "for its one line of tiles" in s.reason
            assert decode(Schedule, encode(s)) == s
    assert kinds >= {"a", "b", 2, 3, 4, "tail", "full", "short", "whole"}


@pytest.mark.parametrize(
    ("subscripts", "extents"),
    [
        ("lmk,lnk->lmn", {"l": 2, "m": 5000, "n": 256, "k": 256}),  # each batch has rows of its own
        ("mk,kn->mn", {"m": 5000, "n": 192, "k": 256}),  # a third of a second line would be padding
        ("mk,kn->mn", {"m": 5000, "n": 256, "k": 96}),  # so few k that D is what takes time
        ("mk,kn->mn", {"m": 400, "n": 256, "k": 256}),  # too few tiles
        ("mk,kn->mn", {"m": 5000, "n": 256, "k": 1024}),  # its rows do not fit
    ],
)
def test_blocks_keep_to_one_line_only_where_it_gains(subscripts: str, extents: dict[str, int]) -> None:
    plan = make_gemm_plan(Case("x", subscripts, extents).contraction("float16"))
    for s in sm90_candidates(plan, few(FACTS, 6), 60):
        assert s.roles is not None
        if s.roles.line == "own":
            _, _, box = kept(s)
            assert box.tiles * box.size <= 1.07 * box.volume
            assert extents["k"] == 256
            assert (extents["n"], extents["m"]) == (192, 5000)


def test_the_model_takes_one_line_where_it_was_measured_faster() -> None:
    for subscripts, extents in (
        ("lki,jl->kji", {"i": 384, "j": 376, "k": 376, "l": 384}),
        ("mk,kn->nm", {"m": 150000, "n": 384, "k": 384}),
        ("mk,nk->mn", {"m": 80000, "n": 768, "k": 384}),
    ):
        plan = make_gemm_plan(Case("x", subscripts, extents).contraction("float16"))
        roles = sm90_candidates(plan, FACTS)[0].roles
        assert roles is not None
        assert roles.line == "own"
    for subscripts, extents in (
        ("km,kn->mn", {"m": 150000, "n": 256, "k": 128}),
        ("mk,nk->mn", {"m": 60000, "n": 512, "k": 512}),
    ):
        plan = make_gemm_plan(Case("x", subscripts, extents).contraction("float16"))
        roles = sm90_candidates(plan, FACTS)[0].roles
        assert roles is not None
        assert roles.line != "own"


@pytest.mark.parametrize(("cases", "find", "places"), [(LINES, lined, 2), (ONE_LINES, one_lined, 1)])
def test_kernels_of_lines_compile_and_agree_on_the_layout(
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
    cases: tuple[Case, ...],
    find: Callable[[GemmPlan, ArchFacts], list[Schedule]],
    places: int,
) -> None:
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    jobs = []
    for case in cases:
        plan = make_gemm_plan(case.contraction("float16"))
        for schedule in find(plan, FACTS)[:2]:
            kernel = render_kernel(plan, schedule)
            name, move, box = kept(schedule)
            rows, deep = room(move, box), row_bytes(move, schedule.block[2], 2)
            whole = kept_bytes(name, rows, deep, places * schedule.box_k.tiles)
            check = f'static_assert(Kernel::kStationaryPitch == {kept_pitch(rows, deep)}, "pitch");\n'
            check += f'static_assert(Kernel::kStationaryBytes == {whole}, "room");\n'
            jobs.append(replace(kernel.source, text=kernel.source.text + check))
    with ThreadPoolExecutor(2) as pool:
        for cubin in pool.map(lambda source: compile_kernel(source, "sm_90a"), jobs):
            assert all(r.local_bytes == 0 for r in resources(cubin).values())
