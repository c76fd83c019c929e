// Where the accumulators of a tensor-core product lie in its result, for mma.sync (m16n8) and wgmma (m64nN) alike. Lane
// 4g + t of warp w holds rows 16w + g and 16w + g + 8. Its columns are 8j + 2t and 8j + 2t + 1 (PTX ISA, figures of the
// accumulator fragments).
#pragma once
#include "gett/core/types.cuh"

namespace gett {

struct Fragment {
  // The first row and column of a thread of a warp, or of a warpgroup.
  static GETT_DEVICE int row(int thread) { return (thread >> 5) * 16 + ((thread & 31) >> 2); }
  static GETT_DEVICE int column(int thread) { return (thread & 3) * 2; }

  // Calls f(row, column, i) for each pair of neighbouring columns of an m64nN or m16nN result. Accumulators i and i + 1
  // belong to columns `column` and `column + 1`.
  template <int kN, class F> static GETT_DEVICE void for_each_pair(int thread, F&& f) {
#pragma unroll
    for (int j = 0; j < kN / 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) f(row(thread) + r * 8, j * 8 + column(thread), j * 4 + r * 2);
  }
};

// The rows of M's box that the rows of the accumulators stand for. Two rearrangements are possible, one at a time.
// Interleaved: a block of 64 rows takes groups of kInterleaveRows rows that lie kMmaM groups apart. Neighbouring groups
// then belong to neighbouring blocks of a thread. Padded: only kGroupValidRows of each kGroupRows rows are rows of the
// box.
template <class Traits> struct FragmentRows {
  static constexpr int kGroups = 64 / Traits::kInterleaveRows;
  // Row `row` of block `i` of the warpgroup whose first block is `first`; kBoxM or more for padding.
  static GETT_DEVICE int at(int first, int i, int row) {
    if constexpr (Traits::kGroupValidRows > 0) {
      const int padded = (first + i) * 64 + row, within = padded % Traits::kGroupRows;
      return within < Traits::kGroupValidRows ? padded / Traits::kGroupRows * Traits::kGroupValidRows + within
                                              : Traits::kBoxM;
    }
    if constexpr (kGroups == 1) return (first + i) * 64 + row;
    const int group = first * kGroups + i + Traits::kMmaM * (row / Traits::kInterleaveRows);
    return group * Traits::kInterleaveRows + row % Traits::kInterleaveRows;
  }
};

// The accumulators of a thread of a warpgroup as rows and columns of the tile; padding has negative rows.
template <class Traits> struct AccumulatorTile {
  typedef typename Traits::Acc Acc;
  static constexpr int kRows = Traits::kMmaM * 2, kColumns = Traits::kBlockN / 4;
  Acc (&acc_)[Traits::kMmaM][Traits::kBlockN / 2];
  int block_, lane_, rows_;  // the warpgroup's first block of 64 rows; rows of the tile before the accumulators'

  GETT_DEVICE int row(int i) const {
    const int m = FragmentRows<Traits>::at(block_, i / 2, Fragment::row(lane_) + i % 2 * 8);
    return m < Traits::kBoxM ? m + rows_ : -1;
  }
  GETT_DEVICE int column(int j) const { return j / 2 * 8 + Fragment::column(lane_) + j % 2; }
  GETT_DEVICE Acc get(int i, int j) const { return acc_[i / 2][j / 2 * 4 + i % 2 * 2 + j % 2]; }
  GETT_DEVICE void set(int i, int j, Acc x) { acc_[i / 2][j / 2 * 4 + i % 2 * 2 + j % 2] = x; }
};

}  // namespace gett
