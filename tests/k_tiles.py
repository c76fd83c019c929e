"""Multistage schedules by how a block brings its k-tiles and loads their fragments, K in one slice."""

from __future__ import annotations

from benchmarks.refit import unsplit
from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.schedule.mainloops.multistage import atom_of, loads_ahead
from gett.schedule.search.base import best_schedules
from gett.schedule.search.multistage import MultistageSearch
from gett.schedule.spec.schedule import Schedule
from tests.cases import Case

CASES = [
    Case("rows", "mk,nk->mn", {"m": 70, "n": 24, "k": 203}),
    Case("columns", "km,kn->mn", {"m": 40, "n": 70, "k": 240}),
    Case("one k-tile", "mk,nk->mn", {"m": 40, "n": 24, "k": 7}),
    Case("a few", "mk,nk->mn", {"m": 40, "n": 24, "k": 37}),
    Case("two modes of K", "makb,nk->abmn", {"m": 5, "a": 3, "b": 4, "n": 20, "k": 118}),
    Case("a table", "mabk,knab->mn", {"m": 33, "n": 17, "a": 3, "b": 5, "k": 17}),
    Case("batches along memory", "mkl,nlk->lmn", {"m": 12, "n": 9, "k": 200, "l": 16}),
    Case("batches", "lmk,lnk->lmn", {"m": 9, "n": 8, "k": 118, "l": 8}),
]


def way_of(plan: GemmPlan, s: Schedule) -> tuple[object, ...]:
    """How a block brings and multiplies its k-tiles; schedules of one way differ in numbers."""
    t, loop, atom = s.tiling, s.multistage, atom_of(plan, s.multistage)
    ahead = loads_ahead(s, atom, s.k_tiles_per_slice)
    filling = "ahead" if ahead else "one" if t.k.tiles == 1 else "whole" if t.k.tiles <= loop.stages else "ring"
    steps = t.shape[2] // (1 if atom is None else atom.k)
    registers = loop.a.through_registers, loop.b.through_registers
    return filling, loop.tensor_cores, steps % 2, registers, loop.k_table, min(2, t.batches // loop.batch_warps)


def by_way(plan: GemmPlan, facts: ArchFacts) -> dict[tuple[object, ...], Schedule]:
    """The likeliest schedule of each way."""
    found: dict[tuple[object, ...], Schedule] = {}
    for s in best_schedules([MultistageSearch(plan, facts)], 400):
        made = unsplit(plan, s)
        found.setdefault(way_of(plan, made), made)
    return found
