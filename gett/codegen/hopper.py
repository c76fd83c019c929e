"""The Hopper kernels: tensor maps, the copies of a stage, and the places of a staged tile of D.

Emits declarations and straight-line copies; the pipeline is `gett/kernels/kernel/gemm.cuh`. What differs between main
loops is said by `gett.schedule.mainloops`; here is only the text that some of them have of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gett.codegen.common import entry, finish_kernel, named_counts, store_order, strides_of
from gett.codegen.epilogue_op import extra_tensors, op_struct, tile_op
from gett.codegen.gather import cosize, gather_index, gathered
from gett.codegen.hopper_traits import hopper_traits, smem_places
from gett.codegen.index import ZERO, Expr, Function, ParamTable, const, var
from gett.codegen.params import declare_params, map_offsets, pack_params
from gett.codegen.records import Kernel, TensorMapSpec
from gett.codegen.tiles import Statement, batch_index, d_unpack, group_index, local_coordinates
from gett.codegen.tma_coords import prefetch, tile_coords
from gett.codegen.tma_copies import stage_copies, store_pieces, tensor_maps
from gett.codegen.traits import scheduler_class
from gett.codegen.types import dtype_c
from gett.codegen.wgmma_atom import wgmma_struct
from gett.codegen.wgmma_rs import slab_loads
from gett.hw.dtypes import data_type
from gett.ir.gemm import C, D, GemmPlan
from gett.schedule.mainloops.table import hopper_kind
from gett.schedule.spec.epilogue import RowStore, TmaStore, VectorStore
from gett.schedule.spec.hopper_needs import multiplied
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import PARTS
from gett.schedule.tile.wgmma_tile import cluster_tiles
from layouts.box import Box
from layouts.tma import TmaMap

STORE_HEADERS = {TmaStore: "tma_store", RowStore: "row_store", VectorStore: "vector_store"}
"""Headers of the epilogues, whose classes have the names of the records."""

SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}
L2_PROMOTION = 2  # 128 bytes; 1 is 64

COPIES: dict[type, Callable[[GemmPlan, Schedule, ParamTable], list[str]]] = {WgmmaRS: slab_loads}
"""What gives the functions that issue the loads, where they are not those of whole stages."""


def render_hopper(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel of a lowered plan in which some warpgroups fetch and others multiply."""
    kind, copies = hopper_kind(schedule), COPIES.get(type(schedule.hopper), stage_loads)
    multiplies = kind.multiplies(plan, schedule)
    wgmma, atom = ("", multiplies) if isinstance(multiplies, str) else (wgmma_struct(multiplies), "Wgmma")
    t, loop, epilogue = schedule.tiling, schedule.hopper, schedule.epilogue
    stage = epilogue.store.stage
    assert stage is not None
    contraction = plan.contraction
    table = ParamTable()
    reads_c = epilogue.source is not None and (epilogue.vector_source or schedule.adds_parts)
    out = {"d": D, **({"c": C} if reads_c else {}), **extra_tensors(contraction)}
    found = gathered(loop)
    tensors_m, tensors_n = ({**{t: x for t, x in found.items() if t == name}, **out} for name in ("a", "b"))
    m = group_index("m", t.m, t.shape[0], strides_of(plan, plan.m, tensors_m), table)
    n = group_index("n", t.n, t.shape[1], strides_of(plan, plan.n, tensors_n), table)
    batch_struct, batch = batch_index([s.extent for s in plan.l], strides_of(plan, plan.l, {**found, **out}), table)
    order = store_order(plan, schedule)
    index = [m.to_cpp(), n.to_cpp(), batch_struct, batch.to_cpp()]
    steps = {"m": stage.m, "n": stage.n}
    index.append(d_unpack({"m": t.m, "n": t.n}, order, steps).to_cpp())
    index += [staged_place(g, box, steps[g], stage.cut).to_cpp() for g, box in (("m", t.m), ("n", t.n))]
    index += copies(plan, schedule, table)
    if epilogue.store.by_rows is not None:
        index.append(_rows_left(schedule, order[0], table))
    index += tile_op(plan, many_batches=False)
    if found:
        k_struct, k = gather_index(t.k, strides_of(plan, plan.k, found), table)
        index += [k_struct, *(f.to_cpp() for f in k)]
    size = math.prod(schedule.cluster)
    walks = cluster_tiles(t.m.tiles, t.n.tiles, schedule.cluster) * plan.extent_l * schedule.split_k
    names = {**named_counts(plan, schedule), "tiles": walks}
    if schedule.scheduler.stream_k:
        shares, divided = schedule.shares, walks % schedule.shares
        names |= {"tiles": walks - divided + PARTS * shares, "shares": shares, "stream_k_tiles": divided}
    names |= {f"cosize_{name}": cosize(plan, tensor) for name, tensor in found.items()}
    if len(names) % 2:
        names["unused"] = 0
    maps, extras = tensor_maps(schedule), len(contraction.extras)
    params = declare_params(contraction, names, table, maps)
    packed = pack_params(names, table, len(maps), extras)
    kinds = {"a": _loaded(plan), "b": _loaded(plan), "c": data_type(dtype_c(contraction)).tma}
    kinds["d"] = data_type(contraction.d.dtype).tma
    loads = {"a": loop.a.tma, "b": loop.b.tma}
    slots = tuple(
        (role, offset, _spec(made, kinds[role], loads.get(role), kind.fetches_lines))
        for (role, made), offset in zip(maps.items(), map_offsets(names, table, len(maps), extras), strict=True)
    )
    body, header = "\n".join(index), loop.kind.replace(" ", "_")
    text = (
        f'#include "gett/kernel/gemm.cuh"\n#include "gett/mainloop/{header}.cuh"\n'
        f'#include "gett/epilogue/{STORE_HEADERS[type(epilogue.store)]}.cuh"\n\n{params}\n'
        f"{op_struct(contraction)}{hopper_traits(plan, schedule, order)}\n"
        f"{smem_places(schedule)}\nstruct Index {{\n{body}\n}};\n\n{wgmma}\n"
        f"typedef gett::{scheduler_class(schedule)}<SchedulerTraits> Scheduler;\n"
        f"typedef gett::{type(epilogue.store).__name__}<EpilogueTraits, Index, Scheduler> Epilogue;\n"
        f"typedef gett::{type(loop).__name__}<MainloopTraits, Index, {atom}, Epilogue, Scheduler, Smem> "
        "Mainloop;\n"
        "typedef gett::Gemm<Mainloop, Epilogue, Scheduler, Smem> Kernel;\n\n"
        f"{entry('gett_sm90', 'Kernel::run', f'{schedule.threads}, 1', size)}"
    )
    # One block a multiprocessor; each walks tiles from its own number on.
    grid = (min(names["tiles"], schedule.shares) * size, 1, 1)
    return finish_kernel(
        schedule, contraction, "gett_sm90", text, grid, schedule.threads, t.tiles(plan.extent_l), packed, names, slots
    )


