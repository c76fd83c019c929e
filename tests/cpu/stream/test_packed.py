"""Packed copies: what is copied where, when it is chosen, every launch run on the host, legality, runtime, text."""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gett
from gett.codec import decode, encode
from gett.codegen.packed import COPIES
from gett.codegen.records import Launch
from gett.codegen.render import render_kernel
from gett.errors import OptionError
from gett.hw.archs import WORKSPACE_LIMIT, ArchFacts, arch_facts
from gett.hw.device import nearest
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.ir.packing import batch_modes, count_pieces, packed_bytes, packed_operands, piece_starts
from gett.jit.compile import compile_kernel
from gett.schedule.legality import can_implement
from gett.schedule.packed import copy_schedule, packed_plans, plan_in_roles, plans_of
from gett.schedule.rules.rule import name_of
from gett.schedule.search.base import best_schedules
from gett.schedule.search.multistage import MultistageSearch
from gett.schedule.search.packed import packed_schedules
from gett.schedule.search.select import candidates
from gett.schedule.search.stream import stream_schedule
from gett.schedule.spec.mainloop import StreamMap
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.stream_views import output_views
from layouts.access import contiguous_run
from layouts.rates import L2_LINE
from tests.cpu.fake_driver import PARAMS, A, B, C, D, build, launch, product_plan
from tests.cpu.helpers import contraction_of
from tests.cpu.host_blocks import run_kernel
from tests.cpu.stream.packed_launches import run_packed
from tests.sampling import slow_but

FACTS = arch_facts("sm_90a")
TRIANGLE = "bikc,bjkc->bijc"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packed")


def triangle(dtype: str = "float16", n: int = 512, c: int = 128, subscripts: str = TRIANGLE) -> GemmPlan:
    shape = (1, n, n, c)
    return gett.plan(subscripts, (shape, dtype), (shape, dtype), arch="sm_90a").steps[0].gemm


def limited(limit: int, facts: ArchFacts = FACTS) -> ArchFacts:
    return replace(facts, workspace_limit=limit)


def multiply_adds(plan: GemmPlan, facts: ArchFacts, below: float | None) -> list[Schedule]:
    return best_schedules([MultistageSearch(plan, facts)], 3, below)


@pytest.mark.parametrize(
    ("dtype", "subscripts"),
    slow_but([(d, s) for d in ("float16", "bfloat16", "float32") for s in (TRIANGLE, "bkic,bkjc->bijc")],
             [("float16", TRIANGLE)]),
)  # fmt: skip
def test_the_triangle_update_is_packed(dtype, subscripts):
    plan = triangle(dtype, subscripts=subscripts)
    first = candidates(plan, "sm_90a")[0]
    other = candidates(plan, "sm_90a", limited(0))[0]
    assert first.packing is not None
    assert first.kind.startswith("packed wgmma")
    assert other.packing is None
    assert 0 < first.workspace_bytes <= WORKSPACE_LIMIT
    assert first.forecast.us * nearest(FACTS).packing.clearly <= other.forecast.us
    assert can_implement(first, plan, FACTS) is None


def test_much_workspace_is_taken_where_it_is_clearly_faster():
    """Beyond `large_bytes`; what is within is taken as if there were no more."""
    rates, shapes = nearest(FACTS).packing, ((2, 5, 31, 1000, 130), (1000, 31, 256, 5))
    operands = [(shape, "complex128") for shape in shapes]
    plan = gett.plan("abcde,dcfb->afe", *operands, arch="sm_90a").steps[0].gemm
    within, beyond = (candidates(plan, "sm_90a", limited(limit))[0] for limit in (rates.large_bytes, WORKSPACE_LIMIT))
    assert within.workspace_bytes <= rates.large_bytes < beyond.workspace_bytes
    assert beyond.forecast.us * rates.large_clearly <= within.forecast.us
    within, same = (
        candidates(triangle("float32"), "sm_90a", limited(limit))[0] for limit in (rates.large_bytes, WORKSPACE_LIMIT)
    )
    assert within.packing is not None
    assert within.packing.cuts  # whole copies would take more
    assert same == within


