"""Tiles of D whose halves two blocks exchange: every element goes where it belongs, once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gett.explain.detail import explain_gemm
from gett.ir.gemm import make_gemm_plan
from gett.schedule.lower import lower_plan
from gett.schedule.search.select import candidates
from gett.schedule.spec.epilogue import DsmemExchange, StagedTile, TmaStore
from gett.schedule.spec.hopper_needs import exchanged
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box, TileDim
from layouts.tma import TmaMap
from tests.cases import Case
from tests.specs import FAMILIES, Spec, reuses_smem, specs

CASES = [case for case, _ in FAMILIES["exchange"].cases]
VECTOR = 16  # bytes that are exchanged at once


def parts(s: Schedule) -> tuple[TmaStore, DsmemExchange]:
    store = s.epilogue.store
    assert isinstance(store, TmaStore)
    assert store.exchange is not None
    return store, store.exchange


def of(case: Case) -> list[Spec]:
    return [spec for spec in specs("exchange") if spec.case == case]


def staged(s: Schedule, tile_m: int, tile_n: int) -> np.ndarray:
    """What a block stages: for each element, the coordinates along M and N, also those past the edge."""
    stage = parts(s)[0].stage
    sides = ((s.tiling.m, stage.m, tile_m), (s.tiling.n, stage.n, tile_n))
    local = iter(
        np.indices([d.box for box, _, _ in sides for d in box.dims]).reshape(-1, s.tiling.m.size * s.tiling.n.size)
    )
    element, found = np.zeros(1, int), []
    for box, steps, tile in sides:
        here = [np.zeros(1, int)] * len(box.extents)
        for d, start, step in zip(box.dims, box.origin(tile), steps, strict=True):
            at = next(local)
            element = element + at * step
            here[d.modes[0]] = start + at
        found += here
    return by_element(element, found)


def image(d: TmaMap) -> np.ndarray:
    """What a copy takes: for each element, the coordinates inside its box."""
    local = np.indices(d.tile).reshape(len(d.tile), -1)
    return by_element(np.asarray(d.smem_offset(local)) // 2, local)


def by_element(element: np.ndarray, found: Sequence[np.ndarray]) -> np.ndarray:
    """A row of coordinates for each element of memory, every one once."""
    out = np.full((len(element), len(found)), 1 << 40)
    out[element] = np.stack(np.broadcast_arrays(element, *found)[1:], axis=1)
    assert (out < 1 << 40).all()
    return out


def origins(box: Box, tile: int) -> list[int]:
    """Coordinate of each mode where a tile begins."""
    out = [0] * len(box.extents)
    for d, start in zip(box.dims, box.origin(tile), strict=True):
        out[d.modes[0]] = start
    return out


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_each_block_stores_its_half_of_both_tiles(case: Case) -> None:
    tried = [spec for spec in of(case) if spec.schedule.tiling.shape[2] <= 64]
    assert tried
    for spec in tried:
        s, (store, way) = spec.schedule, parts(spec.schedule)
        m, n, l_modes = s.tiling.m, s.tiling.n, len(lower_plan(spec.plan, s.tiling).l)
        along_n = s.cluster == (1, 2)
        group = n if along_n else m
        for pair in {0, group.tiles // 2 - 1}:
            first = (pair // way.distance * 2) * way.distance + pair % way.distance  # as the scheduler numbers tiles
            numbers = [first, first + way.distance]
            tiles = [(1, t) if along_n else (t, 1) for t in numbers]
            brought = [staged(s, *t) for t in tiles]
            half = len(brought[0]) * 2 // VECTOR // 2
            vector, byte = np.arange(half)[:, None], np.arange(0, VECTOR, 2)
            taken = image(store.map)
            stored = []
            for rank in (0, 1):
                at = [0] * l_modes + origins(m, tiles[rank][0]) + origins(n, tiles[rank][1])
                at[way.row[0]] -= rank * way.row[1]
                at[way.half[0]] += rank * way.half[1]
                for source, tile in enumerate(brought):
                    element = tile[((rank * half + vector) * VECTOR + byte) // 2]
                    place = np.array(at) + taken[((2 * vector + source) * VECTOR + byte) // 2]
                    np.testing.assert_array_equal(place[..., l_modes:], element)
                    stored.append(element.reshape(-1, element.shape[-1]))
            every = np.concatenate(stored)
            assert 0 <= every.min() <= every.max() < 1 << 12
            names = every @ (1 << 12 * np.arange(every.shape[1]))
            assert len(every) == len(np.unique(names)) == 4 * half * VECTOR // 2


def test_rows_are_twice_as_long_and_chosen() -> None:
    seed = Case("seed", "adb,cd->cba", {"a": 64, "b": 32, "c": 2048, "d": 2048})
    plan = make_gemm_plan(seed.contraction("float16"))
    best = candidates(plan, "sm_90a")[0]
    store, _ = parts(best)
    assert store.map.box[0] * 2 == 32
    assert store.stage.row * 2 == VECTOR
    assert "exchange halves" in explain_gemm(plan, best)


def test_no_exchange() -> None:
    """Rows that are long enough, or that no vector fills; an odd number of tiles; a single dimension."""
    m, n = Box((512,), (TileDim((0,), 256),)), Box((32, 64), (TileDim((0,), 16), TileDim((1,), 8)))
    stage = StagedTile((128,), (8, 1), 256 * 128, row=8, order=(("n", 1), ("n", 0), ("m", 0)))
    assert exchanged(m, n, stage, 2, 0) is not None
    for other in (
        replace(stage, row=16),
        replace(stage, row=4),
        replace(stage, swizzle_bytes=32),
        replace(stage, order=(("n", 1),)),
    ):
        assert exchanged(m, n, other, 2, 0) is None
    assert exchanged(m, Box((32, 24), n.dims), stage, 2, 0) is None


def test_both_blocks_have_a_tile() -> None:
    for spec in specs("exchange"):
        s = spec.schedule
        assert reuses_smem(s)
        assert math.prod(s.cluster) == 2
        assert (s.tiling.n if s.cluster == (1, 2) else s.tiling.m).tiles % 2 == 0
        assert spec.plan.contraction.c is None
    assert {spec.case for spec in specs("exchange")} == set(CASES)
