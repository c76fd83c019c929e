"""Crossed units of the Hopper family: copies of a k-tile of A in pieces, and of B slab by slab.

The pipeline is hand-written in `gett/kernels/sm90_crossed.cuh`; the rest of the text is that of `render_sm90`.
"""

from __future__ import annotations

from gett.codegen.index import ZERO, Function, ParamTable, var
from gett.codegen.records import Kernel
from gett.codegen.render_sm90 import Pipeline, _coordinates, _origins, _store, _struct, render_pipeline
from gett.codegen.tiles import Statement, decode
from gett.codegen.wgmma import wgmma_registers_struct
from gett.plan import GemmPlan
from gett.schedule.records import Schedule, WarpRoles

REGISTERS = (56, 224)
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
    )
    wgmma = wgmma_registers_struct(plan.contraction.dtype, schedule.block[1], "k")
    pipeline = Pipeline("sm90_crossed", "Crossed", _crossed_copies, wgmma, traits, True, REGISTERS)
    return render_pipeline(plan, schedule, pipeline)


def _crossed_copies(plan: GemmPlan, schedule: Schedule, roles: WarpRoles, table: ParamTable) -> list[str]:
    """Coordinates of the boxes, the copy of a k-tile of A, that of slab `s` of B, and that of a tile of D."""
    crossed = roles.crossed
    assert crossed is not None
    assert roles.a is not None
    assert roles.b is not None
    body: list[Statement] = []
    at = {
        "l": decode(body, var("l"), [table.divisor(s.extent) for s in plan.l], "xl") if plan.l else [],
        "m": _origins(body, schedule.box_m, "m", table),
        "n": _origins(body, schedule.box_n, "n", table),
    }
    k_body: list[Statement] = []
    at_k = _origins(k_body, schedule.box_k, "k", table)
    texts: list[str] = []
    inputs = ("tile_m", "tile_n", "l")
    for name, move, side in (("a", roles.a, "m"), ("b", roles.b, "n")):
        fixed = _coordinates(move.map, [*at["l"], *at[side], *(ZERO for _ in plan.k)])
        moving = _coordinates(move.map, [ZERO for _ in (*at["l"], *at[side])] + at_k)
        for what, args, statements, found in (("boxes", inputs, body, fixed), ("k_boxes", ("tile_k",), k_body, moving)):
            outputs = [(f"x{i}", x) for i, x in enumerate(found)]
            kind = f"{'K' if what == 'k_boxes' else ''}Boxes{name.upper()}"
            function = Function(f"{what}_{name}", args, tuple(statements), tuple(outputs), kind)
            texts += [_struct(kind, outputs), function.to_cpp()]
    start = [f"t.x{i} + k.x{i}" for i in range(roles.a.map.rank)]
    for dim, step, _ in roles.a.repeats:
        start[dim] += f" + piece * {step}"
    texts.append(
        "  static GETT_DEVICE void load_a(const Params& p, const BoxesA& t, const KBoxesA& k, int piece, "
        f"gett::uint32 to, gett::uint32 bar) {{\n    gett::load_box(to, &p.map_a, bar, {', '.join(start)});\n  }}"
    )
    unit = roles.b.map.modes[len(plan.l) + len(plan.n) + crossed.unit_a]
    moved = [f"t.x{i} + k.x{i}" for i in range(roles.b.map.rank)]
    moved[unit.dim] += f" + s * {unit.weight}"
    texts.append(
        "  static GETT_DEVICE void load_b(const Params& p, const BoxesB& t, const KBoxesB& k, int s, gett::uint32 to, "
        f"gett::uint32 bar) {{\n    gett::load_box(to, &p.map_b, bar, {', '.join(moved)});\n  }}"
    )
    if roles.d is not None:
        texts += _store(roles.d, body, at)
    held = ["a", "b", *(["d"] if roles.d is not None else [])]
    fetches = " ".join(f"gett::prefetch_map(&p.map_{name});" for name in held)
    texts.append(f"  static GETT_DEVICE void prefetch(const Params& p) {{ {fetches} }}")
    return texts
