"""The struct `Traits` of the wgmma kernels: what `gett/kernels` are told when they are compiled.

Constants only, all from the schedule; functions, which the kernel calls, are `wgmma_kernel`'s.
"""

from __future__ import annotations

import math

from gett.codegen.common import cpp_bool, gemm_traits
from gett.codegen.gather import gather_members, gathered
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.epilogue import RowStore, TmaSource, TmaStore
from gett.schedule.spec.loader import Gather, Stationary, Tma, WgmmaLoader, tma_of
from gett.schedule.spec.mainloop import WgmmaRS, WgmmaSS
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import PersistentPanel, PersistentRaster
from gett.schedule.spec.wgmma_needs import valid_k

R2S_COPIES = {
    "scalar": "kR2SScalar",
    "stsm": "kR2SStsm",
    "stsm_t": "kR2SStsmT",
    "vec_n": "kR2SVecN",
    "vec_m": "kR2SVecM",
}
"""Enumerators of `R2SCopy` (`gett/kernels/epilogue/r2s.cuh`) by the schedule's name."""


def wgmma_traits(
    plan: GemmPlan, schedule: Schedule, order: list[tuple[str, int]], dtype_c: str, regs: tuple[int, int], more: str
) -> str:
    """The struct `Traits` of a kernel.

    Args:
        plan: A lowered plan.
        schedule: How it runs.
        order: Tiled dimensions by D's stride.
        dtype_c: Type of C, or of D where there is none.
        regs: Registers of a producing and of a multiplying thread.
        more: Members that one main loop alone has.
    """
    t, loop, store, source = schedule.tiling, schedule.wgmma, schedule.epilogue.store, schedule.epilogue.source
    stage = store.stage
    assert stage is not None
    part_m = t.m.size // t.mma_tiles
    lead = next((i for i, _ in t.n.tiled), None)
    whole8 = stage.cut is None or stage.cut[:2] != ("n", lead) or stage.cut[2] % 8 == 0
    by8 = lead is not None and t.n.dims[lead].box % 8 == 0 and t.n.size % 8 == 0 and whole8
    a, b = tma_of(loop.a), tma_of(loop.b)
    stays = {name: x for name, x in (("a", loop.a), ("b", loop.b)) if isinstance(x, Stationary)}
    loaded = sum(x.bytes for x in (loop.a, loop.b) if isinstance(x, Tma))
    panel = schedule.scheduler if isinstance(schedule.scheduler, PersistentPanel) else None
    exchange = store.exchange if isinstance(store, TmaStore) else None
    valid, rows = _rows_of_groups(loop, a, part_m)
    k_tiles = sum(x.k_tiles for x in stays.values())
    ring = loop.cp_async_stages if isinstance(loop, WgmmaSS) else 0
    order_of_clusters = schedule.scheduler.cluster_order if isinstance(schedule.scheduler, PersistentRaster) else ()
    bytes_c = source.map.transaction_bytes * source.map.slabs if isinstance(source, TmaSource) else 0

    return f"""{_cluster_table(order_of_clusters)}struct Traits {{
{gemm_traits(plan, schedule, loop.stages, order, dtype_c)}
  static constexpr int kBoxM = {part_m}, kBoxN = {t.n.size}, kMmaTilesPerStoreTile = {t.mma_tiles};
  static constexpr bool kReuseMainloopSmem = {cpp_bool(isinstance(store, TmaStore) and store.reuse_mainloop_smem)};
  static constexpr int kExchangeDistance = {exchange.distance if exchange is not None else 0};
  static constexpr int kConsumerWarpgroups = {loop.warpgroups}, kMmaM = {loop.mma_m};
  static constexpr int kValidKA = {_valid_k(plan, schedule, a)}, kValidKB = {_valid_k(plan, schedule, b)};
  static constexpr int kClusterM = {schedule.cluster[0]}, kClusterN = {schedule.cluster[1]};
{_cluster_order(order_of_clusters)}
  static constexpr bool kPingPong = {cpp_bool(loop.ping_pong)};
  static constexpr int kProducerRegs = {regs[0]}, kConsumerRegs = {regs[1]};
  static constexpr bool kGather = {cpp_bool(bool(gathered(loop)))};
  static constexpr int kProducerWarpgroups = {loop.producers}, kCpAsyncStages = {ring};
  static constexpr int kTransactionBytes = {loaded};
  static constexpr bool kStationaryA = {cpp_bool("a" in stays)}, kEachPanel = {
        cpp_bool(panel is not None and not panel.one_panel)
    };
  static constexpr bool kOnePanel = {cpp_bool(panel is not None and panel.one_panel)};
  static constexpr int kStationaryKTiles = {k_tiles}, kStationaryTransactionBytes = {
        sum(x.load.bytes for x in stays.values())
    };
  static constexpr bool kTmaStore = {cpp_bool(isinstance(store, TmaStore))};
  static constexpr int kTransactionBytesC = {bytes_c};
  static constexpr bool kColumnsBy8 = {cpp_bool(by8)};
  static constexpr int kStagingStepN = {stage.n[lead] if lead is not None else 0}, kStagingElements = {stage.elements};
  static constexpr gett::R2SCopy kR2SCopy = gett::{R2S_COPIES[stage.copy.kind]};
  static constexpr int kR2SVector = {stage.copy.vector};
  static constexpr int kR2SStepN = {_r2s_step(schedule, order)}, kInterleaveRows = {stage.copy.rows};
  static constexpr int kSwizzleBytesD = {stage.swizzle_bytes};
  static constexpr int kRowLengthD = {store.run if isinstance(store, RowStore) else 0};
  static constexpr bool kRowsContiguousD = {cpp_bool(_rows_join(schedule, order))};
  static constexpr int kRowsA = {_rows(a, part_m)}, kRowsB = {_rows(b, t.n.size)};
  static constexpr int kGroupValidRows = {valid}, kGroupRows = {rows};
  struct LoaderTraitsA {_loader(loop.a)}
  struct LoaderTraitsB {_loader(loop.b)}
  template <bool IsA, int = 0> struct Pick {{ typedef LoaderTraitsA type; }};
  template <int I> struct Pick<false, I> {{ typedef LoaderTraitsB type; }};
  template <bool IsA> using LoaderTraits = typename Pick<IsA>::type;
{more}}};
"""