def test_operands_that_tensor_maps_move_are_copied_for_a_few_percent():
    """TF32 has rows of A along K: reading them turned costs each tile that does, a copy costs one pass."""
    shape = ((4096, 4096), "float32")
    plan = gett.plan("km,kn->mn", shape, shape, arch="sm_90a", precision="tf32").steps[0].gemm
    best = candidates(plan, "sm_90a", FACTS)[0]
    least = candidates(plan, "sm_90a", limited(0))[0].forecast.us
    assert best.packing is not None
    assert best.forecast.us * nearest(FACTS).packing.clearly <= least


@pytest.mark.slow
def test_fewer_pieces_under_a_larger_limit():
    plan = triangle()
    pieces = []
    for mib in (8, 25, 48, 64, 128, 256):
        found = candidates(plan, "sm_90a", limited(mib << 20))[0]
        pieces.append(count_pieces(plan.contraction, found.packing.cuts))
        assert found.workspace_bytes <= mib << 20
    assert pieces == sorted(pieces, reverse=True)
    assert pieces[-1] == 1


def test_rows_are_cut_late():
    plan = triangle()
    (cut, (_, rows)) = candidates(plan, "sm_90a", limited(64 << 20))[0].packing.cuts
    assert cut == (plan.contraction.names.index("c"), 64)  # whole lines; 64 MiB hold half of the rows of one side
    assert rows == 256


@pytest.mark.parametrize("subscripts", ["cbik,cbjk->cbij", "bik,bjk->bij", "ik,jk->ij"])
def test_nothing_is_packed_where_rows_are_contiguous(subscripts):
    shapes = [(64,) * len(x) for x in subscripts.split("->")[0].split(",")]
    plan = gett.plan(subscripts, *[(s, "float16") for s in shapes], arch="sm_90a").steps[0].gemm
    assert all(s.packing is None for s in candidates(plan, "sm_90a"))


def test_copies_of_elements_of_two_words_move_whole_lines():
    """The words of an element are neighbours in both layouts, whose rows run along others."""
    shapes = (24, 31, 2048, 13, 3), (2048, 256, 3)
    plan = gett.plan("abcde,cfe->fdbae", *[(s, "complex128") for s in shapes], arch="sm_90a").steps[0].gemm
    copy = packed_plans(plan.contraction, (), ("a", "b")).tensors[0].plan
    schedule = stream_schedule(copy, FACTS)
    runs = [contiguous_run(schedule.tiling.m, x.strides, x.size) for x in output_views(copy).values()]
    assert min(runs) >= L2_LINE
    assert schedule.loop(StreamMap).a.staged


def test_copies_are_dense_but_for_rows_that_tensor_maps_move():
    a, b = np.zeros((3, 5, 35, 4), "float16"), np.zeros((3, 7, 35, 4), "float16")
    c = contraction_of("bikc,bjkc->bijc", a, b)
    assert [c.names[m] for m in batch_modes(c)] == ["b", "c"]
    packed = packed_operands(c, "abd")["a"]
    strides = {c.names[m]: s for m, s in zip(packed.modes, packed.strides, strict=True)}
    assert strides == {"k": 2, "i": 80, "c": 400, "b": 1600}
    assert packed_bytes(c, packed) == 3 * 1600 - 10
    b_mode, c_mode = (c.names.index(x) for x in "bc")
    starts = list(piece_starts(c, ((b_mode, 1), (c_mode, 2)), c.a))
    assert starts == [0, 4, 1400, 1404, 2800, 2804]


