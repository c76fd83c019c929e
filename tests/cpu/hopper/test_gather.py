"""Gathered operands: schedules where tensor maps refuse, the index along K, and where pieces are put on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gett.codegen.common import strides_of
from gett.codegen.gather import cosize, gather_index, gathered
from gett.codegen.index import ParamTable
from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import A, B, GemmPlan, make_gemm_plan
from gett.schedule.lower import lower_plan
from gett.schedule.search.select import select_schedule
from gett.schedule.search.tried import GATHER
from gett.schedule.spec.loader import Gather, Tma
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box
from layouts.modes import Strided
from tests.cases import Case
from tests.cpu.host_cuda import generated, includes, run_host
from tests.cpu.smem_places import read_at
from tests.cpu.walk import element_offsets
from tests.spec_cases import GATHER_TRANSPOSE
from tests.specs import gather_schedules, specs

FACTS = arch_facts("sm_90a")
LARGE = (
    Case("k-mn", "ik,kj->ij", {"i": 2047, "j": 1949, "k": 1031}),
    Case("mn-mn", "ki,kj->ij", {"i": 2047, "j": 1949, "k": 515}),
    Case("k-k", "ik,jk->ij", {"i": 1001, "j": 777, "k": 1999}),
    Case("short-unit", "kil,jkl->ij", {"i": 383, "j": 383, "k": 77, "l": 11}),
    Case("one-aligned", "ik,kj->ij", {"i": 1024, "j": 1023, "k": 1024}),
    Case("split", "lki,kjl->ji", {"i": 95, "j": 91, "k": 251, "l": 97}),
    Case("two-ragged", "imk,jmk->ij", {"i": 301, "j": 305, "k": 23, "m": 15}),
)
PLAIN = (
    Case("plain-k", "ik,jk->ij", {"i": 101, "j": 77, "k": 199}),
    Case("plain-mn", "ki,kj->ij", {"i": 147, "j": 149, "k": 51}),
    Case("plain-few", "ik,jk->ij", {"i": 331, "j": 23, "k": 199}),
    Case("plain-short", "lki,kjl->ji", {"i": 25, "j": 335, "k": 51, "l": 11}),
)
TILES = 0x40000
PROGRAM = (Path(__file__).parents[1] / "host" / "gather_tiles.cpp").read_text(encoding="utf-8")
ANSWER = np.dtype([("careful", np.int32, 2), ("tiles", np.uint8, (2, TILES))])


def of(case: Case, limit: int = 8) -> tuple[GemmPlan, list[Schedule]]:
    plan = make_gemm_plan(case.contraction("float16"))
    found = gather_schedules(plan, FACTS, limit)
    assert found, f"nothing for {case}"
    return plan, found


@pytest.mark.parametrize("case", LARGE[:3], ids=repr)
def test_odd_strides_are_gathered(case: Case) -> None:
    """Where no workspace is allowed; else dense copies may be multiplied."""
    facts = replace(FACTS, workspace_limit=0)
    chosen = select_schedule(make_gemm_plan(case.contraction("float16")), "sm_90a", facts)
    assert chosen.kind == "wgmma ss"
    assert gathered(chosen.hopper)


@pytest.mark.parametrize("case", LARGE, ids=repr)
def test_candidates_keep_the_rules(case: Case) -> None:
    plan, found = of(case)
    for s in found:
        t = s.tiling
        assert gathered(s.hopper)
        assert s.smem.size <= FACTS.smem_per_block
        assert t.shape[2] == t.k.size
        assert t.shape[2] % 16 == 0
        real = lower_plan(plan, t)
        for loader, tensor, box, modes in ((s.hopper.a, A, t.m, real.m), (s.hopper.b, B, t.n, real.n)):
            assert loader.major == ("k" if any(x.strides[tensor] == 2 for x in real.k) else "mn")
            if isinstance(loader, Gather):
                inner, group = (t.k, real.k) if loader.major == "k" else (box, modes)
                lead = inner.dims[0]
                assert [group[m].strides[tensor] for m in lead.modes] == [2]
                assert lead.box % loader.run == 0
                assert loader.run % 8 == 0
                assert (inner.size * 2) % loader.swizzle_bytes == 0


def test_an_aligned_operand_keeps_its_tensor_map() -> None:
    _, found = of(next(c for c in LARGE if c.name == "one-aligned"))
    assert {type(found[0].hopper.a), type(found[0].hopper.b)} == {Tma, Gather}


@pytest.mark.parametrize("case", LARGE, ids=repr)
def test_the_index_along_k_is_the_box(case: Case) -> None:
    plan, found = of(case)
    for s in found[:3]:
        real = lower_plan(plan, s.tiling)
        tensors = strides_of(real, real.k, gathered(s.hopper))
        box = s.tiling.k
        _, functions = gather_index(box, tensors, ParamTable())
        by = {f.name: f for f in functions}
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
                            assert at[along] + room <= real.k[along].extent or room >= 1 << 20
            assert bool(by["k_whole"].evaluate(**env)[""]) == (inside == box.size)


def test_reach_ends_behind_the_last_element() -> None:
    plan, _ = of(LARGE[0])
    assert {cosize(plan, A), cosize(plan, B)} == {2047 * 1031, 1031 * 1949}


@pytest.mark.parametrize(("sign", "far"), [(-1, 1), (1, 1 << 20)], ids=["backwards", "too far"])
def test_what_offsets_cannot_address_is_not_gathered(sign: int, far: int) -> None:
    plan, _ = of(LARGE[0])
    bent = tuple(replace(s, strides=(sign * far * s.strides[0], *s.strides[1:])) for s in plan.m)
    assert not gather_schedules(replace(plan, m=bent), FACTS)


def transposed(s: Schedule) -> tuple[int, int]:
    """Elements of B's unit mode and of A's in a tile; (0, 0) where nothing is transposed."""
    a = s.hopper.a
    return (a.transform.elements, a.run) if isinstance(a, Gather) and a.transform else (0, 0)


def kinds(found: Iterable[Schedule]) -> list[Schedule]:
    """One schedule for each shape of K's box and assignment of roles."""
    out: dict[tuple[object, ...], Schedule] = {}
    for s in found:
        out.setdefault((transposed(s), s.tiling.shape[2], s.tiling.swap_ab), s)
    return list(out.values())


