"""Operands that all tiles of a block read: stages keep them. Which operand that is, and what the kernel is told."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops.hopper import kept_operand
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.schedule import PersistentRaster
from tests.cases import Case
from tests.specs import FAMILIES, Spec, few, specs, ss_schedules

FACTS = arch_facts("sm_90a")
KEPT = tuple(name for name in FAMILIES if name.startswith("kept"))


def kept(spec: Spec) -> str:
    return kept_operand(lower_plan(spec.plan, spec.schedule.tiling), spec.schedule)


def copies(text: str) -> tuple[str, str]:
    """What `load_stage` issues always, and what for a whole stage alone."""
    start = text.index("void load_stage(const Params")
    body = text[start : text.index("\n  }\n", start)]
    once = "".join(re.findall(r"if \(whole\) \{(.*?)\n    \}", body, re.DOTALL))
    return body.replace(once, ""), once


@pytest.mark.parametrize("family", KEPT)
def test_some_schedules_of_each_main_loop_keep_either_operand(family: str) -> None:
    assert {kept(spec) for spec in specs(family)} >= {"a", "b"}


@pytest.mark.parametrize("family", KEPT)
def test_a_kept_operand_has_one_tile_and_each_stage_one_k_tile(family: str) -> None:
    for spec in specs(family):
        s, name = spec.schedule, kept(spec)
        if not name:
            continue
        side = s.tiling.m if name == "a" else s.tiling.n
        assert side.tiles == 1
        assert s.hopper.stages % s.tiling.k.tiles == 0
        assert type(s.hopper.a) is type(s.hopper.b) is Tma
        assert isinstance(s.scheduler, PersistentRaster)
        assert (s.split_k, s.cluster) == (1, (1, 1))


@pytest.mark.parametrize("family", KEPT)
def test_copies_of_a_kept_operand_are_those_of_whole_stages(family: str) -> None:
    seen = set()
    for spec in specs(family):
        name = kept(spec)
        if (name, spec.case) in seen:
            continue
        seen.add((name, spec.case))
        text = render_kernel(spec.plan, spec.schedule).source.text
        always, once = copies(text)
        for operand in "ab":
            assert (f"map_{operand}" in once) == (operand == name)
            assert (f"map_{operand}" in always) == (operand != name)
            members = text[text.index(f"struct LoaderTraits{operand.upper()} {{") :].split("}", 1)[0]
            assert f"kKept = {str(operand == name).lower()};" in members


def test_what_differs_from_tile_to_tile_is_loaded_for_each() -> None:
    """Batches, slices of K, few tiles, clusters, and stages that hold no whole number of K's tiles."""
    plan = make_gemm_plan(Case("narrow", "mk,kn->mn", {"m": 4104, "k": 8, "n": 40}).contraction("float16"))
    batched = make_gemm_plan(Case("b", "lmk,lkn->lmn", {"l": 2, "m": 4104, "k": 8, "n": 40}).contraction("float16"))
    (s, *_) = (x for x in ss_schedules(plan, few(FACTS, 2)) if kept_operand(plan, x) == "b")
    raster = s.scheduler
    assert isinstance(raster, PersistentRaster)
    assert kept_operand(batched, s) == ""
    for scheduler in (replace(raster, split_k=2), replace(raster, blocks=4104), replace(raster, cluster=(2, 1))):
        assert kept_operand(plan, replace(s, scheduler=scheduler)) == ""
    deep = replace(s, tiling=replace(s.tiling, k=replace(s.tiling.k, extents=(8 * s.tiling.k.size * s.hopper.stages,))))
    assert kept_operand(plan, deep) == ""
