// The order in which tiles of D are numbered (CUTLASS: rasterization), and the k-tiles of a slice.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// A tile of M, a tile of N, a batch and a slice of K.
struct TileId { int m, n, l, slice; };

// Tiles of one slice and batch have consecutive numbers. Among them, `group_m` rows of tiles are traversed together, so
// that blocks that run at the same time share operands in L2.
template <class Params> GETT_DEVICE TileId locate_tile(const Params& p, int block) {
  const int tiles = p.tiles_m * p.tiles_n;
  const int outer = block / tiles, tile = block - outer * tiles;
  const int group = p.group_m * p.tiles_n, first = tile / group * p.group_m;
  const int height = min(p.tiles_m - first, p.group_m), inside = tile % group;
  return {first + inside % height, inside / height, outer / p.split_k, outer % p.split_k};
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
