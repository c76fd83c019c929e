"""The traits of the wgmma kernels: what each part of `gett/kernels` is told when it is compiled.

Constants only, all from the schedule, in a struct for each record; functions, which the kernel calls, are
`wgmma_kernel`'s.
"""

from __future__ import annotations

import math

from gett.codegen.traits import Constants, problem_traits, scheduler_traits, store_traits, struct, tile_shape
from gett.codegen.types import cpp_type
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.epilogue import RowStore, TmaSource, TmaStore
from gett.schedule.spec.loader import CpAsyncTile, Gather, Stationary, Tma, WgmmaLoader, tma_of
from gett.schedule.spec.mainloop import DmmaTma, Hopper, WgmmaRS, WgmmaSplit, WgmmaSS, WgmmaTf32
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.wgmma_needs import (
    chunk_columns,
    gathers,
    leads,
    parts,
    planes,
    swizzle_of,
    up,
    valid_k,
)
from gett.schedule.spec.wgmma_registers import thread_registers

R2S_COPIES = {
    "scalar": "kR2SScalar",
    "stsm": "kR2SStsm",
    "stsm_t": "kR2SStsmT",
    "vec_n": "kR2SVecN",
    "vec_m": "kR2SVecM",
    "pair_n": "kR2SPairN",
    "one": "kR2SOne",
}
"""Enumerators of `R2SCopy` (`gett/kernels/epilogue/r2s.cuh`) by the schedule's name."""


def wgmma_traits(plan: GemmPlan, schedule: Schedule, order: list[tuple[str, int]], dtype_c: str) -> str:
    """The traits of a kernel's parts.

    Args:
        plan: A lowered plan.
        schedule: How it runs.
        order: Tiled dimensions by D's stride.
        dtype_c: Type of C, or of D where there is none.
    """
    structs = (
        problem_traits(plan, dtype_c),
        tile_shape(schedule, _division(schedule)),
        scheduler_traits(schedule),
        _mainloop(plan, schedule),
        struct("StagedTileTraits", _staged_tile(schedule, order), "TileShape"),
        struct("EpilogueTraits", _epilogue(plan, schedule, order), "StagedTileTraits"),
    )
    return "".join(structs)


