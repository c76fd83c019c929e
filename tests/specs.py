"""The catalogue of kernels: named plans and schedules that cover every part of a kernel and the pairs of parts.

A family has small contractions and keeps, of what a search finds for them on a GPU of few multiprocessors, one schedule
for each combination of parts. What no search tries there is made of these by hand (`tests.by_hand`). Tests on CPUs and
on GPUs take their schedules from here.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops.table import smem_plan
from gett.schedule.search.base import best_schedules
from gett.schedule.search.hopper.fragments import DmmaTmaSearch, WgmmaTf32Search
from gett.schedule.search.hopper.gather import GatherSearch
from gett.schedule.search.hopper.search import both_roles
from gett.schedule.search.hopper.wgmma_rs import WgmmaRSSearch
from gett.schedule.search.hopper.wgmma_split import WgmmaSplitCopySearch, WgmmaSplitSearch
from gett.schedule.search.hopper.wgmma_ss import WgmmaSSSearch
from gett.schedule.search.multistage import MultistageSearch
from gett.schedule.search.select import finer_schedules
from gett.schedule.search.stream import is_stream, stream_schedule
from gett.schedule.search.stream_matrix import matrix_schedules as stream_matrix_schedules
from gett.schedule.spec.epilogue import Epilogue, RowStore, TmaSource, TmaStore, VectorSource, VectorStore
from gett.schedule.spec.loader import Stationary
from gett.schedule.spec.schedule import PersistentPanel, Schedule
from tests import spec_cases as cases
from tests.cases import Case, Layout
from tests.spec_parts import coarse, has_k_residue, one_of_each, parts_of

Found = Callable[[GemmPlan, ArchFacts, int], list[Schedule]]
SHARED = "GETT_TEST_CATALOGUE"
"""Environment variable with the folder of one run of the tests, for what its processes find."""


@dataclass(frozen=True)
class Spec:
    """A kernel.

    Attributes:
        family: Why it is in the catalogue.
        case: What is contracted.
        dtype: Of all operands.
        c: Layout of the added operand, or None.
        plan: The case's plan.
        schedule: How it is run.
        number: Of the case's schedules in the family.
    """

    family: str
    case: Case
    dtype: str
    c: Layout | None
    plan: GemmPlan
    schedule: Schedule
    number: int = 0

    def __repr__(self) -> str:
        return f"{self.family}-{self.case.name}-{self.number}"

    @cached_property
    def parts(self) -> frozenset[str]:
        """The parts that the kernel is made of."""
        return parts_of(self.schedule)


SpecsOf = Callable[[str], tuple[Spec, ...]]
"""The kernels of a family: `specs` or `few_specs`."""


def ss_schedules(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """Schedules of wgmma with both operands in shared memory, by tensor map."""
    return best_schedules(both_roles(WgmmaSSSearch, plan, facts), limit)


def rs_schedules(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """Schedules of wgmma with A in registers."""
    return best_schedules(both_roles(WgmmaRSSearch, plan, facts), limit)


def split_schedules(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """Schedules of wgmma with planes."""
    return best_schedules(both_roles(WgmmaSplitSearch, plan, facts), limit)


def copy_schedules(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """Schedules of wgmma with planes of what `cp.async` brings."""
    return best_schedules(both_roles(WgmmaSplitCopySearch, plan, facts), limit)


def finer_planes(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """Schedules in planes that take the place of TF32."""
    return finer_schedules(plan, facts)[:limit]


def tf32_schedules(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """Schedules of wgmma on TF32 with A in registers."""
    return best_schedules(both_roles(WgmmaTf32Search, plan, facts), limit)


def dmma_schedules(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """Schedules of float64 and complex128 by tensor map."""
    return best_schedules(both_roles(DmmaTmaSearch, plan, facts), limit)


def within_stages(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """Schedules of float64 and complex128 by tensor map whose tiles are staged where the stages were, many a block."""
    return [_within_stages(s, plan) for s in dmma_schedules(plan, facts, limit) if _may_reuse(s)]


def _may_reuse(s: Schedule) -> bool:
    alone = s.cluster == (1, 1) and not s.scheduler.stream_k
    return isinstance(s.epilogue.store, TmaStore) and s.epilogue.source is None and alone


def _within_stages(s: Schedule, plan: GemmPlan) -> Schedule:
    assert isinstance(s.epilogue.store, TmaStore)
    made = replace(s, epilogue=Epilogue(replace(s.epilogue.store, reuse_mainloop_smem=True)))
    return replace(made, smem=smem_plan(made, lower_plan(plan, s.tiling)))


def gather_schedules(plan: GemmPlan, facts: ArchFacts, limit: int = 8) -> list[Schedule]:
    """Schedules of wgmma with a gathered operand."""
    return best_schedules(both_roles(GatherSearch, plan, facts), limit)


def general_schedules(plan: GemmPlan, facts: ArchFacts, limit: int = 64) -> list[Schedule]:
    """Schedules that need no Hopper: multistage, or bandwidth-bound where no matrix product is."""
    if is_stream(plan):
        return [stream_schedule(plan, facts)]
    return best_schedules([MultistageSearch(plan, facts)], limit)


def matrix_schedules(plan: GemmPlan, facts: ArchFacts, limit: int = 8) -> list[Schedule]:
    """Schedules of a large operand times a small matrix."""
    return stream_matrix_schedules(plan, facts)[:limit]


@dataclass(frozen=True, slots=True)
class Family:
    """Schedules that share a part.

    Attributes:
        cases: Contractions, with C's layout where there is a C.
        keeps: Whether a schedule has the part.
        sm_counts: Multiprocessors of the GPUs that are searched for; 0 for as many as it has.
        limit: Schedules that a search gives.
        find: The search.
        dtypes: Of the operands.
        precision: At which they are multiplied.
    """

    cases: tuple[tuple[Case, Layout | None], ...]
    keeps: Callable[[Schedule], bool]
    sm_counts: tuple[int, ...] = (0,)
    limit: int = 40
    find: Found = ss_schedules
    dtypes: tuple[str, ...] = ("float16",)
    precision: str = "ieee"


def _is_stationary(s: Schedule, panel: bool | None) -> bool:
    """Whether an operand stays: whole (`panel` None), or for one panel or for each."""
    if not (isinstance(s.hopper.a, Stationary) or isinstance(s.hopper.b, Stationary)):
        return False
    scheduler = s.scheduler
    return panel is (scheduler.one_panel if isinstance(scheduler, PersistentPanel) else None)


def reuses_smem(s: Schedule) -> bool:
    """Whether D is staged where the stages were."""
    return isinstance(s.epilogue.store, TmaStore) and s.epilogue.store.reuse_mainloop_smem


def in_subtiles(s: Schedule) -> bool:
    """Whether D is staged in parts."""
    return s.epilogue.store.subtiles > 1


def stores_vectors(s: Schedule) -> bool:
    """Whether D leaves as vectors of several elements."""
    return isinstance(s.epilogue.store, VectorStore) and s.epilogue.store.vector > 1


def exchanges(s: Schedule) -> bool:
    """Whether blocks exchange halves of their tiles."""
    return isinstance(s.epilogue.store, TmaStore) and s.epilogue.store.exchange is not None


def _alone(found: Iterable[Case]) -> tuple[tuple[Case, Layout | None], ...]:
    return tuple((case, None) for case in found)


FAMILIES: dict[str, Family] = {
    "tma": Family(_alone(cases.TMA), lambda s: True, limit=24),
    "staged": Family(_alone(cases.STAGED), lambda s: isinstance(s.epilogue.store, TmaStore), limit=12),
    "k_residue": Family(_alone(cases.K_RESIDUE), has_k_residue, limit=60),
    "stationary": Family(_alone(cases.STATIONARY), lambda s: _is_stationary(s, None), (2,)),
    "each_panel": Family(_alone(cases.EACH_PANEL), lambda s: _is_stationary(s, False), (3,), 60),
    "one_panel": Family(_alone(cases.ONE_PANEL), lambda s: _is_stationary(s, True), (4,), 60),
    "mma_tiles": Family(_alone(cases.MMA_TILES), lambda s: s.tiling.mma_tiles > 1, (2,), 60),
    "reuse": Family(_alone(cases.REUSE), reuses_smem, (2, 3, 4, 6), 24),
    "subtiled_k": Family(_alone(cases.SUBTILED[1::3]), in_subtiles, (2,), 16, ss_schedules, ("float32",), "tf32"),
    "subtiled_tf32": Family(_alone((cases.SUBTILED[0], *cases.SUBTILED[2:4])), in_subtiles, (2,), 24, tf32_schedules,
                            ("float32",), "tf32"),
    "kept": Family(_alone(cases.KEPT), lambda s: not any(x.stays for x in (s.hopper.a, s.hopper.b)), (2,), 24),
    "kept_split": Family(_alone(cases.KEPT), lambda s: True, (2,), 16, split_schedules, ("float32",), "bf16x6"),
    "kept_complex": Family(_alone(cases.KEPT), lambda s: True, (2,), 8, split_schedules, ("complex64",), "bf16x6"),
    "kept_tf32": Family(_alone((*cases.KEPT[:2], *cases.KEPT[3:5])), lambda s: True, (2,), 8, tf32_schedules,
                        ("float32",), "tf32"),
    "kept_dmma": Family(_alone(cases.KEPT), lambda s: True, (2,), 16, dmma_schedules, ("float64", "complex128")),
    "exchange": Family(_alone(cases.EXCHANGE), exchanges, (8, 16, 32, 132), 60),
    "tma_source": Family(cases.TMA_SOURCE, lambda s: isinstance(s.epilogue.source, TmaSource), (2,), 60),
    "vector_source": Family(cases.VECTOR_SOURCE, lambda s: isinstance(s.epilogue.source, VectorSource), limit=12),
    "wgmma_rs": Family(_alone(cases.WGMMA_RS), lambda s: True, limit=400, find=rs_schedules),
    "wgmma_rs_source": Family(((cases.RS_RAGGED, Layout()), (cases.RS_MANY, Layout())), lambda s: True, (0,), 400,
                              rs_schedules, ("bfloat16",)),
    "split": Family(_alone(cases.SPLIT), lambda s: True, (0, 4), 40, split_schedules, ("float32",), "bf16x6"),
    "split_source": Family(((cases.SPLIT[0], Layout()),), lambda s: True, (4,), 8, split_schedules, ("float32",),
                           "bf16x6"),
    "split_complex": Family(_alone(cases.SPLIT), lambda s: True, (0, 4), 40, split_schedules, ("complex64",), "bf16x6"),
    "split_complex_source": Family(((cases.SPLIT[0], Layout()),), lambda s: True, (4,), 8, split_schedules,
                                   ("complex64",), "bf16x6"),
    "split_copies": Family(_alone(cases.SPLIT_COPIES), lambda s: True, (0, 4), 40, copy_schedules, ("float32",),
                           "bf16x6"),
    "split_copies_source": Family(((cases.SPLIT_COPIES[0], Layout()),), lambda s: True, (4,), 8, copy_schedules,
                                  ("float32",), "bf16x6"),
    "split_copies_complex": Family(_alone(cases.SPLIT_COPIES_COMPLEX), lambda s: True, (0, 4), 40, copy_schedules,
                                   ("complex64",), "bf16x6"),
    "finer": Family(_alone(cases.SPLIT_COPIES[:4]), lambda s: True, (4,), 8, finer_planes, ("float32",), "tf32"),
    "tf32": Family(_alone(cases.TF32), lambda s: True, (0, 4), 16, tf32_schedules, ("float32",), "tf32"),
    "tf32_source": Family(((cases.TF32[0], Layout()), (cases.TF32[2], Layout())), lambda s: True, (4,), 8,
                          tf32_schedules, ("float32",), "tf32"),
    "tf32_k": Family(_alone(cases.TF32_K), lambda s: True, (0, 4), 24, ss_schedules, ("float32",), "tf32"),
    "tf32_rs": Family(_alone(cases.WGMMA_RS), lambda s: True, (0, 8), 400, rs_schedules, ("float32",), "tf32"),
    "tf32_rs_source": Family(((cases.RS_RAGGED, Layout()),), lambda s: True, (0,), 40, rs_schedules, ("float32",),
                             "tf32"),
    "dmma": Family(_alone(cases.DMMA), lambda s: True, (0, 4), 24, dmma_schedules, ("float64",)),
    "dmma_source": Family(((cases.DMMA[0], Layout()), (cases.DMMA[3], Layout())), lambda s: True, (4,), 8,
                          dmma_schedules, ("float64",)),
    "dmma_reuse": Family(_alone(cases.DMMA_REUSE), reuses_smem, (2,), 24, within_stages, ("float64", "complex128")),
    "dmma_complex": Family(_alone(cases.DMMA_COMPLEX), lambda s: True, (0, 4), 24, dmma_schedules, ("complex128",)),
    "dmma_complex_source": Family(((cases.DMMA[0], Layout()), (cases.DMMA[3], Layout())), lambda s: True, (4,), 8,
                                  dmma_schedules, ("complex128",)),
    "split_fp16": Family(_alone(cases.SPLIT), lambda s: True, (0, 4), 40, split_schedules, ("float32",), "fp16x3"),
    "split_fp16_source": Family(((cases.SPLIT[0], Layout()),), lambda s: True, (4,), 8, split_schedules, ("float32",),
                                "fp16x3"),
    "split_fp16_complex": Family(_alone(cases.SPLIT), lambda s: True, (0, 4), 40, split_schedules, ("complex64",),
                                 "fp16x3"),
    "gather": Family(_alone(cases.GATHER), lambda s: True, limit=24, find=gather_schedules),
    "gather_transpose": Family(_alone(cases.GATHER_TRANSPOSE), lambda s: True, find=gather_schedules),
    "gather_source": Family(((cases.GATHER[0], Layout()), (cases.GATHER_TRANSPOSE[0], Layout())), lambda s: True,
                            find=gather_schedules, dtypes=("bfloat16",)),
    "vector_store": Family(_alone(cases.VECTOR_STORE), stores_vectors, limit=12),
    "vector_store_split": Family(_alone(cases.VECTOR_STORE[::2]), stores_vectors, (0,), 12, split_schedules,
                                 ("float32",), "bf16x6"),
    "vector_store_dmma": Family(_alone(cases.VECTOR_STORE[:1]), stores_vectors, (0,), 24, dmma_schedules, ("float64",)),
    "row_store": Family(_alone(cases.ROW_STORE), lambda s: isinstance(s.epilogue.store, RowStore),
                        find=gather_schedules),
    "row_store_maps": Family(_alone(cases.ROW_STORE_MAPS), lambda s: isinstance(s.epilogue.store, RowStore),
                             (0, 8), 60),
    "row_store_rs": Family(_alone(cases.ROW_STORE_RS), lambda s: isinstance(s.epilogue.store, RowStore), limit=60,
                           find=rs_schedules),
    "multistage": Family(_alone(cases.MULTISTAGE), lambda s: True, limit=64, find=general_schedules,
                         dtypes=("float16", "float32")),
    "multistage_source": Family(((cases.MULTISTAGE[2], Layout()),), lambda s: True, (0,), 8, general_schedules),
    "stream_matrix": Family(_alone(cases.STREAM_MATRIX), lambda s: True, find=matrix_schedules,
                            dtypes=("float32",)),
    "stream_matrix_complex": Family(_alone(cases.STREAM_MATRIX), lambda s: True, find=matrix_schedules,
                                    dtypes=("complex64",)),
    "stream_matrix_source": Family(((cases.STREAM_MATRIX[0], Layout()), (cases.STREAM_MATRIX[1], Layout())),
                                   lambda s: True, find=matrix_schedules, dtypes=("float32",)),
    "stream": Family(_alone(cases.STREAM), lambda s: True, find=general_schedules, dtypes=("float32",)),
}  # fmt: skip


def few(facts: ArchFacts, count: int) -> ArchFacts:
    """The GPU with `count` multiprocessors, on which small contractions give every block many tiles."""
    return replace(facts, sm_count=count) if count else facts


def specs(family: str, facts: ArchFacts | None = None, dtype: str = "") -> tuple[Spec, ...]:
    """The kernels of a family: of each case one schedule of every combination of parts.

    Args:
        family: One of `FAMILIES`.
        facts: Of the GPU, an H200 by default.
        dtype: Of the operands, the family's own by default.
    """
    return _specs(family, facts or arch_facts("sm_90a"), (dtype,) if dtype else FAMILIES[family].dtypes)


def few_specs(family: str) -> tuple[Spec, ...]:
    """The kernels of a family's first case: what quick tests take of a family that is long searched for."""
    return _specs(family, arch_facts("sm_90a"), FAMILIES[family].dtypes, 1)


