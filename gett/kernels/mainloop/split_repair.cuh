// A tile by fused multiply-adds, out of the stages that TMA fills, in the order of k and into the accumulators that
// wgmma would have.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

template <class Tile> struct FloatTile {
  static constexpr int kS = Tile::kSwizzleBytes;
  // The element of k number `k` of A's tile.
  static GETT_DEVICE float at(uint32 tile, int row, int k) {
    const int byte = (Tile::kMajorK ? Tile::place(k) : row) * 4, line = Tile::kMajorK ? row : k;
    const uint32 word = tile + byte / kS * Tile::kSlab + HardwareSwizzle<kS>::apply(line * kS + byte % kS);
    return __uint_as_float(ld_shared_u32(word));
  }
};

// Adds the products of a k-tile. Returns the word that was loaded last.
template <class TileA, class TileB, int kRowsB, int kBlockK, int kN>
GETT_DEVICE uint32 fma_k_tile(uint32 a, uint32 b, int block, int lane, float (&acc)[kN / 2]) {
  const int row = (block < TileA::kBlocks ? block : TileA::kBlocks - 1) * 64 + Fragment::row(lane);
  const int column = Fragment::column(lane);
  float last = 0;
#pragma unroll 1
  for (int k = 0; k < kBlockK; ++k) {
    const float x[2] = {FloatTile<TileA>::at(a, row, k), FloatTile<TileA>::at(a, row + 8, k)};
#pragma unroll
    for (int j = 0; j < kN / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int n = j * 8 + column + e;
        const float y = FloatTile<TileB>::at(b, n < kRowsB ? n : kRowsB - 1, k);
#pragma unroll
        for (int r = 0; r < 2; ++r) acc[j * 4 + r * 2 + e] = fmaf(x[r], y, acc[j * 4 + r * 2 + e]);
        last = y;
      }
  }
  return __float_as_uint(last);
}

}  // namespace gett
