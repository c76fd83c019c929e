"""Which tiles a Hopper block makes, in each of the ways to deal them out: the kernel's own text, run on the host."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gett.codegen.common import raster
from gett.codegen.index import magic
from tests.cpu.host_cuda import includes, run_host

RASTER = r"""
using namespace gett;
struct Raster {
  int whole_groups;
  FastDiv f[kRasterDivisors];
};
"""
PROGRAM = r"""
struct Params : Raster {
  int tiles_m, tiles_n, tiles;
};
template <bool One, bool A> struct Traits {
  static constexpr int kClusterM = 1, kClusterN = 1, kTileDistance = 1;
  static constexpr bool kSplit = false, kPartialsAlongM = false, kOnePanel = One, kPanelA = A;
  static constexpr int kOrderedClusters = 0;
};
template <class Scheduler, bool kPanelA> void walk(const Raster& raster, int m, int n, int blocks) {
  const Params p = {raster, m, n, m * n};
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
  static constexpr bool kSplit = false, kPartialsAlongM = false;
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
STREAM_K = r"""
struct Params : Raster {
  int tiles_m, tiles_n, group_m, split_k, tiles, k_tiles, shares, share_k_tiles, longer_shares;
  float* workspace;
};
struct Shape {
  typedef ::Params Params;
  static constexpr int kBlockM = 2, kBlockN = 1;  // a partial tile has two elements
  static constexpr int kClusterM = CLUSTER_M, kClusterN = 1, kTileDistance = 1;
  static constexpr bool kSplit = false, kPartialsAlongM = false;
};
int main() {
  typedef StreamK<Shape> Scheduler;
  const int clusters = (M + CLUSTER_M - 1) / CLUSTER_M * N, left = clusters % SHARES;
  float* const zero = (float*)calloc(4 * SHARES * CLUSTER_M, sizeof(float));
  const int all = left * K;
  const Params p = {
      RASTER, M, N, 2, 1, clusters - left + 2 * SHARES, K, SHARES, all / SHARES,
      all % SHARES, zero};
  for (int rank = 0; rank < CLUSTER_M; ++rank)
    for (int share = 0; share < SHARES; ++share) {
      blockIdx.x = share * CLUSTER_M + rank;
      const Scheduler scheduler(rank);
      for (int t = Scheduler::first(p); t < Scheduler::end(p); t += Scheduler::step(p)) {
        const KTileRange k = Scheduler::k_tiles(p, t, 0);
        if (k.first >= k.last) continue;
        const TileId id = scheduler.locate(p, t);
        const int part = Scheduler::is_part(p, t);
        const int place = part ? int(scheduler.template partial<2>(p, t) - zero) : -1;
        printf("work %d %d %d %d %d\n", id.m, id.n, k.first, k.last, place);
      }
    }
  for (int block = 0; block < left * CLUSTER_M; ++block) {
    const PartsOfTile<Shape, Scheduler> parts(p, block);
    for (int i = 0; i < parts.count(p); ++i)
      printf("sum %d %d %d %d\n", parts.id.m, parts.id.n, i, int(parts.at(p, i) - zero));
  }
}
"""
RS_K_TILES = r"""
struct Params : Raster {
  int tiles_m, tiles_n, group_m, split_k, tiles, k_tiles, shares, share_k_tiles, longer_shares;
};
struct Shape {
  typedef ::Params Params;
  static constexpr int kClusterM = 1, kClusterN = 1, kTileDistance = 1, kOrderedClusters = 0;
  static constexpr bool kSplit = false, kPartialsAlongM = false;
};
template <class Scheduler> void walk(const Params& p) {
  for (int block = 0; block < SHARES; ++block) {
    blockIdx.x = block;
    for (int t = Scheduler::first(p); t < Scheduler::end(p); t += Scheduler::step(p)) {
      const TileId id = Scheduler().locate(p, t);
      const RSKTiles<Scheduler, 16, false> k_tiles(p, t, id.slice);
      for (int i = 0; i < k_tiles.count_; ++i) {
        const int k = k_tiles.tile(p, i), first = k_tiles.first(i);
        printf("%d %d %d %d %d %d\n", block, id.m, id.n, k, first, first + k_tiles.steps(i));
      }
    }
  }
}
int main() {
  const int left = M * N % SHARES, all = left * K;
  gridDim.x = SHARES;
  walk<StreamK<Shape>>({RASTER, M, N, 2, 1, M * N - left + 2 * SHARES, K, SHARES, all / SHARES, all % SHARES});
  printf("whole\n");
  walk<PersistentRaster<Shape>>({RASTER, M, N, 2, 1, M * N, K, 0, 0, 0});
}
"""
# Tiles along a line, lines, blocks: the first of an H200, others with blocks left over and lines of one tile.
SHAPES = ((1128, 3, 132), (9, 2, 132), (40, 6, 132), (30, 4, 131), (5, 4, 7), (7, 5, 6), (8, 1, 3), (1, 2, 2))


def raster_text(tiles_m: int, tiles_n: int, group_m: int, slices: int = 1) -> str:
    """What a kernel's argument says of so many tiles of clusters."""
    whole, divisors = raster(tiles_m, tiles_n, group_m, slices)
    text = ", ".join(f"{{{d}, {multiplier}u, {shift}}}" for d, multiplier, shift in map(magic, divisors))
    return f"Raster{{{whole}, {{{text}}}}}"


@pytest.mark.parametrize(
    ("tiles_m", "tiles_n", "group_m", "slices"),
    [(7, 5, 3, 1), (6, 4, 3, 2), (2, 9, 8, 3), (1, 1, 1, 1), (8, 3, 8, 1), (9, 2, 1, 4)],
)
def test_counted_tiles_are_numbered_as_those_of_parameters(
    tmp_path: Path, tiles_m: int, tiles_n: int, group_m: int, slices: int
) -> None:
    """Groups of rows, in them columns, in them rows; slices in turn."""
    tiles = 2 * tiles_m * tiles_n * slices
    text = f"""int main() {{
  const Raster p = {raster_text(tiles_m, tiles_n, group_m, slices)};
  for (int t = 0; t < {tiles}; ++t) {{
    const TileId id = locate_tile(p, t), of = locate_tile({tiles_m}, {tiles_n}, {group_m}, t);
    if (of.m != id.m || of.n != id.n || of.l != id.l * {slices} + id.slice || of.slice) return 1;
    printf("%d %d %d %d\\n", id.l, id.slice, id.m, id.n);
  }}
}}
"""
    out = run_host(tmp_path, includes("scheduler/raster") + RASTER + text).decode()
    found = [tuple(map(int, line.split())) for line in out.splitlines()]
    every = itertools.product(range(2), range(slices), range(tiles_m), range(tiles_n))
    assert found == sorted(every, key=lambda x: (*x[:2], x[2] // group_m, x[3], x[2]))


@pytest.mark.parametrize("mode", ["plain", "lines", "one"])
def test_every_tile_is_one_blocks(tmp_path: Path, mode: str) -> None:
    name, one = "PersistentRaster" if mode == "plain" else "PersistentPanel", int(mode == "one")
    calls = "".join(
        f"walk<{name}<Traits<{one}, false>>, false>({raster_text(tiles, lines, tiles)}, {tiles}, {lines}, {blocks});\n"
        f"walk<{name}<Traits<{one}, true>>, true>({raster_text(lines, tiles, 1)}, {lines}, {tiles}, {blocks});\n"
        for tiles, lines, blocks in SHAPES
    )
    out = run_host(tmp_path, includes("scheduler/persistent") + RASTER + PROGRAM.replace("CALLS", calls)).decode()
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
    out = run_host(tmp_path, includes("scheduler/persistent") + defines + BATCHES).decode()
    found = [tuple(int(x) for x in line.split()) for line in out.splitlines()]
    # Groups of batches, in them groups of rows, in them batches, in them columns, in them rows.
    wanted = sorted(
        ((i, j, k, 0) for i in range(batches) for j in range(m) for k in range(n)),
        key=lambda x: (x[0] // group_l, x[1] // group_m, x[0], x[2], x[1]),
    )
    assert found == wanted


@pytest.mark.parametrize(
    ("tiles", "k_tiles", "shares", "cluster_m"),
    [
        ((5, 4), 9, 7, 1),
        ((5, 4), 9, 7, 2),
        ((3, 2), 40, 7, 1),
        ((2, 1), 3, 6, 1),
        ((11, 3), 20, 16, 1),
        ((7, 7), 5, 6, 2),
    ],
)
def test_shares_of_stream_k_are_equal_and_their_parts_are_added_in_order(
    tmp_path: Path, tiles: tuple[int, int], k_tiles: int, shares: int, cluster_m: int
) -> None:
    constants = {"M": tiles[0], "N": tiles[1], "K": k_tiles, "SHARES": shares, "CLUSTER_M": cluster_m}
    constants["RASTER"] = raster_text(-(-tiles[0] // cluster_m), tiles[1], 2)
    defines = "".join(f"#define {name} {x}\n" for name, x in constants.items())
    out = run_host(tmp_path, includes("scheduler/parts_of_tile") + defines + RASTER + STREAM_K).decode()
    work: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    added: dict[tuple[int, int], list[int]] = {}
    for kind, *numbers in (line.split() for line in out.splitlines()):
        m, n, *rest = map(int, numbers)
        if kind == "sum":
            assert rest[0] == len(added.setdefault((m, n), []))
            added[m, n].append(rest[1])
        elif m < tiles[0]:  # a surplus block of a cluster makes a tile that does not exist
            work.setdefault((m, n), []).append((rest[0], rest[1], rest[2]))
    assert sorted(work) == [(m, n) for m in range(tiles[0]) for n in range(tiles[1])]
    places = []
    for tile, found in work.items():
        parts = sorted(found)
        ends = [0, *(last for _, last, _ in parts)]
        assert [first for first, _, _ in parts] == ends[:-1]
        assert ends[-1] == k_tiles
        if tile in added:
            assert [place for _, _, place in parts] == added[tile]
            places += added[tile]
        else:
            assert [place for _, _, place in parts] == [-1]
    assert len(set(places)) == len(places), "each part has a place of its own"
    clusters = -(-tiles[0] // cluster_m) * tiles[1]
    lengths: dict[int, int] = {}
    for first, last, place in (x for tile in added for x in work[tile]):
        share = place // 2 // (2 * cluster_m)
        lengths[share] = lengths.get(share, 0) + (last - first)
    if cluster_m == 1:
        each = clusters % shares * k_tiles / shares
        assert all(each - 1 < length < each + 1 for length in lengths.values())
        assert len(lengths) == shares


@pytest.mark.parametrize(("tiles", "k_tiles", "shares"), [((5, 4), 9, 7), ((3, 2), 40, 4), ((2, 1), 3, 6)])
def test_k_tiles_of_operands_along_two_modes_are_those_of_the_shares(
    tmp_path: Path, tiles: tuple[int, int], k_tiles: int, shares: int
) -> None:
    """Each once and whole, neighbours in turn; and all of them in one block where no tile is divided."""
    constants = {"M": tiles[0], "N": tiles[1], "K": k_tiles, "SHARES": shares, "RASTER": raster_text(*tiles, 2)}
    defines = "".join(f"#define {name} {x}\n" for name, x in constants.items())
    out = run_host(tmp_path, includes("scheduler/k_tiles") + defines + RASTER + RS_K_TILES).decode()
    divided, whole = (
        [tuple(map(int, line.split())) for line in part.splitlines() if line] for part in out.split("whole")
    )
    every = sorted((m, n, k, 0, 16) for m in range(tiles[0]) for n in range(tiles[1]) for k in range(k_tiles))
    for found in (divided, whole):
        assert sorted(x[1:] for x in found) == every
        blocks: dict[tuple[int, ...], list[int]] = {}
        for block, m, n, k, *_ in found:
            blocks.setdefault((block, m, n), []).append(k)
        assert all(ks == [*range(ks[0], ks[0] + len(ks))] for ks in blocks.values())
        assert (len(blocks) == tiles[0] * tiles[1]) == (found is whole)
