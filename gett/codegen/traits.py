"""The traits that every GEMM kernel has: the problem's types, the scheduler's, and what any epilogue asks.

A part of a kernel is told what it is by a struct of its own, made from the record of that part. Types and tile are
shared: the structs of main loop and epilogue extend `TileShape`, which extends `ProblemTraits`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gett.codegen.common import cpp_bool, source_c
from gett.codegen.epilogue_op import op_traits
from gett.codegen.params import cpp_type, dtype_c
from gett.codegen.store_lines import is_near, store_lines
from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan
from gett.schedule.mainloops.kind import Constants
from gett.schedule.spec.schedule import Schedule, SmemPlan


def struct(name: str, constants: Constants, base: str = "", more: Sequence[str] = ()) -> str:
    """A struct of constants, which may extend another one; `more` are further members, as C++."""
    lines = [*more, *(f"static constexpr {_declared(k, v)};" for k, v in constants.items())]
    body = "".join(f"  {line}\n" for line in lines)
    return f"struct {name}{f' : {base}' if base else ''} {{\n{body}}};\n"


def _declared(name: str, value: bool | int | str) -> str:
    if isinstance(value, bool):
        return f"bool {name} = {cpp_bool(value)}"
    if isinstance(value, int):
        return f"int {name} = {value}"
    kind, enumerator = value.split("::")
    return f"gett::{kind} {name} = gett::{enumerator}"


def problem_traits(plan: GemmPlan) -> str:
    """The struct `ProblemTraits`: the types of the argument and of elements."""
    c = plan.contraction
    types = {
        "Element": c.dtype, "ElementC": dtype_c(c), "ElementD": c.d.dtype, "Acc": data_type(c.dtype).accumulator
    }  # fmt: skip
    return struct(
        "ProblemTraits",
        {},
        more=["typedef ::Params Params;", *(f"typedef {cpp_type(dtype)} {name};" for name, dtype in types.items())],
    )


def tile_shape(schedule: Schedule, more: Constants) -> str:
    """The struct `TileShape`: the block's tile, what it holds of the box, and how products divide it (`more`)."""
    t = schedule.tiling
    block = dict(zip(("kBlockM", "kBlockN", "kBlockK"), t.shape, strict=True))
    return struct("TileShape", {**block, "kBoxMN": t.m.size * t.n.size * t.batches, **more}, "ProblemTraits")


def scheduler_traits(schedule: Schedule, order: Sequence[tuple[str, int]], more: Constants | None = None) -> str:
    """The struct `SchedulerTraits`: partial tiles, clusters and panels; `order` has tiled dimensions by D's stride.

    `more` are constants of schedulers that read the ends of problems.
    """
    along_m = bool(order) and order[0][0] == "m"
    constants: dict[str, bool | int | str] = {"kSplit": schedule.split_k > 1, "kPartialsAlongM": along_m}
    scheduler, exchange = schedule.scheduler, schedule.epilogue.store.exchange
    if scheduler.persistent:
        constants |= {
            "kClusterM": schedule.cluster[0],
            "kClusterN": schedule.cluster[1],
            "kTileDistance": max(1, exchange.distance) if exchange is not None else 1,
        }
    if scheduler.tensor:
        constants |= {"kPanelA": scheduler.tensor == "a", "kOnePanel": scheduler.one_panel}
    if scheduler.stream_k or more:
        return struct("SchedulerTraits", {**constants, **(more or {})}, more=["typedef ::Params Params;"])
    if scheduler.tensor or not scheduler.persistent:
        return struct("SchedulerTraits", constants)
    clusters = scheduler.cluster_order
    constants["kOrderedClusters"] = len(clusters)
    if scheduler.group_l > 1:
        constants["kGroupL"] = scheduler.group_l
    if not clusters:
        return struct("SchedulerTraits", constants)
    numbers = ", ".join(map(str, clusters))
    table = f"__constant__ const unsigned char kClusterOrder[{len(clusters)}] = {{{numbers}}};\n"
    read = "static GETT_DEVICE int cluster_order(int cluster) { return kClusterOrder[cluster]; }"
    return table + struct("SchedulerTraits", constants, more=[read])


def smem_struct(smem: SmemPlan, more: Constants) -> str:
    """The struct `Smem`: bytes from the start of a block's shared memory; `more` are places of some kernels."""
    places = ", ".join(f"{name} = {value}" for name, value in {"kStages": smem.stages, **more}.items())
    return f"struct Smem {{\n  static constexpr int kSize = {smem.size}, {places};\n}};\n"


def scheduler_class(schedule: Schedule) -> str:
    """The class of `gett/kernels/scheduler`, which has the name of the record, as a rule."""
    if schedule.scheduler.ragged == "k":
        return "PersistentRaggedSums"
    return "PersistentBatches" if schedule.scheduler.group_l > 1 else type(schedule.scheduler).__name__


def store_types(plan: GemmPlan) -> list[str]:
    """Types in `EpilogueTraits`: what holds an offset of D and of C in elements."""
    return [f"typedef {'int' if is_near(plan) else 'long long'} Offset;"]


def store_traits(plan: GemmPlan, schedule: Schedule, order: Sequence[tuple[str, int]]) -> Constants:
    """Members of `EpilogueTraits` that every epilogue has: where C comes from, vectors of D, and their steps.

    `order` are the tiled dimensions by D's stride.
    """
    t = schedule.tiling
    step = {"m": 0, "n": 0}  # in the tile, between neighbours along D's fastest dimension
    if order:
        group, i = order[0]
        if group == "l":  # batches lie one above the other
            assert t.l is not None
            step["m"] = t.shape[0] * t.l.prefix(i)
        else:
            step[group] = (t.m if group == "m" else t.n).prefix(i)
    source = source_c(plan.contraction.c is not None, schedule.epilogue.source_map is not None)
    lines = store_lines(plan, schedule, order)
    return {
        "kSourceC": f"SourceC::{source.removeprefix('gett::')}",
        "kVecD": schedule.epilogue.store.vector,
        "kLine": lines.line,
        "kLines": lines.lines,
        "kLineLanes": lines.lanes,
        "kStepM": step["m"],
        "kStepN": step["n"],
        **op_traits(plan.contraction),
    }
