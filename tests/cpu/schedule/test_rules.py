"""Rules of legality of the multistage and the bandwidth-bound kernels: a schedule made by hand that breaks each one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from gett.codegen import render
from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import A, B, GemmPlan, itemsize, make_gemm_plan
from gett.schedule.legality import can_implement, shared_memory_plan
from gett.schedule.mainloops import multistage as multistage_loop
from gett.schedule.mainloops import stream as stream_loop
from gett.schedule.mainloops.multistage import multistage_smem
from gett.schedule.mainloops.stream import smem, sum_block
from gett.schedule.mainloops.table import KINDS
from gett.schedule.rules.rule import Rule, first_broken, name_of
from gett.schedule.search.base import best_schedules
from gett.schedule.search.loaders import operand_loader
from gett.schedule.search.multistage import MultistageSearch
from gett.schedule.search.stream import is_stream, stream_schedule
from gett.schedule.spec.epilogue import Epilogue, VectorSource, VectorStore
from gett.schedule.spec.loader import RegisterStaged
from gett.schedule.spec.mainloop import Mainloop, Multistage, StreamLoad, StreamMap, StreamMatrix, StreamSum
from gett.schedule.spec.schedule import OneTile, PersistentRaster, Schedule, SmemPlan, Tiling
from gett.schedule.spec.vectors import store_vector
from layouts.box import Box, TileDim
from tests.cases import AWKWARD, small_tccg
from tests.cpu.schedule.broken_streams import broken
from tests.cpu.schedule.changed_schedules import stream_k
from tests.sampling import slow_but

FACTS = arch_facts("sm_80")
Made = tuple[Schedule, GemmPlan] | tuple[Schedule, GemmPlan, ArchFacts]


def plan_of(
    subscripts: str, dtype: str = "float16", align: tuple[int, int, int] = (256, 256, 256), **extents: int
) -> GemmPlan:
    """The plan of dense tensors; `align` are the alignments of A, B and D."""
    inputs, d = subscripts.split("->")
    names = "".join(dict.fromkeys(inputs.replace(",", "") + d))

    def operand(labels: str, alignment: int) -> Operand:
        strides, step = {}, itemsize(dtype)
        for x in reversed(labels):
            strides[x], step = step, step * extents[x]
        return Operand(tuple(names.index(x) for x in labels), tuple(strides[x] for x in labels), dtype, alignment)

    a, *b = (operand(x, y) for x, y in zip(inputs.split(","), align, strict=False))
    shape = tuple(extents[x] for x in names)
    return make_gemm_plan(Contraction(tuple(names), shape, a, *b or [None], operand(d, align[2]), None, dtype))


def multistage(
    plan: GemmPlan,
    *,
    block: tuple[int, int, int] = (64, 64, 32),
    boxes: dict[str, Box] | None = None,
    warps: tuple[int, int] = (2, 2),
    stages: int = 3,
    batch_warps: int = 1,
    k_table: bool = False,
    split: int = 1,
    workspace: int = -1,
    load_a: Callable[[Any], Any] = lambda x: x,
    plan_loaders: GemmPlan | None = None,
) -> Schedule:
    """A schedule whose parts follow from a tile: each group's first mode is cut, to the side of the block."""
    made = {
        g: Box.of_cuts([x.extent for x in getattr(plan, g)], {0: side}) for g, side in zip("mnk", block, strict=True)
    }
    t = Tiling(block, **{**made, **(boxes or {})})
    p = plan_loaders or plan
    a = load_a(operand_loader(p, A, t, True))
    b = operand_loader(p, B, t, True)
    loop = Multistage(a, b, True, stages, warps, batch_warps, k_table)
    smem = multistage_smem(plan, t, a, b, k_table).plan(stages, split > 1)
    sums = split * t.tiles(plan.extent_l) * block[0] * block[1] * 4 if split > 1 else 0
    store = VectorStore(store_vector(p, t.m, t.n))
    return Schedule("sm_80", t, loop, Epilogue(store), OneTile(1, split), smem, sums if workspace < 0 else workspace)


GEMM = plan_of("ij,jk->ik", i=512, j=512, k=512)
TWO_K = plan_of("ijk,kjl->il", i=512, j=48, k=64, l=512)
HALF_ALIGNED = plan_of("ij,jk->ik", align=(8, 256, 256), i=512, j=512, k=512)
SINGLE = plan_of("ij,kj->ik", align=(256, 2, 256), i=512, j=512, k=512)
TALL = plan_of("ij,jk->ik", i=1 << 31, j=64, k=64)
WIDE = plan_of("ij,jk->ik", i=1 << 30, j=64, k=1 << 30)


