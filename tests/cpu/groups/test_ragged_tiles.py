"""Persistent kernels of ragged contractions: which are taken, and what they write, row by row, run on the host."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gett.codegen.params import ENDS
from gett.codegen.ragged import CLIPPED, scheduler_of, table_bytes
from gett.codegen.records import Kernel
from gett.codegen.render import render_kernel
from gett.codegen.tma import store_pieces
from gett.groups import ragged_launch
from gett.groups.ragged_launch import RaggedLaunch, persistent_kernel
from gett.groups.ragged_tiles import MOST_PROBLEMS, ragged_schedules
from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan
from gett.jit.compile import compile_uncached
from gett.jit.elf import resources
from gett.schedule.legality import can_implement
from gett.schedule.lower import lower_plan
from gett.schedule.spec.schedule import PersistentRagged, Schedule
from layouts.tma import TmaMap
from tests.cpu.fake_driver import FakeDriver, FakeHost
from tests.cpu.groups.ragged_cases import RaggedCase, indices, places, reached
from tests.cpu.groups.table_machine import GpuKind
from tests.cpu.host_blocks import FOLDER
from tests.cpu.host_cuda import generated, includes, run_host

SIZES = dict(t=700, e=40, k=64, n=136)
FEW = dict(t=300, e=5, k=72, n=200)
PERSISTENT = {
    "rows": RaggedCase("tk,ekn->tn", SIZES),
    "large": RaggedCase("tk,ekn->tn", dict(t=131072, e=64, k=2048, n=4096), "bfloat16"),
    "weights": RaggedCase("tk,enk->tn", FEW),
    "second": RaggedCase("ekn,tk->tn", FEW),
    "inside": RaggedCase("thk,ekn->thn", dict(FEW, h=3)),
    "outside": RaggedCase("thk,ekn->htn", dict(FEW, h=3)),
    "batch": RaggedCase("tbk,ebkn->tbn", dict(FEW, b=2)),
    "tokens": RaggedCase("tk,ekn->tn", dict(FEW, t=304), orders=("kt", "", "")),
    "split": RaggedCase("tk,ekn->tn", dict(FEW, n=256)),  # a row of matrices is cut into those of a swizzle
    "one": RaggedCase("tk,ekn->tn", dict(FEW, e=1)),
    "gaps": RaggedCase("tk,ekn->tn", FEW, gap=8),
    "few": RaggedCase("tk,ekn->tn", dict(FEW, n=16)),
    "words": RaggedCase("tk,enk->tn", FEW, "float32", "tf32"),
    "fragments": RaggedCase("tk,ekn->tn", FEW, "float32", "tf32"),
    "transposed": RaggedCase("tk,ekn->tn", dict(FEW, t=304), "float32", "tf32", orders=("kt", "", "")),
}
OTHERS = {
    "sums": RaggedCase("tk,tn->ekn", SIZES),
    "columns": RaggedCase("tk,ekn->nt", SIZES),  # D's rows run along the ragged mode, which no map can clip
    "odd": RaggedCase("tk,ekn->tn", dict(SIZES, n=135)),
    "odd-k": RaggedCase("tk,ekn->tn", dict(SIZES, k=63)),
    "ieee": RaggedCase("tk,ekn->tn", SIZES, "float32", "ieee"),
    "double": RaggedCase("tk,ekn->tn", SIZES, "float64"),
    "complex": RaggedCase("tk,ekn->tn", SIZES, "complex64"),
    "single": RaggedCase("tk,ekn->tn", dict(SIZES, t=1)),
    "none": RaggedCase("tk,ekn->tn", dict(SIZES, t=0)),
    "many": RaggedCase("tk,ekn->tn", dict(SIZES, e=MOST_PROBLEMS + 1)),
    "long": RaggedCase("tk,ekn->tn", dict(SIZES, t=2**31 - 1)),
}
PROGRAM = """
INSIDE
using namespace gett;
typedef PersistentRagged<SchedulerTraits> Scheduler;
static Params p;
static decltype(*p.ends + 0) ends[1 << 12];
static void kernel() {
  Scheduler::start(p);
  __syncthreads();
  if (threadIdx.x) return;
  const Scheduler scheduler(blockIdx.x % Scheduler::kSize);
  for (int t = Scheduler::first(p); t < Scheduler::end(p); t += Scheduler::step(p)) {
    const TileId id = scheduler.locate(p, t);
    const KTileRange k = Scheduler::k_tiles(p, t, 0);
    const auto at = Index::tile_coords(p, id.m, id.n, id.l);
    const auto to = Index::store_coords(p, id.m, id.n, id.l);
    const int head[] = {id.l, k.first, k.last, Scheduler::exists(p, id)};
    fwrite(head, 4, 4, stdout);
    fwrite(&at, sizeof at, 1, stdout);
    fwrite(&to, sizeof to, 1, stdout);
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


def schedules(case: RaggedCase, ends: str = "int32") -> list[Schedule]:
    plans = case.plans
    return [] if plans is None else ragged_schedules(plans, "sm_90a", ends)


def kernel_of(case: RaggedCase, schedule: Schedule) -> Kernel:
    assert case.plans is not None
    return render_kernel(case.plans.whole, schedule)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ragged")


# --- which kernel


@pytest.mark.parametrize("name", PERSISTENT)
def test_tensor_maps_and_wgmma_take_it(name: str) -> None:
    case = PERSISTENT[name]
    facts = arch_facts("sm_90a")
    found = schedules(case)
    assert found
    for s in found:
        assert s.kind == {"fragments": "wgmma tf32", "transposed": "wgmma tf32"}.get(name, "wgmma ss")
        assert s.smem.size + table_bytes(case.count) <= facts.smem_per_block
        assert scheduler_of(s).row_length == (3 if name == "inside" else 1)
        store = s.epilogue.store.map
        assert store is not None
        assert store.rank <= 5
        assert store.base_offset < 0


@pytest.mark.parametrize("name", OTHERS)
def test_others_have_the_kernel_that_reads_tables(name: str) -> None:
    case = OTHERS[name]
    assert not schedules(case)
    assert persistent_kernel(case.modes, case.tensors, "sm_90a", "int32", case.count, case.precision) is None


def test_addresses_that_no_map_takes_and_older_gpus_have_the_other_kernel() -> None:
    case = PERSISTENT["rows"]
    a, b, d = case.tensors
    for tensors in ((replace(a, alignment=8), b, d), (a, replace(b, alignment=8), d), (a, b, replace(d, alignment=8))):
        assert persistent_kernel(case.modes, tensors, "sm_90a", "int32", case.count, None) is None
    assert persistent_kernel(case.modes, (a, b, d), "sm_80", "int32", case.count, None) is None


def test_tiles_follow_the_usual_number_of_rows() -> None:
    def rows(t: int) -> int:
        s = schedules(RaggedCase("tk,ekn->tn", dict(t=t, e=64, k=2048, n=4096)))[0]
        return (s.tiling.m if s.scheduler.ragged == "m" else s.tiling.n).size

    assert rows(64 * 2048) >= 128
    assert rows(64 * 16) <= 32


def test_no_plan_has_such_a_schedule() -> None:
    case = PERSISTENT["rows"]
    assert case.plans is not None
    found = can_implement(schedules(case)[0], case.plans.whole, arch_facts("sm_90a"))
    assert found is not None
    assert "reads the ends of problems" in found.reason


# --- what it says


@pytest.mark.parametrize("ends", ["int32", "int64"])
def test_a_launch_takes_the_ends_and_the_clipped_map_of_d(ends: str) -> None:
    case = PERSISTENT["gaps"]
    schedule = schedules(case, ends)[0]
    kernel = kernel_of(case, schedule)
    (launch,) = kernel.launches
    assert dict(launch.pointers) == {"a": 0, "b": 8, "d": 24, "ends": ENDS}
    assert [role for role, *_ in launch.maps] == ["a", "b", CLIPPED]
    row = (200 + 8) * 2
    side = (schedule.tiling.m if schedule.scheduler.ragged == "m" else schedule.tiling.n).size
    assert launch.moved == ((CLIPPED, "d", -side * row),)
    assert f"const {'int' if ends == 'int32' else 'long long'}* ends;" in kernel.source.text


@pytest.mark.parametrize("name", ["gaps", "second", "words"])
def test_calls_point_the_maps_at_the_tensors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = PERSISTENT[name]
    driver = FakeDriver(512)
    monkeypatch.setattr(ragged_launch, "CupyHost", FakeHost)
    monkeypatch.setattr(ragged_launch, "load_driver", lambda: driver)
    monkeypatch.setattr(ragged_launch, "compile_kernel", lambda source, arch: repr((name, arch)).encode())
    launch = RaggedLaunch(GpuKind(), 0, case.modes, case.tensors, "int64", case.count, case.precision)
    assert isinstance(launch.schedule, Schedule)
    at_a, at_b, at_d, ends = (i << 32 for i in range(1, 5))
    for shift in (0, 1 << 20):
        launch.run(at_a + shift, at_b + shift, at_d + shift, ends + shift)
    first, second = driver.launches
    swapped = launch.schedule.scheduler.ragged != ("m" if name != "second" else "n")
    a, b = (at_b, at_a) if swapped else (at_a, at_b)
    assert np.frombuffer(first.params, np.int64, 6).tolist() == [a, b, 0, at_d, 0, ends]
    assert np.frombuffer(first.params, np.float32, 1, 48) == 1
    assert np.frombuffer(first.params, np.float32, 1, 64) == 0
    store = launch.schedule.epilogue.store.map
    assert store is not None
    pointed = [address for _, address, *_ in driver.maps]
    assert pointed[:3] == [a, b, at_d + store.base_offset]
    assert pointed[3:] == [x + (1 << 20) for x in pointed[:3]]
    assert first.grid == second.grid


@pytest.mark.parametrize("name", PERSISTENT)
def test_kernels_compile_without_spilling(name: str) -> None:
    case = PERSISTENT[name]
    kernel = kernel_of(case, schedules(case)[0])
    cubin = compile_uncached(kernel.source.text, "sm_90a", sparing=False).cubin
    (found,) = resources(cubin).values()
    assert found.local_bytes == 0
    assert found.registers <= 168
    assert found.shared_bytes == table_bytes(case.count)


# --- what it writes


def written(folder: Path, case: RaggedCase, schedule: Schedule, ends: Sequence[int], blocks: int) -> None:
    """Check that each element of D is written once, by a tile of its problem that loads the rows and the matrix."""
    plans = case.plans
    assert plans is not None
    kernel, made = kernel_of(case, schedule), scheduler_of(schedule)
    (launch,) = kernel.launches
    size = blocks * schedule.cluster[0] * schedule.cluster[1]
    params = struct.pack("<2i", len(ends), size) + np.array(ends, made.ends).tobytes()
    body = includes("core/index", "ptx/tma", "scheduler/ragged") + PROGRAM.replace("INSIDE", generated(kernel))
    out = np.frombuffer(run_host(folder, body, launch.params + params, blocks=FOLDER), np.int32)
    maps = {role: spec for role, _, spec in launch.maps}
    ranks = [len(maps[role].extents) for role in ("a", "b", CLIPPED)]
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
                bytes_at.append(reached(maps[CLIPPED], of, coords))
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


ALL_ENDS = (
    (0, 70, 70, 201, 260),
    (1, 2, 130, 131, 300),
    (0, 0, 0, 0, 0),
    (0, 0, 0, 0, 300),
    (-7, 40, 41, 290, 1 << 30),  # kept within the tensors
)


@pytest.mark.parametrize("role", ["m", "n"])
@pytest.mark.parametrize(
    "name", ["weights", "inside", "outside", "batch", "tokens", "split", "few", "words", "transposed"]
)
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
