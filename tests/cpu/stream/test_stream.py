"""Bandwidth-bound plans without a GPU: schedules, every access of its kernels, compilation for two architectures."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.codegen.stream import vectors_of_step
from gett.errors import ScheduleError
from gett.hw.archs import arch_facts
from gett.hw.device import nearest
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import make_gemm_plan
from gett.jit.compile import compile_uncached
from gett.schedule.search import stream as stream_search
from gett.schedule.search.select import select_schedule
from gett.schedule.search.stream_boxes import swizzled, walk_index
from gett.schedule.spec.mainloop import StreamMap, StreamSum
from layouts.rates import L2_LINE
from layouts.swizzle import replays
from tests.cases import Case
from tests.cpu.helpers import contraction_of
from tests.cpu.host_blocks import run_kernel
from tests.cpu.stream.stream_walk import StreamWalk
from tests.cpu.stream_plans import array, large, plan_for
from tests.sampling import slow_but
from tests.specs import few

FACTS = arch_facts("sm_90a")


WALKS = [
    ("ab->ba", [(37, 70)], "float32", "C", False),
    ("ab->ba", [(64, 128)], "float16", "C", False),
    ("ab->ba", [(33, 24)], "complex128", "C", True),
    ("ab->ba", [(40, 48)], "int8", "C F C", True),
    ("abc->cba", [(8, 33, 24)], "float32", "C", False),
    ("abc->acb", [(5, 16, 40)], "float64", "reversed C", False),
    ("abc->bac", [(6, 7, 64)], "float16", "C", False),
    ("abc->bac", [(6, 7, 64)], "float16", "shifted C", False),
    ("abcdefghijk->kjihgfedcba", [(2,) * 11], "float32", "C", False),
    ("abcdef->fcbeda", [(4, 3, 2, 4, 2, 8)], "float16", "gaps C", False),
    ("aab->ba", [(9, 9, 30)], "float32", "C", False),
    ("a->a", [(5000,)], "uint8", "C", False),
    ("->", [()], "float32", "C", True),
    ("ij,ij->ij", [(40, 72), (40, 72)], "float32", "C", True),
    ("ij,ji->ij", [(40, 72), (72, 40)], "float16", "C", False),
    ("ij,ij->ij", [(40, 72), (40, 72)], "float32", "C gaps F reversed", True),
    ("ij,j->ij", [(40, 64), (64,)], "float32", "C", False),
    ("ij,i->ji", [(40, 64), (40,)], "complex64", "C", False),
    ("xy,zy->xyz", [(2, 31), (7, 31)], "float32", "C", False),  # vectors of 2 that go on from y to x
    ("i,j->ij", [(70,), (96,)], "float16", "C", False),
    ("ab,c->cba", [(64, 3), (50,)], "float32", "C", False),  # the image of ab serves several c
    ("abc,def->fecdba", [(24, 7, 3), (5, 4, 6)], "float32", "C", False),
    ("ab,c->bca", [(40, 24), (36,)], "complex64", "C", True),
    ("zui,zvj->zuvij", [(3, 8, 3), (3, 6, 5)], "float32", "C", False),  # vectors of D reach over what A lacks
    ("ik,jl->lijk", [(6, 8), (5, 16)], "float32", "C", False),
    ("ij->i", [(40, 264)], "float16", "C", False),
    ("ij->i", [(40, 263)], "float32", "C", True),
    ("ij->j", [(90, 72)], "float32", "C", False),
    ("ij->j", [(90, 71)], "int8", "shifted", False),
    ("ijk->ki", [(12, 5, 32)], "float32", "C", False),
    ("ijk->j", [(12, 10, 16)], "float64", "reversed C", False),
    ("ii->", [(40, 40)], "float32", "C", False),
    ("ij,j->i", [(24, 264), (264,)], "float32", "C", False),
    ("ij,j->i", [(24, 264), (264,)], "float32", "C gaps", False),
    ("ij,i->j", [(64, 72), (64,)], "float16", "C", True),
    ("ij,ji->", [(24, 40), (40, 24)], "float32", "C", False),
    ("lij,lj->li", [(3, 10, 64), (3, 64)], "float32", "C", False),
    ("ij,ij->j", [(30, 56), (30, 56)], "complex64", "C", False),
    ("ijk,kji->", [(8, 6, 8), (8, 6, 8)], "float16", "C F", False),
    ("ijkl,kj->il", [(5, 6, 7, 8), (7, 6)], "float32", "C", False),
    ("i,i->", [(7,), (7,)], "float64", "reversed C", False),
]


@pytest.mark.parametrize(
    ("subscripts", "shapes", "dtype", "layouts", "with_c"), slow_but(WALKS, lambda x: x in WALKS[::8])
)
def test_every_product_is_formed_once_from_whole_vectors(
    subscripts: str, shapes: list[tuple[int, ...]], dtype: str, layouts: str, with_c: bool
) -> None:
    plan, addresses = plan_for(subscripts, shapes, dtype, layouts, with_c)
    walk = StreamWalk(plan, select_schedule(plan, "sm_90a"), addresses)
    assert walk.walk() == walk.definition()


IMAGES = (
    ("ab,c->cba", [(16, 3), (200,)]),
    ("abc,def->fecdba", [(8, 3, 3), (25, 4, 6)]),
    ("zui,zvj->zuvij", [(9, 16, 3), (9, 16, 5)]),
)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "sparing"),
    slow_but([(*case, x) for case in IMAGES for x in (False, True)], [(*IMAGES[2], True)]),
)
def test_the_image_of_an_operand_serves_all_that_it_is_multiplied_by(
    subscripts: str, shapes: list[tuple[int, ...]], sparing: bool, tmp_path: Path
) -> None:
    plan, _ = plan_for(subscripts, shapes, "float32")
    schedule = select_schedule(plan, "sm_90a")
    loads = (schedule.mainloop.a, schedule.mainloop.b) if isinstance(schedule.mainloop, StreamMap) else ()
    staged = [x for x in loads if x is not None and x.staged]
    assert staged
    assert schedule.tiling.m.size >= 2 * math.prod(digit.size for digit in staged[0].walk)
    rng = np.random.default_rng(3)
    first, second = (rng.integers(-9, 10, shape).astype(np.float32) for shape in shapes)
    wanted = np.einsum(subscripts, first, second)
    d = np.full_like(wanted, np.nan)
    arrays = dict(zip("ba" if plan.swapped else "ab", (first, second), strict=True))
    run_kernel(tmp_path, plan, schedule, arrays, d, sparing=sparing)
    np.testing.assert_array_equal(d, wanted)


STEPS = (
    ("zui,zvj->zuvij", [(3, 16, 3), (3, 16, 5)], (240, 2)),
    ("abc->bca", [(30, 24, 16)], (240, 16)),
    ("ij,ji->ij", [(64, 72), (72, 64)], (240, 20)),
    ("ab->ba", [(128, 96)], (256, 8)),
    ("ab,c->cba", [(64, 3), (50,)], (256, 0)),  # rows of 192 elements, of which 256 vectors have no whole number
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subscripts", "shapes", "step", "sparing"),
    [(*case, x) for case in STEPS for x in (False, True)],
)
def test_places_of_further_steps_are_constant_distances_on(
    subscripts: str, shapes: list[tuple[int, ...]], step: tuple[int, int], sparing: bool, tmp_path: Path
) -> None:
    """Those of threads that have whole rows of a tile's last dimension; a tenth of the threads may have none."""
    plan, addresses = plan_for(subscripts, shapes, "float64")
    schedule = select_schedule(plan, "sm_90a", few(FACTS, 1))
    assert isinstance(schedule.mainloop, StreamMap)
    assert vectors_of_step(plan, schedule.tiling.m, schedule.mainloop) == step, schedule.tiling.m
    walk = StreamWalk(plan, schedule, addresses)
    assert walk.walk() == walk.definition()
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-9, 10, shape).astype(float) for shape in shapes]
    wanted = np.einsum(subscripts, *arrays)
    d = np.full_like(wanted, np.nan, order="C")
    by_role = dict(zip("ba" if plan.swapped else "ab", arrays, strict=False))
    run_kernel(tmp_path, plan, schedule, by_role, d, sparing=sparing)
    np.testing.assert_array_equal(d, wanted)


