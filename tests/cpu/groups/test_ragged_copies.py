"""What persistent kernels of ragged contractions read and write, by tile schedulers and coordinates run on the host."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gett.codegen.ragged import CLIPPED, scheduler_of
from gett.codegen.records import Kernel
from gett.codegen.tma import store_pieces
from gett.ir.gemm import GemmPlan
from gett.schedule.lower import lower_plan
from gett.schedule.spec.schedule import PersistentRagged, Schedule
from layouts.tma import TmaMap
from tests.cpu.groups.ragged_cases import (
    ALL_ENDS,
    PERSISTENT,
    SUMS,
    RaggedCase,
    indices,
    kernel_of,
    places,
    reached,
    schedules,
)
from tests.cpu.host_blocks import FOLDER
from tests.cpu.host_cuda import generated, includes, run_host

PROGRAM = """
INSIDE
using namespace gett;
typedef SCHEDULER<SchedulerTraits> Scheduler;
static Params p;
static decltype(*p.ends + 0) ends[1 << 12];
static void kernel() {
  Scheduler::start(p);
  __syncthreads();
  if (threadIdx.x) return;
  for (int t = Scheduler::first(p); t < Scheduler::end(p); t += Scheduler::step(p)) {
    const KTileRange k = Scheduler::k_tiles(p, t, 0);
    TILE
  }
}
int main() {
  int head[3];
  if (fread(&p, sizeof p, 1, stdin) != 1 || fread(head, 4, 2, stdin) != 2) return 2;
  if (fread(ends, sizeof *ends, head[0], stdin) != size_t(head[0])) return 3;
  p.ends = ends;
  gridDim.x = head[1];
  for (int block = 0; block < head[1]; ++block) gett::blocks::run(block, 32, kernel);
}
"""
# What is told of each tile.
ROWS = """
    const TileId id = Scheduler(blockIdx.x % Scheduler::kSize).locate(p, t);
    const auto at = Index::tile_coords(p, id.m, id.n, id.l);
    const auto to = Index::store_coords(p, id.m, id.n, id.l);
    const int head[] = {id.l, k.first, k.last, Scheduler::exists(p, id)};
    fwrite(head, 4, 4, stdout);
    fwrite(&at, sizeof at, 1, stdout);
    fwrite(&to, sizeof to, 1, stdout);
"""


def program(kernel: Kernel, scheduler: str, tile: str) -> str:
    """The text of a program that walks over a kernel's tiles."""
    body = PROGRAM.replace("SCHEDULER<", f"{scheduler}<").replace("TILE", tile.strip())
    return includes("core/index", "ptx/tma", "scheduler/ragged") + body.replace("INSIDE", generated(kernel))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ragged")


# --- rows that are not summed


