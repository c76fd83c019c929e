// A tile by fused multiply-adds, out of the stages that TMA fills, in the order of k and into the accumulators that
// wgmma would have.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/numeric.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

// The element of row `row` and of k number `k` of A's tile.
template <class Tile, class Element> GETT_DEVICE Element tile_element(uint32 tile, int row, int k, uint32& word) {
  constexpr int kS = Tile::kSwizzleBytes, kE = sizeof(Element);
  const int byte = (Tile::kMajorK ? Tile::place(k) : row) * kE, line = Tile::kMajorK ? row : k;
  uint32 words[kE / 4];
  ld_shared(tile + byte / kS * Tile::kSlab + HardwareSwizzle<kS>::apply(line * kS + byte % kS), words);
  word = words[0];
  Element x;
#pragma unroll
  for (int i = 0; i < kE / 4; ++i) Parts<Element>::at(x, i) = __uint_as_float(words[i]);
  return x;
}

// Adds the products of a k-tile. Returns the word that was loaded last.
template <class Traits, class TileA, class TileB>
GETT_DEVICE uint32 fma_k_tile(uint32 a, uint32 b, int block, int lane,
                              typename Traits::Acc (&acc)[Traits::kBlockN / 2]) {
  typedef typename Traits::Element Element;
  constexpr int kRowsB = Traits::LoaderTraitsB::kRows;
  const int row = (block < TileA::kBlocks ? block : TileA::kBlocks - 1) * 64 + Fragment::row(lane);
  const int column = Fragment::column(lane);
  uint32 last = 0;
#pragma unroll 1
  for (int k = 0; k < Traits::kBlockK; ++k) {
    Element x[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      x[r] = tile_element<TileA, Element>(a, row + r * 8, k, last);
      if constexpr (Traits::kConjA) x[r] = Parts<Element>::conj(x[r]);
    }
#pragma unroll
    for (int j = 0; j < Traits::kBlockN / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int n = j * 8 + column + e;
        Element y = tile_element<TileB, Element>(b, n < kRowsB ? n : kRowsB - 1, k, last);
        if constexpr (Traits::kConjB) y = Parts<Element>::conj(y);
#pragma unroll
        for (int r = 0; r < 2; ++r) mul_add(acc[j * 4 + r * 2 + e], x[r], y);
      }
  }
  return last;
}

}  // namespace gett