QUICK = {"transposed-third": 1}


@pytest.mark.parametrize(
    ("case", "most"),
    [
        *((c, QUICK[c.name]) for c in (*GATHER_TRANSPOSE, *PLAIN) if c.name in QUICK),
        *(pytest.param(c, 40, marks=pytest.mark.slow) for c in (*GATHER_TRANSPOSE, *PLAIN)),
    ],
    ids=str,
)
def test_k_tiles_lie_as_wgmma_reads_them(case: Case, most: int, tmp_path: Path) -> None:
    """The kernel's own code brings k-tiles in on the host, and wgmma's places hold what they should."""
    plan, found = of(case, 40)
    rng = np.random.default_rng(1)
    for s in kinds(found)[:most]:
        t, real = s.tiling, lower_plan(plan, s.tiling)
        kernel = render_kernel(plan, s)
        headers = includes("core/index", "loader/gather_transpose", "ptx/tma", "scheduler/persistent")
        body = headers + generated(kernel) + PROGRAM.replace("TILES", str(TILES))
        groups = (real.l, real.m, real.n, real.k)
        sizes = {x: 1 + sum(m.strides[x] * (m.extent - 1) for g in groups for m in g) // 2 for x in (A, B)}
        data = {x: rng.integers(1, 1 << 16, sizes[x], dtype=np.uint16) for x in (A, B)}
        last = (t.m.tiles - 1, t.n.tiles - 1, real.extent_l - 1)
        jobs = [(0, 0, 0, 0), (*last, 0), (*last, t.k.tiles - 1)]
        jobs += [(*last, k) for k in range(t.k.tiles) if ragged(t.k, k)][:3]
        sent = kernel.launches[0].params + data[A].tobytes() + data[B].tobytes()
        got = run_host(tmp_path, body, sent + np.array(jobs, np.int32).tobytes())
        for (m, n, l, k), answer in zip(jobs, np.frombuffer(got, ANSWER), strict=True):
            at_l = flat(tuple(x.extent for x in real.l), l)
            for x, loader, side, tile, group in (
                (A, s.hopper.a, t.m, m, real.m),
                (B, s.hopper.b, t.n, n, real.n),
            ):
                shown, careful = answer["tiles"][x].astype(int), answer["careful"][x]
                assert isinstance(loader, Gather)
                row, depth = np.arange(side.size)[:, None], np.arange(t.k.size)
                at, at_k = element_offsets(side, tile, group, x, 2)[row], element_offsets(t.k, k, real.k, x, 2)
                inside = (at >= 0) & (at_k >= 0)
                where = np.where(inside, at + at_k + dot(at_l, real.l, x) // 2, 0)
                byte = read_at(loader, side.size, t.k.size, row, depth)
                right = shown[byte] + 256 * shown[byte + 1] == np.where(inside, data[x][where], 0)
                right |= at < 0  # a row that nobody stores
                assert right.all(), (t.shape, t.k, loader)
                if k == 0 and where.max() + loader.run + 8 <= sizes[x]:
                    assert not careful, "padding counts as the tensor's end"


def dot(at: Iterable[int], modes: tuple[Strided, ...], t: int) -> int:
    return sum(x * mode.strides[t] for x, mode in zip(at, modes, strict=True))


def flat(extents: tuple[int, ...], index: int) -> list[int]:
    out = []
    for e in extents:
        out.append(index % e)
        index //= e
    return out


def ragged(box: Box, tile: int) -> bool:
    return any(box.coordinates(tile, x) is None for x in range(box.size))


@pytest.mark.slow
def test_every_shape_is_transposed_where_the_units_differ_and_nowhere_else() -> None:
    shapes = {transposed(spec.schedule) for spec in specs("gather_transpose")}
    assert shapes == {(b, a) for a, b in GATHER.two_leads}
    assert {transposed(spec.schedule) for spec in specs("gather")} == {(0, 0)}
