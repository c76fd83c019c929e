"""Persistent kernels of problems that are parts of the same tensors: what their text and launch have more than others.

The tile schedulers are in `gett/kernels/scheduler/ragged.cuh`. Where rows are not summed they give the first row of a
tile where others give the tile's number. D's map is clipped (`layouts.tma_clip`), so that no store passes the end of a
problem. Where rows are summed, the maps of A and B are, so that what no problem has is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gett.codegen.index import Expr, const, var
from gett.codegen.params import ENDS
from gett.codegen.records import Kernel
from gett.codegen.tiles import Statement
from gett.errors import ScheduleError
from gett.ir.gemm import GemmPlan
from gett.schedule.mainloops.kind import Constants
from gett.schedule.spec.schedule import PersistentRagged, Schedule
from gett.schedule.tile.wgmma_tile import cluster_tiles
from layouts.box import Box
from layouts.tma import TmaMap

HEADER = '#include "gett/scheduler/ragged.cuh"\n'
FUNCTION = "gett::RaggedGemm<Kernel, Scheduler>::run"
CLIPPED = "_rows"
"""What ends the roles of clipped maps, whose addresses lie before the tensors."""
MOST = 2**31 - 1
_LEAST_TABLE = 64


def scheduler_of(schedule: Schedule) -> PersistentRagged:
    """The scheduler of a schedule of ragged problems."""
    assert isinstance(schedule.scheduler, PersistentRagged)
    return schedule.scheduler


def problems_of(plan: GemmPlan) -> int:
    """How many problems a plan has."""
    return plan.l[-1].extent


def table_of(problems: int) -> int:
    """Entries of the table of first tiles in shared memory: with room for more problems, so that kernels are few."""
    return max(_LEAST_TABLE, 1 << (problems + 1).bit_length())


def table_bytes(problems: int) -> int:
    """Shared memory that the table takes beside that of the schedule."""
    return 4 * table_of(problems)


def most_tiles(plan: GemmPlan, schedule: Schedule) -> int:
    """Work tiles at most: each problem, and the rows behind the last one, may end within a tile.

    Raises:
        ScheduleError: Kernels cannot number them.
    """
    made, t, problems = scheduler_of(schedule), schedule.tiling, problems_of(plan)
    if made.ragged == "k":
        rows, beside = problems, (t.m.tiles, t.n.tiles)
    else:
        box, cluster = (t.m, made.cluster[0]) if made.ragged == "m" else (t.n, made.cluster[1])
        rows = box.volume // (box.size * cluster) + problems + 1
        beside = (1, t.n.tiles) if made.ragged == "m" else (t.m.tiles, 1)
    tiles = rows * cluster_tiles(*beside, made.cluster) * (plan.extent_l // problems)
    if tiles > MOST or (problems + 1) * (plan.extent_l // problems) > MOST:
        raise ScheduleError(f"{tiles} tiles of {problems} problems exceed the limit of 2**31 - 1")
    return tiles


def counts(plan: GemmPlan, schedule: Schedule) -> dict[str, int]:
    """The named integers that the scheduler reads beside those of every kernel."""
    made, problems = scheduler_of(schedule), problems_of(plan)
    found = {
        "problems": problems,
        "rows": _box(schedule).volume // made.row_length,
        "row_length": made.row_length,
        "ragged_batches": plan.extent_l // problems,
    }
    return found | ({"problem_tiles": most_tiles(plan, schedule) // problems} if made.ragged == "k" else {})


def ragged_traits(plan: GemmPlan, schedule: Schedule) -> Constants:
    """Members of `SchedulerTraits`."""
    made = scheduler_of(schedule)
    which: Constants = {} if made.ragged == "k" else {"kRaggedM": made.ragged == "m"}
    return {**which, "kRaggedRows": _box(schedule).size, "kRaggedTable": table_of(problems_of(plan))}


def first_row(schedule: Schedule) -> Expr:
    """The ragged mode's coordinate at a tile's origin."""
    return var(f"tile_{scheduler_of(schedule).ragged}")


def clipped_rows(schedule: Schedule, made: TmaMap, mode: int) -> tuple[list[Statement], dict[str, Expr]]:
    """Coordinates of D's clipped map along the ragged mode, number `mode` of D's, with their statements.

    Rows that are not stored lie behind the extent of the mode's own dimension. The last one moves the others to their
    place (`layouts.tma_clip`).
    """
    rows, first = _box(schedule).size, first_row(schedule)
    left = ("int", "left", var(f"gett::ragged_left(p, l, {first.text}, {rows})"))
    return [left], {
        f"d{made.modes[mode].dim}": const(rows) - var("left"),
        f"d{made.rank - 1}": first + var("left"),
    }


def summed_rows(schedule: Schedule, maps: Mapping[str, tuple[TmaMap, int]]) -> tuple[dict[str, Expr], list[str]]:
    """Where rows are summed: the members of a tile's coordinates that say which, and statements that a k-tile needs.

    These set the coordinates `k.<name><i>` of the clipped maps of A and B. `maps` are these, with the number of the
    ragged mode, by name.
    """
    rows = _box(schedule).size
    ends = {
        name: var(f"gett::ragged_end(p, l / p.ragged_batches{at})") for name, at in (("first", " - 1"), ("last", ""))
    }
    body = [f"    const int row = t.first + tile_k * {rows}, left = min(t.last - row, {rows});"]
    for name, (made, mode) in maps.items():
        body.append(f"    k.{name}{made.modes[mode].dim} = {rows} - left;")
        body.append(f"    k.{name}{made.rank - 1} = row + left;")
    return ends, body


def with_ends(kernel: Kernel, maps: Mapping[str, TmaMap]) -> Kernel:
    """The kernel whose launch takes the address of the ends, and those of clipped maps; `maps` are all by role."""
    (launch,) = kernel.launches
    places = {role: x.base_offset for role, x in maps.items() if x.base_offset}
    named = tuple((role + CLIPPED * (role in places), at, spec) for role, at, spec in launch.maps)
    moved = tuple((role + CLIPPED, role, offset) for role, offset in places.items())
    made = replace(launch, maps=named, moved=moved, pointers=(*launch.pointers, ("ends", ENDS)))
    return replace(kernel, launches=(made,))


def _box(schedule: Schedule) -> Box:
    """The box of the ragged mode."""
    t = schedule.tiling
    return {"m": t.m, "n": t.n, "k": t.k}[scheduler_of(schedule).ragged]
