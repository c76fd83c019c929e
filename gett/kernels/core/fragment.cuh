// Where the elements of accumulators belong in a tile.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// Rows of the accumulators and rows of M's box: chunks of kChunk rows of a block are kMi chunks apart. Or chunks of
// kPadChunk rows have only kPadRun rows of the box.
template <class Traits> struct BoxRows {
  static constexpr int kPer = 64 / Traits::kChunk;
  // Row `x` of block `i` of the warpgroup whose first block is `first`; kBoxM or more for padding.
  static GETT_DEVICE int at(int first, int i, int x) {
    if constexpr (Traits::kPadRun > 0) {
      const int row = (first + i) * 64 + x, within = row % Traits::kPadChunk;
      return within < Traits::kPadRun ? row / Traits::kPadChunk * Traits::kPadRun + within : Traits::kBoxM;
    }
    if constexpr (kPer == 1) return (first + i) * 64 + x;
    return (first * kPer + i + Traits::kMi * (x / Traits::kChunk)) * Traits::kChunk + x % Traits::kChunk;
  }
};

}  // namespace gett