@cache
def first_kernels() -> tuple[Spec, ...]:
    """The kernels of every family's first case: what quick tests take of the catalogue."""
    return tuple(spec for family in FAMILIES for spec in few_specs(family))


@cache
def _specs(family: str, facts: ArchFacts, dtypes: tuple[str, ...], cases: int = 0) -> tuple[Spec, ...]:
    """Found once in a run of the tests: what one process has found, the others read from a folder that they share.

    Of the first `cases` of the family, 0 for all.
    """
    folder = os.environ.get(SHARED)
    if folder is None:
        return _searched(family, facts, dtypes, cases)
    known = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    file = Path(folder) / f"{family}-{'-'.join(dtypes)}-{cases}-{known}"
    if file.exists():
        found: tuple[Spec, ...] = pickle.loads(file.read_bytes())
        gc.freeze()
        return found
    found = _searched(family, facts, dtypes, cases)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
        part.write(pickle.dumps(found))
    os.replace(part.name, file)
    gc.freeze()  # it stays: no search for garbage walks over it
    return found


def _searched(family: str, facts: ArchFacts, dtypes: tuple[str, ...], cases: int) -> tuple[Spec, ...]:
    chosen = FAMILIES[family]
    out = []
    for case, c in chosen.cases[: cases or None]:
        for kind in dtypes:
            plan = make_gemm_plan(case.contraction(kind, precision=chosen.precision, with_c=c))
            found = [s for n in chosen.sm_counts for s in chosen.find(plan, few(facts, n), chosen.limit)]
            kept = one_of_each(filter(chosen.keeps, found))
            out += [Spec(family, case, kind, c, plan, s, i) for i, s in enumerate(kept)]
    return tuple(out)


