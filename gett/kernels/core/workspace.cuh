// The workspace of split-K: the partial tiles that the slices leave, in the accumulator's type. The main kernels store
// them, kernel/splitk_reduce.cuh adds them.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// The partial tile number `tile` of `tiles` in a slice of batch l. Tiles of one slice are neighbours in row-major
// order, then come slices, then batches.
template <int kTileSize, class Params>
GETT_DEVICE auto* partial_tile(const Params& p, int l, int slice, int tile, int tiles) {
  return p.workspace + (((long long)l * p.split_k + slice) * tiles + tile) * kTileSize;
}
template <int kTileSize, class Params, class TileId> GETT_DEVICE auto* partial_tile(const Params& p, const TileId& id) {
  return partial_tile<kTileSize>(p, id.l, id.slice, id.m * p.tiles_n + id.n, p.tiles_m * p.tiles_n);
}

// The partial sums of a tile of outputs in a slice, for sums without a GEMM (kernel/stream_sum.cuh): slices of all
// tiles.
template <int kTileSize, class Params> GETT_DEVICE auto* partial_outputs(const Params& p, int slice, int tile) {
  return p.workspace + ((long long)slice * p.tiles_o + tile) * kTileSize;
}

}  // namespace gett
