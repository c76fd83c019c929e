"""Tile schedulers: how many blocks there are, how clusters cover the tiles, and which clusters the search takes."""

from __future__ import annotations

import math

from gett.codegen.render import render_kernel
from gett.explain.detail import explain_gemm
from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.schedule import OneTile
from gett.schedule.tile.wgmma_tile import cluster_tiles
from tests.cases import Case
from tests.specs import CLUSTERS, by_hand, clustered, few_kernels, specs, ss_schedules

FACTS = arch_facts("sm_90a")
# Rows of 32 bytes: a block alone is bound by its way to L2.
SHORT_RUNS = Case("short-runs", "abcde,fdbg->agfec", {"a": 7, "b": 256, "c": 64, "d": 5, "e": 16, "f": 84, "g": 32})


def test_clusters_cover_all_tiles() -> None:
    assert cluster_tiles(5, 3, (1, 1)) == 15
    assert cluster_tiles(5, 3, (2, 1)) == 9
    assert cluster_tiles(5, 3, (1, 2)) == 10
    assert cluster_tiles(5, 3, (2, 2)) == 6


def test_the_grid_is_whole_clusters_and_no_more_than_there_is_work() -> None:
    for spec in (x for x in few_kernels() if "persistent" in x.parts):
        s, t = spec.schedule, spec.schedule.tiling
        size = math.prod(s.cluster)
        grid = render_kernel(spec.plan, s).launches[0].grid
        assert not isinstance(s.scheduler, OneTile)
        walks = cluster_tiles(t.m.tiles, t.n.tiles, s.cluster) * spec.plan.extent_l * s.split_k
        assert grid == (min(walks, s.scheduler.blocks // size) * size, 1, 1)


def test_text_of_a_cluster_shares_what_tensor_maps_bring() -> None:
    """Blocks that are neighbours along N share A, along M B."""
    for spec in by_hand(specs("tma")):
        s = spec.schedule
        if s.cluster == (1, 1):  # batches visited together
            continue
        text = render_kernel(spec.plan, s).source.text
        assert f"__cluster_dims__({math.prod(s.cluster)}, 1, 1)" in text
        assert "gett::tma_load_multicast(" in text
        assert [x.blocks for x in (s.hopper.a, s.hopper.b) if isinstance(x, Tma)] == [*reversed(s.cluster)]


def test_without_a_cluster_nothing_is_shared() -> None:
    spec = specs("tma")[0]
    text = render_kernel(spec.plan, clustered(spec.schedule, (1, 1))).source.text
    assert "tma_load_multicast" not in text
    assert "__cluster_dims__" not in text
    for shape in CLUSTERS:
        assert clustered(clustered(spec.schedule, shape), (1, 1)) == clustered(spec.schedule, (1, 1))


def test_the_search_shares_where_l2_is_short() -> None:
    plan = make_gemm_plan(SHORT_RUNS.contraction("float16"))
    best = ss_schedules(plan, FACTS)[0]
    assert best.cluster != (1, 1)
    text = explain_gemm(plan, best)
    assert "clusters of {} x {} blocks".format(*best.cluster) in text
    assert ", shared by 2 blocks" in text


def test_the_search_leaves_matrices_alone() -> None:
    case = Case("matrices", "mk,kn->mn", {"m": 4096, "k": 4096, "n": 4096})
    assert ss_schedules(make_gemm_plan(case.contraction("float16")), FACTS)[0].cluster == (1, 1)