@pytest.mark.slow
def test_a_split_of_k_covers_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nearest(arch_facts("sm_90a"))
    short = replace(model, streams=replace(model.streams, least_slice_bytes=1))
    monkeypatch.setattr(stream_search, "nearest", lambda _: short)
    plan, addresses = plan_for("ij,j->i", [(3, 9001), (9001,)], "float32")
    schedule = select_schedule(plan, "sm_90a")
    assert schedule.split_k > 1
    walk = StreamWalk(plan, schedule, addresses)
    assert walk.walk() == walk.definition()


@pytest.mark.parametrize(("dtype", "splat"), [("float32", True), ("float16", False)])
def test_broadcast_to_modes_that_only_d_has(dtype: str, splat: bool) -> None:
    # Twelve equal elements are three vectors of 4, but vectors of 8 reach into the next twelve.
    a, d = array((6, 32), dtype), array((6, 32, 12), dtype)
    plan = make_gemm_plan(contraction_of("ab->abc", a, None, None, d))
    addresses = {"a": a.ctypes.data, "d": d.ctypes.data}
    walk = StreamWalk(plan, select_schedule(plan, "sm_90a"), addresses)
    assert walk.loads["a"].splat == splat
    assert walk.walk() == walk.definition()


@pytest.mark.parametrize(
    ("dtype", "extents"),
    [("float16", (4096, 4096)), ("float32", (4096, 4096)), ("float64", (2048, 2048)), ("complex128", (512, 1024)),
     ("float32", (4224, 3000)), ("int8", (8192, 4096))],
)  # fmt: skip
def test_transposition_moves_16_bytes_at_a_time_without_bank_conflicts(dtype: str, extents: tuple[int, int]) -> None:
    schedule = select_schedule(large("ab->ba", dtype, a=extents[0], b=extents[1]), "sm_90a")
    size, s = np.dtype(dtype).itemsize, schedule.mainloop
    assert isinstance(s, StreamMap)
    assert s.a.staged
    assert s.a.width * size == 16
    assert s.vector * size == 16
    assert all(d.box * size >= 64 for d in schedule.tiling.m.dims if d.box > 1)
    places = [schedule.tiling.m.prefix(i) for i in range(len(schedule.tiling.m.dims))]
    for j in range(s.a.width):
        lanes = [walk_index(places, s.a.walk, lane * s.a.width + j) * size for lane in range(32)]
        assert max(replays([swizzled(x, s.a.mask, s.a.shift) for x in lanes], size)) <= (1 if extents[0] != 4224 else 2)
    assert max(replays([swizzled(lane * 16, s.a.mask, s.a.shift) for lane in range(32)], 16)) == 1