RUNS = [
    ("bikc,bjkc->bijc", (2, 9, 11, 8), (2, 10, 11, 8), "float32", 3 << 10, 1),
    ("bkic,bkjc->bijc", (1, 40, 12, 16), (1, 40, 20, 16), "float32", 1 << 20, 1),
    ("ikc,jkc->ijc", (17, 40, 6), (13, 40, 6), "int64", 24 << 10, 2),
    ("ikc,jkc->jic", (17, 21, 6), (13, 21, 6), "int32", 10 << 10, -3),
    ("abcd,cbefa->fdea", (8, 6, 7, 9), (7, 6, 5, 4, 8), "float32", 10 << 10, 1),
    ("ikc,jkc->ijc", (9, 16, 8), (8, 16, 8), "complex64", 1 << 20, 2 - 1j),
    ("ikc,jkc->cij", (9, 16, 8), (8, 16, 8), "float32", 1 << 20, 1),
    # No unit stride in a batch mode: rows that start anywhere, short ones, and those along two contracted modes.
    ("ik,jk->ij", (19, 45), (21, 45), "float32", 1 << 20, 3),
    ("ik,jk->ij", (38, 45), (21, 45), "float32", 10 << 10, 1),
    ("aibjck,kcba->jia", (2, 5, 3, 7, 2, 11), (11, 2, 3, 2), "float32", 1 << 20, 1),
    ("mink,jmk->jin", (3, 17, 13, 5), (11, 3, 5), "complex64", 12 << 10, 1),
    # Elements of two words, and tensors of so many modes that no tensor map has a box of them.
    ("ikc,jkc->ijc", (9, 16, 8), (8, 16, 8), "complex128", 1 << 20, 2 - 1j),
    ("akbicjdle,kambnlc->nbidmej", (2,) * 9, (2,) * 7, "complex128", 1 << 20, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("subscripts", "shape_a", "shape_b", "dtype", "limit", "alpha"), RUNS)
def test_every_launch_runs_on_the_host(folder, subscripts, shape_a, shape_b, dtype, limit, alpha):
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, s).astype(dtype) for s in (shape_a, shape_b))
    if dtype.startswith("complex"):
        a += 1j * rng.integers(-4, 5, shape_a).astype("float32")
    expected = alpha * np.einsum(subscripts, a, b)
    d = np.full(expected.shape, 77, dtype)
    plan = make_gemm_plan(contraction_of(subscripts, a, b, None, d))
    found = packed_schedules(plan, limited(limit), multiply_adds, 1e9)
    assert found
    for schedule in found[:1]:
        assert schedule.workspace_bytes <= limit
        assert can_implement(schedule, plan, limited(limit)) is None
        run_packed(folder, plan, schedule, a, b, d, alpha)
        np.testing.assert_array_equal(d, expected.astype(dtype))


def test_the_last_piece_may_overlap_the_one_before():
    plan = make_gemm_plan(contraction_of("ik,jk->ij", np.zeros((37, 45), "float32"), np.zeros((21, 45), "float32")))
    (schedule, *_) = packed_schedules(plan, limited(10 << 10), multiply_adds, 1e9)
    ((mode, length),) = schedule.packing.cuts
    extent = plan.contraction.extents[mode]
    assert extent % length
    starts = list(piece_starts(plan.contraction, schedule.packing.cuts, plan.contraction.d))
    assert starts[-1] == (extent - length) * plan.contraction.d.stride(mode)


@pytest.mark.slow
def test_partial_sums_lie_behind_the_copies(folder):
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-4, 5, s).astype("float32") for s in ((19, 501), (21, 501)))
    d = np.full((19, 21), 77, "float32")
    plan = make_gemm_plan(contraction_of("ik,jk->ij", a, b, None, d))
    (schedule, *_) = packed_schedules(plan, limited(96_000), multiply_adds, 1e9)
    assert 1 < schedule.split_k < 8  # more slices would be added by threads that share memory
    assert schedule.workspace_bytes > schedule.packing.bytes > 0
    run_packed(folder, plan, schedule, a, b, d)
    np.testing.assert_array_equal(d, a @ b.T)


@pytest.mark.slow
def test_an_epilogue_is_the_products(folder):
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-4, 5, s).astype("float32") for s in ((9, 16, 8), (10, 16, 8)))
    plan = gett.plan("ikc,jkc->ijc", a, b, arch="sm_90a", precision="ieee", epilogue=lambda x: np.maximum(x, 0) + 1)
    gemm = plan.steps[0].gemm
    (schedule, *_) = packed_schedules(gemm, limited(4 << 10), multiply_adds, 1e9)
    assert schedule.packing.cuts
    d = np.full((9, 10, 8), 77, "float32")
    run_packed(folder, gemm, schedule, a, b, d)
    np.testing.assert_array_equal(d, np.maximum(np.einsum("ikc,jkc->ijc", a, b), 0) + 1)


