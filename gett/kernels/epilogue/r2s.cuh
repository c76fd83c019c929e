// Copies of wgmma's accumulators to the staged tile of D, from registers to shared memory. Traits::kR2SCopy says how;
// gett/schedule/tile/staged_tile.py chooses it and the places of the rows.
//
// A copy visits each place of the staged tile with the accumulators that belong there. What is done at a place is the
// visitor's. StoreStaged writes D. AddStagedSource reads C, which TMA has brought to the same places, and adds it.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/epilogue/linear_combination.cuh"
#include "gett/ptx/ldmatrix.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

template <class Traits> struct StoreStaged {
  typedef LinearCombination<Traits> Op;
  typedef typename Op::Acc Acc;
  typedef typename Op::Staged Element;

  // Four matrices or two, made of neighbouring pairs of `x` from `i` on.
  template <bool kTrans, int kCount>
  GETT_DEVICE void matrices(uint32 at, const Acc (&x)[kCount], int i, bool four) const {
    const uint32 a = Op::result_x2(x[i], x[i + 1]), b = Op::result_x2(x[i + 2], x[i + 3]);
    if (four) {
      const uint32 c = Op::result_x2(x[i + 4], x[i + 5]), d = Op::result_x2(x[i + 6], x[i + 7]);
      if constexpr (kTrans) stmatrix4_trans(at, a, b, c, d);
      else stmatrix4(at, a, b, c, d);
    } else {
      if constexpr (kTrans) stmatrix2_trans(at, a, b);
      else stmatrix2(at, a, b);
    }
  }
  // kV neighbours; `x(v)` is the accumulator of the v-th. The address is computed after they are packed.
  template <int kV, class Address, class X> GETT_DEVICE void vector(const Address& address, const X& x) const {
    constexpr int kWords = int(sizeof(Element)) / 4;  // of an element; 0 where a word holds two
    uint32 y[kWords ? kV * kWords : kV / 2];
#pragma unroll
    for (int v = 0; v < kV; v += kWords ? 1 : 2) {
      if constexpr (kWords > 0) to_words(Op::result(x(v)), y + v * kWords);
      else y[v / 2] = Op::result_x2(x(v), x(v + 1));
    }
    st_shared(address(), y);
  }
  // Two elements that are neighbours, and a single one.
  GETT_DEVICE void pair(Element* at, Acc x, Acc y) const {
    store_two(at, Op::staged(x), Op::staged(y));
  }
  GETT_DEVICE void one(Element* at, Acc x) const { *at = Op::staged(x); }
};

template <class Traits> struct AddStagedSource {
  typedef LinearCombination<Traits> Op;
  typedef typename Op::Acc Acc;
  typedef typename Traits::ElementC Element;
  const Op& op_;

  GETT_DEVICE void add(Acc& x, Element c) const { x = op_.add_source(x, c); }
  GETT_DEVICE void add(Acc& x, Acc& y, uint32 c) const {
    add(x, Element{uint16(c)});
    add(y, Element{uint16(c >> 16)});
  }

  template <bool kTrans, int kCount>
  GETT_DEVICE void matrices(uint32 at, Acc (&x)[kCount], int i, bool four) const {
    if (four) {
      uint32 c[4];
      if constexpr (kTrans) ldmatrix4_trans(c, at);
      else ldmatrix4(c, at);
#pragma unroll
      for (int q = 0; q < 4; ++q) add(x[i + 2 * q], x[i + 2 * q + 1], c[q]);
    } else {
      uint32 c[2];
      if constexpr (kTrans) ldmatrix2_trans(c, at);
      else ldmatrix2(c, at);
#pragma unroll
      for (int q = 0; q < 2; ++q) add(x[i + 2 * q], x[i + 2 * q + 1], c[q]);
    }
  }
  template <int kV, class Address, class X> GETT_DEVICE void vector(const Address& address, const X& x) const {
    constexpr int kWords = int(sizeof(Element)) / 4;
    uint32 c[kWords ? kV * kWords : kV / 2];
    ld_shared(address(), c);
#pragma unroll
    for (int v = 0; v < kV; v += kWords ? 1 : 2) {
      if constexpr (kWords > 0) add(x(v), from_words<Element>(c + v * kWords));
      else add(x(v), x(v + 1), c[v / 2]);
    }
  }
  GETT_DEVICE void pair(const Element* at, Acc& x, Acc& y) const {
    const auto c = load_two(at);
    add(x, c.x[0]);
    add(y, c.x[1]);
  }
  GETT_DEVICE void one(const Element* at, Acc& x) const { add(x, *at); }
};

