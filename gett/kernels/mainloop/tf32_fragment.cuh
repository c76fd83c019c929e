// Fragments of A for wgmma on TF32 out of shared memory: a thread's share of 64 rows and 8 k, whatever A's rows run
// along. Lane 4g + t has rows g and g + 8 of its warp's 16 at k = t and t + 4 (PTX ISA, wgmma m64nNk8).
//
// All accesses are free of bank conflicts. Where rows run along M, lanes of one access that read the same half of the k
// would meet in the chunks of a swizzled row. So half of them reads the other half first.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

template <class Tile, int kMmaM, int kWarpgroups> struct Tf32Fragment {
  static constexpr int kS = Tile::kSwizzleBytes;
  // The bit of the lane, of t or of g, that decides which half comes first.
  static constexpr int kTurnBit = Tile::kMajorK ? 0 : kS == 128 ? 1 : kS == 64 ? 2 : kS == 16 ? 16 : 0;
  static constexpr int kBlockBytes = Tile::kMajorK ? 64 * kS : 256 / kS * Tile::kSlab;  // 64 rows
  static constexpr bool kAllBlocks = Tile::kBlocks >= kMmaM * kWarpgroups;
  uint32 place_[2];  // of the first number of either half at step 0, the half first that comes first
  bool turned_;
  uint32 block_[kMmaM];  // where blocks begin, from the first one on

  // The thread `lane` of the warpgroup whose first block of 64 rows is `first`. Blocks without rows repeat the last.
  GETT_DEVICE Tf32Fragment(int first, int lane) {
    const int row = (kAllBlocks ? first : min(first, Tile::kBlocks - 1)) * 64 + Fragment::row(lane), t = lane & 3;
    turned_ = (lane & kTurnBit) != 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = t + 4 * (half ^ int(turned_));
      if constexpr (Tile::kMajorK) place_[half] = swizzled(row * kS + t * 4);
      else place_[half] = row * 4 / kS * Tile::kSlab + swizzled(k * kS + row * 4 % kS);
      place_[half] = uint32(opaque(int(place_[half])));  // kept, not computed in each step
    }
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
      block_[i] = (kAllBlocks ? i : min(first + i, Tile::kBlocks - 1) - min(first, Tile::kBlocks - 1)) * kBlockBytes;
  }
  static GETT_DEVICE uint32 swizzled(int x) { return HardwareSwizzle<kS>::apply(uint32(x)); }

  // The place of the number of block `i` and of row `r` of two that is loaded as number `half` of two in step `s`. What
  // differs from the first one is bits that the swizzle does not take: they are exchanged or added.
  GETT_DEVICE uint32 at(int i, int r, int half, int s) const {
    if constexpr (Tile::kMajorK) {
      const uint32 byte = s * 32 + half * 16;
      return (place_[0] ^ byte % kS) + byte / kS * Tile::kSlab + r * 8 * kS + block_[i];
    }
    return (place_[half] ^ r * 32 % kS) + r * 32 / kS * Tile::kSlab + s * 8 * kS + block_[i];
  }
  // Step `s` of the tile at `tile`, as wgmma takes it.
  GETT_DEVICE void load(uint32 tile, int s, uint32 (&a)[kMmaM][4]) const {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32 x = ld_shared_u32(tile + at(i, r, 0, s)), y = ld_shared_u32(tile + at(i, r, 1, s));
        a[i][r] = kTurnBit && turned_ ? y : x;
        a[i][r + 2] = kTurnBit && turned_ ? x : y;
      }
  }
};

}  // namespace gett
