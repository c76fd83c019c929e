"""Schedules as text: a line for each part of a kernel.

Owns the wording of parts. Reads plans and schedules; decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from gett.console.formatting import count as count
from gett.console.formatting import format_bytes
from gett.hw.dtypes import data_type
from gett.hw.tensor_types import TensorType
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.ir.packing import count_pieces
from gett.schedule.lower import lower_plan
from gett.schedule.packed import copy_schedule, plans_of, product_of
from gett.schedule.spec.epilogue import RowStore, TmaSource, TmaStore
from gett.schedule.spec.loader import CpAsync, CpAsyncTile, Gather, RegisterStaged, Stationary, Tma, WgmmaLoader
from gett.schedule.spec.mainloop import Multistage, Stream, StreamMatrix, StreamSum, WgmmaSplit, WgmmaTf32
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import PersistentPanel
from gett.schedule.spec.stream_views import output_modes
from gett.schedule.spec.wgmma_needs import parts, planes
from layouts.box import Box
from layouts.modes import Strided
from layouts.tma import TmaMap

Fact = tuple[str, str]


def schedule_facts(gemm: GemmPlan, schedule: Schedule) -> list[Fact]:
    """(name, text) of every part of a schedule; continued lines have no name."""
    if schedule.packing is not None:
        return _packed_facts(gemm, schedule)
    t, loop = schedule.tiling, schedule.mainloop
    shared = f"{format_bytes(schedule.smem.size)} shared memory"
    kernel = f"{schedule.kind} for {schedule.arch}: "
    if isinstance(loop, StreamMatrix):
        return [("kernel", f"{kernel}{loop.threads} threads, {shared}"), *_matrix_facts(gemm, schedule, loop)]
    if isinstance(loop, Stream):
        return [("kernel", f"{kernel}{loop.threads} threads, {shared}"), *_stream_facts(gemm, schedule, loop)]
    m, n, k = t.shape
    lowered = lower_plan(gemm, t, schedule.precision)
    facts = [("kernel", f"{kernel}tile {m} x {n} x {k}, {_warps(schedule)}, {count(loop.stages, 'stage')}, {shared}")]
    if isinstance(loop, WgmmaSplit):
        facts += _planes(lowered, schedule, gemm.contraction.precision)
    elif planes(gemm) is not None:
        facts.append(_multiply_adds(gemm))
    elif (tensor := data_type(gemm.contraction.dtype).multiplied(gemm.contraction.precision)) is not None:
        facts += _rounded(gemm, tensor)
    if t.swap_ab:
        facts.append(("", "A and B change roles once more for this kernel; its M is the table's N"))
    for split in t.splits:
        facts.append(("", f"a mode of {split.group.upper()} is cut in two, the inner part {split.inner} long"))
    if t.mma_tiles > 1:
        facts.append(("", f"{t.mma_tiles} MMA tiles of {m} x {n} make a tile of D, staged one after the other"))
    for name, modes, box, block in (
        ("M", lowered.m, t.m, m * t.mma_tiles),
        ("N", lowered.n, t.n, n),
        ("K", lowered.k, t.k, k),
    ):
        facts.append((f"box {name}", _box(gemm, modes, box, block)))
    if t.l is not None:
        facts.append(("box L", _box(gemm, lowered.l, t.l, t.batches)))
    for which, loader in ((A, loop.a), (B, loop.b)):
        facts.append((f"load {'AB'[which]}", _loader(loader, schedule, lowered.size(which))))
    if isinstance(loop, Multistage) and loop.k_table:
        facts.append(("", "offsets along K come from a table"))
    return [*facts, *_epilogue(gemm, schedule), _split(schedule)]


def _packed_facts(gemm: GemmPlan, schedule: Schedule) -> list[Fact]:
    """Which tensors are copied, how, in how many pieces; then the product of the copies."""
    packing, c = schedule.packing, gemm.contraction
    assert packing is not None
    made, facts = plans_of(gemm, packing), []
    roles = {"a": "B", "b": "A", "d": "D"} if gemm.swapped else {"a": "A", "b": "B", "d": "D"}
    for tensor in made.tensors:
        a, d = (made.piece.d if tensor.name == "d" else getattr(made.piece, tensor.name)), tensor.plan.contraction
        order = sorted(range(len(a.modes)), key=lambda m: -abs((d.a if tensor.name == "d" else d.d).stride(m)))
        dense = "".join(c.names[a.modes[m]] for m in order)
        text = f'"{c.spell(a)}" as "{dense}", {_copied(schedule, tensor.name)}'
        facts.append((f"copy {roles[tensor.name]}", text))
    pieces = count_pieces(c, packing.cuts)
    cut = " and ".join(f"{length} of {c.names[mode]}" for mode, length in packing.cuts)
    how = f"in {count(pieces, 'piece')} of {cut}, one after the other" if pieces > 1 else "all at once"
    facts.append(("copies", f"{how}; workspace {format_bytes(schedule.workspace_bytes)}"))
    facts.append(("", "the product below is that of the copies of a piece"))
    return [*facts, *schedule_facts(made.product, product_of(schedule))]


def _copied(schedule: Schedule, name: str) -> str:
    part = copy_schedule(schedule.arch, getattr(schedule.packing, name))
    cut = " x ".join(str(d.box) for d in part.tiling.m.dims if d.box > 1) or "1"
    return f"boxes of {cut}, {format_bytes(part.smem.size)} shared memory"


def _stream_facts(gemm: GemmPlan, schedule: Schedule, loop: Stream) -> list[Fact]:
    """Kernels that tell apart only outputs (L, M and N together) and K."""
    t = schedule.tiling
    facts = [("box LMN", _box(gemm, output_modes(gemm), t.m, t.m.size))]
    if isinstance(loop, StreamSum):
        facts.append(("box K", _box(gemm, gemm.k, t.k, t.k.size)))
        facts.append(("", f"{count(loop.lanes_k, 'lane')} share each sum"))
    for name, operand, load in (("A", gemm.a, loop.a), ("B", gemm.b, loop.b), ("C", gemm.contraction.c, loop.c)):
        if operand is not None and load is not None:
            through = "through shared memory" if load.staged else "straight into registers"
            facts.append((f"load {name}", f"{_at_a_time(load.width, itemsize(operand.dtype))}, {through}"))
    return [*facts, *_epilogue(gemm, schedule), _split(schedule)]


def _matrix_facts(gemm: GemmPlan, schedule: Schedule, loop: StreamMatrix) -> list[Fact]:
    """A large operand, in its own order, times a small matrix."""
    t, lowered = schedule.tiling, lower_plan(gemm, schedule.tiling)
    size = lowered.size(A)
    facts = [("box M", _box(lowered, lowered.m, t.m, t.m.size))]
    if t.swap_ab:
        facts.append(("", "A and B change roles once more for this kernel; its M is the table's N"))
    if planes(gemm) is not None:
        facts.append(_multiply_adds(gemm))
    facts.append(("load A", f"{_at_a_time(loop.vector * loop.vector_k, size)}, straight into registers"))
    facts.append(("load B", f"whole, {t.k.size} x {t.n.size}, into shared memory"))
    return [*facts, *_epilogue(gemm, schedule), _split(schedule)]


def _warps(schedule: Schedule) -> str:
    loop = schedule.mainloop
    if isinstance(loop, Multistage):
        rows, columns = loop.warps
        groups = f" for each of {loop.batch_warps} groups of batches" if schedule.tiling.l is not None else ""
        return f"{rows} x {columns} warps{groups}"
    wgmma = schedule.hopper
    loaders = (wgmma.a, wgmma.b)
    fetch = "1 producer"
    if any(isinstance(x, Gather) for x in loaders):
        fetch = count(wgmma.producers, "gathering warpgroup")
    elif any(isinstance(x, CpAsyncTile) for x in loaders):
        fetch = "1 copying warpgroup"
    m, n = schedule.cluster
    shared = f", clusters of {m} x {n} blocks" if m * n > 1 else ""
    kind = " in ping-pong" if wgmma.ping_pong else ""
    fetch += ", 1 warpgroup that splits B" if isinstance(wgmma, WgmmaSplit) else ""
    if isinstance(wgmma, WgmmaTf32) and wgmma.transposed_stages:
        fetch += ", 1 warpgroup that transposes B"
    return f"{fetch} and {count(wgmma.warpgroups, 'consumer warpgroup')}{kind}{shared}"


def _planes(gemm: GemmPlan, schedule: Schedule, asked: str) -> list[Fact]:
    """Which products are formed, and how far off their sums may be."""
    made = planes(gemm)
    assert made is not None
    pairs = parts(gemm) ** 2
    deep = 16 * made.sum_steps(parts(gemm), schedule.tiling.shape[2])
    kind = f"{'scaled ' if made.scaled else ''}{made.tensor.name} planes of each {'part' if pairs > 1 else 'operand'}"
    formed = f"{pairs * len(made.products)}, of {made.count} {kind}; float32 sums of every {deep} k"
    worst = made.bound_complex if pairs > 1 else made.bound
    bound = f"errors at most {worst} units of 2^-24 of a sum's magnitudes; other data by multiply-adds"
    counted = f"where numbers count as {made.low} or more of the largest that they are scaled with"
    more = [("", f"{schedule.precision} in place of {asked}, and at least as accurate")] if schedule.precision else []
    return [("products", formed), *more, ("", bound), *([("", counted)] if made.scaled else [])]


def _multiply_adds(gemm: GemmPlan) -> Fact:
    """Products of whole operands where planes were asked for."""
    return "products", f"fused multiply-adds, at least as accurate as {gemm.contraction.precision}"


def _rounded(gemm: GemmPlan, tensor: TensorType) -> list[Fact]:
    """Whether operands are rounded, and to what."""
    if data_type(gemm.contraction.dtype).exact:
        return []
    return [("products", f"of operands rounded to the nearest {tensor.name}, 2^-11 of each at most; float32 sums")]


def _loader(loader: CpAsync | RegisterStaged | WgmmaLoader, schedule: Schedule, size: int) -> str:
    if isinstance(loader, Gather):
        across = f", {loader.transform.elements} of them side by side transposed" if loader.transform else ""
        return f"gathered in pieces of {loader.run} elements, {loader.major}-major{across}"
    if isinstance(loader, CpAsyncTile):
        return f"{_at_a_time(loader.vector, size)}, cp.async, {loader.major}-major"
    if isinstance(loader, Stationary):
        return f"{_tma(loader.load)}, stationary: {_scope(schedule)}"
    if isinstance(loader, Tma):
        return _tma(loader)
    how = "cp.async" if isinstance(loader, CpAsync) else "through registers"
    across = "" if loader.vector_group == loader.major else ", transposed on the way"
    return f"{_at_a_time(loader.vector, size)}, {how}, {loader.major}-major in shared memory{across}"


def _tma(load: Tma) -> str:
    shared = f", shared by {load.blocks} blocks" if load.blocks > 1 else ""
    return f"by tensor map, {load.major}-major, {_map(load.map, load.copies)}{shared}"


def _scope(schedule: Schedule) -> str:
    if not isinstance(schedule.scheduler, PersistentPanel):
        return "whole, once a block"
    return "once for the block's one panel" if schedule.scheduler.one_panel else "once for each panel"


def _epilogue(gemm: GemmPlan, schedule: Schedule) -> list[Fact]:
    store, source = schedule.epilogue.store, schedule.epilogue.source
    facts = []
    if isinstance(source, TmaSource):
        text = f"by tensor map to where D is staged, {_map(source.map, source.map.slabs)}"
        facts.append(("load C", text))
    if isinstance(store, TmaStore):
        facts.append(("store D", f"by tensor map, {_map(store.map, store.map.slabs)}"))
        if store.reuse_mainloop_smem:
            facts.append(("", "D is staged where the stages were"))
        if store.exchange is not None:
            facts.append(("", "two blocks of a cluster exchange halves of their tiles"))
    elif isinstance(store, RowStore):
        facts.append(("store D", f"rows of {store.run} elements, in aligned chunks of 16 bytes and single elements"))
    else:
        facts.append(("store D", _at_a_time(store.vector, itemsize(gemm.contraction.d.dtype))))
    return facts


def _split(schedule: Schedule) -> Fact:
    slices = "none" if schedule.split_k == 1 else f"{schedule.split_k} slices, summed in a fixed order"
    return "split-K", f"{slices}; workspace {format_bytes(schedule.workspace_bytes)}"


def _box(gemm: GemmPlan, modes: Sequence[Strided], box: Box, block: int) -> str:
    if not box.dims:
        return f"empty group: 1 of {block}"
    parts = [
        f"{'.'.join(spell(gemm, modes[p]) for p in reversed(dim.modes))} {dim.box} of {box.dim_extent(i)}"
        for i, dim in enumerate(box.dims)
    ]
    return (
        f"{', '.join(parts)}: {box.size} of {block} in the tile, {count(box.tiles, 'tile')}, "
        f"{100 * box.efficiency(max(block, box.size)):.0f} % useful"
    )


def _map(tensor_map: TmaMap, copies: int) -> str:
    box = " x ".join(map(str, tensor_map.box))
    return f"box {box}, {count(copies, 'copy', 'copies')} a tile, swizzle over {tensor_map.swizzle_bytes} bytes"


def _at_a_time(elements: int, size: int) -> str:
    return f"{count(elements, 'element')} ({elements * size} B) at a time"


def spell(gemm: GemmPlan, mode: Strided) -> str:
    """The modes that are fused into one, slowest first."""
    names = gemm.contraction.names
    return "".join(names[label] for label in reversed(mode.labels) if isinstance(label, int)) or "-"
