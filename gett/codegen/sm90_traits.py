"""The struct `Traits` of the Hopper family: the compile-time constants of its kernels.

Constants only, all from the schedule; functions, which the kernel calls, are `render_sm90`'s.
"""

from __future__ import annotations

import math

from gett.codegen.render_common import cpp_bool, gemm_traits
from gett.codegen.render_gather import gather_way, gathered
from gett.ir.gemm import GemmPlan
from gett.schedule.records import BulkMove, Gather, Schedule, WarpRoles
from gett.schedule.tails import held

R2S_COPIES = {
    "": "kR2SScalar",
    "rows": "kR2SStsm",
    "turned": "kR2SStsmT",
    "columns": "kR2SVecN",
    "blocks": "kR2SVecM",
}
"""How accumulators reach the staged tile: enumerators of `R2SCopy` in the kernels, by `StageSteps.put`."""


def sm90_traits(
    plan: GemmPlan, schedule: Schedule, order: list[tuple[str, int]], dtype_c: str, regs: tuple[int, int], more: str
) -> str:
    """The struct `Traits` of a kernel.

    Args:
        plan: A realized plan.
        schedule: How it runs.
        order: Tiled dimensions by D's stride.
        dtype_c: Type of C, or of D where there is none.
        regs: Registers of a producing and of a multiplying thread.
        more: Members that one pipeline alone has.
    """
    roles = schedule.roles
    assert roles is not None
    box_m, box_n = schedule.box_m, schedule.box_n
    part_m = box_m.size // roles.parts
    lead = next((i for i, d in enumerate(box_n.dims) if d.box > 1), None)
    cut = roles.stage.cut
    whole8 = cut is None or cut[:2] != ("n", lead) or cut[2] % 8 == 0
    by8 = lead is not None and box_n.dims[lead].box % 8 == 0 and box_n.size % 8 == 0 and whole8
    step_n = roles.stage.n[lead] if lead is not None else 0
    moves = {name: m for name, m in (("a", roles.a), ("b", roles.b)) if m is not None}
    bytes_of = {name: m.map.transaction_bytes * m.copies for name, m in moves.items()}
    kept = bytes_of.pop(roles.resident, 0)
    keep_tiles = schedule.box_k.tiles if roles.resident else 0
    pad = _shares(roles, part_m) or _run(roles.a)

    return f"""struct Traits {{
{gemm_traits(plan, schedule, order, dtype_c)}
  static constexpr int kBoxM = {part_m}, kBoxN = {box_n.size}, kMmaTilesPerStoreTile = {roles.parts};
  static constexpr bool kReuseMainloopSmem = {cpp_bool(roles.alone)};
  static constexpr int kExchangeDistance = {roles.trade.between if roles.trade is not None else 0};
  static constexpr int kConsumerWarpgroups = {roles.consumers}, kMmaM = {roles.m_blocks};
  static constexpr int kValidKA = {_held(plan, schedule, roles.a)}, kValidKB = {_held(plan, schedule, roles.b)};
  static constexpr int kClusterM = {roles.cluster[0]}, kClusterN = {roles.cluster[1]};
  static constexpr bool kPingPong = {cpp_bool(roles.ping_pong)};
  static constexpr int kProducerRegs = {regs[0]}, kConsumerRegs = {regs[1]};
  static constexpr bool kGather = {cpp_bool(bool(gathered(roles)))};
  static constexpr int kProducerWarpgroups = {roles.producers}, kCpAsyncStages = {roles.ring};
  static constexpr int kTransactionBytes = {sum(bytes_of.values())};
  static constexpr bool kStationaryA = {cpp_bool(roles.resident == "a")}, kEachPanel = {cpp_bool(roles.line == "each")};
  static constexpr bool kOnePanel = {cpp_bool(roles.line == "own")};
  static constexpr int kStationaryKTiles = {keep_tiles}, kStationaryTransactionBytes = {kept};
  static constexpr bool kTmaStore = {cpp_bool(roles.d is not None and schedule.split_k == 1)};
  static constexpr int kTransactionBytesC = {roles.c.transaction_bytes * roles.c.slabs if roles.c is not None else 0};
  static constexpr bool kColumnsBy8 = {cpp_bool(by8)};
  static constexpr int kStagingStepN = {step_n}, kStagingElements = {roles.stage.elements};
  static constexpr gett::R2SCopy kR2SCopy = gett::{R2S_COPIES[roles.stage.put]};
  static constexpr int kR2SVector = {roles.stage.vector};
  static constexpr int kR2SStepN = {_put_step(schedule, order)}, kInterleaveRows = {roles.stage.chunk};
  static constexpr int kSwizzleBytesD = {roles.stage.span};
  static constexpr int kRowLengthD = {roles.rows};
  static constexpr bool kRowsContiguousD = {cpp_bool(_rows_join(schedule, order))};
  static constexpr int kRowsA = {_rows(roles.a, part_m)}, kRowsB = {_rows(roles.b, box_n.size)};
  static constexpr int kGroupValidRows = {pad[0]}, kGroupRows = {pad[1]};
  struct LoaderTraitsA {_way(roles.way("a"))}
  struct LoaderTraitsB {_way(roles.way("b"))}
  template <bool IsA, int = 0> struct Pick {{ typedef LoaderTraitsA type; }};
  template <int I> struct Pick<false, I> {{ typedef LoaderTraitsB type; }};
  template <bool IsA> using LoaderTraits = typename Pick<IsA>::type;
{more}}};
"""


def _rows_join(schedule: Schedule, order: list[tuple[str, int]]) -> bool:
    """Whether a row of the tile may end where the next begins: tiles take D's fastest dimension whole."""
    group, i = order[0] if order else ("m", 0)
    box = schedule.box_m if group == "m" else schedule.box_n
    return len(order) > 1 and box.tiles_per_dim[i] == 1


def _run(move: BulkMove | None) -> tuple[int, int]:
    """Rows that a chunk of an operand's tile holds, and for how many it has room; (0, 1) where chunks are full."""
    return (move.run, move.map.span // move.map.itemsize) if move is not None and move.run else (0, 1)


def _shares(roles: WarpRoles, rows: int) -> tuple[int, int] | None:
    """The same of warpgroups that each have their own rows of A, below 64."""
    apart = roles.crossed is not None and roles.crossed.apart and rows < 64 * roles.consumers
    return (rows // roles.consumers, 64) if apart else None


def _rows(move: BulkMove | None, size: int) -> int:
    """Rows of an operand's tile in shared memory, those that chunks have to spare included."""
    run, chunk = _run(move)
    return size // run * chunk if run else size


def _held(plan: GemmPlan, schedule: Schedule, move: BulkMove | None) -> int:
    """K of each tile that an operand's copies write; where that is less than the block's, the rest stays zero."""
    deep = schedule.block[2]
    return held(move, len(plan.k)) if move is not None and schedule.box_k.size < deep else deep


def _put_step(schedule: Schedule, order: list[tuple[str, int]]) -> int:
    """Groups of eight columns between neighbours of D's fastest dimension, where it lies in N."""
    if not order or order[0][0] != "n":
        return 1
    return max(1, math.prod(d.box for d in schedule.box_n.dims[: order[0][1]]) // 8)


def _way(way: BulkMove | Gather) -> str:
    """Members of the struct that describes an operand's way."""
    if isinstance(way, Gather):
        return gather_way(way)
    return (
        f"{{ static constexpr bool kGather = false, kMajorK = {cpp_bool(way.major == 'k')}; "
        f"static constexpr int kSwizzleBytes = {way.map.span}, kTransposeK = 0; }};"
    )
