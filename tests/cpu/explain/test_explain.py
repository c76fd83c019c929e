"""The text of plans, from records alone and from whole plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import gett
from gett.console.formatting import format_bytes, format_quantity, format_table
from gett.explain.detail import explain, explain_gemm
from gett.explain.record import plan_record
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.schedule.spec.epilogue import Epilogue, StagedTile, TmaStore, VectorStore
from gett.schedule.spec.loader import CpAsync, Multicast, RegisterStaged, Stationary, Tma
from gett.schedule.spec.mainloop import Multistage, Stream, StreamSum, WgmmaSS
from gett.schedule.spec.schedule import (
    Forecast,
    OneTile,
    PersistentPanel,
    PersistentRaster,
    Schedule,
    SmemPlan,
    Split,
    Tiling,
)
from layouts.box import Box, TileDim
from layouts.swizzle import SmemLayout
from layouts.tma import TmaMap
from layouts.tma_map import tma_map


def c_order(extents: dict[str, int], labels: str, dtype: str) -> Operand:
    """A C-contiguous operand whose mode numbers are the positions of its labels in `extents`."""
    size = np.dtype(dtype).itemsize
    strides = [size * int(np.prod([extents[x] for x in labels[i + 1 :]])) for i in range(len(labels))]
    order = list(extents)
    return Operand(tuple(order.index(x) for x in labels), tuple(strides), dtype)


def gemm(subscripts: str, dtype: str = "float32", **extents: int) -> GemmPlan:
    inputs, d = subscripts.split("->")
    operands = [c_order(extents, term, dtype) for term in inputs.split(",")]
    a, b = (*operands, None)[:2]
    contraction = Contraction(tuple(extents), tuple(extents.values()), a, b, c_order(extents, d, dtype), None, dtype)
    return make_gemm_plan(contraction)


def flat_box(*extents: int) -> Box:
    """All modes walked as one, 16 elements at a time."""
    return Box(extents, (TileDim(tuple(range(len(extents))), 16),))


def schedule(plan: GemmPlan, *, split_k: int = 1) -> Schedule:
    a = CpAsync("k", 4, SmemLayout(64, 64, 64))
    b = RegisterStaged("k", 1, "mn", SmemLayout(64, 64, 64), ())
    box_m = Box(tuple(s.extent for s in plan.m), tuple(TileDim((i,), 6) for i in range(len(plan.m))))
    box_n, box_k = (flat_box(*(s.extent for s in g)) for g in (plan.n, plan.k))
    return Schedule(
        "sm_90a", Tiling((64, 16, 16), box_m, box_n, box_k), Multistage(a, b, True, 3, (2, 4), k_table=True),
        Epilogue(VectorStore(2)), OneTile(split_k=split_k), SmemPlan(3 << 14), 1 << 20,
        Forecast(12.5, "DRAM", "longest runs"),
    )  # fmt: skip


def rows(text: str, group: str) -> list[list[str]]:
    """Cells of a group's rows in the table of modes."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:1] == ["group"])
    found, current = [], ""
    for line in lines[start + 2 :]:
        if not line.strip():
            break
        cells = line.split()
        if cells[0] in "LMNK":
            current, cells = cells[0], cells[1:]
        if current == group:
            found.append(cells)
    return found


def test_groups_list_fused_modes_extents_and_strides_in_elements() -> None:
    text = explain_gemm(gemm("ijkl,klm->ijm", i=2, j=3, k=5, l=7, m=11))
    # i and j are neighbours in A and D, k and l in A and B: each pair is one mode.
    assert rows(text, "M") == [["ij", "6", "35", "0", "11"]]
    assert rows(text, "N") == [["m", "11", "0", "1", "1"]]
    assert rows(text, "K") == [["kl", "35", "1", "11", "0"]]
    assert rows(text, "L") == [["-", "1"]]
    assert text.splitlines()[0] == "ijkl,klm->ijm   gemm in float32, precision ieee"
    assert "L 1 x M 6 x N 11 x K 35" in text