def written(folder: Path, case: RaggedCase, schedule: Schedule, ends: Sequence[int], blocks: int) -> None:
    """Check that each element of D is written once, by a tile of its problem that loads the rows and the matrix."""
    plans = case.plans
    assert plans is not None
    kernel, made = kernel_of(case, schedule), scheduler_of(schedule)
    (launch,) = kernel.launches
    size = blocks * schedule.cluster[0] * schedule.cluster[1]
    params = struct.pack("<2i", len(ends), size) + np.array(ends, made.ends).tobytes()
    body = program(kernel, "PersistentRagged", ROWS)
    out = np.frombuffer(run_host(folder, body, launch.params + params, blocks=FOLDER), np.int32)
    maps = {role: spec for role, _, spec in launch.maps}
    ranks = [len(maps[role].extents) for role in ("a", "b", "d" + CLIPPED)]
    tiles = out.reshape(-1, 4 + sum(ranks))
    swapped = plans.whole.swapped != schedule.tiling.swap_ab
    tensors, (left, right, _) = case.tensors, case.modes.terms
    d, factors = tensors[2], [(tensors[0], left), (tensors[1], right)]
    first, second = factors[::-1] if swapped else factors
    assert (case.modes.ragged in first[1]) == (made.ragged == "m")
    store, of = schedule.epilogue.store.map, d.dtype.itemsize
    assert store is not None
    _, pieces = store_pieces(store)
    parts = schedule.epilogue.store.subtiles
    batches = plans.whole.extent_l // case.count
    everywhere = places(d)
    owner = np.full(everywhere.max() // of + 1, -1)
    for tile in tiles.tolist():
        l, k_first, k_last, exists = tile[:4]
        at = [tile[4 : 4 + ranks[0]], tile[4 + ranks[0] : 4 + ranks[0] + ranks[1]], tile[-ranks[2] :]]
        assert (k_first, k_last) == (0, schedule.tiling.k.tiles if l // batches < case.count else 0)
        if not exists:
            continue
        bytes_at = []
        for part in range(parts):
            for _, piece in pieces:
                coords = [c + p for c, p in zip(at[2], piece, strict=True)]
                if parts > 1:
                    coords = along_parts(schedule, store, plans.whole, coords, part)
                bytes_at.append(reached(maps["d" + CLIPPED], of, coords))
        to = np.concatenate(bytes_at) + store.base_offset
        if not len(to):
            continue
        assert (owner[to // of] == -1).all()
        owner[to // of] = l // batches
        if k_last:
            label = dict(zip(case.modes.terms[2], indices(d, int(to.min())), strict=True))
            label |= {case.modes.problem: l // batches}
            for (tensor, term), coords, role in ((first, at[0], "a"), (second, at[1], "b")):
                wanted = sum(label.get(y, 0) * s for y, s in zip(term, tensor.strides, strict=True))
                strides = (tensor.dtype.itemsize, *maps[role].strides)
                assert sum(c * s for c, s in zip(coords, strides, strict=True)) == wanted
    found = owner[everywhere // of]
    rows = case.modes.terms[2].index(case.modes.ragged)
    wanted_rows = case.problem_of(ends).reshape([-1 if i == rows else 1 for i in range(found.ndim)])
    assert (found == wanted_rows).all()
    assert (owner != -1).sum() == everywhere.size


def along_parts(schedule: Schedule, store: TmaMap, plan: GemmPlan, coords: list[int], part: int) -> list[int]:
    """Coordinates of a part, which lies further on along the last tiled dimension of N."""
    lowered = lower_plan(plan, schedule.tiling)
    dim = schedule.tiling.n.tiled[-1][1]
    of = store.modes[len(lowered.l) + len(lowered.m) + dim.modes[0]]
    out = list(coords)
    out[of.dim] += part * of.weight * dim.box // schedule.epilogue.store.subtiles
    return out


@pytest.mark.parametrize("role", ["m", "n"])
@pytest.mark.parametrize("name", ["weights", "inside", "outside", "batch", "split", "few", "words"])
def test_each_row_is_written_once_by_its_problem(folder: Path, name: str, role: str) -> None:
    case = PERSISTENT[name]
    schedule = next((s for s in schedules(case) if s.scheduler.ragged == role), None)
    if schedule is not None:
        for ends in ALL_ENDS:
            written(folder, case, schedule, ends, blocks=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PERSISTENT if name not in ("large", "rows", "one")])
def test_every_schedule_writes_each_row_once(folder: Path, name: str) -> None:
    case = PERSISTENT[name]
    for schedule in schedules(case):
        written(folder, case, schedule, ALL_ENDS[0], blocks=5)


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)])
@pytest.mark.parametrize("role", ["m", "n"])
def test_blocks_of_a_cluster_make_tiles_of_one_problem(folder: Path, role: str, cluster: tuple[int, int]) -> None:
    case = PERSISTENT["gaps"]
    schedule = next(s for s in schedules(case) if s.scheduler.ragged == role)
    assert isinstance(schedule.scheduler, PersistentRagged)
    paired = replace(schedule, scheduler=replace(schedule.scheduler, cluster=cluster))
    written(folder, case, paired, ALL_ENDS[0], blocks=4)


def test_a_single_problem(folder: Path) -> None:
    case = PERSISTENT["one"]
    written(folder, case, schedules(case)[0], [211], blocks=2)


def test_more_problems_than_a_warp_has_lanes(folder: Path) -> None:
    case = PERSISTENT["rows"]
    rng = np.random.default_rng(0)
    for ends in (np.sort(rng.integers(0, 701, 40)), np.arange(1, 41), np.zeros(40, int)):
        written(folder, case, schedules(case, "int64")[0], ends.tolist(), blocks=132)


# --- sums

SUM = """
    const TileId id = Scheduler().locate(p, t);
    printf("t %d\\n", id.l);
    const auto at = Index::tile_coords(p, id.m, id.n, id.l);
    for (int kt = k.first; kt < k.last; ++kt) Index::load_stage(p, at, kt, 0, 1 << 24, 0, {}, {}, true);
    Index::store_tile(p, Index::store_coords(p, id.m, id.n, id.l), 0);
"""


def summed(folder: Path, case: RaggedCase, schedule: Schedule, ends: Sequence[int]) -> None:
    """Check that each element of D is written once, by a tile that reads the rows of its problem and no other."""
    plans = case.plans
    assert plans is not None
    kernel = kernel_of(case, schedule)
    (launch,) = kernel.launches
    params = struct.pack("<2i", len(ends), 3) + np.array(ends, scheduler_of(schedule).ends).tobytes()
    body = program(kernel, "PersistentRaggedSums", SUM)
    out = run_host(folder, body, launch.params + params, blocks=FOLDER).decode()
    specs = {role.removesuffix(CLIPPED): spec for role, _, spec in launch.maps}
    shifts = {role: shift for _, role, shift in launch.moved}
    swapped = plans.whole.swapped != schedule.tiling.swap_ab
    factors = [*zip(case.tensors, case.modes.terms, strict=True)]
    roles = dict(zip("abd", [*(factors[1::-1] if swapped else factors[:2]), factors[2]], strict=True))
    copies: list[tuple[int, dict[str, list[NDArray[np.int64]]]]] = []
    for line in out.splitlines():
        what, *numbers = line.split()
        if what == "t":
            copies.append((int(numbers[0]), {role: [] for role in "abd"}))
            continue
        role = "d" if what == "d" else "b" if int(numbers[0]) >= 1 << 24 else "a"
        coords = [int(x) for x in numbers[1:]]
        size = roles[role][0].dtype.itemsize
        copies[-1][1][role].append(reached(specs[role], size, coords) + shifts.get(role, 0))
    every = {role: places(tensor) for role, (tensor, _) in roles.items()}
    seen = []
    batches, bounds = plans.whole.extent_l // case.count, [min(max(x, 0), case.rows) for x in (0, *ends)]
    for l, found in copies:
        e = l // batches
        to = np.concatenate(found["d"])
        seen.append(to)
        at = np.argwhere(np.isin(every["d"], to))
        index = dict(zip(roles["d"][1], (sorted({*at[:, i].tolist()}) for i in range(at.shape[1])), strict=True))
        assert index[case.modes.problem] == [e]
        index[case.modes.ragged] = [*range(bounds[e], bounds[e + 1])]
        for role in "ab":
            tensor, term = roles[role]
            axes = [index.get(x, [*range(extent)]) for x, extent in zip(term, tensor.shape, strict=True)]
            assert all(map(len, found[role]))  # one that lies outside would touch what lies before the tensor
            read = np.unique(np.concatenate([np.zeros(0, np.int64), *found[role]]))
            assert np.array_equal(read, np.sort(every[role][np.ix_(*axes)].reshape(-1)))
    assert np.array_equal(np.sort(np.concatenate(seen)), np.sort(every["d"].reshape(-1)))


@pytest.mark.parametrize("name", [name for name in SUMS if name != "sums-large"])
def test_sums_read_the_rows_of_their_problem(folder: Path, name: str) -> None:
    case = SUMS[name]
    schedule = next(s for s in schedules(case) if s.cluster == (1, 1) and s.epilogue.store.subtiles == 1)
    for ends in ALL_ENDS if case.count == 5 else ((211,),):
        summed(folder, case, schedule, [min(x, case.rows) for x in ends])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SUMS if name != "sums-large"])
def test_every_schedule_of_sums_reads_the_rows_of_their_problem(folder: Path, name: str) -> None:
    case = SUMS[name]
    for schedule in schedules(case):
        if schedule.cluster == (1, 1) and schedule.epilogue.store.subtiles == 1:
            summed(folder, case, schedule, [min(x, case.rows) for x in ALL_ENDS[0][: case.count]])
