// Products of a warp by mma.sync, for Ampere and later. The tile of a warp is made of MmaAtoms of 16 x 8 accumulators,
// or of 8 x 8 where A is complex.
//
// Operands lie in shared memory in either major. 16-bit types and K-major TF32 are loaded by ldmatrix, the rest by
// plain loads, which the pitch of the rows keeps free of bank conflicts.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/numeric.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/core/vec.cuh"
#include "gett/mainloop/dmma_products.cuh"
#include "gett/ptx/convert.cuh"
#include "gett/ptx/ldmatrix.cuh"
#include "gett/ptx/mma_sync.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

template <class Traits> struct WarpMma {
  typedef typename Traits::LoaderTraitsA LoaderTraitsA;
  typedef typename Traits::LoaderTraitsB LoaderTraitsB;
  typedef Stored<typename LoaderTraitsA::Element> OfA;
  typedef Stored<typename LoaderTraitsB::Element> OfB;
  typedef MmaAtom<typename OfA::type, typename OfB::type> Core;
  typedef typename Core::Acc Acc;
  typedef typename Core::Reg Reg;
  static constexpr int kE = sizeof(typename OfA::type), kEb = sizeof(typename OfB::type);
  static constexpr bool kComplex = kE + kEb == 2 * sizeof(complex128);  // both
  static constexpr int kWarpM = Traits::kBlockM / Traits::kWarpsM, kWarpN = Traits::kBlockN / Traits::kWarpsN;
  static constexpr int kM = Core::kM, kHalves = kM / 8;
  static constexpr int kMmaM = kWarpM / kM, kMmaN = kWarpN / 8, kSteps = Traits::kBlockK / Core::kStepK;
  static_assert(kWarpM % kM == 0 && kWarpN % 8 == 0 && kSteps >= 1, "a warp's tile is made of whole atoms");

  Acc acc_[kMmaM][kMmaN][2 * kHalves];
  int m0_, n0_, b0_, lane_, batch_;  // first row and column of the result, first row of B's tile

  GETT_DEVICE void init(int warp, int lane, int batch = 0) {
    m0_ = warp % Traits::kWarpsM * kWarpM + batch * Traits::kBlockM;
    n0_ = warp / Traits::kWarpsM * kWarpN;
    b0_ = n0_ + batch * Traits::kBlockN;
    lane_ = lane;
    batch_ = batch;
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int j = 0; j < kMmaN; ++j)
#pragma unroll
        for (int r = 0; r < 2 * kHalves; ++r) acc_[i][j][r] = zero<Acc>();
  }

  GETT_DEVICE void load_a(Reg (&f)[kMmaM][Core::kRegsA], uint32 tile, int step) {
    typedef typename LoaderTraitsA::Layout L;
    const int g = lane_ >> 2, t = lane_ & 3, bits = batch_bits<LoaderTraitsA::kSpread>(batch_);
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      const int m = m0_ + i * kM;
      if constexpr (kE >= 8) {
#pragma unroll
        for (int r = 0; r < kHalves; ++r) {
          const int mm = m + g + r * 8, k = step * 4 + t;
          const uint32 at = LoaderTraitsA::kMajorK ? L::address(mm, k * kE ^ bits) : L::address(k, mm * kE);
          if constexpr (kE == 16) {
            double x[2];
            ld_shared_f64x2(tile + at, x);
            const uint32 zero = tile >> 31;  // shared memory has no such address
            if constexpr (kComplex) complex_rows<OfA::kConj, OfB::kConj, false>(f[i], x[0], x[1], zero);
            else with_sign<OfA::kConj>(f[i], x);
          } else {
            f[i][r] = ld_shared_f64(tile + at);
          }
        }
      } else if constexpr (LoaderTraitsA::kMajorK) {
        ldmatrix4(f[i], tile + L::address(m + (lane_ & 15), step * 32 + (lane_ >> 4) * 16 ^ bits));
      } else if constexpr (kE == 2) {
        const int k = step * 16 + (lane_ & 7) + (lane_ >> 4) * 8;
        ldmatrix4_trans(f[i], tile + L::address(k, (m + ((lane_ >> 3) & 1) * 8) * 2));
      } else {
#pragma unroll
        for (int r = 0; r < 4; ++r)
          f[i][r] = ld_shared_u32(tile + L::address(step * 8 + t + (r >> 1) * 4, (m + g + (r & 1) * 8) * 4));
      }
      if constexpr (kE == 4) {
#pragma unroll
        for (int r = 0; r < 4; ++r) f[i][r] = cvt_tf32(f[i][r]);
      }
    }
  }

  GETT_DEVICE void load_b(Reg (&f)[kMmaN][Core::kRegsB], uint32 tile, int step) {
    typedef typename LoaderTraitsB::Layout L;
    const int g = lane_ >> 2, t = lane_ & 3, bits = batch_bits<LoaderTraitsB::kSpread>(batch_);
    if constexpr (kEb >= 8) {
#pragma unroll
      for (int j = 0; j < kMmaN; ++j) {
        const int n = b0_ + j * 8 + g, k = step * 4 + t;
        const uint32 at = LoaderTraitsB::kMajorK ? L::address(n, k * kEb ^ bits) : L::address(k, n * kEb);
        if constexpr (kEb == 16) {
          double x[2];
          ld_shared_f64x2(tile + at, x);
          with_sign<OfB::kConj && !kComplex>(f[j], x);
        } else {
          f[j][0] = ld_shared_f64(tile + at);
        }
      }
    } else if constexpr (kEb == 4 && !LoaderTraitsB::kMajorK) {
#pragma unroll
      for (int j = 0; j < kMmaN; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          f[j][r] = ld_shared_u32(tile + L::address(step * 8 + t + r * 4, (b0_ + j * 8 + g) * 4));
    } else {
#pragma unroll
      for (int j = 0; j + 1 < kMmaN; j += 2) {
        uint32 r[4];
        const int n = b0_ + j * 8;
        if constexpr (LoaderTraitsB::kMajorK) {
          const int byte = step * 32 + ((lane_ >> 3) & 1) * 16 ^ bits;
          ldmatrix4(r, tile + L::address(n + (lane_ & 7) + (lane_ >> 4) * 8, byte));
        } else {
          const int k = step * 16 + (lane_ & 15);
          ldmatrix4_trans(r, tile + L::address(k, (n + (lane_ >> 4) * 8) * 2));
        }
        f[j][0] = r[0]; f[j][1] = r[1]; f[j + 1][0] = r[2]; f[j + 1][1] = r[3];
      }
      if constexpr (kMmaN % 2) {
        const int n = b0_ + (kMmaN - 1) * 8;
        if constexpr (LoaderTraitsB::kMajorK) {
          ldmatrix2(f[kMmaN - 1], tile + L::address(n + (lane_ & 7), step * 32 + ((lane_ >> 3) & 1) * 16 ^ bits));
        } else {
          ldmatrix2_trans(f[kMmaN - 1], tile + L::address(step * 16 + (lane_ & 15), n * 2));
        }
      }
    }
    if constexpr (kEb == 4) {
#pragma unroll
      for (int j = 0; j < kMmaN; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) f[j][r] = cvt_tf32(f[j][r]);
    }
  }
  // Parts of a complex number, or of its conjugate.
  template <bool kConj> static GETT_DEVICE void with_sign(double (&to)[2], const double (&x)[2]) {
    to[0] = x[0];
    to[1] = kConj ? settled<true>(x[1], 0) : x[1];
  }

  // What a warp multiplies in one step.
  struct Fragments {
    Reg a[kMmaM][Core::kRegsA], b[kMmaN][Core::kRegsB];
  };
  GETT_DEVICE void load(Fragments& f, uint32 a, uint32 b, int step) {
    load_a(f.a, a, step);
    load_b(f.b, b, step);
  }
  GETT_DEVICE void add_products(const Fragments& f) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int j = 0; j < kMmaN; ++j) {
        const int jj = (i & 1) ? kMmaN - 1 - j : j;
        Core::mma(acc_[i][jj], f.a[i], f.b[jj]);
      }
  }

  // Multiplies one k-tile: the fragments of the next step are loaded during the products of the present one.
  GETT_DEVICE void multiply(uint32 a, uint32 b) {
    Fragments f[2];
    load(f[0], a, b, 0);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (s + 1 < kSteps) load(f[(s + 1) & 1], a, b, s + 1);
      add_products(f[s & 1]);
    }
  }

  // The thread's accumulators as rows and columns of the tile.
  static constexpr int kRows = kMmaM * kHalves, kColumns = kMmaN * 2;
  GETT_DEVICE int row(int i) const { return m0_ + i * 8 + Fragment::row(lane_); }
  GETT_DEVICE int column(int j) const { return n0_ + j / 2 * 8 + Fragment::column(lane_) + j % 2; }
  GETT_DEVICE Acc get(int i, int j) const { return acc_[i / kHalves][j / 2][i % kHalves * 2 + j % 2]; }
  GETT_DEVICE void set(int i, int j, Acc x) { acc_[i / kHalves][j / 2][i % kHalves * 2 + j % 2] = x; }

  // Calls f(m, n, x, y) for neighbours (m, n) and (m, n + 1) of the tile.
  template <class F> GETT_DEVICE void visit(F&& f) const {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int j = 0; j < kMmaN; ++j)
#pragma unroll
        for (int r = 0; r < kHalves; ++r) {
          const Vec<Acc, 2> x{{acc_[i][j][2 * r], acc_[i][j][2 * r + 1]}};
          f(row(i * kHalves + r), n0_ + j * 8 + Fragment::column(lane_), x);
        }
  }
};

}  // namespace gett