@pytest.mark.parametrize(
    ("subscripts", "extents", "along_k", "width"),
    [
        ("ij->i", {"i": 4096, "j": 4096}, True, 8),
        ("ij->j", {"i": 4096, "j": 4096}, False, 8),
        ("ij,j->i", {"i": 16384, "j": 16384}, True, 8),
        ("ij,i->j", {"i": 16384, "j": 16384}, False, 8),
        ("i,i->", {"i": 1 << 28}, True, 8),
        ("lij,lj->li", {"l": 64, "i": 512, "j": 512}, True, 8),
        ("ij->", {"i": 4096, "j": 4092}, True, 8),
        ("ij->i", {"i": 4096, "j": 4092}, True, 4),
    ],
)
def test_sums_stream_the_large_operand_in_its_own_order(
    subscripts: str, extents: dict[str, int], along_k: bool, width: int
) -> None:
    plan = large(subscripts, "float16", **extents)
    schedule = select_schedule(plan, "sm_90a")
    s = schedule.mainloop
    assert isinstance(s, StreamSum)
    assert s.along_k == along_k
    assert max(x.width for x in (s.a, s.b) if x is not None) == s.vector == width
    blocks = schedule.tiling.m.tiles * schedule.split_k
    assert blocks >= 2 * FACTS.sm_count
    assert schedule.workspace_bytes <= 32 << 20
    assert schedule.forecast.us >= plan.bytes / FACTS.dram_tbps * 1e-6


def test_results_beyond_31_bits() -> None:
    plan = large("i,j->ij", "float32", i=70_000, j=70_000)
    schedule = select_schedule(plan, "sm_90a")
    assert schedule.tiling.m.volume > 2**32
    last = schedule.tiling.m.tiles - 1
    walk = StreamWalk(plan, schedule, dict.fromkeys("abd", 0))
    at = walk._tile("o", last)["d"]
    assert at == 70_000 * schedule.tiling.m.origin(last)[1] + schedule.tiling.m.origin(last)[0]
    assert at > 2**32
    with pytest.raises(ScheduleError, match=r"2\*\*31"):
        select_schedule(large("i,j->ij", "int8", i=2**31 - 1, j=2**31 - 1), "sm_90a")


