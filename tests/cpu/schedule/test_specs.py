"""The catalogue of kernels: it has every part and the pairs of parts; each kernel is legal, and kept as it is."""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from typing import get_args

import pytest

from gett.codec import decode, encode
from gett.explain.detail import explain_gemm
from gett.hw.archs import arch_facts
from gett.schedule.legality import can_implement
from gett.schedule.spec import epilogue, loader, mainloop
from gett.schedule.spec.schedule import PersistentRagged, Schedule, TileScheduler
from tests.by_hand import by_hand
from tests.sampling import few_or_every, of_every_kind
from tests.spec_parts import parts_of, records
from tests.specs import FAMILIES, SpecsOf, few_kernels, few_specs, kernel_specs, specs

FACTS = arch_facts("sm_90a")
# All that the modules of a schedule's parts define.
RECORDS = {
    record
    for module in (loader, mainloop, epilogue)
    for record in vars(module).values()
    if is_dataclass(record) and record.__module__ == module.__name__
} | (set(get_args(TileScheduler)) - {PersistentRagged})  # which ragged contractions alone have (`tests/cpu/groups`)
# Pairs of parts that meet in one kernel, and no two of which a change of the cost model may drive out.
PAIRS = (
    ("ping-pong", "TmaSource"),
    ("ping-pong", "K residue"),
    ("a: stationary", "TmaSource"),
    ("b: stationary", "K residue"),
    ("several MMA tiles, 2", "TmaSource"),
    ("several MMA tiles, 2", "b: stationary"),
    ("several MMA tiles, 2", "cluster 1 x 2"),
    ("K residue", "a: atoms with rows to spare"),
    ("K residue", "a: multicast in turns"),
    ("R2S stsm", "cluster 2 x 2"),
    ("split-K", "cluster 2 x 2"),
    ("split-K", "A per warpgroup"),
    ("RowStore", "a: transposing gather, 8 x 16"),
    ("VectorSource", "a: transposing gather, 8 x 16"),
    ("K table", "VectorStore"),
)


@pytest.mark.slow
def test_every_record_is_in_the_catalogue() -> None:
    found = set().union(*(records(spec.schedule) for spec in few_kernels()))
    assert len(RECORDS) >= 29
    assert found >= RECORDS


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=" with ".join)
def test_these_parts_meet(pair: tuple[str, str]) -> None:
    assert any(spec.parts >= set(pair) for spec in kernel_specs())


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_case_of_a_family_has_its_part(family: str) -> None:
    assert {spec.case for spec in specs(family)} == {case for case, _ in FAMILIES[family].cases}


@pytest.mark.slow
def test_few_kernels_cover_all_parts_and_pairs() -> None:
    every = kernel_specs()
    parts, pairs = few_kernels(), few_kernels(pairs=True)
    wanted = frozenset().union(*(spec.parts for spec in every))
    for found in (parts, pairs):
        assert frozenset().union(*(spec.parts for spec in found)) == wanted
    assert len(parts) < len(pairs) < 180


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_is_legal(family: str, every: bool) -> None:
    """Of the catalogue, or in the quick tests of a family's first case."""
    found = specs(family) if every else few_specs(family)
    for spec in (*found, *(by_hand(found) if every else ())):
        refusal = can_implement(spec.schedule, spec.plan, FACTS)
        assert refusal is None, (spec, refusal)


@pytest.mark.parametrize("family", FAMILIES)
@few_or_every
def test_schedules_survive_json(family: str, specs: SpecsOf) -> None:
    for spec in of_every_kind(specs(family)):
        kept = decode(Schedule, json.loads(json.dumps(encode(spec.schedule))))
        assert kept == spec.schedule
        assert parts_of(kept) == spec.parts


# A part, and what the explanation says of it.
WORDS = {
    "a: stationary": "stationary: whole, once a block",
    "one panel of a": "stationary: once for the block's one panel",
    "each panel of b": "stationary: once for each panel",
    "several MMA tiles, 6": "6 MMA tiles of",
    "staged in the stages": "D is staged where the stages were",
    "DSMEM exchange": "two blocks of a cluster exchange halves of their tiles",
    "TmaSource": "load C    by tensor map to where D is staged, box",
    "a: transposing gather, 8 x 16": "8 of them side by side transposed",
    "rows, 16 lanes each": "in aligned chunks of 16 bytes and single elements",
    "a: multicast in turns": "shared by 2 blocks",
    "ping-pong": "2 consumer warpgroups in ping-pong",
    "K residue": "24 of 32 in the tile",
}


@pytest.mark.slow
@pytest.mark.parametrize("part", WORDS)
def test_the_explanation_names_the_part(part: str) -> None:
    panel = {"a: stationary": {"one panel of a", "each panel of a"}}.get(part, set())
    having = [spec for spec in kernel_specs() if part in spec.parts and not panel & spec.parts]
    texts = (explain_gemm(spec.plan, spec.schedule) for spec in having)
    assert any(WORDS[part] in text for text in texts)
    without = next(spec for spec in kernel_specs() if part not in spec.parts and "wgmma ss" in spec.parts)
    if part not in ("a: multicast in turns", "K residue"):
        assert WORDS[part] not in explain_gemm(without.plan, without.schedule)
