"""Index functions of random groups and boxes against `Box.coordinates`, and what rendering makes of them."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gett.codegen.common import reduce_rows, strides_of
from gett.codegen.index import ParamTable
from gett.codegen.multistage import loading
from gett.codegen.params import ALPHA, BETA
from gett.codegen.render import render_kernel
from gett.codegen.tiles import Strides, batch_index, d_order, d_unpack, group_index, k_box_index, k_table_index
from gett.errors import DTypeError, ScheduleError
from gett.ir.gemm import A, B, make_gemm_plan
from gett.schedule.search.select import candidates
from gett.schedule.spec.loader import RegisterStaged
from layouts.box import Box, TileDim
from tests.cases import TILED, Case, Layout, small_tccg
from tests.cpu.codegen.cpp import CppParams, run_cpp
from tests.sampling import given_few
from tests.schedules import multistage_candidates, spread

STRIDE = st.integers(-1000, 1000) | st.sampled_from((0, 1, 2**33, -(2**35)))


@st.composite
def boxes(draw: st.DrawFn, *, boxed_k: bool = False) -> Box:
    """Any box; for a boxed K one ragged dimension at most, and flattened dimensions with a box of 1 only."""
    extents = tuple(draw(st.lists(st.integers(2, 7), max_size=4)))
    modes = list(draw(st.permutations(range(len(extents)))))
    dims = []
    ragged = False
    while modes:
        count = draw(st.integers(1, min(3, len(modes))))
        inside, modes = tuple(modes[:count]), modes[count:]
        whole = math.prod(extents[m] for m in inside)
        fits = [b for b in range(1, min(whole, 12) + 1) if not boxed_k or not ragged or whole % b == 0]
        box = 1 if boxed_k and len(inside) > 1 else draw(st.sampled_from(fits))
        ragged = ragged or whole % box != 0
        dims.append(TileDim(inside, box))
    return Box(extents, tuple(dims))


@st.composite
def tensors(draw: st.DrawFn, rank: int, names: Sequence[str]) -> tuple[Strides, ...]:
    return tuple(Strides(name, tuple(draw(st.lists(STRIDE, min_size=rank, max_size=rank)))) for name in names)


def offset_of(coordinates: Sequence[int], strides: Sequence[int]) -> int:
    return sum(x * s for x, s in zip(coordinates, strides, strict=True))


@given_few(12, 60, data=st.data(), box=boxes(), padding=st.integers(0, 3))
def test_group_index_is_the_box(data: st.DataObject, box: Box, padding: int) -> None:
    block = box.size + padding
    named = data.draw(tensors(len(box.extents), ("a", "d")))
    table = ParamTable()
    index = group_index("m", box, block, named, table)
    assert [f.name for f in (index.tile, index.ok, *index.offsets)] == ["m_tile", "m_ok", "m_a", "m_d"]
    declared = re.findall(r"(?:int|long long) (\w+);", index.struct)
    assert declared == [name for name, _ in index.tile.outputs]
    seen = set()
    for tile in range(box.tiles):
        origin = index.tile.evaluate(tile=tile)
        env = {f"t.{k}": v for k, v in origin.items()}
        for local in range(block):
            wanted = box.coordinates(tile, local)
            assert bool(index.ok.evaluate(local=local, **env)[""]) == (wanted is not None)
            if wanted is None:
                continue
            seen.add(wanted)
            for t, f in zip(named, index.offsets, strict=True):
                got = origin[t.tensor] + f.evaluate(local=local, **env)[""]
                assert got == offset_of(wanted, t.values), (t, tile, local)
    assert len(seen) == box.volume


@settings(max_examples=25)
@given(data=st.data(), box=boxes(), padding=st.integers(0, 3))
def test_printed_group_functions_agree(data: st.DataObject, box: Box, padding: int) -> None:
    named = data.draw(tensors(len(box.extents), ("b",)))
    table = ParamTable()
    index = group_index("n", box, box.size + padding, named, table)
    params = CppParams.unpack(table)
    for tile in {0, box.tiles // 2, box.tiles - 1}:
        origin = index.tile.evaluate(tile=tile)
        assert run_cpp(index.tile, params, tile=tile) == origin
        env = {f"t.{k}": v for k, v in origin.items()}
        for local in {0, 1, box.size // 2, box.size - 1, box.size + padding - 1} & set(range(box.size + padding)):
            for f in (index.ok, *index.offsets):
                assert run_cpp(f, params, origin, local=local) == f.evaluate(local=local, **env)


@given_few(12, 60, data=st.data(), box=boxes(boxed_k=True), padding=st.integers(0, 3))
def test_k_box_index_is_the_box(data: st.DataObject, box: Box, padding: int) -> None:
    block = box.size + padding
    named = data.draw(tensors(len(box.extents), ("a", "b")))
    table = ParamTable()
    struct_text, functions = k_box_index(box, block, named, table)
    k_tile, k_a, k_b, k_ok, k_coord = functions
    assert [f.name for f in functions] == ["k_tile", "k_a", "k_b", "k_ok", "k_coord"]
    assert re.findall(r"(?:int|long long) (\w+);", struct_text) == [name for name, _ in k_tile.outputs]
    params = CppParams.unpack(table)
    for tile in range(box.tiles):
        at = k_tile.evaluate(tile=tile)
        assert run_cpp(k_tile, params, tile=tile) == at
        for local in range(block):
            wanted = box.coordinates(tile, local)
            ok = bool(k_ok.evaluate(local=local)[""]) and k_coord.evaluate(local=local)[""] < at["rem"]
            assert ok == (wanted is not None)
            if wanted is None:
                continue
            for t, f in zip(named, (k_a, k_b), strict=True):
                assert at[t.tensor] + f.evaluate(local=local)[""] == offset_of(wanted, t.values)
    for local in range(block):
        for f in functions[1:]:
            assert run_cpp(f, params, local=local) == f.evaluate(local=local)


@given_few(8, 40, data=st.data(), extents=st.lists(st.integers(2, 7), max_size=4))
def test_table_and_batch_index_run_through_all_modes(data: st.DataObject, extents: list[int]) -> None:
    named = data.draw(tensors(len(extents), ("a", "b")))
    table = ParamTable()
    batch_struct, batch = batch_index(extents, named, table)
    table_struct, (entry,) = k_table_index(extents, named, table)
    assert batch_struct == "  struct LTile { long long a; long long b; };"
    assert table_struct == "  struct KEntry { long long a; long long b; };"
    params = CppParams.unpack(table)
    step = 1 + math.prod(extents) // 200
    for i, reverse in enumerate(np.ndindex(*reversed(extents))):
        if i % step:
            continue
        wanted = {t.tensor: offset_of(reverse[::-1], t.values) for t in named}
        assert batch.evaluate(l=i) == wanted
        assert entry.evaluate(k=i) == wanted
        assert run_cpp(batch, params, l=i) == wanted
        assert run_cpp(entry, params, k=i) == wanted


@given_few(12, 60, data=st.data(), box_m=boxes(), box_n=boxes())
def test_d_unpack_is_a_bijection_onto_the_box_in_the_order_of_d(data: st.DataObject, box_m: Box, box_n: Box) -> None:
    strides = {
        g: data.draw(st.lists(st.integers(-50, 50), min_size=len(b.extents), max_size=len(b.extents)))
        for g, b in (("m", box_m), ("n", box_n))
    }
    drawn = {"m": box_m, "n": box_n}
    order = d_order(drawn, strides)
    unpack = d_unpack(drawn, order, {g: [1] * len(b.dims) for g, b in drawn.items()})
    total = box_m.size * box_n.size
    got = [unpack.evaluate(i=i) for i in range(total)]
    assert {(x["m"], x["n"]) for x in got} == {(m, n) for m in range(box_m.size) for n in range(box_n.size)}
    assert sorted(x["at"] for x in got)[-1] == sum(d.box - 1 for b in drawn.values() for d in b.dims)
    nearest = [min(abs(strides[g][m]) for m in drawn[g].dims[i].modes) for g, i in order]
    assert nearest == sorted(nearest)
    params = CppParams([], [], [])
    for i in {0, total // 3, total - 1}:
        assert run_cpp(unpack, params, i=i) == got[i]


def kernels() -> list[tuple[str, Case, str]]:
    picked = [(c.name, c, dtype) for c, dtype in zip(TILED, ["float16", "complex64", "int8"] * 20, strict=False)]
    return [*picked, *((c.name, c, "float64") for c in small_tccg()[::6])]


@pytest.mark.parametrize(("name", "case", "dtype"), kernels(), ids=lambda x: x if isinstance(x, str) else "")
def test_a_kernel_uses_the_slots_that_it_packs(name: str, case: Case, dtype: str) -> None:
    plan = make_gemm_plan(case.contraction(dtype, with_c=Layout()))
    for schedule in spread(candidates(plan, "sm_80"), 3):
        kernel = render_kernel(plan, schedule)
        text = kernel.source.text
        sizes = {m: int(n) for m, n in re.findall(r" ([sfi])\[(\d+)\];", text)}
        for member, size in sizes.items():
            used = {int(i) for i in re.findall(rf"p\.{member}\[(\d+)\]", text)}
            assert used <= set(range(size))
        functions = set(re.findall(r"static GETT_DEVICE \S+(?: long)? (\w+)\(", text))
        wanted = {f"m_{x}" for x in ("tile", "ok", "a", "d", "c")} | {f"n_{x}" for x in ("tile", "ok", "b", "d", "c")}
        wanted |= {"l_tile", "idx2crd_d"}
        wanted |= {"k_entry"} if schedule.multistage.k_table else {"k_tile", "k_a", "k_b", "k_ok", "k_coord"}
        if schedule.tiling.l is not None:
            wanted |= {f"l_{x}" for x in ("ok", "a", "b", "d", "c")}
        loaders = {"a": schedule.multistage.a, "b": schedule.multistage.b}
        walks = {x: loading(plan, "ab".index(x), load, schedule.tiling).walk for x, load in loaders.items()}
        assert all(walks[x] for x, load in loaders.items() if isinstance(load, RegisterStaged))
        wanted |= {f"idx2crd_{x}" for x, walk in walks.items() if walk}
        assert functions == wanted
        assert kernel.source.entries == ("gett_tiled", "gett_reduce")[: 1 + (schedule.split_k > 1)]
        assert text.count("__global__") == len(kernel.source.entries) == len(kernel.launches)
        named = re.findall(r" int (\w+);", text.partition("struct Params {")[2].partition("};")[0])
        named = named[named.index("tiles_m") :]  # behind scalars
        launch = kernel.launches[0]
        values = dict(zip(named, struct.unpack_from(f"<{len(named)}i", launch.params, 80), strict=True))
        assert values["extent_k"] == plan.extent_k == schedule.tiling.k.volume
        assert (values["tiles_m"], values["tiles_n"]) == (schedule.tiling.m.tiles, schedule.tiling.n.tiles)
        batches = plan.extent_l if schedule.tiling.l is None else schedule.tiling.l.tiles
        tiles = values["tiles_m"] * values["tiles_n"] * batches
        assert launch.grid == (tiles * values["split_k"], 1, 1)
        assert launch.block == (schedule.threads, 1, 1)
        slices, per = values["split_k"], values["k_tiles_per_slice"]
        assert (slices - 1) * per < values["k_tiles"] <= slices * per  # every slice has work, none is left out
        assert {(s, at) for s, at, _ in launch.scalars} == {("alpha", ALPHA), ("beta", BETA)}
        roles = {"a", "b", "c", "d"} | ({"workspace"} if schedule.split_k > 1 else set())
        assert {role for role, _ in launch.pointers} == roles
        assert len(launch.params) <= 4096  # what a kernel's arguments may take on every architecture


def test_the_same_text_serves_other_extents() -> None:
    texts, params = set(), set()
    for k in (4096, 4800):
        plan = make_gemm_plan(Case("", "ij,jk->ik", {"i": 3840, "j": k, "k": 5120}).contraction("float16"))
        kernel = render_kernel(plan, candidates(plan, "sm_80")[0])
        texts.add(kernel.source.text)
        params.add(kernel.launches[0].params)
    assert len(texts) == 1
    assert len(params) == 2


@pytest.mark.parametrize(
    ("j", "k", "cached"),
    [(33280, 32, True), (480, 32, False), (33280, 4096, False)],
    ids=["small and read often", "read by few tiles", "too large"],
)
def test_what_goes_through_the_first_cache(j: int, k: int, cached: bool) -> None:
    """A small operand that many tiles read; never the one that is streamed."""
    plan = make_gemm_plan(Case("", "ik,kj->ij", {"i": 32, "j": j, "k": k}).contraction("float64"))
    schedule = next(s for s in multistage_candidates(plan, "sm_90a") if not s.tiling.swap_ab and s.split_k == 1)
    text = render_kernel(plan, schedule).source.text
    found = dict(re.findall(r"struct LoaderTraits([AB])\b.*?kCached = (\w+);", text, re.S))
    assert found == {"A": str(cached).lower(), "B": "false"}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_rendering_is_repeatable(arch: str) -> None:
    for case in TILED[::5]:
        plan = make_gemm_plan(case.contraction("float32"))
        first, second = (render_kernel(plan, candidates(plan, arch)[0]) for _ in range(2))
        assert first == second


@pytest.mark.parametrize(("operand", "a", "b"), [("A", 6, 4), ("B", 4, 6)])
def test_strides_that_split_elements_are_refused(operand: str, a: int, b: int) -> None:
    from gett.ir.contraction import Contraction, Operand

    contraction = Contraction(
        ("i", "j", "k"), (64, 64, 64), Operand((0, 1), (64 * a + 4, a), "float32"),
        Operand((1, 2), (64 * 4 + b - 4, b), "float32"), Operand((0, 2), (256, 4), "float32"), None, "float32",
    )  # fmt: skip
    plan = make_gemm_plan(contraction)
    assert not plan.swapped
    with pytest.raises(ScheduleError, match=rf"operand {operand}: its stride of \d+ bytes is no multiple of its item"):
        render_kernel(plan, candidates(plan, "sm_80")[0])


def test_element_strides_of_a_plan() -> None:
    plan = make_gemm_plan(Case("", "ij,kj->ik", {"i": 3, "j": 5, "k": 7}).contraction("float64"))
    assert strides_of(plan, plan.k, {"a": A, "b": B}) == (Strides("a", (1,)), Strides("b", (1,)))


def test_unknown_types_are_refused() -> None:
    from gett.codegen.params import cpp_type

    with pytest.raises(DTypeError, match="dtype float128 is not supported on a GPU; supported: float16, bfloat16"):
        cpp_type("float128")


def test_the_launch_that_adds_slices_shares_them_and_launches_overlap() -> None:
    case = Case("", "ij,kj->ik", {"i": 64, "j": 1 << 18, "k": 64})
    for arch, overlaps in (("sm_80", False), ("sm_90a", True)):
        plan = make_gemm_plan(case.contraction("float16"))
        schedule = next(s for s in multistage_candidates(plan, arch) if s.split_k >= 32)
        kernel = render_kernel(plan, schedule)
        assert [x.entry for x in kernel.launches] == ["gett_tiled", "gett_reduce"]
        assert kernel.overlaps == overlaps
        second = kernel.launches[1]
        vectors = schedule.tiling.m.size * schedule.tiling.n.size // schedule.epilogue.store.vector
        tiles = schedule.tiling.m.tiles * schedule.tiling.n.tiles
        rows = reduce_rows(schedule.split_k, tiles * vectors)
        assert rows > 1
        assert second.grid == (tiles, -(-vectors * rows // second.block[0]), 1)
    assert reduce_rows(2, 100) == 1  # nothing to share
    assert reduce_rows(1000, 1 << 20) == 1  # busy anyway
    assert reduce_rows(10_000, 8) == 32
