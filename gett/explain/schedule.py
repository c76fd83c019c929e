"""Schedules as text: a line for each part of a kernel.

Owns the wording of parts. Reads plans and schedules; decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from gett.console.formatting import count as count
from gett.console.formatting import format_bytes
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.ir.packing import count_pieces
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops.kind import Fact
from gett.schedule.mainloops.table import hopper_kind, kind_of
from gett.schedule.packed import copy_schedule, plans_of, product_of
from gett.schedule.spec.epilogue import RowStore, TmaStore, VectorStore
from gett.schedule.spec.loader import CpAsync, CpAsyncTile, Gather, HopperLoader, RegisterStaged, Stationary, Tma
from gett.schedule.spec.mainloop import Hopper, Multistage, StreamMap, StreamMatrix, StreamSum
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.stream_views import output_modes
from layouts.box import Box
from layouts.modes import Strided
from layouts.tma import TmaMap


def schedule_facts(gemm: GemmPlan, schedule: Schedule) -> list[Fact]:
    """(name, text) of every part of a schedule; continued lines have no name."""
    if schedule.packing is not None:
        return _packed_facts(gemm, schedule)
    parts = {
        Multistage: _multistage_facts,
        StreamMap: _stream_facts,
        StreamSum: _stream_facts,
        StreamMatrix: _matrix_facts,
    }.get(type(schedule.mainloop), _hopper_facts)
    return [*parts(gemm, schedule), *_epilogue(gemm, schedule), _split(schedule)]


def _kernel(schedule: Schedule, size: str) -> list[Fact]:
    """The kernel, its `size` and its shared memory; what its main loop is."""
    shared = f"{size}, {format_bytes(schedule.smem.size)} shared memory"
    return [("kernel", f"{schedule.kind} for {schedule.arch}: {shared}"), ("main loop", kind_of(schedule).words)]


def _multistage_facts(gemm: GemmPlan, schedule: Schedule) -> list[Fact]:
    """A kernel whose warps all fill and multiply."""
    loop = schedule.multistage
    rows, columns = loop.warps
    groups = f" for each of {loop.batch_warps} groups of batches" if schedule.tiling.l is not None else ""
    facts = _tiled_facts(gemm, schedule, loop, f"{rows} x {columns} warps{groups}")
    return [*facts, *([("", "offsets along K come from a table")] if loop.k_table else [])]


def _hopper_facts(gemm: GemmPlan, schedule: Schedule) -> list[Fact]:
    """A kernel in which some warpgroups fetch and others multiply."""
    loop, (m, n) = schedule.hopper, schedule.cluster
    consumers = count(loop.warpgroups, "consumer warpgroup") + (" in ping-pong" if loop.ping_pong else "")
    shared = f", clusters of {m} x {n} blocks" if m * n > 1 else ""
    return _tiled_facts(gemm, schedule, loop, f"{hopper_kind(schedule).fetchers(schedule)} and {consumers}{shared}")


def _tiled_facts(gemm: GemmPlan, schedule: Schedule, loop: Multistage | Hopper, warps: str) -> list[Fact]:
    """Tile, boxes and loaders of a product."""
    t, (m, n, k), lowered = schedule.tiling, schedule.tiling.shape, lower_plan(gemm, schedule.tiling)
    facts = _kernel(schedule, f"tile {m} x {n} x {k}, {warps}, {count(loop.stages, 'stage')}")
    facts += [*kind_of(schedule).products(gemm, schedule), *_roles(schedule)]
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
    return facts


def _roles(schedule: Schedule) -> list[Fact]:
    text = "A and B change roles once more for this kernel; its M is the table's N"
    return [("", text)] if schedule.tiling.swap_ab else []


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


def _stream_facts(gemm: GemmPlan, schedule: Schedule) -> list[Fact]:
    """Kernels that tell apart only outputs (L, M and N together) and K."""
    t, loop = schedule.tiling, schedule.stream
    facts = _kernel(schedule, f"{loop.threads} threads")
    facts.append(("box LMN", _box(gemm, output_modes(gemm), t.m, t.m.size)))
    if loop.sums:
        facts.append(("box K", _box(gemm, gemm.k, t.k, t.k.size)))
        facts.append(("", f"{count(loop.lanes_k, 'lane')} share each sum"))
    for name, operand, load in (("A", gemm.a, loop.a), ("B", gemm.b, loop.b), ("C", gemm.contraction.c, loop.c)):
        if operand is not None and load is not None:
            through = "through shared memory" if load.staged else "straight into registers"
            facts.append((f"load {name}", f"{_at_a_time(load.width, itemsize(operand.dtype))}, {through}"))
    return facts


def _matrix_facts(gemm: GemmPlan, schedule: Schedule) -> list[Fact]:
    """A large operand, in its own order, times a small matrix."""
    t, loop, lowered = schedule.tiling, schedule.loop(StreamMatrix), lower_plan(gemm, schedule.tiling)
    width = loop.vector * loop.vector_k
    return [
        *_kernel(schedule, f"{loop.threads} threads"),
        ("box M", _box(lowered, lowered.m, t.m, t.m.size)),
        *_roles(schedule),
        *kind_of(schedule).products(gemm, schedule),
        ("load A", f"{_at_a_time(width, lowered.size(A))}, straight into registers"),
        ("load B", f"whole, {t.k.size} x {t.n.size}, into shared memory"),
    ]


def _loader(loader: CpAsync | RegisterStaged | HopperLoader, schedule: Schedule, size: int) -> str:
    match loader:
        case Gather():
            across = f", {loader.transform.elements} of them side by side transposed" if loader.transform else ""
            return f"gathered in pieces of {loader.run} elements, {loader.major}-major{across}"
        case CpAsyncTile():
            return f"{_at_a_time(loader.vector, size)}, cp.async, {loader.major}-major"
        case Stationary():
            return f"{_tma(loader.load)}, stationary: {_scope(schedule)}"
        case Tma():
            return _tma(loader)
    how = "through registers" if loader.through_registers else "cp.async"
    across = "" if loader.vector_group == loader.major else ", transposed on the way"
    return f"{_at_a_time(loader.vector, size)}, {how}, {loader.major}-major in shared memory{across}"


def _tma(load: Tma) -> str:
    shared = f", shared by {load.blocks} blocks" if load.blocks > 1 else ""
    return f"by tensor map, {load.major}-major, {_map(load.map, load.copies)}{shared}"


def _scope(schedule: Schedule) -> str:
    if not schedule.scheduler.tensor:
        return "whole, once a block"
    return "once for the block's one panel" if schedule.scheduler.one_panel else "once for each panel"


def _epilogue(gemm: GemmPlan, schedule: Schedule) -> list[Fact]:
    store, c = schedule.epilogue.store, schedule.epilogue.source_map
    facts = [] if c is None else [("load C", f"by tensor map to where D is staged, {_map(c, c.slabs)}")]
    match store:
        case TmaStore():
            facts.append(("store D", f"by tensor map, {_map(store.map, store.map.slabs)}"))
        case RowStore():
            text = f"rows of {store.run} elements, in aligned chunks of 16 bytes and single elements"
            facts.append(("store D", text))
        case VectorStore():
            facts.append(("store D", _at_a_time(store.vector, itemsize(gemm.contraction.d.dtype))))
    if store.reuse_mainloop_smem:
        facts.append(("", "D is staged where the stages were"))
    if store.subtiles > 1:
        facts.append(("", f"D is staged in {store.subtiles} parts, {store.buffers} at a time"))
    elif store.buffers > 1:
        facts.append(("", "D's tiles are staged in two buffers by turns"))
    if store.exchange is not None:
        facts.append(("", "two blocks of a cluster exchange halves of their tiles"))
    return facts


def _split(schedule: Schedule) -> Fact:
    slices = "none" if schedule.split_k == 1 else f"{schedule.split_k} slices, summed in a fixed order"
    if schedule.scheduler.stream_k:
        slices = f"stream-K: tiles left over are divided in {schedule.shares} shares, summed in a fixed order"
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