def _division(schedule: Schedule) -> Constants:
    """How warpgroups divide the tile, and which of the accumulators' rows are rows of the box."""
    t, loop, stage = schedule.tiling, schedule.hopper, schedule.epilogue.store.stage
    assert stage is not None
    valid, rows = _rows_of_groups(loop, tma_of(loop.a), t.m.size // t.mma_tiles)
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


def _mainloop(plan: GemmPlan, schedule: Schedule) -> str:
    """The struct `MainloopTraits`, with a struct for the loader of each operand."""
    t, loop = schedule.tiling, schedule.hopper
    producer, consumer = thread_registers(plan, loop, t.shape[1])
    constants: dict[str, bool | int | str] = {
        "kStages": loop.stages, "kProducerRegs": producer, "kConsumerRegs": consumer
    }  # fmt: skip
    if isinstance(loop, WgmmaRS):
        constants["kPerWarpgroupA"] = loop.per_warpgroup_a
        made, made_b = loop.a.map, loop.b.map
        a: Constants = {
            "kSwizzleBytes": made.swizzle_bytes,
            "kTmaCopies": loop.a.copies,
            "kCopyBytes": made.transaction_bytes,
        }
        b: Constants = {"kSwizzleBytes": made_b.swizzle_bytes, "kTransactionBytes": made_b.transaction_bytes}
    else:
        constants |= {"kProducerWarpgroups": loop.producers}
        if isinstance(loop, WgmmaSplit):
            lead_a, lead_b = leads(loop, t.k)
            constants |= {"kPlaneStages": loop.plane_stages, "kLeadA": lead_a, "kLeadB": lead_b}
            constants |= _planes(plan, schedule, loop)
        elif isinstance(loop, DmmaTma):
            constants |= dict(zip(("kLeadA", "kLeadB"), leads(loop, t.k), strict=True))
            constants |= _conjugated(plan)
        elif isinstance(loop, WgmmaTf32):
            constants["kTransposedStages"] = loop.transposed_stages
        elif isinstance(loop, WgmmaSS):
            constants["kCpAsyncStages"] = loop.cp_async_stages
        a = _loader(plan, schedule, loop.a, t.m.size // t.mma_tiles)
        b = _loader(plan, schedule, loop.b, t.n.size)
    more = _plane_functions(plan) if isinstance(loop, WgmmaSplit) else []
    loaders = [struct(name, members) for name, members in (("LoaderTraitsA", a), ("LoaderTraitsB", b))]
    inside = [x.rstrip().replace("\n", "\n  ") for x in loaders]
    return struct("MainloopTraits", constants, "TileShape", [*inside, *more])


def _planes(plan: GemmPlan, schedule: Schedule, loop: WgmmaSplit) -> Constants:
    """How many planes a number has, which products of them are formed and summed, and columns of the first chunk."""
    made = planes(plan)
    assert made is not None
    return {
        "kPlanes": made.count,
        "kProducts": len(made.products),
        "kSumSteps": made.sum_steps(parts(plan), schedule.tiling.shape[2]),
        "kScaled": made.scaled,
        "kChunkColumns": chunk_columns(plan, loop, schedule.tiling.shape[1])[0],
        **_conjugated(plan),
    }


def _conjugated(plan: GemmPlan) -> Constants:
    """Which operands are conjugated as they are multiplied."""
    return {name: x is not None and x.conj for name, x in (("kConjA", plan.a), ("kConjB", plan.b))}


def _plane_functions(plan: GemmPlan) -> list[str]:
    """The type of planes, and which of them the i-th product takes."""
    made = planes(plan)
    assert made is not None
    texts = [f"typedef {cpp_type(made.tensor.name)} Plane;"]
    for at, name in enumerate("ab"):
        found = ", ".join(str(product[at]) for product in made.products)
        texts.append(
            f"static GETT_DEVICE constexpr int plane_{name}(int i) {{ const int x[] = {{{found}}}; return x[i]; }}"
        )
    return texts


def _loader(plan: GemmPlan, schedule: Schedule, loader: WgmmaLoader, size: int) -> Constants:
    """What an operand's loader is told; `size` is the extent of its free group's box."""
    load, kind = tma_of(loader), type(loader).__name__
    return {
        "kKind": f"LoaderKind::kLoader{kind}",
        "kMajorK": loader.major == "k",
        "kSwizzleBytes": swizzle_of(loader),
        "kRows": up(size, 8) if isinstance(loader, CpAsyncTile) and loader.major == "mn" else _rows(load, size),
        "kValidK": _valid_k(plan, schedule, load),
        "kTransactionBytes": load.bytes if load is not None else 0,
        "kKTiles": loader.k_tiles if isinstance(loader, Stationary) else 0,
        "kRunElements": loader.run if isinstance(loader, Gather) else 0,
        **({"kVector": loader.vector} if isinstance(loader, CpAsyncTile) else {}),
        "kTransposeK": loader.transform.elements if isinstance(loader, Gather) and loader.transform else 0,
    }


def _staged_tile(schedule: Schedule, order: list[tuple[str, int]]) -> Constants:
    """How a tile of D lies in shared memory, and how accumulators get there."""
    t, stage = schedule.tiling, schedule.epilogue.store.stage
    assert stage is not None
    lead = next((i for i, _ in t.n.tiled), None)
    whole8 = stage.cut is None or stage.cut[:2] != ("n", lead) or stage.cut[2] % 8 == 0
    by8 = lead is not None and t.n.dims[lead].box % 8 == 0 and t.n.size % 8 == 0 and whole8
    return {
        "kStagingElements": stage.elements,
        "kSwizzleBytesD": stage.swizzle_bytes,
        "kR2SCopy": f"R2SCopy::{R2S_COPIES[stage.copy.kind]}",
        "kR2SVector": stage.copy.vector,
        "kR2SStepN": _r2s_step(schedule, order),
        "kColumnsBy8": by8,
        "kStagingStepN": stage.n[lead] if lead is not None else 0,
        "kRecomputePlaces": gathers(schedule.hopper) and not by8,
    }


def _epilogue(plan: GemmPlan, schedule: Schedule, order: list[tuple[str, int]]) -> Constants:
    """How D is stored and where C comes from."""
    store, source = schedule.epilogue.store, schedule.epilogue.source
    constants = dict(store_traits(plan, schedule, order))
    if isinstance(store, TmaStore):
        constants |= {
            "kRepairs": isinstance(schedule.mainloop, WgmmaSplit),
            "kStoreWarp": not gathers(schedule.hopper),
            "kReuseMainloopSmem": store.reuse_mainloop_smem,
            "kExchange": store.exchange is not None,
        }
    if isinstance(source, TmaSource):
        constants["kTransactionBytesC"] = source.map.transaction_bytes * source.map.slabs
    if isinstance(store, RowStore):
        constants["kRowLengthD"] = store.run
    return constants


def _rows_of_groups(loop: Hopper, a: Tma | None, rows: int) -> tuple[int, int]:
    """Rows of A that hold something, of groups of how many: swizzle atoms, or shares of warpgroups; (0, 1) for all."""
    if isinstance(loop, WgmmaRS) and loop.per_warpgroup_a and rows < 64 * loop.warpgroups:
        return rows // loop.warpgroups, 64
    return (a.run, a.atom) if a is not None else (0, 1)


def _rows(load: Tma | None, size: int) -> int:
    """Rows of an operand's tile in shared memory."""
    return load.rows(size) if load is not None else size


def _valid_k(plan: GemmPlan, schedule: Schedule, load: Tma | None) -> int:
    """K of each tile that an operand's copies write; where that is less than the block's, the rest stays zero."""
    deep = schedule.tiling.shape[2]
    return valid_k(load, len(plan.k)) if load is not None and schedule.tiling.k.size < deep else deep


def _r2s_step(schedule: Schedule, order: list[tuple[str, int]]) -> int:
    """Groups of eight columns between neighbours of D's fastest dimension, where it lies in N."""
    if not order or order[0][0] != "n":
        return 1
    return max(1, math.prod(d.box for d in schedule.tiling.n.dims[: order[0][1]]) // 8)
