// From accumulators to D: through shared memory, so that stores follow D's own order whatever the fragments' order.
//
// Offsets of every row (m) and column (n) of the tile are worked out once and kept in shared memory; a store then
// costs two look-ups, not a decode of all modes.
#pragma once
#include "gett/core/index.cuh"
#include "gett/core/vec.cuh"
#include "gett/epilogue/linear_combination.cuh"

namespace gett {

// Row and column offsets in D and C; kInvalid marks the padding.
template <class Traits> struct EpilogueOffsets {
  static constexpr int kPerTensor = Traits::kBlockM + Traits::kBlockN;
  static constexpr int kBytes = kPerTensor * 8 * (Traits::kSourceC == kSourceVector ? 2 : 1);
  long long* d_;

  GETT_DEVICE long long* rows_d() const { return d_; }
  GETT_DEVICE long long* columns_d() const { return d_ + Traits::kBlockM; }
  GETT_DEVICE long long* rows_c() const { return d_ + kPerTensor; }
  GETT_DEVICE long long* columns_c() const { return d_ + kPerTensor + Traits::kBlockM; }

  template <class Index, class MTile, class NTile>
  GETT_DEVICE void fill(const typename Traits::Params& p, const MTile& mt, const NTile& nt, int thread, int threads) const {
    for (int m = thread; m < Traits::kBlockM; m += threads) {
      const bool ok = Index::m_ok(p, mt, m);
      rows_d()[m] = ok ? mt.d + Index::m_d(p, mt, m) : kInvalid;
      if constexpr (Traits::kSourceC == kSourceVector) rows_c()[m] = ok ? mt.c + Index::m_c(p, mt, m) : 0;
    }
    for (int n = thread; n < Traits::kBlockN; n += threads) {
      const bool ok = Index::n_ok(p, nt, n);
      columns_d()[n] = ok ? nt.d + Index::n_d(p, nt, n) : kInvalid;
      if constexpr (Traits::kSourceC == kSourceVector) columns_c()[n] = ok ? nt.c + Index::n_c(p, nt, n) : 0;
    }
  }
};

// The staged tile: D's type where nothing is added, the accumulator's where C is.
template <class Traits> struct PaddedTile {
  typedef typename Traits::Acc Acc;
  typedef typename Traits::ElementD ElementD;
  template <bool HasC, int = 0> struct Pick { typedef Acc type; };
  template <int I> struct Pick<false, I> { typedef ElementD type; };
  typedef typename Pick<(Traits::kSourceC == kSourceVector)>::type Element;
  // One extra 16 bytes a row keep the rows of a fragment in different banks.
  static constexpr int kPitch = (Traits::kBlockN * int(sizeof(Element)) + 15) / 16 * 16 + 16;
  static constexpr int kBytes = Traits::kBlockM * kPitch;
  static constexpr int kBatch = 1;  // the main loop's registers leave no room for more
  char* base_;

  GETT_DEVICE char* at(int m, int n) const { return base_ + m * kPitch + n * int(sizeof(Element)); }
  GETT_DEVICE void store(int m, int n, Acc x) const { *reinterpret_cast<Element*>(at(m, n)) = convert<Element>(x); }
  GETT_DEVICE void store(int m, int n, Acc x, Acc y) const {
    Vec<Element, 2> v;
    v.x[0] = convert<Element>(x);
    v.x[1] = convert<Element>(y);
    v.store(at(m, n));
  }
  // kV elements from (m, n), one step of D's fastest dimension apart.
  template <int kV> GETT_DEVICE void get(const MN& at_tile, Element (&x)[kV]) const {
    const int m = at_tile.m, n = at_tile.n;
    if constexpr (Traits::kStepN == 1 && kV * sizeof(Element) <= 16) {
      const auto v = Vec<Element, kV>::load(at(m, n));
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = v.x[j];
    } else {
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = *reinterpret_cast<const Element*>(at(m + j * Traits::kStepM, n + j * Traits::kStepN));
    }
  }
};

// Stores the tile's vectors first, first + step, ... in D's order. Vectors go in batches: look-ups and loads of one
// batch are all under way before the first store, since each of them takes tens of clocks.
template <class Traits, class Index, class Source>
GETT_DEVICE void store_tile(const typename Traits::Params& p, typename Traits::ElementD* d, const typename Traits::ElementC* c,
                            const EpilogueOffsets<Traits>& at, const Source& source, int first, int step) {
  constexpr int kV = Traits::kVecD, kCount = Traits::kBoxMN / kV;
  constexpr int kBatch = Source::kBatch;
  typedef typename Traits::Acc Acc;
  for (int i = first; i < kCount; i += kBatch * step) {
    long long to[kBatch];
    typename Source::Element x[kBatch][kV];
    decltype(Index::idx2crd_d(p, 0)) mn[kBatch];
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      const int v = i + q * step;
      to[q] = kInvalid;
      if (v < kCount) {
        mn[q] = Index::idx2crd_d(p, v * kV);
        const long long row = at.rows_d()[mn[q].m], column = at.columns_d()[mn[q].n];
        if (row != kInvalid && column != kInvalid) {
          to[q] = row + column;
          source.get(mn[q], x[q]);
        }
      }
    }
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      if (to[q] == kInvalid) continue;
      Vec<typename Traits::ElementD, kV> out;
#pragma unroll
      for (int j = 0; j < kV; ++j) {
        if constexpr (Traits::kSourceC == kSourceVector) {
          // C has D's modes but its own strides; rows and columns give them one by one. beta = 0 means that C is not
          // read at all, as in BLAS: it may hold anything.
          const long long here = at.rows_c()[mn[q].m + j * Traits::kStepM] + at.columns_c()[mn[q].n + j * Traits::kStepN];
          const Acc sum = is_zero(p.beta) ? x[q][j] : add(x[q][j], multiply(p.beta, convert<Acc>(c[here])));
          out.x[j] = convert<typename Traits::ElementD>(sum);
        } else {
          out.x[j] = convert<typename Traits::ElementD>(x[q][j]);
        }
      }
      out.store(d + to[q]);
    }
  }
}

}  // namespace gett
