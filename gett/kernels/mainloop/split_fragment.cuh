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
  uint32 place_;   // of the thread's first number of step 0, from the start of the tile
  bool rows_[2];   // whether its rows are rows of the box

  // The thread `lane` of the warpgroup that multiplies block `block` of 64 rows.
  GETT_DEVICE SplitFragment(int block, int lane) {
    const int row = (block < Tile::kBlocks ? block : Tile::kBlocks - 1) * 64 + Fragment::row(lane), t = lane & 3;
    if constexpr (Tile::kMajorK) place_ = t * 16 / kS * Tile::kSlab + swizzled(row * kS + t * 16 % kS);
    else place_ = row * 4 / kS * Tile::kSlab + swizzled(2 * t * kS + row * 4 % kS);
    place_ = uint32(opaque(int(place_)));  // kept, not computed in each step
#pragma unroll
    for (int r = 0; r < 2; ++r) rows_[r] = kRows % 64 == 0 || row + r * 8 < kRows;
  }
  static GETT_DEVICE uint32 swizzled(int x) { return HardwareSwizzle<kS>::apply(uint32(x)); }
  // The place of the thread's numbers of row `r` of two in step `s`, from number `i` on. What differs from the first
  // one is bits that the swizzle does not take: they are exchanged or added.
  GETT_DEVICE uint32 at(int s, int r, int i) const {
    if constexpr (Tile::kMajorK) return (place_ ^ s * 64 % kS) + s * 64 / kS * Tile::kSlab + r * 8 * kS;
    const uint32 next_row = r * 32 % kS, next_k = kS == 128 ? i % 2 * 16 : 0;  // of 8 rows of 128 bytes, chunks differ
    return (place_ ^ next_row ^ next_k) + r * 32 / kS * Tile::kSlab + (s * 16 + i % 2 + i / 2 * 8) * kS;
  }

  // The planes of step `s`, as wgmma takes them, from the tile at `tile`. They are made here: were they made between
  // products, these would wait for each other. Returns a word that stands for all that was loaded.
  GETT_DEVICE uint32 load(uint32 tile, int s, uint32 (&a)[kPlanes][4], Smallest& smallest) const {
    uint32 loaded = 0;
    float x[2][4];  // of two rows that are eight apart: k = 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32 word[4];
      if constexpr (Tile::kMajorK) {
        ld_shared(tile + at(s, r, 0), word);
        loaded |= word[0];
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          word[i] = ld_shared_u32(tile + at(s, r, i));
          loaded |= word[i];
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) x[r][i] = __uint_as_float(word[i]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32 planes[kPlanes];
        split_planes(x[r][2 * h], x[r][2 * h + 1], planes);
        if (rows_[r]) smallest.add(x[r][2 * h], x[r][2 * h + 1]);  // rows of padding hold anything
#pragma unroll
        for (int p = 0; p < kPlanes; ++p) a[p][r + 2 * h] = uint32(opaque(int(planes[p])));
      }
    return loaded;
  }
};

}  // namespace gett