// Element by element, in pairs where D's neighbours are columns of a fragment.
template <class Traits, class Index> struct R2SScalarCopy {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef typename LinearCombination<Traits>::Staged Element;
  static constexpr int kMmaM = Traits::kMmaM, kN = Traits::kBlockN;

  const Params& p_;
  Element* base_;
  int block_, rows_;  // the warpgroup's first block of 64 rows; rows of the staged tile before the accumulators'

  template <class Visit> GETT_DEVICE void visit(Acc (&acc)[kMmaM][kN / 2], int lane, const Visit& visit) const {
    // Beside gathering warpgroups registers are scarce: places are computed here, not kept through the main loop.
    if constexpr (Traits::kRecomputePlaces) lane = opaque(lane);
    const int row = Fragment::row(lane), column = Fragment::column(lane);
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int m = FragmentRows<Traits>::at(block_, i, row + r * 8);
        if (m >= Traits::kBoxM) continue;
        Element* const line = base_ + Index::staging_m(p_, m + rows_);
#pragma unroll
        for (int j = 0; j < kN / 8; ++j) {
          Acc &x = acc[i][j * 4 + r * 2], &y = acc[i][j * 4 + r * 2 + 1];
          int n0, n1;
          if constexpr (Traits::kColumnsBy8) {  // eight columns lie in one dimension: one division for all of them
            n0 = Index::staging_n(p_, j * 8) + column * Traits::kStagingStepN;
            n1 = n0 + Traits::kStagingStepN;
          } else {
            n0 = Index::staging_n(p_, j * 8 + column);
            n1 = Index::staging_n(p_, j * 8 + column + 1);
          }
          if constexpr (Traits::kColumnsBy8 && Traits::kStagingStepN == 1) {
            visit.pair(line + n0, x, y);
          } else {
            if (j * 8 + column < Traits::kBoxN) visit.one(line + n0, x);
            if (j * 8 + column + 1 < Traits::kBoxN) visit.one(line + n1, y);
          }
        }
      }
  }
};

