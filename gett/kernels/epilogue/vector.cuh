// The epilogue that stores vectors: accumulators go through shared memory, so that stores follow D's own order whatever
// the order of the fragments. C is added here, from global memory, and the plan's function applied to the sum.
//
// The offsets of every row (m) and column (n) of the tile are computed once and kept in shared memory. A store then
// takes two look-ups instead of a division for each mode.
#pragma once
#include "gett/core/index.cuh"
#include "gett/core/vec.cuh"
#include "gett/epilogue/epilogue_op.cuh"
#include "gett/epilogue/linear_combination.cuh"

namespace gett {

// The offsets of rows and columns in D and, where C is added here, in C; kInvalid marks padding.
template <class Traits> struct EpilogueOffsets {
  static constexpr bool kC = Traits::kSourceC == kSourceVector;
  static constexpr int kPerTensor = Traits::kBlockM + Traits::kBlockN;
  static constexpr int kBytes = kPerTensor * 8 * (kC ? 2 : 1);
  long long* d_;

  GETT_DEVICE long long* rows_d() const { return d_; }
  GETT_DEVICE long long* columns_d() const { return d_ + Traits::kBlockM; }
  GETT_DEVICE long long* rows_c() const { return d_ + kPerTensor; }
  GETT_DEVICE long long* columns_c() const { return d_ + kPerTensor + Traits::kBlockM; }

  template <class Index, class MTile, class NTile>
  GETT_DEVICE void fill(const typename Traits::Params& p, const MTile& mt, const NTile& nt, int thread,
                        int threads) const {
    for (int m = thread; m < Traits::kBlockM; m += threads) {
      const bool ok = Index::m_ok(p, mt, m);
      rows_d()[m] = ok ? mt.d + Index::m_d(p, mt, m) : kInvalid;
      if constexpr (kC) rows_c()[m] = ok ? mt.c + Index::m_c(p, mt, m) : 0;
    }
    for (int n = thread; n < Traits::kBlockN; n += threads) {
      const bool ok = Index::n_ok(p, nt, n);
      columns_d()[n] = ok ? nt.d + Index::n_d(p, nt, n) : kInvalid;
      if constexpr (kC) columns_c()[n] = ok ? nt.c + Index::n_c(p, nt, n) : 0;
    }
  }
};

// The staged tile of the multistage kernels, in rows of N.
template <class Traits> struct PaddedTile {
  typedef LinearCombination<Traits> Op;
  typedef typename Op::Acc Acc;
  typedef typename Op::Staged Element;
  // 16 extra bytes a row keep the rows of a fragment in different banks.
  static constexpr int kPitch = (Traits::kBlockN * int(sizeof(Element)) + 15) / 16 * 16 + 16;
  static constexpr int kBytes = Traits::kBlockM * kPitch;
  static constexpr int kBatch = 4;
  char* base_;

  GETT_DEVICE char* at(int m, int n) const { return base_ + m * kPitch + n * int(sizeof(Element)); }
  GETT_DEVICE void store(int m, int n, Acc x) const { *reinterpret_cast<Element*>(at(m, n)) = Op::staged(x); }
  GETT_DEVICE void store(int m, int n, Acc x, Acc y) const {
    Vec<Element, 2>{{Op::staged(x), Op::staged(y)}}.store(at(m, n));
  }
  // kV elements from (m, n) on, neighbours along D's fastest dimension.
  template <int kV> GETT_DEVICE void load(const MN& mn, Element (&x)[kV]) const {
    if constexpr (Traits::kStepN == 1 && kV * sizeof(Element) <= 16) {
      const auto v = Vec<Element, kV>::load(at(mn.m, mn.n));
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = v.x[j];
    } else {
#pragma unroll
      for (int j = 0; j < kV; ++j)
        x[j] = *reinterpret_cast<const Element*>(at(mn.m + j * Traits::kStepM, mn.n + j * Traits::kStepN));
    }
  }
};

// Stores the tile's vectors in D's order, from a staged tile of scaled products: kThreads threads take them in turn.
// Vectors of a thread go in batches of equal size. All look-ups of a batch come before its first load, and all loads
// before its first store, since each takes tens of clocks. `function` is applied where C is added here; else it has
// been.
template <class Traits, class Index, int kThreads, class Staged, class Function>
GETT_DEVICE void store_vectors(const typename Traits::Params& p, const EpilogueOffsets<Traits>& at,
                               const Staged& staged, const Function& function, int thread) {
  constexpr int kV = Traits::kVecD, kCount = Traits::kBoxMN / kV, kEach = (kCount + kThreads - 1) / kThreads;
  constexpr int kBatches = (kEach + Staged::kBatch - 1) / Staged::kBatch, kBatch = (kEach + kBatches - 1) / kBatches;
  constexpr bool kWhole = kCount == kBatches * kBatch * kThreads;
  const LinearCombination<Traits> op(p);
  for (int i = thread; i < kCount; i += kBatch * kThreads) {
    long long to[kBatch];
    typename Staged::Element x[kBatch][kV];
    decltype(Index::idx2crd_d(p, 0)) mn[kBatch];
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      const int v = i + q * kThreads;
      // Behind the last vector that one is looked up again: a branch would part the look-ups.
      mn[q] = Index::idx2crd_d(p, (kWhole ? v : min(v, kCount - 1)) * kV);
      to[q] = at.rows_d()[mn[q].m] + at.columns_d()[mn[q].n];
    }
#pragma unroll
    for (int q = 0; q < kBatch; ++q)
      if (exists(to[q])) staged.load(mn[q], x[q]);
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      if ((!kWhole && i + q * kThreads >= kCount) || !exists(to[q])) continue;
      Vec<typename Traits::ElementD, kV> out;
#pragma unroll
      for (int j = 0; j < kV; ++j) {
        if constexpr (Traits::kSourceC == kSourceVector) {
          // C has D's modes and strides of its own, so its offsets are looked up element by element.
          const int m = mn[q].m + j * Traits::kStepM, n = mn[q].n + j * Traits::kStepN;
          const long long here = at.rows_c()[m] + at.columns_c()[n];
          const typename Traits::Acc sum = op.reads_source() ? op.add_source(x[q][j], p.c[here]) : x[q][j];
          out.x[j] = op.result(function(m, n, sum));
        } else {
          out.x[j] = x[q][j];  // staged as D's elements
        }
      }
      out.store(p.d + to[q]);
    }
  }
}

}  // namespace gett