def _loaded(plan: GemmPlan) -> int:
    """The type of the maps of A and B: the elements' own, or the one that they are rounded to."""
    tensor = multiplied(plan)
    return tensor.tma if tensor is not None and tensor.tma is not None else data_type(plan.contraction.dtype).tma


def _spec(made: TmaMap, kind: int, load: Tma | None, fetches_lines: bool) -> TensorMapSpec:
    box = store_pieces(made)[0] if load is None else load.box
    extents, box = ((x[0] * made.halves, *x[1:]) for x in (made.extents, box))
    promotion = L2_PROMOTION if fetches_lines or made.swizzle_bytes != 64 else L2_PROMOTION - 1
    return TensorMapSpec(kind, extents, made.strides[1:], box, SWIZZLES[made.swizzle_bytes], promotion)


def stage_loads(plan: GemmPlan, schedule: Schedule, table: ParamTable) -> list[str]:
    """Coordinates of the boxes and the functions that issue the copies of a stage and of a tile of D."""
    coords = tile_coords(plan, schedule.tiling, table)
    outputs: dict[str, Expr] = {}
    k_outputs: dict[str, Expr] = {}
    calls: list[str] = []
    stationary: list[str] = []
    for name, loader, side in (("a", schedule.hopper.a, "m"), ("b", schedule.hopper.b, "n")):
        load = loader.tma
        if load is None:
            continue
        fixed, moving = coords.coordinates(load.map, side)
        outputs |= {f"{name}{i}": x for i, x in enumerate(fixed)}
        k_outputs |= {f"{name}{i}": x for i, x in enumerate(moving)}
        if loader is not load:  # it stays
            stationary.append(
                "  static GETT_DEVICE void load_stationary(const Params& p, const TileCoords& t, int tile_k, "
                f"gett::uint32 {name},\n      gett::uint32 bar) {{\n    const KCoords k = k_coords(p, tile_k);\n"
                + "\n".join(stage_copies(name, load))
                + "\n  }"
            )
        else:
            calls += stage_copies(name, load)
    texts = [*coords.fixed("tile_coords", outputs, "TileCoords"), *coords.moving("k_coords", k_outputs, "KCoords")]
    head = "static GETT_DEVICE void load_stage(const Params& p, const TileCoords& t, int tile_k, "
    texts.append(
        f"  {head}gett::uint32 a, gett::uint32 b, gett::uint32 bar,\n"
        f"      const gett::Multicast& multicast_a, const gett::Multicast& multicast_b) {{\n"
        "    const KCoords k = k_coords(p, tile_k);\n" + "\n".join(calls) + "\n  }"
    )
    texts += stationary
    if schedule.tiling.mma_tiles > 1:
        texts.append(_next_mma_tile(plan, schedule))
    return [*texts, *coords.store(schedule.epilogue), prefetch(tensor_maps(schedule))]