def test_copies_keep_every_bit(folder):
    bits = np.random.default_rng(5).integers(0, 1 << 32, (6, 9, 8), dtype="uint32")
    bits[0, 0, :4] = 0x7FC01234, 0xFF800001, 0x80000000, 0x00000001  # NaNs with payloads, -0, a subnormal
    a = bits.view("float32")
    plan = make_gemm_plan(contraction_of("ikc,jkc->ijc", a, np.zeros((7, 9, 8), "float32")))
    (schedule, *_) = packed_schedules(plan, FACTS, multiply_adds, 1e9)
    made = plans_of(plan, schedule.packing)
    tensor = next(t for t in made.tensors if t.name == "a")
    assert tensor.plan.contraction.dtype == "uint32"
    out = np.zeros(12 * 6 * 8, "uint32")
    run_kernel(folder, tensor.plan, copy_schedule("sm_90a", schedule.packing.a), {"a": bits}, out)
    d = tensor.plan.contraction.d
    for at in np.ndindex(bits.shape):
        place = sum(i * d.stride(m) for m, i in zip(range(3), at, strict=True)) // 4
        assert out[place] == bits[at], at


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_packed_kernels_compile_without_spills(dtype):
    plan = triangle(dtype)
    schedule = candidates(plan, "sm_90a")[0]
    assert schedule.packing is not None
    kernel = render_kernel(plan, schedule)
    assert compile_kernel(kernel.source, kernel.arch)
    assert {x.entry for x in kernel.launches} == set(kernel.source.entries)
    assert kernel.launches[2].moved != kernel.launches[0].moved
    assert json.loads(json.dumps(encode(schedule))) == encode(schedule)
    assert decode(Schedule, json.loads(json.dumps(encode(schedule)))) == schedule


def test_pieces_cover_the_tensors_and_copies_do_not_overlap():
    plan = triangle()
    c = plan.contraction
    schedule = candidates(plan, "sm_90a")[0]
    made = plans_of(plan, schedule.packing)
    sizes = {t.name: packed_bytes(t.plan.contraction, t.plan.contraction.a if t.name == "d" else t.plan.contraction.d)
             for t in made.tensors}  # fmt: skip
    places = sorted((t.offset, t.offset + sizes[t.name]) for t in made.tensors)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))
    assert places[-1][1] <= made.workspace_bytes == schedule.workspace_bytes
    kernel = render_kernel(plan, schedule)
    pieces = count_pieces(c, schedule.packing.cuts)
    products = [x for x in kernel.launches if x.entry == "gett_sm90"]
    copies = [x for x in kernel.launches if x.entry == COPIES]
    assert (len(products), len(copies)) == (pieces, pieces + 1)
    assert [x.entry == COPIES for x in kernel.launches] == [i % 2 == 0 for i in range(2 * pieces + 1)]
    for x in products:
        assert {base for _, base, _ in x.moved} == {"workspace"}
        assert {role for role, _, _ in x.maps} <= {role for role, _, _ in x.moved}
    starts = [{base: s for _, base, s in x.moved if base != "workspace"} for x in copies]
    for name, tensor in (("a", c.a), ("b", c.b), ("d", c.d)):
        wanted = list(piece_starts(c, schedule.packing.cuts, tensor))
        if name == "d":
            assert [x.get("d") for x in starts] == [None, *wanted]
        else:
            assert [x[name] for x in starts if name in x] == [s for s, _ in itertools.groupby(wanted)]


def broken(schedule: Schedule, plan: GemmPlan) -> dict[str, tuple[Schedule, GemmPlan]]:
    packing = schedule.packing
    c = plan.contraction
    mode = c.names.index("c")
    none = replace(packing, a=None, b=None, d=None)
    with_c = make_gemm_plan(replace(c, c=c.d))
    splat = replace(c.a, strides=tuple(0 if c.names[m] == "k" else c.a.stride(m) for m in c.a.modes))
    return {
        "packed product": (replace(schedule, packing=none), plan),
        "packed product, C": (schedule, with_c),
        "pieces": (replace(schedule, packing=replace(packing, cuts=((mode, 129),))), plan),
        "pieces, another mode": (replace(schedule, packing=replace(packing, cuts=((c.names.index("k"), 8),))), plan),
        "pieces, twice": (replace(schedule, packing=replace(packing, cuts=((mode, 64), (mode, 32)))), plan),
        "pieces, many": (replace(schedule, packing=replace(packing, cuts=((mode, 1),))), plan),
        "copied tensors": (schedule, make_gemm_plan(replace(c, a=splat))),
        "copied tensors, threads": (
            replace(schedule, packing=replace(packing, a=replace(packing.a, loop=replace(packing.a.loop, threads=32)))),
            plan,
        ),
        "packed workspace": (replace(schedule, workspace_bytes=schedule.workspace_bytes - 256), plan),
        "packed workspace, copies": (replace(schedule, packing=replace(packing, bytes=packing.bytes - 256)), plan),
        "packed workspace, limit": (replace(schedule, workspace_bytes=WORKSPACE_LIMIT + 256), plan),
    }