def cut(extent: int, side: int) -> Box:
    return Box.of_cuts((extent,), {0: side})


def without_walk(x: Any) -> Any:
    assert isinstance(x, RegisterStaged)
    return replace(x, walk=x.walk[:1])


def misplaced(s: Schedule) -> Schedule:
    return replace(s, smem=replace(s.smem, offsets=s.smem.offsets + 16))


def in_pairs(s: Schedule) -> Schedule:
    """Blocks of stream-K in clusters of two."""
    return replace(s, scheduler=replace(s.scheduler, cluster=(2, 1)))


def batched() -> Schedule:
    """A schedule whose blocks make two batches."""
    return next(
        s
        for s in best_schedules([MultistageSearch(BATCHED, FACTS)], 60)
        if s.tiling.l is not None and s.tiling.tiles(BATCHED.extent_l) % 50
    )


BATCHED = plan_of("ijl,jkl->ikl", l=16, i=190, j=230, k=210)
TRANSPOSED_A = plan_of("ji,jk->ik", align=(2, 256, 256), i=512, j=512, k=512)

MULTISTAGE: dict[str, tuple[Callable[[], Made], str]] = {
    "groups": (lambda: (multistage(GEMM, boxes={"m": cut(500, 64)}), GEMM), r"box_m is for extents \(500,\)"),
    "parts": (lambda: (replace(multistage(GEMM), scheduler=PersistentRaster(108)), GEMM), "not those of a Persistent"),
    "stream k": (lambda: (stream_k(multistage(GEMM), 8), GEMM), "0 tiles of 16 k-tiles are left over, for 8 shares"),
    "stream k, blocks": (lambda: (stream_k(multistage(GEMM), 5000), GEMM), "5000 blocks in clusters of .1, 1."),
    "stream k, clusters": (lambda: (in_pairs(stream_k(multistage(GEMM), 50)), GEMM), "50 blocks in clusters of .2, 1."),
    "stream k, batches": (lambda: (stream_k(batched(), 50), BATCHED), "[0-9]+ batches in a block take all of K"),
    "source": (lambda: (replace(multistage(GEMM), epilogue=Epilogue(multistage(GEMM).epilogue.store, VectorSource())),
                        GEMM), "there is no C"),
    "tensor cores": (lambda: (multistage(p := plan_of("ij,jk->ik", "float32", i=512, j=512, k=512)), p),
                     "do not multiply float32 under precision 'ieee'"),
    "block": (lambda: (multistage(GEMM, batch_warps=3), GEMM), "1 batches in a block are not shared evenly by 3"),
    "block, warps": (lambda: (multistage(GEMM, warps=(2, 3)), GEMM), "block_n = 64 is no multiple of 3 warps times 8"),
    "block, depth": (lambda: (multistage(GEMM, block=(64, 64, 24)), GEMM), "block_k = 24 is no multiple of 1 .* 16"),
    "k table": (lambda: (multistage(TWO_K, k_table=True), TWO_K), "need K flattened"),
    "split": (lambda: (multistage(GEMM, split=11), GEMM), "11 slices of 2 out of 16 k-tiles leave"),
    "workspace": (lambda: (multistage(GEMM, split=2, workspace=1000), GEMM), "1000 bytes, partial sums take 2097152"),
    "grid": (lambda: (multistage(WIDE), WIDE), "281474976710656 blocks"),
    "shared memory": (lambda: (multistage(GEMM, stages=40), GEMM), "bytes needed, sm_80 gives a block 166912"),
    "threads": (lambda: (multistage(GEMM, block=(128, 64, 32), warps=(8, 8)), GEMM), "threads: 2048"),
    "accesses": (lambda: (multistage(SINGLE, block=(64, 64, 64), stages=2), SINGLE),
                 "32 a thread to load operand [AB], the limit is 24"),
    "registers": (lambda: (multistage(GEMM, block=(256, 256, 32), stages=2), GEMM), "the limit is 252 of 255"),
    "boxes": (lambda: (multistage(GEMM, boxes={"m": cut(512, 128)}), GEMM), "box_m of 128 elements does not fit"),
    "extents": (lambda: (multistage(TALL), TALL), rf"group [MN] multiply to {1 << 31}"),
    "loaders": (lambda: (multistage(HALF_ALIGNED, plan_loaders=GEMM), HALF_ALIGNED), "8 elements of operand .*allow 4"),
    "loaders, walks": (lambda: (multistage(TRANSPOSED_A, load_a=without_walk), TRANSPOSED_A), "each tiled dimension"),
    "loaders, layouts": (lambda: (multistage(GEMM, load_a=lambda x: replace(x, smem=replace(x.smem, rows=16))), GEMM),
                "16 rows of 64 bytes hold operand A, its tile has 64 of 64"),
    "shared memory plan": (lambda: (misplaced(multistage(GEMM)), GEMM), "the parts make"),
    "vector": (lambda: (replace(multistage(GEMM), epilogue=Epilogue(VectorStore(16))), GEMM), "its strides allow 8"),
}  # fmt: skip