def test_a_swap_is_told_with_the_operands_in_their_new_roles() -> None:
    plain = explain_gemm(gemm("mk,kn->mn", m=4, n=8, k=16))
    swapped = explain_gemm(gemm("mk,kn->nm", m=4, n=8, k=16))
    assert 'A is the first operand "mk", B the second "kn"' in plain
    assert "swapped" not in plain
    assert 'A is the second operand "kn", B the first "mk": swapped' in swapped
    assert rows(swapped, "M") == [["n", "8", "1", "0", "4"]]


def test_batch_modes_and_the_shape_class_are_told() -> None:
    text = explain_gemm(gemm("lmk,lkn->lmn", l=3, m=4, n=5, k=6))
    assert "batched gemm" in text
    assert rows(text, "L") == [["l", "3", "24", "30", "20"]]


def test_one_operand_has_no_column_for_b() -> None:
    text = explain_gemm(gemm("ab->ba", a=3, b=4))
    assert "stride A  stride D" in text
    assert "stride B" not in text
    assert "only operand" in text


def test_a_stride_that_is_no_whole_element_is_given_in_bytes() -> None:
    a, d = Operand((0,), (6,), "float32"), Operand((0,), (4,), "float32")
    text = explain_gemm(make_gemm_plan(Contraction(("i",), (5,), a, None, d, None, "float32")))
    assert rows(text, "M") == [["i", "5", "6", "B", "1"]]


def test_labels_of_any_length_are_spelled() -> None:
    a, d = Operand((0, 1), (4, 12), "float32"), Operand((1, 0), (4, 20), "float32")
    contraction = Contraction(("α", "β"), (3, 5), a, None, d, None, "float32")
    assert explain_gemm(make_gemm_plan(contraction)).startswith("αβ->βα   permutation")


def test_a_schedule_is_told_in_full() -> None:
    plan = gemm("iajk,jkb->iba", i=12, a=10, j=4, k=8, b=16)
    text = explain_gemm(plan, schedule(plan, split_k=4))
    assert "mma.sync for sm_90a: tile 64 x 16 x 16, 2 x 4 warps, 3 stages, 48 KiB shared memory" in text
    names = [plan.contraction.names[s.labels[0]] for s in plan.m]
    assert [r[:2] for r in rows(text, "M")] == [[n, str(s.extent)] for n, s in zip(names, plan.m, strict=True)]
    for name, mode in zip(names, plan.m, strict=True):
        assert f"{name} 6 of {mode.extent}" in text
    assert "offsets along K come from a table" in text
    assert "4 elements (16 B) at a time, cp.async, k-major in shared memory" in text
    assert "1 element (4 B) at a time, through registers, k-major in shared memory, transposed on the way" in text
    assert "4 slices, summed in a fixed order; workspace 1 MiB" in text
    assert "DRAM; estimate 12.5 us" in text
    assert "longest runs" in text


def test_a_hopper_schedule_tells_its_warps_and_tensor_maps() -> None:
    plan = gemm("ab,bc->ac", a=128, b=64, c=64)
    move = tma_map((128, 64), (256, 4), 4, (64, 32))
    assert isinstance(move, TmaMap)
    loop = WgmmaSS(Tma("k", move), Tma("mn", move), 2, 1, True, 3)
    hopper = replace(schedule(plan), mainloop=loop, scheduler=PersistentRaster(132))
    text = explain_gemm(plan, hopper)
    assert "wgmma ss for sm_90a: tile 64 x 16 x 16, 1 producer and 2 consumer warpgroups in ping-pong, 3 stages" in text
    box = " x ".join(map(str, move.box))
    assert f"load A    by tensor map, k-major, box {box}, " in text
    assert "load B    by tensor map, mn-major, " in text
    assert "store D   2 elements (8 B) at a time" in text
    store = TmaStore(move, StagedTile((1,), (128,), 8192))
    stored = explain_gemm(plan, replace(hopper, epilogue=Epilogue(store)))
    assert f"store D   by tensor map, box {box}, " in stored
    shared = replace(loop, a=replace(loop.a, multicast=Multicast(2, None)))
    clusters = replace(hopper, mainloop=shared, scheduler=PersistentRaster(132, cluster=(1, 2)))
    assert "clusters of 1 x 2 blocks" in explain_gemm(plan, clusters)
    assert f"swizzle over {move.swizzle_bytes} bytes, shared by 2 blocks" in explain_gemm(plan, clusters)
    stays = replace(hopper, mainloop=replace(loop, b=Stationary(Tma("mn", move), 4)))
    assert "stationary: whole, once a block" in explain_gemm(plan, stays)
    panel = replace(stays, scheduler=PersistentPanel(132, "b", True, 1))
    assert "stationary: once for the block's one panel" in explain_gemm(plan, panel)


