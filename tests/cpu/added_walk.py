"""The Hopper epilogue's walk over a staged tile, and the copies of one, run on the host: the kernel's own text.

What a lane gets of `ldmatrix` follows from the rows that all lanes of its warp name, so lanes run one after the other
and matrices are put together at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from gett.codegen.records import Kernel
from gett.codegen.render import render_kernel
from gett.schedule.lower import lower_plan
from gett.schedule.spec.epilogue import TmaSource
from tests.cpu.host_cuda import generated, includes, run_host
from tests.cpu.smem_places import coordinates
from tests.specs import Spec

PROGRAM = """
INSIDE
using namespace gett;
typedef EpilogueTraits Traits;
typedef Traits::Acc Acc;
static constexpr int kCount = Traits::kMmaM * Traits::kBlockN / 2;
struct Matrix { uint32 at; int first; bool four, turned; };
static Matrix matrices[32][kCount];
static int count;
static Acc acc[Traits::kMmaM][Traits::kBlockN / 2];
static int places[32][kCount];  // byte of each accumulator
struct Recorder {
  int lane;
  template <bool kTurned, int kAll> void matrices(uint32 at, Acc (&x)[kAll], int i, bool four) const {
    ::matrices[lane][count++] = {at, int(&x[i] - &acc[0][0]), four, kTurned};
  }
  template <int kV, class P, class X> void vector(const P& place, const X& x) const {
    const int size = sizeof(Traits::ElementD);
    for (int v = 0; v < kV; ++v) places[lane][int(Parts<Acc>::at(x(v), 0))] = place() + size * v;
  }
};
int main() {
  for (int i = 0; i < kCount; ++i) Parts<Acc>::at((&acc[0][0])[i], 0) = i;  // some copies exchange accumulators
  Params p;
  if (fread(&p, sizeof p, 1, stdin) != 1) return 2;
  int job[3];
  while (fread(job, sizeof job, 1, stdin) == 1) {
    printf("t %d %d %d\\n", job[0], job[1], job[2]);
    const auto at = Index::store_coords(p, job[0], job[1], job[2]);
    Index::load_c(p, at, 0, 0);
    Index::store_tile(p, at, 0);
  }
  const int groups = Traits::kPingPong ? 1 : Traits::kConsumerWarpgroups;
  for (int part = 0; part < Traits::kMmaTilesPerStoreTile; ++part)
    for (int warp = 0; warp < 4 * groups; ++warp) {
      memset(places, -1, sizeof places);
      const int block = warp / 4 * Traits::kMmaM;
      int all = 0;
      for (int lane = 0; lane < 32; ++lane) {
        count = 0;
        const R2STiledCopy<Traits, Index> found(p, 0, block, warp % 4 * 32 + lane, part * Traits::kBoxM);
        found.visit(acc, Recorder{lane});
        if (lane && count != all) return 3;
        all = count;
      }
      for (int lane = 0; lane < 32; ++lane)
        for (int e = 0; e < all; ++e)
          for (int q = 0; q < (matrices[0][e].four ? 4 : 2); ++q)
            for (int x = 0; x < 2; ++x) {
              const int row = matrices[0][e].turned ? lane % 4 * 2 + x : lane / 4;
              const int in = matrices[0][e].turned ? lane / 4 : lane % 4 * 2 + x;
              places[lane][matrices[lane][e].first + 2 * q + x] = matrices[8 * q + row][e].at + 2 * in;
            }
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < Traits::kMmaM; ++i)
          for (int j = 0; j < Traits::kBlockN / 2; ++j) {
            const int m = FragmentRows<Traits>::at(block, i, warp % 4 * 16 + lane / 4 + (j & 2) * 4);
            const int n = j / 4 * 8 + lane % 4 * 2 + j % 2;
            if (m < Traits::kBoxM && n < Traits::kBoxN)
              printf("f %d %d %d\\n", part * Traits::kBoxM + m, n, places[lane][i * (Traits::kBlockN / 2) + j]);
          }
    }
}
"""

Tile = tuple[tuple[int, ...], list[list[int]], list[list[int]]]


def walked(
    tmp: Path, kernel: Kernel, tiles: Sequence[tuple[int, int, int]]
) -> tuple[list[Tile], list[tuple[int, ...]]]:
    """Run it.

    Args:
        tmp: For the program.
        kernel: A Hopper kernel that brings C by tensor map and writes D in vectors.
        tiles: (tile of M, tile of N, batch).

    Returns:
        For each tile the copies of C and those of D: byte of the staged tile, then coordinates in the map. And
        (row, column, byte of the staged tile) of every accumulator that is no padding, parts one after the other.
    """
    headers = includes("core/index", "epilogue/r2s", "ptx/tma", "scheduler/persistent")
    body = headers + PROGRAM.replace("INSIDE", generated(kernel))
    sent = kernel.launches[0].params + b"".join(struct.pack("<3i", *tile) for tile in tiles)
    found: list[Tile] = []
    places: list[tuple[int, ...]] = []
    for line in run_host(tmp, body, sent).decode().splitlines():
        values = [int(x) for x in line[2:].split()]
        if line[0] == "t":
            found.append((tuple(values), [], []))
        elif line[0] == "f":
            places.append(tuple(values))
        else:
            found[-1][1 if line[0] == "c" else 2].append(values)
    return found, places


def staged_kinds(tmp_path: Path, specs: Iterable[Spec]) -> set[str]:
    """The kinds of copies by which kernels stage D and C, one of each kind and count of MMA atoms.

    Each sum meets its element of C, and is written there.
    """
    ran = set()
    for spec in specs:
        source, store, t = spec.schedule.epilogue.source, spec.schedule.epilogue.store, spec.schedule.tiling
        kind = store.stage.copy.kind if store.stage is not None else ""
        if not isinstance(source, TmaSource) or kind == "scalar" or (kind, spec.schedule.hopper.mma_m) in ran:
            continue
        ran.add((kind, spec.schedule.hopper.mma_m))
        real = lower_plan(spec.plan, t)
        _, places = walked(tmp_path, render_kernel(spec.plan, spec.schedule), [(0, 0, 0)])
        for row, column, byte in places:
            local = [0] * len(real.l) + coordinates(t.m, row) + coordinates(t.n, column)
            assert byte == source.map.smem_offset(local), (spec, row, column)
        assert len({byte for *_, byte in places}) == len(places) == t.m.size * t.n.size
    return {kind for kind, _ in ran}