def test_each_rule_breaks_alone():
    plan = triangle()
    schedule = candidates(plan, "sm_90a")[0]
    for name, (wrong, its_plan) in broken(schedule, plan).items():
        refusal = can_implement(wrong, its_plan, FACTS)
        assert refusal is not None, name
        assert name_of(refusal.rule) == name.split(",")[0], (name, refusal)
    # The copies and the product have their own rules.
    copy = replace(schedule.packing.a, smem=replace(schedule.packing.a.smem, size=16))
    assert can_implement(replace(schedule, packing=replace(schedule.packing, a=copy)), plan, FACTS) is not None
    assert can_implement(replace(schedule, smem=replace(schedule.smem, size=16)), plan, FACTS) is not None


def test_addresses_inside_of_tensors_reach_the_launches():
    inside: Launch = replace(launch(), moved=(("a", "workspace", 512), ("b", "b", 64), ("d", "a", 8)))
    run, host, driver = build(product_plan(swapped=False), inside, launch(), workspace=1024)
    run(A, B, C, D)
    run(B, A, C, D)
    seen = [struct.unpack_from("<5Q", x.params) for x in driver.launches]
    first, second = (0xF000, 0xF000 + 1024)
    a, b, c, d = (x.data.ptr for x in (A, B, C, D))
    assert seen[0] == (first + 512, b + 64, c, a + 8, first)
    assert seen[1] == (a, b, c, d, first)
    assert seen[2] == (second + 512, a + 64, c, b + 8, second)
    assert host.allocated == [1024, 1024]
    assert len(PARAMS) == len(driver.launches[0].params)


@pytest.mark.slow
def test_the_plan_shows_copies_and_workspace():
    shape = (1, 512, 512, 128)
    plan = gett.plan(TRIANGLE, (shape, "float16"), (shape, "float16"), arch="sm_90a", workspace_limit=64 << 20)
    text = plan.explain(detail=True)
    assert 'copy A    "bikc" as "bcik"' in text
    assert 'copy D    "bijc" as "bcij"' in text
    assert "in 4 pieces of 64 of c and 256 of j, one after the other; workspace 64 MiB" in text
    assert plan.workspace_bytes == 64 << 20
    whole = gett.plan(TRIANGLE, (shape, "float16"), (shape, "float16"), arch="sm_90a")
    assert "all at once; workspace 192 MiB" in whole.explain(detail=True)
    none = gett.plan(TRIANGLE, (shape, "float16"), (shape, "float16"), arch="sm_90a", workspace_limit=0)
    assert none.workspace_bytes == 0
    assert "copy A" not in none.explain(detail=True)


def test_zero_forbids_slices_of_k_too():
    shapes = [((64, 1 << 16), "float16")] * 2
    sliced = gett.plan("ik,jk->ij", *shapes, arch="sm_90a")
    assert sliced.workspace_bytes > 0
    assert gett.plan("ik,jk->ij", *shapes, arch="sm_90a", workspace_limit=0).workspace_bytes == 0


@pytest.mark.parametrize("limit", [-1, 1.5, "64Q", True])
def test_a_limit_is_a_number_of_bytes(limit):
    a = np.ones((2, 2))
    for call in (gett.einsum, gett.contract, gett.plan):
        with pytest.raises(OptionError, match="workspace_limit"):
            call("ij,jk->ik", a, a, workspace_limit=limit)
    assert gett.einsum("ij,jk->ik", a, a, workspace_limit=0).sum() == 8


def test_roles_of_the_callers_tensors_are_those_of_the_product():
    for subscripts in (TRIANGLE, "bikc,bjkc->bjic"):
        plan = triangle(subscripts=subscripts)
        schedule = candidates(plan, "sm_90a")[0]
        roles = plan_in_roles(plan, schedule)
        assert roles.contraction == plan.contraction
        assert roles.a == (plan.contraction.b if roles.swapped else plan.contraction.a)