// By stmatrix, in vectors of D's own order, or in words, into a tile that a tensor map stores.
template <class Traits, class Index> struct R2STiledCopy {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef FragmentRows<Traits> Rows;
  static constexpr int kMmaM = Traits::kMmaM, kN = Traits::kBlockN, kJ = kN / 8, kV = Traits::kR2SVector;
  static constexpr int kE = sizeof(typename Traits::ElementD);
  static_assert(kE == 2 || kE == 4 || kE == 8 || kE == 16, "elements are halves of registers, or some of them");
  static constexpr int kPaddingOffset = Traits::kStagingElements * kE;  // where stmatrix writes rows of padding

  const Params& p_;
  uint32 base_;
  int first_, row_, column_, lane_;  // first block; first row of the warp, first column of the thread; lane of the warp
  int rows_;  // rows of the staged tile before those of the accumulators

  GETT_DEVICE R2STiledCopy(const Params& p, uint32 base, int first, int thread, int rows)
      : p_(p), base_(base), first_(first), row_((thread >> 5) * 16), column_(Fragment::column(thread)),
        lane_(thread & 31), rows_(rows) {}

  // The address of element `x` of the staged tile.
  GETT_DEVICE uint32 at(int x) const {
    return base_ + HardwareSwizzle<Traits::kSwizzleBytesD>::apply(uint32(x) * kE);
  }
  // The place of column 8 * j + c, where c is below 8 and known at run time only.
  GETT_DEVICE int column(int j, int c) const {
    if constexpr (Traits::kColumnsBy8) return Index::staging_n(p_, j * 8) + c * Traits::kStagingStepN;
    return Index::staging_n(p_, j * 8 + c);
  }
  template <class Visit> GETT_DEVICE void visit(Acc (&acc)[kMmaM][kN / 2], const Visit& visit) const {
    if constexpr (Traits::kR2SCopy == kR2SStsm || Traits::kR2SCopy == kR2SStsmT) {
      stsm(acc, visit);
    } else if constexpr (Traits::kR2SCopy == kR2SVecN) {
      vec_n(acc, visit);
    } else if constexpr (Traits::kR2SCopy == kR2SPairN || Traits::kR2SCopy == kR2SOne) {
      words(acc, visit);
    } else {
      vec_m(acc, visit);
    }
  }

  // Four matrices at a time: rows r * 8 and up, columns (j + jj) * 8 and up, with r the faster of the two.
  template <class Visit> GETT_DEVICE void stsm(Acc (&acc)[kMmaM][kN / 2], const Visit& visit) const {
    constexpr bool kTrans = Traits::kR2SCopy == kR2SStsmT;
    static_assert(kE == 2, "stmatrix stores matrices of 16-bit elements");
    const int r = (lane_ >> 3) & 1, jj = lane_ >> 4, within = lane_ & 7;
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      const int m = Rows::at(first_, i, row_ + r * 8 + (kTrans ? 0 : within));
      const bool row_ok = m < Traits::kBoxM;
      const int line = row_ok ? Index::staging_m(p_, m + rows_) : 0;
#pragma unroll
      for (int j = 0; j < kJ; j += 2) {
        const bool four = j + 1 < kJ;
        int n;
        bool ok = row_ok;
        if constexpr (kTrans) {
          n = jj && four ? column(j + (four ? 1 : 0), within) : column(j, within);
          if (Traits::kBoxN < kN) ok = ok && (j + (four ? jj : 0)) * 8 + within < Traits::kBoxN;
        } else {
          n = jj && four ? Index::staging_n(p_, (j + 1) * 8) : Index::staging_n(p_, j * 8);
          if (Traits::kBoxN < kN) ok = ok && (j + (four ? jj : 0)) * 8 < Traits::kBoxN;
        }
        const uint32 to = ok ? at(line + n) : base_ + kPaddingOffset + within * 16;
        visit.template matrices<kTrans>(to, acc[i], j * 4, four);
      }
    }
  }

  // Vectors along N: D's neighbours are kR2SStepN groups of eight columns apart.
  template <class Visit> GETT_DEVICE void vec_n(Acc (&acc)[kMmaM][kN / 2], const Visit& visit) const {
    constexpr int kStep = Traits::kR2SStepN;
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int m = Rows::at(first_, i, row_ + (lane_ >> 2) + r * 8);
        if (m >= Traits::kBoxM) continue;
        const int line = Index::staging_m(p_, m + rows_);
#pragma unroll
        for (int j = 0; j < Traits::kBoxN / 8; ++j) {
          if (j / kStep % kV) continue;
#pragma unroll
          for (int e = 0; e < 2; ++e)
            visit.template vector<kV>([&] { return at(line + column(j, column_ + e)); },
                                      [&](int v) -> Acc& { return acc[i][(j + v * kStep) * 4 + r * 2 + e]; });
        }
      }
  }

  // Pairs in rows of 128 bytes: eight columns are two chunks or four, which the swizzle exchanges in odd rows. So lanes
  // of two neighbouring rows would meet. Those of odd rows write the columns first that are 64 bytes further on.
  static constexpr int kTurn = kE < 8 ? 2 : 1;  // groups of eight columns
  static constexpr bool kTurned =
      Traits::kR2SCopy == kR2SPairN && Traits::kSwizzleBytesD == 128 && Traits::kBoxN == kN && kN % (16 * kTurn) == 0;
  static GETT_DEVICE void turn(Acc (&acc)[kN / 2], int r, bool odd) {
#pragma unroll
    for (int j = 0; j < (kTurned ? kJ : 0); ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (j & kTurn) continue;
        Acc &x = acc[j * 4 + r * 2 + e], &y = acc[(j ^ kTurn) * 4 + r * 2 + e];
        const Acc z = odd ? y : x;
        y = odd ? x : y;
        x = z;
      }
  }

  // Words where they belong: pairs of columns that are neighbours in D, or single ones. Places are computed here, not
  // kept through the main loop, which has no registers to spare.
  template <class Visit> GETT_DEVICE void words(Acc (&acc)[kMmaM][kN / 2], const Visit& visit) const {
    static_assert(kE >= 4 && kV == (Traits::kR2SCopy == kR2SPairN ? 2 : 1), "elements of whole registers");
    const int first_row = opaque(row_ + (lane_ >> 2)), first_column = opaque(column_);
    const bool odd = first_row & 1;
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int m = Rows::at(first_, i, first_row + r * 8);
        if (m >= Traits::kBoxM) continue;
        const int line = Index::staging_m(p_, m + rows_);
        turn(acc[i], r, odd);
#pragma unroll
        for (int j = 0; j < kJ; ++j)
#pragma unroll
          for (int e = 0; e < 2; e += kV) {
            if (Traits::kBoxN < kN && j * 8 + first_column + e >= Traits::kBoxN) continue;
            visit.template vector<kV>(
                [&] {
                  const int n = column(j, first_column + e);
                  return at(line + (kTurned && odd ? column(j ^ kTurn, first_column + e) : n));
                },
                [&](int v) -> Acc& { return acc[i][j * 4 + r * 2 + e + v]; });
          }
        turn(acc[i], r, odd);
      }
  }

  // Vectors along M: D's neighbours are in blocks of 64 rows one after the other.
  template <class Visit> GETT_DEVICE void vec_m(Acc (&acc)[kMmaM][kN / 2], const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < kMmaM; i += kV)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int m = Rows::at(first_, i, row_ + (lane_ >> 2) + r * 8);
        if (m >= Traits::kBoxM) continue;
        const int line = Index::staging_m(p_, m + rows_);
#pragma unroll
        for (int j = 0; j < kJ; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (Traits::kBoxN < kN && j * 8 + column_ + e >= Traits::kBoxN) continue;
            visit.template vector<kV>([&] { return at(line + column(j, column_ + e)); },
                                      [&](int v) -> Acc& { return acc[i + v][j * 4 + r * 2 + e]; });
          }
      }
  }
};

}  // namespace gett