def test_empty_sums_and_empty_results() -> None:
    plan, _ = plan_for("ij->i", [(5, 0)], "float32")
    kernel = render_kernel(plan, select_schedule(plan, "sm_90a"))
    assert kernel.launches[0].grid[0] == 1
    compile_uncached(kernel.source.text, "sm_90a")
    plan, _ = plan_for("ij->i", [(0, 5)], "float32")
    kernel = render_kernel(plan, select_schedule(plan, "sm_90a"))
    assert kernel.launches[0].grid[0] == 0
    compile_uncached(kernel.source.text, "sm_90a")


def test_strides_of_parts_of_elements_are_refused() -> None:
    a = np.zeros(40, np.dtype([("x", "i1"), ("y", "f4")]))["y"]
    plan = make_gemm_plan(contraction_of("i->i", a))
    with pytest.raises(ScheduleError, match=r"operand A: its stride of 5 bytes"):
        render_kernel(plan, select_schedule(plan, "sm_90a"))


DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool", "int8", "uint8", "int16",
          "uint16", "int32", "uint32", "int64", "uint64")  # fmt: skip
SHAPES = [
    ("ab->ba", {"a": 4096, "b": 4096}),
    ("ij,ji->ij", {"i": 1024, "j": 1024}),
    ("ij,j->i", {"i": 4096, "j": 4096}),
    ("ij,i->j", {"i": 4096, "j": 4096}),
    ("ijk->ki", {"i": 64, "j": 8, "k": 2048}),
]


@pytest.mark.parametrize(
    "dtype",
    [x if x == "complex64" else pytest.param(x, marks=pytest.mark.slow) for x in DTYPES],
)
def test_kernels_of_every_dtype_compile_without_spills(dtype: str) -> None:
    for i, (subscripts, extents) in enumerate(SHAPES):
        plan = large(subscripts, "uint16" if dtype == "bfloat16" else dtype, **extents)
        c = plan.contraction
        if dtype == "bfloat16":
            renamed = [None if o is None else Operand(o.modes, o.strides, dtype, 256) for o in (c.a, c.b, c.d)]
            assert renamed[0] is not None
            assert renamed[2] is not None
            c = Contraction(c.names, c.extents, renamed[0], renamed[1], renamed[2], None, dtype)
        with_c = Contraction(c.names, c.extents, c.a, c.b, c.d, c.d, c.dtype)
        arch = "sm_80" if i % 2 else "sm_90a"
        plan = make_gemm_plan(with_c)
        kernel = render_kernel(plan, select_schedule(plan, arch))
        assert compile_uncached(kernel.source.text, arch).cubin


def test_other_types_of_c_and_d_are_converted() -> None:
    a, c = array((24, 40), "float16"), array((40, 24), "float64")
    for subscripts, shape in (("ab->ba", (40, 24)), ("ab->b", (40,))):
        added = c[:, 0] if len(shape) == 1 else c
        plan = make_gemm_plan(contraction_of(subscripts, a, None, added, array(shape, "float32")))
        kernel = render_kernel(plan, select_schedule(plan, "sm_90a"))
        assert "const double* c;" in kernel.source.text
        assert "float* d;" in kernel.source.text
        compile_uncached(kernel.source.text, "sm_90a")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_few_outputs_are_summed_by_many_blocks(dtype: str) -> None:
    """976 sums of 512 products: by 32 vectors of outputs a block they were four blocks, one step behind the other."""
    plan = plan_for("abc,adcbe->de", [(2, 2, 128), (2, 61, 128, 2, 16)], dtype)[0]
    s = select_schedule(plan, "sm_90a")
    loop = s.mainloop
    assert isinstance(loop, StreamSum)
    assert s.tiling.m.tiles >= 31
    assert loop.threads // loop.lanes_k * loop.vector * plan.size(1) >= 64  # bytes that are read together
    many = select_schedule(plan_for("ab,acb->c", [(2, 512), (2, 1 << 18, 512)], dtype)[0], "sm_90a")
    assert many.tiling.m.tiles > 1000


@pytest.mark.parametrize(("rows", "whole"), [(2048, True), (16, False)])
def test_blocks_read_whole_lines_of_an_operand_that_l2_does_not_hold(rows: int, whole: bool) -> None:
    extents = {"a": rows, "b": 84, "c": 1024}
    plan = make_gemm_plan(Case("", "abc,ba->c", extents).contraction("float64"))
    assert (select_schedule(plan, "sm_90a").tiling.m.size * 8 >= L2_LINE) == whole
