"""The Hopper family: tensor maps, the copies of a stage, and the places of a staged tile of D.

Emits declarations and straight-line copies; the pipeline is `gett/kernels/kernel/warp_specialized_gemm.cuh`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gett.codegen.index import ZERO, Expr, Function, ParamTable, const, var
from gett.codegen.map_places import prefetch, tile_places
from gett.codegen.params import declare_params, map_offsets, pack_params
from gett.codegen.records import Kernel, TensorMapSpec
from gett.codegen.render_common import entry, finish_kernel, named_counts, store_order, strides_of
from gett.codegen.render_gather import gather_index, gathered, reach, registers
from gett.codegen.sm90_traits import sm90_traits
from gett.codegen.stage_copies import stage_copies, store_pieces
from gett.codegen.tiles import (
    Statement,
    batch_index,
    d_unpack,
    group_index,
    local_coordinates,
    scaled,
)
from gett.codegen.wgmma import wgmma_struct
from gett.ir.gemm import C, D, GemmPlan
from gett.schedule.cluster import cluster_tiles, part_box
from gett.schedule.records import BulkMove, Schedule, WarpRoles
from layouts.box import Box
from layouts.tma import TmaMap

DATA_TYPES = {"float16": 6, "bfloat16": 9, "float32": 7, "float64": 8}
SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}
L2_PROMOTION = 2  # 128 bytes; 1 is 64
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232


Copies = Callable[[GemmPlan, Schedule, WarpRoles, ParamTable], list[str]]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A main loop: its header, its class, and what it takes of generated text.

    `copies` gives the functions that issue the loads, `traits` further members of `Traits`, `wgmma` the instruction.
    `thrifty`: rows of 64 bytes fetch no neighbour from memory, since it will not be read soon. `registers`: of a
    producing and of a multiplying thread, where nothing is gathered.
    """

    header: str
    kernel: str
    copies: Copies
    wgmma: str
    traits: str = ""
    thrifty: bool = False
    registers: tuple[int, int] = (PRODUCER_REGISTERS, CONSUMER_REGISTERS)


