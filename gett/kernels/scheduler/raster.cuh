// Which tile a block works on.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

struct TileId { int m, n, l, slice; };

// Tiles of one slice and batch are neighbours; inside, `group_m` rows of tiles are visited together so that the
// blocks that run at the same time share operands in L2.
template <class Params> GETT_DEVICE TileId locate_tile(const Params& p, int block) {
  const int tiles = p.tiles_m * p.tiles_n;
  const int outer = block / tiles, tile = block - outer * tiles;
  const int band = p.group_m * p.tiles_n, first = tile / band * p.group_m;
  const int height = min(p.tiles_m - first, p.group_m), inside = tile % band;
  return {first + inside % height, inside / height, outer / p.split_k, outer % p.split_k};
}

}  // namespace gett
