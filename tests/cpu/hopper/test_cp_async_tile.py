"""Operands that `cp.async` brings to tiles of planes: schedules where tensor maps refuse, and where vectors land."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.explain.schedule import schedule_facts
from gett.hw.archs import arch_facts
from gett.ir.gemm import A, B, GemmPlan, make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.legality import can_implement
from gett.schedule.lower import lower_plan
from gett.schedule.rules.rule import name_of
from gett.schedule.rules.smem_places import wgmma_places
from gett.schedule.search.select import candidates, select_schedule
from gett.schedule.spec.loader import CpAsyncTile, Tma
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.spec.schedule import Schedule
from layouts.modes import Strided
from tests.cases import Case
from tests.cpu.host_cuda import generated, includes, run_host
from tests.cpu.walk import element_offsets
from tests.spec_cases import SPLIT_COPIES, SPLIT_COPIES_COMPLEX
from tests.specs import copy_schedules, covering, specs

FACTS = arch_facts("sm_90a")
LARGE = (
    Case("odd", "ik,kj->ij", {"i": 2047, "j": 1949, "k": 1031}),
    Case("pairs", "ik,jk->ij", {"i": 2046, "j": 1950, "k": 1030}),
    Case("short-lead", "ikl,jkl->ij", {"i": 2047, "j": 1949, "k": 131, "l": 7}),
)
TILES = 0x20000
PROGRAM = (Path(__file__).parents[1] / "host" / "cp_async_tiles.cpp").read_text(encoding="utf-8")
SIZES = {"float32": 4, "complex64": 8}


def of(case: Case, dtype: str = "float32", limit: int = 8) -> tuple[GemmPlan, list[Schedule]]:
    plan = make_gemm_plan(case.contraction(dtype, precision="bf16x6"))
    found = copy_schedules(plan, FACTS, limit)
    assert found, f"nothing for {case}"
    return plan, found


def copied(s: Schedule) -> list[CpAsyncTile]:
    return [x for x in (s.hopper.a, s.hopper.b) if isinstance(x, CpAsyncTile)]


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("case", LARGE, ids=repr)
def test_what_no_tensor_map_moves_is_copied(case: Case, dtype: str) -> None:
    plan = make_gemm_plan(case.contraction(dtype, precision="bf16x6"))
    chosen = select_schedule(plan, "sm_90a", replace(FACTS, workspace_limit=0))  # no memory for packed copies
    moved = case.name == "pairs" and dtype == "complex64"  # rows of whole 16 bytes
    assert isinstance(chosen.mainloop, WgmmaSplit)
    assert bool(copied(chosen)) != moved


@pytest.mark.parametrize("case", SPLIT_COPIES, ids=repr)
def test_candidates_keep_the_rules(case: Case) -> None:
    plan, found = of(case)
    for s in found:
        assert copied(s)
        assert can_implement(s, plan, FACTS) is None


def test_an_aligned_operand_keeps_its_tensor_map() -> None:
    _, found = of(next(c for c in SPLIT_COPIES if c.name == "one-aligned"))
    assert {type(found[0].hopper.a), type(found[0].hopper.b)} == {Tma, CpAsyncTile}


def test_scaled_planes_are_not_made_of_copies() -> None:
    plan = make_gemm_plan(LARGE[0].contraction("float32", precision="fp16x3"))
    assert not copy_schedules(plan, FACTS)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"vector": 16}, "vectors: 16 elements of operand . are 64 bytes"),
        ({"vector": 3}, "domains: mainloop.[ab].vector = 3, which is to be one of 1, 2, 4, 8, 16"),
        ({"vector": 4}, "vectors: rows of operand . do not start and end at multiples of 16 bytes"),
        ({"swizzle_bytes": 256}, "domains: mainloop.[ab].swizzle_bytes = 256, which is to be one of 32, 64, 128"),
    ],
    ids=str,
)
def test_copies_that_the_hardware_lacks_are_illegal(wrong: dict[str, int], reason: str) -> None:
    plan, (s, *_) = of(LARGE[0])
    (first, *_) = copied(s)
    name = "a" if s.hopper.a is first else "b"
    assert isinstance(s.mainloop, WgmmaSplit)
    bent = replace(s, mainloop=replace(s.mainloop, **{name: replace(first, **wrong)}))
    assert can_implement(s, plan, FACTS) is None
    refusal = can_implement(bent, plan, FACTS)
    assert refusal is not None
    assert re.match(reason, refusal.reason)


@pytest.mark.parametrize(("sign", "far"), [(-1, 1), (1, 1 << 20)], ids=["backwards", "too far"])
def test_what_offsets_cannot_address_is_not_copied(sign: int, far: int) -> None:
    plan, _ = of(LARGE[0])
    bent = tuple(replace(s, strides=(sign * far * s.strides[0], *s.strides[1:])) for s in plan.m)
    assert not copy_schedules(replace(plan, m=bent), FACTS)


@pytest.mark.slow
def test_planes_take_the_place_of_tf32_where_no_tensor_map_moves_the_operands() -> None:
    plan = make_gemm_plan(LARGE[0].contraction("float32", precision="tf32"))
    found = [s for s in candidates(plan, "sm_90a") if isinstance(s.mainloop, WgmmaSplit)]
    assert found
    assert {s.precision for s in found} == {"bf16x3"}
    assert can_implement(found[0], plan, FACTS) is None
    assert "bf16x3 in place of tf32, and at least as accurate" in facts_text(plan, found[0])
    kernel = render_kernel(plan, found[0])
    compile_kernel(kernel.source, kernel.arch)


@pytest.mark.parametrize(("asked", "made"), [("tf32", "bf16x6"), ("ieee", "bf16x3"), ("bf16x6", "bf16x3")])
def test_no_other_precision_takes_the_place_of_a_plans(asked: str, made: str) -> None:
    tf32 = make_gemm_plan(LARGE[0].contraction("float32", precision="tf32"))
    s = next(s for s in candidates(tf32, "sm_90a") if s.precision)
    plan = make_gemm_plan(LARGE[0].contraction("float32", precision=asked))
    refusal = can_implement(replace(s, precision=made), plan, FACTS)
    assert refusal is not None
    assert name_of(refusal.rule) == "precision"


def facts_text(plan: GemmPlan, schedule: Schedule) -> str:
    return "\n".join(text for _, text in schedule_facts(plan, schedule))


def kinds(found: list[Schedule]) -> list[Schedule]:
    """One schedule for each pair of loaders, depth and assignment of roles."""
    out: dict[object, Schedule] = {}
    for s in found:
        loaders = tuple(x if isinstance(x, CpAsyncTile) else None for x in (s.hopper.a, s.hopper.b))
        out.setdefault((loaders, s.tiling.shape[2], s.tiling.swap_ab), s)
    return list(out.values())


QUICK = ("odd-k-mn", "pairs", "twos")


@pytest.mark.parametrize(
    ("case", "dtype", "most"),
    [
        *((c, "float32", 1) for c in SPLIT_COPIES if c.name in QUICK),
        *(pytest.param(c, "float32", 40, marks=pytest.mark.slow) for c in SPLIT_COPIES),
        *(pytest.param(c, "complex64", 40, marks=pytest.mark.slow) for c in SPLIT_COPIES_COMPLEX),
    ],
    ids=str,
)
def test_k_tiles_lie_as_planes_are_read(case: Case, dtype: str, most: int, tmp_path: Path) -> None:
    """The kernel's own code brings k-tiles in on the host: elements where they belong, zeros beyond K."""
    size = SIZES[dtype]
    plan, found = of(case, dtype, 40)
    rng = np.random.default_rng(1)
    for s in kinds(found)[:most]:
        t, real = s.tiling, lower_plan(plan, s.tiling)
        kernel = render_kernel(plan, s)
        headers = includes("core/index", "loader/cp_async_tile", "mainloop/smem_descriptor", "ptx/tma")
        body = headers + generated(kernel) + PROGRAM.replace("TILES", str(TILES))
        groups = (real.l, real.m, real.n, real.k)
        sizes = {x: 1 + sum(m.strides[x] * (m.extent - 1) for g in groups for m in g) // size for x in (A, B)}
        data = {x: rng.integers(1, 1 << 62, sizes[x]).astype(f"u{size}") for x in (A, B)}
        last = (t.m.tiles - 1, t.n.tiles - 1, real.extent_l - 1)
        jobs = [(0, 0, 0, 0), (*last, 0), (*last, t.k.tiles - 1)]
        sent = kernel.launches[0].params + np.array([sizes[A], sizes[B]], np.int32).tobytes()
        sent += data[A].tobytes() + data[B].tobytes() + np.array(jobs, np.int32).tobytes()
        got = np.frombuffer(run_host(tmp_path, body, sent), np.uint8).reshape(len(jobs), 2, TILES)
        for (m, n, l, k), tiles in zip(jobs, got, strict=True):
            for x, loader, side, tile, group in (
                (A, s.hopper.a, t.m, m, real.m),
                (B, s.hopper.b, t.n, n, real.n),
            ):
                if not isinstance(loader, CpAsyncTile):
                    continue
                at = element_offsets(side, tile, group, x, size)[:, None]
                at_k = element_offsets(t.k, k, real.k, x, size)[None]
                start = batch(real.l, l, x) // size
                where = np.where((at >= 0) & (at_k >= 0), at + at_k + start, 0)
                wanted = np.where((at >= 0) & (at_k >= 0), data[x][where], 0)
                places = wgmma_places(
                    loader.major, loader.swizzle_bytes, (side.size, t.k.size), side.size, t.shape[2], size, (0, 0)
                )
                shown = tiles[x][places.reshape(side.size, t.k.size)[..., None] + np.arange(size)]
                right = shown.copy().view(f"u{size}")[..., 0] == wanted
                assert (right | (at < 0)).all(), (t.shape, t.k, loader)


def batch(modes: tuple[Strided, ...], number: int, tensor: int) -> int:
    """Bytes from the tensor's start to that of a batch."""
    total = 0
    for mode in modes:
        total += number % mode.extent * mode.strides[tensor]
        number //= mode.extent
    return total


@pytest.mark.slow
@pytest.mark.parametrize("family", ["split_copies", "split_copies_source", "split_copies_complex"])
def test_kernels_compile_without_spills(family: str) -> None:
    for spec in covering(specs(family), False):
        kernel = render_kernel(spec.plan, spec.schedule)
        compile_kernel(kernel.source, kernel.arch)


def test_boxes_of_k_are_whole_k_tiles() -> None:
    _, found = of(SPLIT_COPIES[0], limit=40)
    assert {s.tiling.k.size for s in found} <= {16, 32}