def _next_mma_tile(plan: GemmPlan, schedule: Schedule) -> str:
    """Moves the coordinates of A's copies to the next MMA tile of a tile of D."""
    load = schedule.hopper.a.tma
    assert load is not None
    _, last = schedule.tiling.m.tiled[-1]
    mode = load.map.modes[len(plan.l) + last.modes[0]]
    step = mode.weight * (last.box // schedule.tiling.mma_tiles)
    return f"  static GETT_DEVICE void next_mma_tile(TileCoords& t) {{ t.a{mode.dim} += {step}; }}"


def staged_place(group: str, box: Box, steps: tuple[int, ...], cut: tuple[str, int, int, int] | None) -> Function:
    """Where a row or column of the tile lies in the staging buffer."""
    body: list[Statement] = []
    total = ZERO
    for i, (c, step) in enumerate(zip(local_coordinates(body, box, var("local")), steps, strict=True)):
        if cut is not None and cut[:2] == (group, i):
            total = total + c % const(cut[2]) * const(step) + c // const(cut[2]) * const(cut[3])
        else:
            total = total + c * const(step)
    return Function.of(f"staging_{group}", body, total, "int")


def _rows_left(schedule: Schedule, lead: tuple[str, int], table: ParamTable) -> str:
    """Elements that D has from a tile's origin on along its fastest dimension; a row's or more where that divides."""
    group, i = lead
    box = schedule.tiling.m if group == "m" else schedule.tiling.n
    left = const(box.dims[i].box)
    body = ""
    if not box.divides(i) or len(box.dims[i].modes) > 1:
        body = f"    const {group.upper()}Tile t = {group}_tile(p, tile_{group});\n"
        left = table.count(box.dim_extent(i)) - var(f"t.o{i}")
    head = "static GETT_DEVICE int d_remaining(const Params& p, int tile_m, int tile_n)"
    return f"  {head} {{\n{body}    return {left.to_cpp()};\n  }}"
