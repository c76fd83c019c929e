// The order in which tiles of D are numbered (CUTLASS: rasterization), and the k-tiles of a slice.
#pragma once
#include "gett/core/index.cuh"

namespace gett {

// A tile of M, a tile of N, a batch and a slice of K.
struct TileId { int m, n, l, slice; };

// The divisors by which tiles are numbered: with reciprocals, the first of a kernel's own (Params::f); or integers,
// where the device counts tiles.
enum RasterDivisor { kBatchTiles, kGroupTiles, kGroupRows, kLastRows, kSlices, kRasterDivisors };
GETT_DEVICE int divide(int n, int d) { return n / d; }
GETT_DEVICE int divide(int n, const FastDiv& d) { return fast_div(n, d); }
GETT_DEVICE int count_of(int d) { return d; }
GETT_DEVICE int count_of(const FastDiv& d) { return int(d.d); }

// Rows of tiles of a group: the first `whole_groups` groups have as many each. Tiles that the device counts would take
// a division to know that.
struct CountedTiles { int tiles_m, f[kRasterDivisors]; };
template <class Params> GETT_DEVICE FastDiv rows_of(const Params& p, int group) {
  return group < p.whole_groups ? p.f[kGroupRows] : p.f[kLastRows];
}
GETT_DEVICE int rows_of(const CountedTiles& p, int group) {
  return min(p.tiles_m - group * p.f[kGroupRows], p.f[kGroupRows]);
}

// Tiles of one slice and batch have consecutive numbers. Among them, a group of rows of tiles is traversed together, so
// that blocks that run at the same time share operands in L2.
template <class Raster> GETT_DEVICE TileId locate_tile(const Raster& p, int block) {
  const int outer = divide(block, p.f[kBatchTiles]), tile = block - outer * count_of(p.f[kBatchTiles]);
  const int group = divide(tile, p.f[kGroupTiles]), inside = tile - group * count_of(p.f[kGroupTiles]);
  const auto rows = rows_of(p, group);
  const int n = divide(inside, rows), l = divide(outer, p.f[kSlices]);
  const int m = group * count_of(p.f[kGroupRows]) + inside - n * count_of(rows);
  return {m, n, l, outer - l * count_of(p.f[kSlices])};
}
// The same of so many tiles, whose K is whole.
GETT_DEVICE TileId locate_tile(int tiles_m, int tiles_n, int group_m, int block) {
  CountedTiles tiles;
  tiles.tiles_m = tiles_m;
  tiles.f[kBatchTiles] = tiles_m * tiles_n;
  tiles.f[kGroupTiles] = group_m * tiles_n;
  tiles.f[kGroupRows] = group_m;
  tiles.f[kSlices] = 1;
  return locate_tile(tiles, block);
}

// The same for whole sums where kGroupL batches are visited together: `group_m` rows of tiles of each of them, then the
// next rows. Tiles of neighbouring batches that lie side by side in D are so written at the same time, in long runs.
template <int kGroupL, class Params> GETT_DEVICE TileId locate_tile_of_batches(const Params& p, int block) {
  const int tiles = p.tiles_m * p.tiles_n, batches = p.tiles / tiles;
  const int first_l = block / (tiles * kGroupL) * kGroupL, width = min(batches - first_l, kGroupL);
  const int tile = block - first_l * tiles, group = p.group_m * p.tiles_n * width, first_m = tile / group * p.group_m;
  const int height = min(p.tiles_m - first_m, p.group_m), rest = tile % group, each = height * p.tiles_n;
  const int inside = rest % each;
  return {first_m + inside % height, inside / height, first_l + rest / each, 0};
}

// K-tiles first to last - 1 of a slice; none where the slice is empty.
struct KTileRange { int first, last; };
template <class Params> GETT_DEVICE KTileRange k_tile_range(const Params& p, int slice) {
  const int first = slice * p.k_tiles_per_slice;
  return {first, min(first + p.k_tiles_per_slice, p.k_tiles)};
}

// A part of a tile under stream-K: the tile's number among those that are divided, and the part's k-tiles.
struct StreamKPart { int tile; KTileRange k_tiles; };

// The k-tiles of all divided tiles, end to end, in p.shares shares of p.share_k_tiles each, of which the first
// p.longer_shares have one more: where share `i` begins, and which share has k-tile `at`.
template <class Params> GETT_DEVICE int share_begin(const Params& p, int i) {
  return i * p.share_k_tiles + min(i, p.longer_shares);
}
template <class Params> GETT_DEVICE int share_of(const Params& p, int at) {
  const int longer = p.longer_shares * (p.share_k_tiles + 1);
  return at < longer ? at / (p.share_k_tiles + 1) : (at - p.longer_shares) / p.share_k_tiles;
}
// Work tile t is the first or the second part of share t % p.shares.
template <class Params> GETT_DEVICE StreamKPart part_of_share(const Params& p, int t) {
  const int second = t >= p.shares, share = t - second * p.shares;
  const int begin = share_begin(p, share), end = share_begin(p, share + 1);
  const int tile = begin / p.k_tiles + second, from = tile * p.k_tiles;
  const int first = max(begin, from) - from;
  return {tile, {first, max(first, min(end - from, p.k_tiles))}};
}

// Which tiles of a block, by their number, are made, and whether the one that is staged now is stored.
struct AllTiles {
  GETT_DEVICE bool takes(int) const { return true; }
  GETT_DEVICE bool stores(int) const { return true; }
};

}  // namespace gett
