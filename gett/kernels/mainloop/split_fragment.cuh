// Fragments of A for wgmma out of a tile of floats in shared memory: a thread's share of 64 rows and 16 k as planes.
// Where rows run along K, lane 4g + t reads chunk t of row g, four neighbours, which are its k in the fragment's order
// (kPermuteK); where they run along M, it reads eight single floats.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/planes.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/mainloop/split_guard.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

template <class Tile, int kRows, int kPlanes> struct SplitFragment {
  static constexpr int kS = Tile::kSwizzleBytes;

  // The planes of step `s` of block `block` of 64 rows, as wgmma takes them, from the tile at `tile`. They are made
  // here: were they made between products, these would wait for each other. Returns a word that was loaded last.
  static GETT_DEVICE uint32 load(uint32 tile, int block, int s, int lane, uint32 (&a)[kPlanes][4],
                                 Smallest& smallest) {
    const int first = (block < Tile::kBlocks ? block : Tile::kBlocks - 1) * 64 + Fragment::row(lane), t = lane & 3;
    uint32 last = 0;
    float x[2][4];  // of two rows that are eight apart: k = 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first + r * 8;
      if constexpr (Tile::kMajorK) {
        const int byte = s * 64 + t * 16;
        uint32 word[4];
        ld_shared(tile + byte / kS * Tile::kSlab + HardwareSwizzle<kS>::apply(row * kS + byte % kS), word);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[r][i] = __uint_as_float(word[i]);
        last = word[0];
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int k = s * 16 + 2 * t + i % 2 + i / 2 * 8, byte = row * 4;
          const uint32 at = tile + byte / kS * Tile::kSlab + HardwareSwizzle<kS>::apply(k * kS + byte % kS);
          last = ld_shared_u32(at);
          x[r][i] = __uint_as_float(last);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32 planes[kPlanes];
        split_planes(x[r][2 * h], x[r][2 * h + 1], planes);
        if (kRows % 64 == 0 || first + r * 8 < kRows) smallest.add(x[r][2 * h], x[r][2 * h + 1]);  // behind: anything
#pragma unroll
        for (int p = 0; p < kPlanes; ++p) a[p][r + 2 * h] = uint32(opaque(int(planes[p])));
      }
    return last;
  }
};

}  // namespace gett
