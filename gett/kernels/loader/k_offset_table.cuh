// The offsets of A and B along a flattened K, in shared memory. Where K is not cut into boxes, each k of a k-tile has
// offsets of its own, which are computed once a block and k-tile.
#pragma once
#include "gett/core/index.cuh"

namespace gett {

struct alignas(16) OffsetPair { long long x, y; };

// A ring of k-tiles; in the loop a k-tile is written behind the copies of the one before.
template <class Traits, class Index> struct KOffsetTable {
  static constexpr int kSlots = Traits::kStages + 1;
  static constexpr int kBytes = Traits::kKTable ? kSlots * Traits::kBlockK * 16 : 0;
  OffsetPair* base_;
  GETT_DEVICE const OffsetPair* slot(int kt) const { return base_ + kt % kSlots * Traits::kBlockK; }
  GETT_DEVICE void write(const typename Traits::Params& p, int kt, int thread) const {
    for (int i = thread; i < Traits::kBlockK; i += Traits::kThreads) {
      const int k = kt * Traits::kBlockK + i;
      OffsetPair e{kInvalid, kInvalid};
      if (k < p.extent_k) {
        const auto at = Index::k_entry(p, k);
        e = {at.a, at.b};
      }
      base_[kt % kSlots * Traits::kBlockK + i] = e;
    }
  }
};

}  // namespace gett
