"""The traits of the Hopper kernels: what each part of `gett/kernels` is told when it is compiled.

Constants only, all from the schedule, in a struct for each record; functions, which the kernel calls, are
`hopper`'s.
"""

from __future__ import annotations

import math

from gett.codegen.traits import problem_traits, scheduler_traits, smem_struct, store_traits, struct, tile_shape
from gett.codegen.types import cpp_type
from gett.hw.tensor_types import Planes
from gett.ir.gemm import GemmPlan
from gett.schedule.mainloops.kind import Constants
from gett.schedule.mainloops.table import hopper_kind
from gett.schedule.spec.hopper_needs import planes
from gett.schedule.spec.schedule import Schedule


def hopper_traits(plan: GemmPlan, schedule: Schedule, order: list[tuple[str, int]]) -> str:
    """The traits of a kernel's parts.

    Args:
        plan: A lowered plan.
        schedule: How it runs.
        order: Tiled dimensions by D's stride.
    """
    structs = (
        problem_traits(plan),
        tile_shape(schedule, _division(schedule)),
        scheduler_traits(schedule, order),
        _mainloop(plan, schedule),
        struct("StagedTileTraits", _staged_tile(schedule, order), "TileShape"),
        struct("EpilogueTraits", _epilogue(plan, schedule, order), "StagedTileTraits"),
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
    return smem_struct(s, parts)


def _mainloop(plan: GemmPlan, schedule: Schedule) -> str:
    """The struct `MainloopTraits`, with a struct for the loader of each operand."""
    kind, loop = hopper_kind(schedule), schedule.hopper
    producer, consumer = kind.registers(plan, loop, schedule.tiling.shape[1])
    constants = {"kStages": loop.stages, "kProducerRegs": producer, "kConsumerRegs": consumer}
    loaders = zip(("LoaderTraitsA", "LoaderTraitsB"), kind.loader_traits(plan, schedule), strict=True)
    inside = [struct(name, members).rstrip().replace("\n", "\n  ") for name, members in loaders]
    functions = _plane_functions(made) if (made := planes(plan)) is not None else []
    return struct("MainloopTraits", {**constants, **kind.traits(plan, schedule)}, "TileShape", [*inside, *functions])


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
    t, stage = schedule.tiling, schedule.epilogue.store.stage
    assert stage is not None
    copy = "".join(word.capitalize() for word in stage.copy.kind.split("_"))  # as `gett/kernels/core/types.cuh` has it
    lead = next((i for i, _ in t.n.tiled), None)
    whole8 = stage.cut is None or stage.cut[:2] != ("n", lead) or stage.cut[2] % 8 == 0
    by8 = lead is not None and t.n.dims[lead].box % 8 == 0 and t.n.size % 8 == 0 and whole8
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
    constants = dict(store_traits(plan, schedule, order))
    if store.map is not None:
        constants |= {
            "kRepairs": hopper_kind(schedule).repairs,
            "kStoreWarp": not schedule.hopper.by_warps,
            "kReuseMainloopSmem": store.reuse_mainloop_smem,
            "kExchange": store.exchange is not None,
        }
    if source is not None:
        constants["kTransactionBytesC"] = source.transaction_bytes * source.slabs
    if (rows := store.by_rows) is not None:
        constants["kRowLengthD"] = rows.run
    return constants


def _r2s_step(schedule: Schedule, order: list[tuple[str, int]]) -> int:
    """Groups of eight columns between neighbours of D's fastest dimension, where it lies in N."""
    if not order or order[0][0] != "n":
        return 1
    return max(1, math.prod(d.box for d in schedule.tiling.n.dims[: order[0][1]]) // 8)
