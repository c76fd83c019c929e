"""The Hopper kernels: index functions, wgmma, what each part of `gett/kernels` is told when it is compiled, entry.

Emits declarations: constants, all from the schedule, in a struct for each record, and functions that the kernel calls.
The pipeline is `gett/kernels/kernel/gemm.cuh`. What differs between main loops is said by `gett.schedule.mainloops`.
Copies by tensor map are `gett.codegen.tma`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gett.codegen import ragged, traits
from gett.codegen.common import entry, finish_kernel, named_counts, raster_table, store_order, strides_of, work_tiles
from gett.codegen.epilogue_op import extra_tensors, op_struct, tile_op
from gett.codegen.gather import cosize, gather_index, gathered
from gett.codegen.index import ZERO, Function, ParamTable, const, var
from gett.codegen.params import cpp_type, declare_params, dtype_c, map_offsets, pack_params
from gett.codegen.records import Kernel, TensorMapSpec
from gett.codegen.tiles import Statement, batch_index, d_unpack, group_index, local_coordinates
from gett.codegen.tma import slab_loads, stage_loads, store_pieces, tensor_maps
from gett.hw.dtypes import data_type
from gett.hw.tensor_types import Planes
from gett.ir.gemm import C, D, GemmPlan
from gett.schedule.mainloops.kind import Constants, WgmmaText
from gett.schedule.mainloops.table import hopper_kind
from gett.schedule.spec.epilogue import RowStore, TmaStore, VectorStore
from gett.schedule.spec.hopper_needs import multiplied, planes
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.schedule import Schedule
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
    table = raster_table(schedule)
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
    index += [staged_place(g, box, steps[g], stage.cut).to_cpp() for g, box in (("m", t.m), ("n", schedule.staged_n))]
    index += copies(plan, schedule, table)
    if isinstance(epilogue.store, RowStore):
        index.append(_rows_left(schedule, order[0], table))
    index += tile_op(plan, many_batches=False)
    if found:
        k_struct, k = gather_index(t.k, strides_of(plan, plan.k, found), table)
        index += [k_struct, *(f.to_cpp() for f in k)]
    size = math.prod(schedule.cluster)
    of_ends = schedule.scheduler.ragged != ""
    walks = cluster_tiles(t.m.tiles, t.n.tiles, schedule.cluster) * plan.extent_l * schedule.split_k
    work, divided = work_tiles(schedule, ragged.most_tiles(plan, schedule) if of_ends else walks)
    names, tiles = {**named_counts(plan, schedule), **work}, divided * size or t.tiles(plan.extent_l)
    names |= ragged.counts(plan, schedule) if of_ends else {}
    names |= {f"cosize_{name}": cosize(plan, tensor) for name, tensor in found.items()}
    if len(names) % 2:
        names["unused"] = 0
    maps, extras = tensor_maps(schedule), len(contraction.extras)
    ends = ragged.scheduler_of(schedule).ends if of_ends else ""
    params = declare_params(contraction, names, table, maps, ends=ends)
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
        f'#include "gett/epilogue/{STORE_HEADERS[type(epilogue.store)]}.cuh"\n{ragged.HEADER * of_ends}\n{params}\n'
        f"{op_struct(contraction)}{hopper_traits(plan, schedule, order)}\n"
        f"{smem_places(schedule)}\nstruct Index {{\n{body}\n}};\n\n{wgmma}\n"
        f"typedef gett::{traits.scheduler_class(schedule)}<SchedulerTraits> Scheduler;\n"
        f"typedef gett::{type(epilogue.store).__name__}<EpilogueTraits, Index, Scheduler> Epilogue;\n"
        f"typedef gett::{type(loop).__name__}<MainloopTraits, Index, {atom}, Epilogue, Scheduler, Smem> "
        "Mainloop;\n"
        "typedef gett::Gemm<Mainloop, Epilogue, Scheduler, Smem> Kernel;\n\n"
        f"{entry('gett_sm90', ragged.FUNCTION if of_ends else 'Kernel::run', f'{schedule.threads}, 1', size)}"
    )
    # One block a multiprocessor; each walks tiles from its own number on.
    grid = (min(names["tiles"], schedule.shares) * size, 1, 1)
    return finish_kernel(schedule, contraction, "gett_sm90", text, grid, schedule.threads, tiles, packed, names, slots)


def _loaded(plan: GemmPlan) -> int:
    """The type of the maps of A and B: the elements' own, or the one that they are rounded to."""
    tensor = multiplied(plan)
    return tensor.tma if tensor is not None and tensor.tma is not None else data_type(plan.contraction.dtype).tma


