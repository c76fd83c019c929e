// From wgmma's accumulators into the staged tile of D that a tensor map stores: vectors of D's own order, gathered from
// registers or turned by stmatrix. Traits::kR2SCopy says which; schedule/d_box.py chooses it and the places of the rows.
//
// Where C comes by tensor map it lies at the same places before, and takes the same way back: a walk over the places
// serves both (`StoreD`, `AddSource`).
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/numeric.cuh"
#include "gett/core/vec.cuh"
#include "gett/ptx/ldmatrix.cuh"

namespace gett {


// At each place of the staged tile: D is written.
template <class Acc, class Element> struct StoreD {
  static GETT_DEVICE uint32 pack(Acc x, Acc y) { return cvt_rn_x2(x, y, Element()); }

  // Four matrices or two, of neighbouring pairs of `x` from `i` on.
  template <bool kTrans, int kCount>
  GETT_DEVICE void matrices(uint32 at, const Acc (&x)[kCount], int i, bool four) const {
    const uint32 a = pack(x[i], x[i + 1]), b = pack(x[i + 2], x[i + 3]);
    if (four) {
      const uint32 c = pack(x[i + 4], x[i + 5]), d = pack(x[i + 6], x[i + 7]);
      if constexpr (kTrans) stmatrix4_trans(at, a, b, c, d);
      else stmatrix4(at, a, b, c, d);
    } else {
      if constexpr (kTrans) stmatrix2_trans(at, a, b);
      else stmatrix2(at, a, b);
    }
  }
  // kV neighbours from `place()` on, which is found once they are packed: `x(v)` is the accumulator of the v-th.
  template <int kV, class P, class X> GETT_DEVICE void vector(const P& place, const X& x) const {
    uint32 y[kV / 2];
#pragma unroll
    for (int v = 0; v < kV; v += 2) y[v / 2] = pack(x(v), x(v + 1));
    const uint32 at = place();
    if constexpr (kV == 8) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]) : "memory");
    } else if constexpr (kV == 4) {
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(y[0]), "r"(y[1]) : "memory");
    } else {
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(y[0]) : "memory");
    }
  }
  // Single elements, two of them neighbours or not.
  GETT_DEVICE void pair(Element* at, Acc x, Acc y) const {
    Vec<Element, 2> v;
    v.x[0] = convert<Element>(x);
    v.x[1] = convert<Element>(y);
    v.store(at);
  }
  GETT_DEVICE void one(Element* at, Acc x) const { *at = convert<Element>(x); }
};

// At each place of the staged tile: C is read and beta times it added. All is read before D is written, so that no load
// waits behind a store.
template <class Acc, class Element> struct AddSource {
  Acc beta_;

  GETT_DEVICE void add(Acc& x, Element c) const { mul_add(x, beta_, convert<Acc>(c)); }
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
  template <int kV, class P, class X> GETT_DEVICE void vector(const P& place, const X& x) const {
    uint32 c[kV / 2];
    const uint32 at = place();
    if constexpr (kV == 8) {
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3]) : "r"(at));
    } else if constexpr (kV == 4) {
      asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(c[0]), "=r"(c[1]) : "r"(at));
    } else {
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(c[0]) : "r"(at));
    }
#pragma unroll
    for (int v = 0; v < kV; v += 2) add(x(v), x(v + 1), c[v / 2]);
  }
  GETT_DEVICE void pair(const Element* at, Acc& x, Acc& y) const {
    const auto c = Vec<Element, 2>::load(at);
    add(x, c.x[0]);
    add(y, c.x[1]);
  }
  GETT_DEVICE void one(const Element* at, Acc& x) const { add(x, *at); }
};

template <class Traits, class Index> struct R2STiledCopy {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef typename Traits::ElementD Element;
  typedef FragmentRows<Traits> Rows;
  static constexpr int kMmaM = Traits::kMmaM, kN = Traits::kBlockN, kJ = kN / 8, kV = Traits::kR2SVector;
  static constexpr int kPaddingOffset = Traits::kStagingElements * 2;  // bytes: where matrices' rows of the padding go
  static constexpr int kBytes = kPaddingOffset + 128;

  const Params& p_;
  uint32 base_;
  int first_, row_, column_, lane_;  // of this thread: first block, row and column of a fragment, lane of the warp
  int rows_;  // of the tile before those of the accumulators

  GETT_DEVICE R2STiledCopy(const Params& p, uint32 base, int first, int thread, int rows)
      : p_(p), base_(base), first_(first), row_((thread >> 5) * 16), column_((thread & 3) * 2), lane_(thread & 31),
        rows_(rows) {}

  // Byte address of element `x` of the staged tile.
  GETT_DEVICE uint32 at(int x) const {
    const uint32 byte = uint32(x) * 2;
    if constexpr (Traits::kSwizzleBytesD == 16) return base_ + byte;
    return base_ + (byte ^ (((byte >> 7) & (Traits::kSwizzleBytesD / 16 - 1)) << 4));
  }
  // Place of column 8 * j + c, c below 8 and not known when compiling.
  GETT_DEVICE int column(int j, int c) const {
    if constexpr (Traits::kColumnsBy8) return Index::staging_n(p_, j * 8) + c * Traits::kStagingStepN;
    return Index::staging_n(p_, j * 8 + c);
  }
  // Visits all places of this thread, or of its warp, with the accumulators that belong there.
  template <class Visit> GETT_DEVICE void visit(Acc (&acc)[kMmaM][kN / 2], const Visit& visit) const {
    if constexpr (Traits::kR2SCopy == kR2SStsm || Traits::kR2SCopy == kR2SStsmT) {
      matrices(acc, visit);
    } else if constexpr (Traits::kR2SCopy == kR2SVecN) {
      columns(acc, visit);
    } else {
      blocks(acc, visit);
    }
  }

  // Lanes 8q .. 8q + 7 give the addresses of matrix q's rows; matrices go by (rows r, columns j).
  template <class Visit> GETT_DEVICE void matrices(Acc (&acc)[kMmaM][kN / 2], const Visit& visit) const {
    constexpr bool kTrans = Traits::kR2SCopy == kR2SStsmT;
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

  // D's neighbours are kR2SStepN groups of eight columns apart.
  template <class Visit> GETT_DEVICE void columns(Acc (&acc)[kMmaM][kN / 2], const Visit& visit) const {
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
          for (int e = 0; e < 2; ++e) {
            visit.template vector<kV>([&] { return at(line + column(j, column_ + e)); },
                                      [&](int v) -> Acc& { return acc[i][(j + v * kStep) * 4 + r * 2 + e]; });
          }
        }
      }
  }

  // D's neighbours are in blocks one after the other.
  template <class Visit> GETT_DEVICE void blocks(Acc (&acc)[kMmaM][kN / 2], const Visit& visit) const {
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
