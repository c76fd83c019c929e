"""Which tiles a Hopper block makes, in each of the ways to deal them out: the kernel's own text, run on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cpu.host_cuda import includes, run_host

PROGRAM = r"""
using namespace gett;
struct Params { int tiles_m, tiles_n, group_m, split_k, tiles; };
template <bool One, bool A> struct Traits {
  static constexpr int kClusterM = 1, kClusterN = 1, kTileDistance = 1;
  static constexpr bool kSplit = false, kOnePanel = One, kPanelA = A;
  static constexpr int kOrderedClusters = 0;
};
template <class Scheduler, bool kPanelA> void walk(int m, int n, int blocks) {
  const Params p = {m, n, kPanelA ? 1 : m, 1, m * n};
  int* made = (int*)calloc(m * n, sizeof(int));
  int once = 0, lines = 0, most = 0;
  gridDim.x = blocks;
  for (int b = 0; b < blocks; ++b) {
    blockIdx.x = b;
    int own = 0, seen = 0, last = -1;
    for (int t = Scheduler::first(p); t < Scheduler::end(p); t += Scheduler::step(p), ++own) {
      const TileId id = Scheduler().locate(p, t);
      const int line = kPanelA ? id.m : id.n;
      ++made[id.m * n + id.n];
      seen += line != last;
      last = line;
    }
    lines = max(lines, seen);
    most = max(most, own);
  }
  for (int i = 0; i < m * n; ++i) once += made[i] == 1;
  printf("%d %d %d %d\n", m * n, once, lines, most);
  free(made);
}
int main() { CALLS }
"""
BATCHES = r"""
using namespace gett;
struct Params { int tiles_m, tiles_n, group_m, split_k, tiles; };
struct Traits {
  static constexpr int kClusterM = 1, kClusterN = 1, kTileDistance = 1, kOrderedClusters = 0, kGroupL = GROUP_L;
  static constexpr bool kSplit = false;
};
int main() {
  const Params p = {M, N, GROUP_M, 1, M * N * L};
  gridDim.x = 7;
  for (int t = 0; t < p.tiles; ++t) {
    const TileId id = PersistentBatches<Traits>().locate(p, t);
    printf("%d %d %d %d\n", id.l, id.m, id.n, id.slice);
  }
}
"""
# Tiles along a line, lines, blocks: the first of an H200, others with blocks left over and lines of one tile.
SHAPES = ((1128, 3, 132), (9, 2, 132), (40, 6, 132), (30, 4, 131), (5, 4, 7), (7, 5, 6), (8, 1, 3), (1, 2, 2))


@pytest.mark.parametrize("mode", ["plain", "lines", "one"])
def test_every_tile_is_one_blocks(tmp_path: Path, mode: str) -> None:
    name, one = "PersistentRaster" if mode == "plain" else "PersistentPanel", int(mode == "one")
    calls = "".join(
        f"walk<{name}<Traits<{one}, false>>, false>({tiles}, {lines}, {blocks});\n"
        f"walk<{name}<Traits<{one}, true>>, true>({lines}, {tiles}, {blocks});\n"
        for tiles, lines, blocks in SHAPES
    )
    out = run_host(tmp_path, includes("scheduler/persistent") + PROGRAM.replace("CALLS", calls)).decode()
    found = [[int(x) for x in line.split()] for line in out.splitlines()]
    assert len(found) == 2 * len(SHAPES)
    for (count, once, seen, most), (tiles, lines, blocks) in zip(
        found, [s for s in SHAPES for _ in range(2)], strict=True
    ):
        assert once == count == tiles * lines, "each tile is made, and by one block"
        each = blocks // lines if mode == "one" else blocks
        assert most == -(-(tiles if mode == "one" else count) // each), "no block has more than its share"
        if mode == "one":
            assert seen == 1, "a block's tiles are in one line"


@pytest.mark.parametrize(("shape", "group_m", "group_l"), [((16, 8, 32), 2, 8), ((5, 3, 7), 2, 3), ((1, 2, 5), 1, 5)])
def test_rows_of_grouped_batches_follow_each_other(
    tmp_path: Path, shape: tuple[int, int, int], group_m: int, group_l: int
) -> None:
    m, n, batches = shape
    constants = {"M": m, "N": n, "L": batches, "GROUP_M": group_m, "GROUP_L": group_l}
    defines = "".join(f"#define {name} {x}\n" for name, x in constants.items())
    out = run_host(tmp_path, defines + includes("scheduler/persistent") + BATCHES).decode()
    found = [tuple(int(x) for x in line.split()) for line in out.splitlines()]
    # Groups of batches, in them groups of rows, in them batches, in them columns, in them rows.
    wanted = sorted(
        ((i, j, k, 0) for i in range(batches) for j in range(m) for k in range(n)),
        key=lambda x: (x[0] // group_l, x[1] // group_m, x[0], x[2], x[1]),
    )
    assert found == wanted
