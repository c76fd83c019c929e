// The products of planes of one step of K, in two sets of sums, which take turns: while the products of one are under
// way, the other's are added to the tile's. The sets are halves of the tile's columns; of complex numbers, real and
// imaginary parts. A tile that is too narrow to be halved is one set, and steps take turns.
#pragma once
#include "gett/core/numeric.cuh"
#include "gett/ptx/wgmma.cuh"

namespace gett {

template <class Traits, class Mma, class Storage> struct SplitProducts {
  typedef typename Traits::Acc Acc;
  typedef typename Storage::PlaneB PlaneB;
  static constexpr int kPlanes = Storage::kPlanes, kParts = Storage::kParts, kN = Traits::kBlockN;
  static constexpr bool kComplex = kParts == 2, kHalves = Traits::kChunkColumns < kN;
  static constexpr int kSets = kComplex || kHalves ? 2 : 1;
  static_assert(!(kComplex && kHalves), "two sets");
  // A thread's share of A, 64 rows of the warpgroup, 16 k.
  typedef uint32 Planes[kParts][kPlanes][4];

  template <int kSet> struct Sums {
    static constexpr int kFirst = kHalves ? kSet * Traits::kChunkColumns : 0;  // column
    static constexpr int kCount = (kSet == 0 ? Traits::kChunkColumns : kN - kFirst) / 2;
    float x[kCount];
    // Adds the products of part `part_a` of A and part `part_b` of B, or their negatives.
    template <int kSign>
    GETT_DEVICE void add_products(const Planes& a, uint32 b, int s, int q, int part_a, int part_b, bool keep) {
      const int plane = part_b * kPlanes + Traits::plane_b(q);
      const uint32 from = b + plane * PlaneB::kBytes + PlaneB::at_row(kFirst);
      Mma::template mma<kSign>(x, a[part_a][Traits::plane_a(q)], PlaneB::descriptor(from, 0, s), keep);
    }
    // Issues the products of step `s` of a k-tile; `b` is the descriptor's address of B's planes.
    GETT_DEVICE void multiply(const Planes& a, uint32 b, int s) {
      wgmma_new_operand(x);
      wgmma_fence();
#pragma unroll
      for (int q = 0; q < Traits::kProducts; ++q) {
        if constexpr (!kComplex) {
          add_products<1>(a, b, s, q, 0, 0, q > 0);
        } else if constexpr (kSet == 0) {
          add_products<1>(a, b, s, q, 0, 0, q > 0);
          add_products<Traits::kConjA == Traits::kConjB ? -1 : 1>(a, b, s, q, 1, 1, true);
        } else {
          add_products<Traits::kConjB ? -1 : 1>(a, b, s, q, 0, 1, q > 0);
          add_products<Traits::kConjA ? -1 : 1>(a, b, s, q, 1, 0, true);
        }
      }
      wgmma_commit();
    }
    // Once they are complete: adds them to the tile's.
    GETT_DEVICE void add_to(Acc (&acc)[kN / 2]) {
      wgmma_fence_operand(x);
#pragma unroll
      for (int i = 0; i < kCount; ++i) Parts<Acc>::at(acc[kFirst / 2 + i], kSet) += x[i];
    }
  };
};

}  // namespace gett