def test_exchanged_roles_and_cut_modes_are_told() -> None:
    plan = gemm("ab,bc->ac", a=10, b=32, c=16)
    other = replace(plan, m=plan.n, n=plan.m)
    made = schedule(other)
    tiling = replace(made.tiling, swap_ab=True, splits=(Split("k", 0, 8),), k=flat_box(8, 4))
    changed = replace(made, tiling=tiling)
    text = explain_gemm(plan, changed)
    assert "A and B change roles once more" in text
    assert "a mode of K is cut in two, the inner part 8 long" in text
    assert "box M     c 6 of 16" in text
    assert "box K     b.b 16 of 32" in text


@pytest.mark.parametrize(("subscripts", "group"), [("ab->ba", "LMN"), ("ab->a", "K")])
def test_a_streamed_plan_tells_only_outputs_and_k_apart(subscripts: str, group: str) -> None:
    plan = gett.plan(subscripts, ((200, 900), "float32"), arch="sm_90a")
    text = plan.explain(detail=True)
    scheduled = plan.steps[0].schedule
    assert scheduled is not None
    loop = scheduled.mainloop
    assert isinstance(loop, Stream)
    assert f"{scheduled.kind} for sm_90a: {loop.threads} threads" in text
    assert f"box {group} " in text
    assert "box N " not in text
    through = "through shared memory" if loop.a.staged else "straight into registers"
    assert f"{loop.a.width * 4} B) at a time, {through}" in text
    assert ("share each sum" in text) == isinstance(loop, StreamSum) == (group == "K")


def test_useful_share_counts_padding_in_box_and_tile() -> None:
    plan = gemm("ab,bc->ac", a=10, b=32, c=16)
    text = explain_gemm(plan, schedule(plan))
    # Two tiles of 6 cover 10 rows, in a tile of 64: 10 of 128.
    assert "a 6 of 10: 6 of 64 in the tile, 2 tiles, 8 % useful" in text
    assert "split-K   none" in text


def test_work_is_flops_bytes_and_their_quotient() -> None:
    plan = gemm("ab,bc->ac", a=100, b=100, c=100)
    assert (plan.flops, plan.bytes) == (2_000_000, 120_000)
    assert "2 MFLOP, 120 kB, 16.7 FLOP/B" in explain_gemm(plan)


@pytest.mark.parametrize(("k", "bound"), [(2, "memory"), (500, "arithmetic")])
def test_numpy_plans_say_what_bounds_them(k: int, bound: str) -> None:
    text = explain_gemm(gemm("ab,bc->ac", a=500, b=k, c=500), route="one BLAS call")
    assert f"bound     {bound}" in text
    assert "NumPy: one BLAS call" in text


def test_a_network_has_a_section_a_step_and_the_path() -> None:
    shapes = [((4, 5), "float64"), ((5, 60), "float64"), ((60, 7), "float64")]
    plan = gett.plan("ab,bc,cd->ad", *shapes)
    text = plan.explain(detail=True)
    assert len(plan.steps) == 2
    for number in (1, 2):
        assert f"step {number} of 2: " in text
    info = plan.path_info
    assert f"path {list(info.path)}" in text
    # Both steps: a b c + a c d or b c d + a b d, whichever opt_einsum takes; each costs twice its volume.
    assert format_quantity(plan.flops) + "FLOP" in text
    assert format_quantity(float(info.opt_cost)) + "op along the path" in text