def _cluster_table(order: tuple[int, ...]) -> str:
    """The constant table of an order of clusters."""
    if not order:
        return ""
    numbers = ", ".join(map(str, order))
    return f"__constant__ const unsigned char kClusterOrder[{len(order)}] = {{{numbers}}};\n"


def _cluster_order(order: tuple[int, ...]) -> str:
    """Members that give the first tile of each cluster, where a full grid has an order of its own."""
    text = f"  static constexpr int kOrderedClusters = {len(order)};"
    if order:
        text += "\n  static GETT_DEVICE int cluster_order(int cluster) { return kClusterOrder[cluster]; }"
    return text


def _rows_join(schedule: Schedule, order: list[tuple[str, int]]) -> bool:
    """Whether a row of the tile may end where the next begins: tiles take D's fastest dimension whole."""
    group, i = order[0] if order else ("m", 0)
    box = schedule.tiling.m if group == "m" else schedule.tiling.n
    return len(order) > 1 and box.tiles_per_dim[i] == 1


def _rows_of_groups(loop: WgmmaSS | WgmmaRS, a: Tma | None, rows: int) -> tuple[int, int]:
    """Rows of A that hold something, of groups of how many: swizzle atoms, or shares of warpgroups; (0, 1) for all."""
    if isinstance(loop, WgmmaRS) and loop.per_warpgroup_a and rows < 64 * loop.warpgroups:
        return rows // loop.warpgroups, 64
    return (a.run, a.atom) if a is not None else (0, 1)


def _rows(load: Tma | None, size: int) -> int:
    """Rows of an operand's tile in shared memory."""
    return load.rows(size) if load is not None else size


def _valid_k(plan: GemmPlan, schedule: Schedule, load: Tma | None) -> int:
    """K of each tile that an operand's copies write; where that is less than the block's, the rest stays zero."""
    deep = schedule.tiling.block[2]
    return valid_k(load, len(plan.k)) if load is not None and schedule.tiling.k.size < deep else deep


def _r2s_step(schedule: Schedule, order: list[tuple[str, int]]) -> int:
    """Groups of eight columns between neighbours of D's fastest dimension, where it lies in N."""
    if not order or order[0][0] != "n":
        return 1
    return max(1, math.prod(d.box for d in schedule.tiling.n.dims[: order[0][1]]) // 8)


def _loader(loader: WgmmaLoader) -> str:
    """Members of the struct that describes an operand's loader."""
    if isinstance(loader, Gather):
        return gather_members(loader)
    load = tma_of(loader)
    assert load is not None
    return (
        f"{{ static constexpr bool kGather = false, kMajorK = {cpp_bool(load.major == 'k')}; "
        f"static constexpr int kSwizzleBytes = {load.map.span}, kTransposeK = 0; }};"
    )
