// The products of planes of the steps of K that one sum has, in two sets of sums, which take turns. While the products
// of one set are under way, the sums of the other are added to the tile's. The sets are halves of the tile's columns;
// of complex numbers, real and imaginary parts. A tile that is too narrow to be halved is one set, and sums take turns.
#pragma once
#include "gett/core/numeric.cuh"
#include "gett/ptx/wgmma.cuh"

namespace gett {

// How sums are added to those of a tile: as they are, or scaled back. The scales of A are those of its rows, those of B
// are of kColumns each.
template <bool kScaled, int kColumns> struct SumScales {
  GETT_DEVICE float add(float sum, float x, int, int) const { return sum + x; }
};
template <int kColumns> struct SumScales<true, kColumns> {
  float of[2][4];
  uint32 word;  // of those of B, as it was loaded
  GETT_DEVICE void set(const float (&rows)[2], const uint32 (&columns)[4]) {
    word = columns[0];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int c = 0; c < 4; ++c) of[r][c] = rows[r] * __uint_as_float(columns[c]);
  }
  GETT_DEVICE float add(float sum, float x, int r, int column) const {
    return fmaf(x, of[r][min(column / kColumns, 3)], sum);
  }
};

template <class Traits, class Mma, class Storage> struct SplitProducts {
  typedef typename Traits::Acc Acc;
  typedef typename Storage::PlaneB PlaneB;
  static constexpr int kPlanes = Storage::kPlanes, kParts = Storage::kParts, kN = Traits::kBlockN;
  static constexpr bool kComplex = kParts == 2, kHalves = Traits::kChunkColumns < kN;
  static constexpr int kSets = kComplex || kHalves ? 2 : 1;
  static_assert(!(kComplex && kHalves), "two sets");
  static constexpr int kSumSteps = Traits::kSumSteps;
  // A thread's share of A: 64 rows of the warpgroup, steps of 16 k.
  typedef uint32 Planes[kSumSteps][kParts][kPlanes][4];
  typedef SumScales<Traits::kScaled, Storage::kScaleColumns> Scales;

  template <int kSet> struct Sums {
    static constexpr int kFirst = kHalves ? kSet * Traits::kChunkColumns : 0;  // column
    static constexpr int kCount = (kSet == 0 ? Traits::kChunkColumns : kN - kFirst) / 2;
    float x[kCount];
    // Adds the products of part `part_a` of A and part `part_b` of B, or their negatives.
    template <int kSign>
    GETT_DEVICE void add_products(const uint32 (&a)[kParts][kPlanes][4], uint32 b, int s, int q, int part_a, int part_b,
                                  bool keep) {
      const int plane = part_b * kPlanes + Traits::plane_b(q);
      const uint32 from = b + plane * PlaneB::kBytes + PlaneB::at_row(kFirst);
      Mma::template mma<kSign>(x, a[part_a][Traits::plane_a(q)], PlaneB::descriptor(from, 0, s), keep);
    }
    // Issues the products of sum `sum` of a k-tile; `b` is the descriptor's address of B's planes.
    GETT_DEVICE void multiply(const Planes& a, uint32 b, int sum) {
      wgmma_new_operand(x);
      wgmma_fence();
#pragma unroll
      for (int q = 0; q < Traits::kProducts; ++q)
#pragma unroll
        for (int i = 0; i < kSumSteps; ++i) {
          const int s = sum * kSumSteps + i;
          const bool keep = q + i > 0;
          if constexpr (!kComplex) {
            add_products<1>(a[i], b, s, q, 0, 0, keep);
          } else if constexpr (kSet == 0) {
            add_products<1>(a[i], b, s, q, 0, 0, keep);
            add_products<Traits::kConjA == Traits::kConjB ? -1 : 1>(a[i], b, s, q, 1, 1, true);
          } else {
            add_products<Traits::kConjB ? -1 : 1>(a[i], b, s, q, 0, 1, keep);
            add_products<Traits::kConjA ? -1 : 1>(a[i], b, s, q, 1, 0, true);
          }
        }
      wgmma_commit();
    }
    // Once they are complete: adds them to the tile's.
    GETT_DEVICE void add_to(Acc (&acc)[kN / 2], const Scales& scales) {
      wgmma_fence_operand(x);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        float& sum = Parts<Acc>::at(acc[kFirst / 2 + i], kSet);
        sum = scales.add(sum, x[i], i / 2 % 2, kFirst + i / 4 * 8);
      }
    }
  };
};

}  // namespace gett
