"""Crossed units of the Hopper family: copies of a k-tile of A in pieces, and of B slab by slab.

The pipeline is hand-written in `gett/kernels/kernel/wgmma_rs_gemm.cuh`; the rest of the text is that of `render_sm90`.
"""

from __future__ import annotations

from gett.codegen.index import ParamTable
from gett.codegen.map_places import prefetch, tile_places
from gett.codegen.records import Kernel
from gett.codegen.render_common import cpp_bool
from gett.codegen.render_sm90 import Pipeline, render_pipeline
from gett.codegen.wgmma import wgmma_registers_struct
from gett.ir.gemm import GemmPlan
from gett.schedule.records import Schedule, WarpRoles

REGISTERS = (40, 232)
"""Registers of a producing and of a multiplying thread: three warps of the former hold coordinates of many modes."""


def render_crossed(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel of a realized plan whose operands' units are two different contracted modes."""
    roles = schedule.roles
    assert roles is not None
    assert roles.crossed is not None
    assert roles.a is not None
    assert roles.b is not None
    piece = roles.a.map.transaction_bytes
    traits = (
        f"  static constexpr int kTmaCopiesA = {roles.a.copies}, kTmaCopyBytesA = {piece};\n"
        f"  static constexpr int kTransactionBytesB = {roles.b.map.transaction_bytes};\n"
        f"  static constexpr bool kPerWarpgroupA = {cpp_bool(roles.crossed.apart)};\n"
    )
    wgmma = wgmma_registers_struct(plan.contraction.dtype, schedule.block[1], "k")
    pipeline = Pipeline("wgmma_rs_gemm", "WgmmaRSGemm", _crossed_copies, wgmma, traits, True, REGISTERS)
    return render_pipeline(plan, schedule, pipeline)


def _crossed_copies(plan: GemmPlan, schedule: Schedule, roles: WarpRoles, table: ParamTable) -> list[str]:
    """Coordinates of the boxes, the copy of a k-tile of A, that of slab `s` of B, and that of a tile of D."""
    crossed = roles.crossed
    assert crossed is not None
    assert roles.a is not None
    assert roles.b is not None
    places = tile_places(plan, schedule, table)
    texts: list[str] = []
    for name, move, side in (("a", roles.a, "m"), ("b", roles.b, "n")):
        fixed, moving = ([(f"x{i}", x) for i, x in enumerate(found)] for found in places.coordinates(move.map, side))
        texts += places.fixed(f"tile_coords_{name}", fixed, f"TileCoords{name.upper()}")
        texts += places.moving(f"k_coords_{name}", moving, f"KCoords{name.upper()}")
    start = [f"t.x{i} + k.x{i}" for i in range(roles.a.map.rank)]
    for dim, step, _ in roles.a.repeats:
        start[dim] += f" + piece * {step}"
    if roles.cluster[1] > 1:  # a block's half of k2
        half = roles.a.map.modes[len(plan.l) + len(plan.m) + crossed.unit_b]
        start[half.dim] += f" + rank * {half.weight * schedule.box_k.cut[crossed.unit_b] // roles.cluster[1]}"
    texts.append(
        "  static GETT_DEVICE void load_a(const Params& p, const TileCoordsA& t, const KCoordsA& k, int rank, int piece,\n"
        f"      gett::uint32 to, gett::uint32 bar) {{\n    gett::tma_load(to, &p.map_a, bar, {', '.join(start)});\n  }}"
    )
    unit = roles.b.map.modes[len(plan.l) + len(plan.n) + crossed.unit_a]
    moved = [f"t.x{i} + k.x{i}" for i in range(roles.b.map.rank)]
    moved[unit.dim] += f" + s * {unit.weight}"
    load = "tma_load(to, &p.map_b, bar, " if roles.cluster[0] == 1 else "tma_load_multicast(to, &p.map_b, bar, 3, "
    texts.append(
        "  static GETT_DEVICE void load_b(const Params& p, const TileCoordsB& t, const KCoordsB& k, int s,\n"
        f"      gett::uint32 to, gett::uint32 bar) {{\n    gett::{load}{', '.join(moved)});\n  }}"
    )
    return [*texts, *places.store(roles.d), prefetch(roles)]