def chain(count: int, extent: int = 8, **options: str) -> gett.ContractionPlan:
    """A ring-free chain of matrices, one of them larger than the others."""
    labels = [chr(0x4E00 + i) for i in range(count + 1)]
    extents = {x: extent for x in labels} | {labels[3]: 50 * extent}
    terms = list(map("".join, pairwise(labels)))
    pairs = [(tuple(extents[x] for x in term), "float32") for term in terms]
    return gett.plan(",".join(terms) + "->" + labels[0] + labels[-1], *pairs, **options)


@pytest.mark.parametrize("arch", ["cpu", "sm_80"])
def test_a_network_of_hundreds_of_steps_is_told_in_totals_its_ten_costliest_and_every_step(arch: str) -> None:
    plan = chain(301, arch=arch)
    assert len(plan.steps) == 300
    text = explain(plan)
    lines = text.splitlines()
    assert "300 steps" in lines[0]
    assert f"{format_quantity(plan.flops)}FLOP" in text
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == ["step", "subscripts"])
    listed = [plan.steps[int(line.split()[0]) - 1] for line in lines[start + 2 : start + 12]]
    assert "and 290 steps more" in lines[start + 12]
    if arch == "cpu":
        products = [s.gemm.extent_k * s.gemm.extent_m * s.gemm.extent_n for s in (listed[0], *plan.steps)]
        assert products[0] == max(products)
    else:
        times = [s.forecast.us for s in plan.steps if s.forecast is not None]
        assert [s.forecast.us for s in listed if s.forecast] == sorted(times, reverse=True)[:10]
        assert "1 of 1 small steps of a launch" not in text
    assert all(f"step {i} of 300: {s.name} " in text for i, s in enumerate(plan.steps, 1))
    assert f"path {list(plan.path_info.path)}" in text


def test_a_pair_has_no_path() -> None:
    text = gett.plan("ab,bc->ac", ((2, 3), "float32"), ((3, 4), "float32")).explain(detail=True)
    assert "path" not in text
    assert "step" not in text
    assert text.startswith("ab,bc->ac on cpu   gemm in float32")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_plan_for_a_gpu_names_its_kernel_without_one(arch: str) -> None:
    plan = gett.plan("akb,jk->jba", ((48, 40, 56), "float16"), ((24, 40), "float16"), arch=arch)
    scheduled = plan.steps[0].schedule
    assert scheduled is not None
    text = plan.explain(detail=True)
    m, n, k = scheduled.tiling.shape
    assert f"{scheduled.kind} for {arch}: tile {m} x {n} x {k}" in text
    assert "split-K" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 "), (999, "999 "), (999.6, "1 k"), (1000, "1 k"), (1.214e9, "1.21 G"), (2e-5, "20 u"), (3.2e15, "3.2 P")],
)
def test_quantities_have_three_digits_and_a_prefix(value: float, text: str) -> None:
    assert format_quantity(value) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (98304, "96 KiB"), (3 << 29, "1.5 GiB")])
def test_memory_is_in_binary_units(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_table_columns_line_up() -> None:
    lines = format_table(["who", "n"], [["a", "1"], ["longer", "100"]])
    assert lines == ["who       n", "------  ---", "a         1", "longer  100"]


@pytest.mark.parametrize("precision", [None, "tf32", "bf16x6"])
def test_a_plan_of_the_cpu_names_the_precision_that_it_computes_in(precision: str | None) -> None:
    plan = gett.plan("ij,jk->ik", ((3, 3), "float32"), ((3, 3), "float32"), precision=precision)
    detail = plan.explain(detail=True)
    assert "precision ieee" in detail
    for text in (str(plan), detail):
        assert "bf16x6" not in text
        assert "tf32" not in text
    assert plan_record(plan)["steps"][0]["precision"] == "ieee"