def render_sm90(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel of a realized plan under a Hopper schedule."""
    roles = schedule.roles
    assert roles is not None
    wgmma = wgmma_struct(plan.contraction.dtype, schedule.block[1], roles.way("a").major, roles.way("b").major)
    return render_pipeline(plan, schedule, Pipeline("warp_specialized_gemm", "WarpSpecializedGemm", _copies, wgmma))


def render_pipeline(plan: GemmPlan, schedule: Schedule, pipeline: Pipeline) -> Kernel:
    """The kernel of a realized plan around a hand-written main loop."""
    roles = schedule.roles
    assert roles is not None
    contraction = plan.contraction
    table = ParamTable()
    vectors_c = contraction.c is not None and roles.c is None
    out = {"d": D, **({"c": C} if vectors_c else {})}
    found = gathered(roles)
    tensors_m, tensors_n = ({**{t: x for t, x in found.items() if t == name}, **out} for name in ("a", "b"))
    m = group_index("m", schedule.box_m, schedule.block[0], strides_of(plan, plan.m, tensors_m), table)
    n = group_index("n", schedule.box_n, schedule.block[1], strides_of(plan, plan.n, tensors_n), table)
    batch_struct, batch = batch_index([s.extent for s in plan.l], strides_of(plan, plan.l, {**found, **out}), table)
    order = store_order(plan, schedule)
    index = [m.to_cpp(), n.to_cpp(), batch_struct, batch.to_cpp()]
    steps = {"m": roles.stage.m, "n": roles.stage.n}
    index.append(d_unpack(schedule.box_m, schedule.box_n, order, steps).to_cpp())
    cut = roles.stage.cut
    index += [stage_place(g, box, steps[g], cut).to_cpp() for g, box in (("m", schedule.box_m), ("n", schedule.box_n))]
    index += pipeline.copies(plan, schedule, roles, table)
    if roles.rows:
        index.append(_rows_left(schedule, order[0], table))
    if found:
        k_struct, k = gather_index(plan, schedule, strides_of(plan, plan.k, found), table)
        index += [k_struct, *(f.to_cpp() for f in k)]
    tiles = schedule.box_m.tiles * schedule.box_n.tiles * plan.extent_l
    size = math.prod(roles.cluster)
    walks = cluster_tiles(schedule.box_m.tiles, schedule.box_n.tiles, roles.cluster) * plan.extent_l * schedule.split_k
    names = {**named_counts(plan, schedule), "tiles": walks}
    names |= {f"cosize_{name}": reach(plan, tensor) for name, tensor in found.items()}
    if len(names) % 2:
        names["unused"] = 0
    dtype_c = contraction.c.dtype if contraction.c is not None else contraction.d.dtype
    roles_maps = {name: move.map for name, move in (("a", roles.a), ("b", roles.b)) if move is not None}
    roles_maps |= {name: made for name, made in (("d", roles.d), ("c", roles.c)) if made is not None}
    params = declare_params(contraction.dtype, dtype_c, contraction.d.dtype, names, table, tuple(roles_maps))
    packed = pack_params(names, table, len(roles_maps))
    offsets = map_offsets(names, table, len(roles_maps))
    dtypes = {"a": contraction.dtype, "b": contraction.dtype, "c": dtype_c, "d": contraction.d.dtype}
    shares = {"a": roles.a, "b": roles.b}
    maps = tuple(
        (role, offset, _spec(made, dtypes[role], shares.get(role), pipeline.thrifty))
        for (role, made), offset in zip(roles_maps.items(), offsets, strict=True)
    )
    body = "\n".join(index)
    regs = registers(roles, schedule.block[1]) if found else pipeline.registers
    threads = 128 * (roles.consumers + roles.producers)
    text = (
        f'#include "gett/kernel/{pipeline.header}.cuh"\n\n{params}\n'
        f"{sm90_traits(plan, schedule, order, dtype_c, regs, pipeline.traits)}\n"
        f"struct Index {{\n{body}\n}};\n\n{pipeline.wgmma}\n"
        f"typedef gett::{pipeline.kernel}<Traits, Index, Wgmma> Kernel;\n\n"
        f"{entry('gett_sm90', 'Kernel::run', f'{threads}, 1', size)}"
    )
    # One block a multiprocessor; each walks tiles from its own number on.
    grid = (min(walks, schedule.blocks // size) * size, 1, 1)
    return finish_kernel(schedule, contraction, "gett_sm90", text, grid, threads, tiles, packed, maps)


def _spec(made: TmaMap, dtype: str, move: BulkMove | None, thrifty: bool) -> TensorMapSpec:
    box = store_pieces(made)[0] if move is None else part_box(move)
    promotion = L2_PROMOTION - 1 if thrifty and made.span == 64 else L2_PROMOTION
    return TensorMapSpec(DATA_TYPES[dtype], made.extents, made.strides[1:], box, SWIZZLES[made.span], promotion)


def _copies(plan: GemmPlan, schedule: Schedule, roles: WarpRoles, table: ParamTable) -> list[str]:
    """Coordinates of the boxes and the functions that issue the copies of a stage and of a tile of D."""
    places = tile_places(plan, schedule, table)
    outputs: list[tuple[str, Expr]] = []
    k_outputs: list[tuple[str, Expr]] = []
    calls: list[str] = []
    kept: list[str] = []
    for name, move, side in (("a", roles.a, "m"), ("b", roles.b, "n")):
        if move is None:
            continue
        fixed, moving = places.coordinates(move.map, side)
        outputs += [(f"{name}{i}", x) for i, x in enumerate(fixed)]
        k_outputs += [(f"{name}{i}", x) for i, x in enumerate(moving)]
        if roles.resident == name:
            kept += stage_copies(name, move)
        else:
            calls += stage_copies(name, move)
    texts = [*places.fixed("tile_coords", outputs, "TileCoords"), *places.moving("k_coords", k_outputs, "KCoords")]
    head = "static GETT_DEVICE void load_stage(const Params& p, const TileCoords& t, int tile_k, "
    texts.append(
        f"  {head}gett::uint32 a, gett::uint32 b, gett::uint32 bar,\n"
        f"      const gett::Multicast& multicast_a, const gett::Multicast& multicast_b) {{\n"
        "    const KCoords k = k_coords(p, tile_k);\n" + "\n".join(calls) + "\n  }"
    )
    if kept:
        texts.append(
            "  static GETT_DEVICE void load_stationary(const Params& p, const TileCoords& t, int tile_k, "
            f"gett::uint32 {roles.resident},\n      gett::uint32 bar) {{\n    const KCoords k = k_coords(p, tile_k);\n"
            + "\n".join(kept)
            + "\n  }"
        )
    if roles.parts > 1:
        texts.append(_next_part(plan, schedule, roles))
    return [*texts, *places.store(roles.d, roles.c, roles.trade), prefetch(roles)]


def _next_part(plan: GemmPlan, schedule: Schedule, roles: WarpRoles) -> str:
    """Moves the coordinates of A's copies to the next part of a tile of D."""
    assert roles.a is not None
    last = max((d for d in schedule.box_m.dims if d.box > 1), key=schedule.box_m.dims.index)
    mode = roles.a.map.modes[len(plan.l) + last.modes[0]]
    step = mode.weight * (last.box // roles.parts)
    return f"  static GETT_DEVICE void next_mma_tile(TileCoords& t) {{ t.a{mode.dim} += {step}; }}"


def stage_place(group: str, box: Box, steps: tuple[int, ...], cut: tuple[str, int, int, int] | None) -> Function:
    """Where a row or column of the tile lies in the staging buffer."""
    body: list[Statement] = []
    total = ZERO
    for i, (c, step) in enumerate(zip(local_coordinates(body, box, var("local")), steps, strict=True)):
        if cut is not None and cut[:2] == (group, i):
            total = total + scaled(c % const(cut[2]), step) + scaled(c // const(cut[2]), cut[3])
        else:
            total = total + scaled(c, step)
    return Function(f"staging_{group}", ("local",), tuple(body), (("", total),), "int")


def _rows_left(schedule: Schedule, lead: tuple[str, int], table: ParamTable) -> str:
    """Elements that D has from a tile's origin on along its fastest dimension; a row's or more where that divides."""
    group, i = lead
    box = schedule.box_m if group == "m" else schedule.box_n
    left = const(box.dims[i].box)
    body = ""
    if not box.divides(i) or len(box.dims[i].modes) > 1:
        body = f"    const {group.upper()}Tile t = {group}_tile(p, tile_{group});\n"
        left = table.count(box.dim_extent(i)) + Expr("mul", (const(-1), var(f"t.o{i}")))
    head = "static GETT_DEVICE int d_remaining(const Params& p, int tile_m, int tile_n)"
    return f"  {head} {{\n{body}    return {left.to_cpp()};\n  }}"
