// The products of planes of one step of K, in chunks of the tile's columns. While the products of one chunk are under
// way, the sums of the chunk before are added to the tile's: there are two sets of sums, which take turns. A tile that
// is too narrow to be halved is one chunk, and steps take turns.
#pragma once
#include "gett/core/types.cuh"
#include "gett/ptx/wgmma.cuh"

namespace gett {

template <class Traits, class Mma, class Storage> struct SplitProducts {
  typedef typename Traits::Acc Acc;
  typedef typename Storage::PlaneB PlaneB;
  static constexpr int kPlanes = Storage::kPlanes, kN = Traits::kBlockN;
  static constexpr int kChunks = Traits::kChunkColumns < kN ? 2 : 1;
  typedef uint32 Planes[kPlanes][4];  // a thread's share of A: 64 rows of the warpgroup, 16 k

  // The first column of a set of sums, and how many it has.
  static GETT_DEVICE constexpr int first(int set) { return kChunks == 2 ? set * Traits::kChunkColumns : 0; }
  static GETT_DEVICE constexpr int columns(int set) { return set == 0 ? Traits::kChunkColumns : kN - first(1); }
  template <int kSet> struct Sums {
    static constexpr int kFirst = first(kSet), kCount = columns(kSet) / 2;
    Acc x[kCount];
    GETT_DEVICE void zero() {
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = Acc(0);
    }
    // Issues the products of step `s` of a k-tile; `b` is the descriptor's address of B's planes.
    GETT_DEVICE void multiply(const Planes& a, uint32 b, int s) {
      wgmma_new_operand(x);
      wgmma_fence();
#pragma unroll
      for (int q = 0; q < Traits::kProducts; ++q)
        Mma::mma(x, a[Traits::plane_a(q)],
                 PlaneB::descriptor(b + Traits::plane_b(q) * PlaneB::kBytes + PlaneB::at_row(kFirst), 0, s), q > 0);
      wgmma_commit();
    }
    // Once they are complete: adds them to the tile's.
    GETT_DEVICE void add_to(Acc (&acc)[kN / 2]) {
      wgmma_fence_operand(x);
#pragma unroll
      for (int i = 0; i < kCount; ++i) acc[kFirst / 2 + i] += x[i];
    }
  };
};

}  // namespace gett