def _spec(made: TmaMap, kind: int, load: Tma | None, fetches_lines: bool) -> TensorMapSpec:
    box = store_pieces(made)[0] if load is None else load.box
    extents, box = ((x[0] * made.halves, *x[1:]) for x in (made.extents, box))
    promotion = L2_PROMOTION if fetches_lines or made.swizzle_bytes != 64 else L2_PROMOTION - 1
    return TensorMapSpec(kind, extents, made.strides[1:], box, SWIZZLES[made.swizzle_bytes], promotion)


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


def hopper_traits(plan: GemmPlan, schedule: Schedule, order: list[tuple[str, int]]) -> str:
    """The traits of a kernel's parts; `order` are the tiled dimensions by D's stride."""
    structs = (
        traits.problem_traits(plan),
        traits.tile_shape(schedule, _division(schedule)),
        traits.scheduler_traits(
            schedule, order, ragged.ragged_traits(plan, schedule) if schedule.scheduler.ragged else None
        ),
        _mainloop(plan, schedule),
        traits.struct("StagedTileTraits", _staged_tile(schedule, order), "TileShape"),
        traits.struct("EpilogueTraits", _epilogue(plan, schedule, order), "StagedTileTraits", traits.store_types(plan)),
    )
    return "".join(structs)


def _division(schedule: Schedule) -> Constants:
    """How warpgroups divide the tile, and which of the accumulators' rows are rows of the box."""
    t, loop, stage = schedule.tiling, schedule.hopper, schedule.epilogue.store.stage
    assert stage is not None
    valid, rows = loop.held_rows(t.m.size // t.mma_tiles)
    return {
        "kBoxM": t.m.size // t.mma_tiles,
        "kBoxN": t.n.size,
        "kMmaTilesPerStoreTile": t.mma_tiles,
        "kConsumerWarpgroups": loop.warpgroups,
        "kMmaM": loop.mma_m,
        "kPingPong": loop.ping_pong,
        "kInterleaveRows": stage.copy.rows,
        "kGroupValidRows": valid,
        "kGroupRows": rows,
    }


def smem_places(schedule: Schedule) -> str:
    """The struct `Smem`, which has the distance of two staging buffers, too."""
    s, loop = schedule.smem, schedule.hopper
    parts = {
        "kStationary": s.stationary,
        "kPlanes": s.planes,
        "kStaging": s.staging,
        "kStagingPitch": (s.barriers - s.staging) // (loop.warpgroups if loop.ping_pong else 1),
        "kBarriers": s.barriers,
        "kGather": s.loaders,
    }
    return traits.smem_struct(s, parts)


def _mainloop(plan: GemmPlan, schedule: Schedule) -> str:
    """The struct `MainloopTraits`, with a struct for the loader of each operand."""
    kind, loop = hopper_kind(schedule), schedule.hopper
    producer, consumer = kind.registers(plan, loop, schedule.tiling.shape[1])
    constants = {"kStages": loop.stages, "kProducerRegs": producer, "kConsumerRegs": consumer}
    loaders = zip(("LoaderTraitsA", "LoaderTraitsB"), kind.loader_traits(plan, schedule), strict=True)
    inside = [traits.struct(name, members).rstrip().replace("\n", "\n  ") for name, members in loaders]
    functions = _plane_functions(made) if (made := planes(plan)) is not None else []
    fields = {name: getattr(loop, field) for name, field in kind.fields.items()}
    members = {**constants, **fields, **kind.traits(plan, schedule)}
    return traits.struct("MainloopTraits", members, "TileShape", [*inside, *functions])


def _plane_functions(made: Planes) -> list[str]:
    """The type of planes, and which of them the i-th product takes."""
    texts = [f"typedef {cpp_type(made.tensor.name)} Plane;"]
    for at, name in enumerate("ab"):
        found = ", ".join(str(product[at]) for product in made.products)
        texts.append(
            f"static GETT_DEVICE constexpr int plane_{name}(int i) {{ const int x[] = {{{found}}}; return x[i]; }}"
        )
    return texts


def _staged_tile(schedule: Schedule, order: list[tuple[str, int]]) -> Constants:
    """How a tile of D lies in shared memory, and how accumulators get there."""
    n, stage = schedule.staged_n, schedule.epilogue.store.stage
    assert stage is not None
    copy = "".join(word.capitalize() for word in stage.copy.kind.split("_"))  # as `gett/kernels/core/types.cuh` has it
    lead = next((i for i, _ in n.tiled), None)
    whole8 = stage.cut is None or stage.cut[:2] != ("n", lead) or stage.cut[2] % 8 == 0
    by8 = lead is not None and n.dims[lead].box % 8 == 0 and n.size % 8 == 0 and whole8
    return {
        "kStagingElements": stage.elements,
        "kSwizzleBytesD": stage.swizzle_bytes,
        "kR2SCopy": f"R2SCopy::kR2S{copy}",
        "kR2SVector": stage.copy.vector,
        "kR2SStepN": _r2s_step(schedule, order),
        "kColumnsBy8": by8,
        "kStagingStepN": stage.n[lead] if lead is not None else 0,
        "kRecomputePlaces": schedule.hopper.by_warps and not by8,
    }


def _epilogue(plan: GemmPlan, schedule: Schedule, order: list[tuple[str, int]]) -> Constants:
    """How D is stored and where C comes from."""
    store, source = schedule.epilogue.store, schedule.epilogue.source_map
    constants = dict(traits.store_traits(plan, schedule, order))
    if store.map is not None:
        constants |= {
            "kRepairs": hopper_kind(schedule).repairs,
            "kStoreWarp": not schedule.hopper.by_warps,
            "kReuseMainloopSmem": store.reuse_mainloop_smem,
            "kExchange": store.exchange is not None,
            "kSubtiles": store.subtiles,
            "kSubtileBuffers": store.buffers,
        }
    if source is not None:
        constants["kTransactionBytesC"] = source.transaction_bytes * source.slabs
    if isinstance(store, RowStore):
        constants["kRowLengthD"] = store.run
    return constants


def _r2s_step(schedule: Schedule, order: list[tuple[str, int]]) -> int:
    """Groups of eight columns between neighbours of D's fastest dimension, where it lies in N."""
    if not order or order[0][0] != "n":
        return 1
    return max(1, math.prod(d.box for d in schedule.tiling.n.dims[: order[0][1]]) // 8)


def wgmma_struct(text: WgmmaText) -> str:
    """A C++ struct `Wgmma` with a function `mma` for each number of columns, which the sums' length tells apart.

    With both operands in shared memory it is `mma(acc, a, b, keep)`: acc = A * B, or acc += A * B to keep. With A's
    fragment in registers it is `mma(acc, a0, a1, a2, a3, b)`, which adds, or `mma<sign>(acc, a, b, keep)`, where `a`
    has those four and the product has a sign.
    """
    return f"struct Wgmma {{\n{''.join(_function(text, n) for n in text.columns)}}};\n"


def _function(text: WgmmaText, n: int) -> str:
    count = n // 2
    fragment = f"{{{', '.join(f'%{count + i}' for i in range(4))}}}, %{count + 4}, "
    name, template, last = f"{_instruction(text, n)}, ", "", f"1{_transposed(text)};\\n"
    if len(text.majors) == 2:
        arguments, inputs = "gett::uint64 a, gett::uint64 b, bool keep", ['"l"(a)', '"l"(b)']
        lines = [f"{name}%{count}, %{count + 1}, ", f"keep, 1, {last}"]
    elif text.signed:
        template, arguments = "  template <int kSign = 1>\n", "const gett::uint32 (&a)[4], gett::uint64 b, bool keep"
        inputs = [*(f'"r"(a[{i}])' for i in range(4)), '"l"(b)']
        lines = [name, f"{fragment}keep, %{count + 6}, {last}"]
    else:
        arguments = ", ".join([*(f"gett::uint32 a{i}" for i in range(4)), "gett::uint64 b"])
        inputs = [*(f'"r"(a{i})' for i in range(4)), '"l"(b)']
        lines = [f"{name}{fragment}", f"1, 1, {last}"]
    if "keep" in arguments:
        declared = f"{{\\n.reg .pred keep;\\nsetp.ne.b32 keep, %{count + len(inputs)}, 0;\\n"
        lines = [declared, lines[0], f"{lines[1]}}}\\n"]
        inputs += ['"r"(int(keep))', *(['"n"(kSign)'] if text.signed else [])]
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    body = "".join(f'        "{line}"\n' for line in lines)
    return (
        f"{template}  static GETT_DEVICE void mma(float (&d)[{count}], {arguments}) {{\n    asm volatile(\n{body}"
        f"        : {outputs}\n        : {', '.join(inputs)});\n  }}\n"
    )


def _instruction(text: WgmmaText, n: int) -> str:
    """Its name for `n` columns, and the registers of their sums."""
    atom, kind = text.tensor.wgmma, text.tensor.kind
    assert atom is not None
    assert n in range(atom.n, atom.most_n + 1, atom.n)
    sums = ", ".join(f"%{i}" for i in range(n // 2))
    return f"wgmma.mma_async.sync.aligned.m{atom.m}n{n}k{atom.k}.f32.{kind}.{kind} {{{sums}}}"


def _transposed(text: WgmmaText) -> str:
    """Its last operands: whether a tile is MN-major; types that must be K-major have none."""
    atom = text.tensor.wgmma
    assert atom is not None
    assert set(text.majors) <= set(atom.majors), text
    return "".join(f", {int(major != 'k')}" for major in text.majors) if atom.either_major else ""