def broken_names(rules: tuple[Rule, ...], made: Made) -> dict[str, str]:
    s, plan, *facts = made
    found = (first_broken([rule], s, plan, facts[0] if facts else FACTS) for rule in rules)
    return {name_of(x.rule): x.reason for x in found if x is not None}


def test_a_schedule_made_by_hand_is_legal() -> None:
    for plan in (GEMM, SINGLE, TRANSPOSED_A, TWO_K):
        assert first_broken(multistage_loop.RULES, multistage(plan), plan, FACTS) is None


def broken_alone(case: str, rules: tuple[Rule, ...], made: Made, text: str) -> None:
    """Of all rules only the one that the case begins with is broken."""
    found, rule = broken_names(rules, made), case.split(",")[0]
    assert list(found) == [rule], found
    assert re.search(text, found[rule]), found[rule]


def test_each_rule_has_a_case() -> None:
    for cases, rules in ((MULTISTAGE, multistage_loop.RULES), (STREAM, stream_loop.SUM_RULES)):
        assert {x.split(",")[0] for x in cases} == {name_of(r) for r in (*rules, shared_memory_plan)}


@pytest.mark.parametrize("case", MULTISTAGE)
def test_each_rule_of_multistage_kernels_is_broken_alone(case: str) -> None:
    make, text = MULTISTAGE[case]
    broken_alone(case, (*multistage_loop.RULES, shared_memory_plan), make(), text)


def with_loop(s: Schedule, **changes: Any) -> Schedule:
    return replace(s, mainloop=replace(s.mainloop, **changes))


def lanes(s: Schedule, count: int) -> Schedule:
    """A sum with other threads along K; all that follows from them follows."""
    s = with_loop(s, lanes_k=count, unroll=4)
    tiling = replace(s.tiling, shape=sum_block(s.mainloop), k=cut(4096, 4))
    s = replace(s, tiling=tiling)
    return replace(s, smem=smem(s, SUM))


TRANSPOSE = plan_of("ij->ji", "float32", i=640, j=512)
SUM = plan_of("ij->j", "float32", i=4096, j=8)
BIG = plan_of("i,j->ij", "int8", i=2**31 - 1, j=2**31 - 1)
MAP, SUMS = stream_schedule(TRANSPOSE, FACTS), stream_schedule(SUM, FACTS)
CHUNKS = replace(FACTS, smem_per_block=1024)


def flattened() -> Schedule:
    unit = MAP.tiling.m.dims[0].modes[0]
    box = Box(MAP.tiling.m.extents, (TileDim((unit, 1 - unit), MAP.tiling.m.size),))
    walk = (replace(MAP.mainloop.walk_d[0], dim=0, size=box.size),)
    a = StreamLoad(staged=True, walk=walk)
    return with_loop(replace(MAP, tiling=replace(MAP.tiling, m=box)), walk_d=walk, a=a)