@cache
def kernel_specs(facts: ArchFacts | None = None) -> tuple[Spec, ...]:
    """The whole catalogue, clusters made by hand included."""
    from tests.by_hand import by_hand  # which takes `Spec` from here

    found = [spec for family in FAMILIES for spec in specs(family, facts)]
    return (*found, *by_hand(found))


@cache
def few_kernels(pairs: bool = False, numbers: bool = True) -> tuple[Spec, ...]:
    """Few kernels of the catalogue that have every part, or every pair of parts: `covering` of it."""
    return tuple(covering(kernel_specs(), pairs, numbers))


def tile_size(spec: Spec) -> int:
    """Sums of a tile."""
    return spec.schedule.tiling.m.size * spec.schedule.tiling.n.size


def covering(found: Iterable[Spec], pairs: bool = True, numbers: bool = True) -> list[Spec]:
    """Few kernels that have every part that any of `found` has, and every pair of parts without their numbers.

    Of those that add as many, one with a small tile: it is soon compiled.

    Args:
        found: What to choose from.
        pairs: Whether pairs count, or parts alone.
        numbers: Whether parts that differ in their numbers are different ones.
    """
    every = list(found)
    left = {}
    for i, spec in enumerate(every):
        kinds = {coarse(x) for x in spec.parts}
        both = itertools.combinations(sorted(kinds), 2) if pairs else ()
        left[i] = {*((x, x) for x in (spec.parts if numbers else kinds)), *both}
    missing = set().union(*left.values())
    out: list[Spec] = []
    while missing:
        best = max(left, key=lambda i: (len(left[i]), -tile_size(every[i])))
        out.append(every[best])
        missing -= left.pop(best)
        left = {i: rest for i, had in left.items() if (rest := had & missing)}
    return out
