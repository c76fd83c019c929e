// Where the elements of accumulators belong in a tile.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// Rows of the accumulators and rows of M's box: chunks of kInterleaveRows rows of a block are kMmaM chunks apart. Or chunks of
// kGroupRows rows have only kGroupValidRows rows of the box.
template <class Traits> struct FragmentRows {
  static constexpr int kPer = 64 / Traits::kInterleaveRows;
  // Row `x` of block `i` of the warpgroup whose first block is `first`; kBoxM or more for padding.
  static GETT_DEVICE int at(int first, int i, int x) {
    if constexpr (Traits::kGroupValidRows > 0) {
      const int row = (first + i) * 64 + x, within = row % Traits::kGroupRows;
      return within < Traits::kGroupValidRows ? row / Traits::kGroupRows * Traits::kGroupValidRows + within : Traits::kBoxM;
    }
    if constexpr (kPer == 1) return (first + i) * 64 + x;
    return (first * kPer + i + Traits::kMmaM * (x / Traits::kInterleaveRows)) * Traits::kInterleaveRows + x % Traits::kInterleaveRows;
  }
};

}  // namespace gett