STREAM: dict[str, tuple[Callable[[], Made], str]] = {
    "operands, kind": (
        lambda: (replace(SUMS, mainloop=StreamMap(StreamLoad(), None, None, 256, 1, 1, SUMS.mainloop.walk_d),
                         tiling=replace(SUMS.tiling, shape=(SUMS.tiling.m.size, 1, 1), k=cut(4096, 1)),
                         smem=SmemPlan(0)), SUM), "K has 4096 elements"),
    "groups": (lambda: (replace(MAP, tiling=replace(MAP.tiling, n=Box((1,), (TileDim((0,), 1),)))), TRANSPOSE),
               r"box_n is for extents \(1,\)"),
    "parts": (lambda: (replace(MAP, epilogue=Epilogue(VectorStore(1))), TRANSPOSE), "stored in vectors of 4"),
    "operands": (lambda: (with_loop(MAP, c=StreamLoad()), TRANSPOSE), "the plan has 0 C, the schedule reads 1"),
    "source": (lambda: (replace(MAP, epilogue=Epilogue(MAP.epilogue.store, VectorSource())), TRANSPOSE), "is no C"),
    "threads": (lambda: (with_loop(MAP, threads=100), TRANSPOSE), "threads: 100"),
    "counts, lanes": (lambda: (lanes(SUMS, 12), SUM), "counts: 12 threads along K"),
    "counts": (lambda: (with_loop(MAP, unroll=200), TRANSPOSE), "counts: 200 steps are 3200 bytes"),
    "block": (lambda: (replace(MAP, tiling=replace(MAP.tiling, shape=(1, 1, 1 << 20))), TRANSPOSE), r"block: \(1, 1,"),
    "boxes": (lambda: (replace(SUMS, tiling=replace(SUMS.tiling, k=cut(4096, 4096))), SUM), "box_k of 4096 elements"),
    "modes": (lambda: (flattened(), TRANSPOSE), "flattens modes"),
    "shared memory plan": (lambda: (replace(MAP, smem=SmemPlan(MAP.smem.size - 128)), TRANSPOSE), "planned as"),
    "split": (lambda: (replace(MAP, scheduler=OneTile(split_k=2), workspace_bytes=2621440), TRANSPOSE), "nothing is"),
    "workspace": (lambda: (replace(SUMS, scheduler=OneTile(split_k=2), workspace_bytes=8), SUM), "workspace: 8 bytes"),
    "walks": (lambda: (with_loop(MAP, walk_d=MAP.mainloop.walk_d[:1]), TRANSPOSE), "each element of D's tile once"),
    "staging": (lambda: (with_loop(SUMS, a=replace(SUMS.mainloop.a, mask=1)), SUM), "passes no shared memory"),
    "vectors": (lambda: (with_loop(MAP, a=replace(MAP.mainloop.a, width=8)), TRANSPOSE), "accesses of 8 elements of A"),
    "staging, shared": (lambda: (with_loop(SUMS, a=replace(SUMS.mainloop.a, shared=True)), SUM),
                        "different elements of A"),
    "grid": (lambda: (stream_schedule(BIG, FACTS), BIG), "exceed the grid's limit"),
    "shared memory": (lambda: (MAP, TRANSPOSE, CHUNKS), "gives a block 1024"),
}  # fmt: skip


@pytest.mark.parametrize("case", STREAM)
def test_each_rule_of_bandwidth_bound_kernels_is_broken_alone(case: str) -> None:
    make, text = STREAM[case]
    broken_alone(case, (*KINDS[type(make()[0].mainloop)].rules, shared_memory_plan), make(), text)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [(x, r) for x in (StreamMap, StreamSum, StreamMatrix) for r in (*KINDS[x].rules, shared_memory_plan)],
)
def test_each_rule_of_each_bandwidth_bound_main_loop_refuses_a_schedule(kind: type, rule: Rule) -> None:
    s, plan, facts = broken(kind, name_of(rule))
    refusal = can_implement(s, plan, facts)
    assert type(s.mainloop) is kind
    assert refusal is not None
    assert refusal.rule is rule, refusal.reason


@pytest.mark.parametrize("dtype", slow_but(["float16", "float32", "complex128", "int8"], ["complex128"]))
def test_searches_make_schedules_that_meet_all_rules(dtype: str) -> None:
    plans = [make_gemm_plan(c.contraction(dtype)) for c in (*AWKWARD, *small_tccg(1 << 18)[::3])]
    assert {is_stream(p) for p in plans} == {True, False}
    for plan in plans:
        found = [stream_schedule(plan, FACTS)] if is_stream(plan) else []
        found = found or best_schedules([MultistageSearch(plan, FACTS, fallback=dtype == "complex128")], 30)
        assert found
        for s in found:
            assert first_broken(KINDS[type(s.mainloop)].rules, s, plan, FACTS) is None


def test_shared_memory_of_a_multistage_block_is_laid_out_once() -> None:
    s = multistage(GEMM)
    loop = s.multistage
    parts = multistage_smem(GEMM, s.tiling, loop.a, loop.b, True)
    assert (parts.stage, parts.staging, parts.k_slot, parts.offsets) == (8192, 64 * 144, 512, 1024)
    assert parts.plan(3) == SmemPlan(24576 + 2048 + 1024, 8192, k_table=24576, offsets=26624)
    few = replace(parts, stage=1024)  # the staged tile of D is larger than the stages ...
    assert few.plan(3) == SmemPlan(9216 + 2048 + 1024, 1024, k_table=9216, offsets=11264)
    assert few.plan(3, sliced=True).k_table == 3072  # ... but a slice of K stages none


def test_every_main_loop_has_rules_and_a_function_that_renders_it() -> None:
    loops = set(get_args(Mainloop))
    assert set(KINDS) == set(render._RENDER) == loops
    assert len({x.kind for x in loops - {Multistage}}) == len(loops) - 1
