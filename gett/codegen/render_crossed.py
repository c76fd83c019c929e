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
        f"  static constexpr int kPieces = {roles.a.copies}, kPieceBytes = {piece};\n"
        f"  static constexpr int kSlabBytes = {roles.b.map.transaction_bytes};\n"
        f"  static constexpr bool kApart = {cpp_bool(roles.crossed.apart)};\n"
    )
    wgmma = wgmma_registers_struct(plan.contraction.dtype, schedule.block[1], "k")
    pipeline = Pipeline("wgmma_rs_gemm", "Crossed", _crossed_copies, wgmma, traits, True, REGISTERS)
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
        texts += places.fixed(f"boxes_{name}", fixed, f"Boxes{name.upper()}")
        texts += places.moving(f"k_boxes_{name}", moving, f"KBoxes{name.upper()}")
    start = [f"t.x{i} + k.x{i}" for i in range(roles.a.map.rank)]
    for dim, step, _ in roles.a.repeats:
        start[dim] += f" + piece * {step}"
    if roles.cluster[1] > 1:  # a block's half of k2
        half = roles.a.map.modes[len(plan.l) + len(plan.m) + crossed.unit_b]
        start[half.dim] += f" + rank * {half.weight * schedule.box_k.cut[crossed.unit_b] // roles.cluster[1]}"
    texts.append(
        "  static GETT_DEVICE void load_a(const Params& p, const BoxesA& t, const KBoxesA& k, int rank, int piece, "
        f"gett::uint32 to, gett::uint32 bar) {{\n    gett::load_box(to, &p.map_a, bar, {', '.join(start)});\n  }}"
    )
    unit = roles.b.map.modes[len(plan.l) + len(plan.n) + crossed.unit_a]
    moved = [f"t.x{i} + k.x{i}" for i in range(roles.b.map.rank)]
    moved[unit.dim] += f" + s * {unit.weight}"
    load = "load_box(to, &p.map_b, bar, " if roles.cluster[0] == 1 else "spread_box(to, &p.map_b, bar, 3, "
    texts.append(
        "  static GETT_DEVICE void load_b(const Params& p, const BoxesB& t, const KBoxesB& k, int s, gett::uint32 to, "
        f"gett::uint32 bar) {{\n    gett::{load}{', '.join(moved)});\n  }}"
    )
    return [*texts, *places.store(roles.d), prefetch(roles)]
