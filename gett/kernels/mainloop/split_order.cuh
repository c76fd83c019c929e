// The order of k within a k-tile of planes. It is free as long as A's fragments and B's planes agree: they have
// that of A's tile in memory, but for rows of A that are real numbers along K. Of those a thread reads a chunk of four
// neighbours at once, which a fragment has at k = 2t, 2t + 1, 2t + 8 and 2t + 9 of a step of 16 k (kPermute).
//
// Rows of 128 bytes hold two steps. Were each four chunks that follow each other, those of two neighbouring rows would
// be read together: swizzled, they lie in the same banks. So the even chunks are one step, the odd ones the other
// (kSpread): the swizzle exchanges even and odd chunks of every other row.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

template <class TileA, int kBlockK, int kParts> struct SplitOrder {
  static constexpr bool kPermute = TileA::kMajorK && kParts == 1;
  static constexpr bool kSpread = kPermute && TileA::kSwizzleBytes == 128 && kBlockK == 32;
  static constexpr int kNext = kSpread ? 16 : 64;  // bytes of a row of real numbers from a step to the next one
  static constexpr int kChunk = kSpread ? 32 : 16;  // and from one chunk of a step to the next one
  // Where number `k` of A's tile stands among the planes.
  static GETT_DEVICE constexpr int place(int k) {
    const int step = kSpread ? k >> 2 & 1 : k >> 4, t = (kSpread ? k >> 3 : k >> 2) & 3;
    return kPermute ? step * 16 + t * 2 + (k & 1) + (k >> 1 & 1) * 8 : k;
  }
  // A bijection of k by which eight that follow each other are read and written in different banks, where rows run
  // along N: their lowest three bits differ, and so do those of their places.
  static GETT_DEVICE constexpr int apart(int k) { return k ^ (k & (kSpread ? 6 : 2)) << 2; }
};

}  // namespace gett
