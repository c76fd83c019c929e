"""Copies of the main loop with A in registers: of a k-tile of A in pieces, and of B slab by slab.

The pipeline is hand-written in `gett/kernels/mainloop/wgmma_rs.cuh`; the rest of the text is `gett.codegen.hopper`'s.
"""

from __future__ import annotations

from gett.codegen.index import ParamTable
from gett.codegen.tma_coords import prefetch, tile_coords
from gett.codegen.tma_copies import tensor_maps
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.schedule import Schedule


def slab_loads(plan: GemmPlan, schedule: Schedule, table: ParamTable) -> list[str]:
    """Coordinates of the boxes, the copy of a k-tile of A, that of slab `s` of B, and that of a tile of D."""
    loop, cluster = schedule.loop(WgmmaRS), schedule.cluster
    coords = tile_coords(plan, schedule.tiling, table)
    texts: list[str] = []
    for name, load, side in (("a", loop.a, "m"), ("b", loop.b, "n")):
        fixed, moving = ({f"x{i}": x for i, x in enumerate(found)} for found in coords.coordinates(load.map, side))
        texts += coords.fixed(f"tile_coords_{name}", fixed, f"TileCoords{name.upper()}")
        texts += coords.moving(f"k_coords_{name}", moving, f"KCoords{name.upper()}")
    start = [f"t.x{i} + k.x{i}" for i in range(loop.a.map.rank)]
    for dim, step, _ in loop.a.repeats:
        start[dim] += f" + piece * {step}"
    if cluster[1] > 1:  # a block's half of k2
        half = loop.a.map.modes[len(plan.l) + len(plan.m) + loop.unit_b]
        start[half.dim] += f" + rank * {half.weight * schedule.tiling.k.cut[loop.unit_b] // cluster[1]}"
    head = (
        "static GETT_DEVICE void load_a(const Params& p, const TileCoordsA& t, const KCoordsA& k, int rank, int piece,"
    )
    texts.append(
        f"  {head}\n"
        f"      gett::uint32 to, gett::uint32 bar) {{\n    gett::tma_load(to, &p.map_a, bar, {', '.join(start)});\n  }}"
    )
    unit = loop.b.map.modes[len(plan.l) + len(plan.n) + loop.unit_a]
    moved = [f"t.x{i} + k.x{i}" for i in range(loop.b.map.rank)]
    moved[unit.dim] += f" + s * {unit.weight}"
    call = "tma_load(to, &p.map_b, bar, " if cluster[0] == 1 else "tma_load_multicast(to, &p.map_b, bar, 3, "
    texts.append(
        "  static GETT_DEVICE void load_b(const Params& p, const TileCoordsB& t, const KCoordsB& k, int s,\n"
        f"      gett::uint32 to, gett::uint32 bar) {{\n    gett::{call}{', '.join(moved)});\n  }}"
    )
    return [*texts, *coords.store(schedule.epilogue), prefetch(tensor_maps(schedule))]
