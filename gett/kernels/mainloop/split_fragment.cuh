// Fragments of A for wgmma out of a tile of numbers in shared memory: a thread's share of 64 rows and 16 k as planes.
// Lane 4g + t has rows g and g + 8, and k = 2t, 2t + 1, 2t + 8 and 2t + 9 of each. Where rows of floats run along K, it
// reads chunk t, four neighbours, which are its k in the fragment's order (kPermuteK); of complex numbers it reads two
// chunks; where rows run along M, it reads single numbers.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/planes.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/mainloop/split_guard.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

template <class Tile, int kRows, int kPlanes, int kParts> struct SplitFragment {
  static constexpr int kS = Tile::kSwizzleBytes, kE = 4 * kParts;
  static constexpr int kWords = Tile::kMajorK ? 4 : kParts, kLoads = 4 * kParts / kWords;  // of a row
  typedef uint32 Planes[kParts][kPlanes][4];
  uint32 place_;   // of the thread's first number of step 0, from the start of the tile
  bool rows_[2];   // whether its rows are rows of the box

  // The thread `lane` of the warpgroup that multiplies block `block` of 64 rows.
  GETT_DEVICE SplitFragment(int block, int lane) {
    const int row = (block < Tile::kBlocks ? block : Tile::kBlocks - 1) * 64 + Fragment::row(lane), t = lane & 3;
    if constexpr (Tile::kMajorK) place_ = t * 16 / kS * Tile::kSlab + swizzled(row * kS + t * 16 % kS);
    else place_ = row * kE / kS * Tile::kSlab + swizzled(2 * t * kS + row * kE % kS);
    place_ = uint32(opaque(int(place_)));  // kept, not computed in each step
#pragma unroll
    for (int r = 0; r < 2; ++r) rows_[r] = kRows % 64 == 0 || row + r * 8 < kRows;
  }
  static GETT_DEVICE uint32 swizzled(int x) { return HardwareSwizzle<kS>::apply(uint32(x)); }
  // The place of load `i` of the thread's row `r` of two in step `s`. What differs from the first one is bits that the
  // swizzle does not take: they are exchanged or added.
  GETT_DEVICE uint32 at(int s, int r, int i) const {
    if constexpr (Tile::kMajorK) {
      const int byte = s * 16 * kE + i * 64;
      return (place_ ^ byte % kS) + byte / kS * Tile::kSlab + r * 8 * kS;
    }
    const uint32 next_row = r * 8 * kE % kS, next_k = kS == 128 ? i % 2 * 16 : 0;  // in rows of 128 bytes chunks differ
    return (place_ ^ next_row ^ next_k) + r * 8 * kE / kS * Tile::kSlab + (s * 16 + i % 2 + i / 2 * 8) * kS;
  }

  // The planes of step `s`, as wgmma takes them, from the tile at `tile`. They are made here: were they made between
  // products, these would wait for each other. Returns a word that stands for all that was loaded.
  GETT_DEVICE uint32 load(uint32 tile, int s, Planes& a, Smallest& smallest) const {
    uint32 loaded = 0;
    float x[2][4 * kParts];  // of two rows that are eight apart: parts of k = 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        uint32 word[kWords];
        ld_shared(tile + at(s, r, i), word);
        loaded |= word[0];
#pragma unroll
        for (int w = 0; w < kWords; ++w) x[r][i * kWords + w] = __uint_as_float(word[w]);
      }
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float first = x[r][2 * h * kParts + part], second = x[r][(2 * h + 1) * kParts + part];
          uint32 planes[kPlanes];
          split_planes(first, second, planes);
          if (rows_[r]) smallest.add(first, second);  // rows of padding hold anything
#pragma unroll
          for (int p = 0; p < kPlanes; ++p) a[part][p][r + 2 * h] = uint32(opaque(int(planes[p])));
        }
    return loaded;
  }
};

}  // namespace gett
