// Products of a warp by mma.sync, for Ampere and later. The tile of a warp is made of MmaAtoms of 16 x 8 accumulators.
//
// Operands lie in shared memory in either major. 16-bit types and K-major TF32 are loaded by ldmatrix, the rest by
// plain loads, which the pitch of the rows keeps free of bank conflicts.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/core/vec.cuh"
#include "gett/ptx/convert.cuh"
#include "gett/ptx/ldmatrix.cuh"
#include "gett/ptx/mma_sync.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

template <class Traits> struct WarpMma {
  typedef typename Traits::Element Element;
  typedef MmaAtom<Element> Core;
  typedef typename Core::Acc Acc;
  typedef typename Core::Reg Reg;
  static constexpr int kE = sizeof(Element);
  static constexpr int kWarpM = Traits::kBlockM / Traits::kWarpsM, kWarpN = Traits::kBlockN / Traits::kWarpsN;
  static constexpr int kMmaM = kWarpM / 16, kMmaN = kWarpN / 8, kSteps = Traits::kBlockK / Core::kStepK;
  static_assert(kWarpM % 16 == 0 && kWarpN % 8 == 0 && kSteps >= 1, "a warp's tile is made of 16 x 8 fragments");
  typedef typename Traits::LoaderTraitsA LoaderTraitsA;
  typedef typename Traits::LoaderTraitsB LoaderTraitsB;

  Acc acc_[kMmaM][kMmaN][4];
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
        for (int r = 0; r < 4; ++r) acc_[i][j][r] = Acc(0);
  }

  GETT_DEVICE void load_a(Reg (&f)[kMmaM][Core::kRegsA], uint32 tile, int step) {
    typedef typename LoaderTraitsA::Layout L;
    const int g = lane_ >> 2, t = lane_ & 3, bits = batch_bits<LoaderTraitsA::kSpread>(batch_);
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      const int m = m0_ + i * 16;
      if constexpr (kE == 8) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int mm = m + g + r * 8, k = step * 4 + t;
          const uint32 at = LoaderTraitsA::kMajorK ? L::address(mm, k * 8 ^ bits) : L::address(k, mm * 8);
          f[i][r] = ld_shared_f64(tile + at);
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
    if constexpr (kE == 8) {
#pragma unroll
      for (int j = 0; j < kMmaN; ++j) {
        const int n = b0_ + j * 8 + g, k = step * 4 + t;
        f[j][0] = ld_shared_f64(tile + (LoaderTraitsB::kMajorK ? L::address(n, k * 8 ^ bits) : L::address(k, n * 8)));
      }
    } else if constexpr (kE == 4 && !LoaderTraitsB::kMajorK) {
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
    if constexpr (kE == 4) {
#pragma unroll
      for (int j = 0; j < kMmaN; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) f[j][r] = cvt_tf32(f[j][r]);
    }
  }

  // Multiplies one k-tile: the fragments of the next step are loaded during the products of the present one.
  GETT_DEVICE void multiply(uint32 a, uint32 b) {
    Reg fa[2][kMmaM][Core::kRegsA], fb[2][kMmaN][Core::kRegsB];
    load_a(fa[0], a, 0);
    load_b(fb[0], b, 0);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (s + 1 < kSteps) {
        load_a(fa[(s + 1) & 1], a, s + 1);
        load_b(fb[(s + 1) & 1], b, s + 1);
      }
#pragma unroll
      for (int i = 0; i < kMmaM; ++i)
#pragma unroll
        for (int j = 0; j < kMmaN; ++j) {
          const int jj = (i & 1) ? kMmaN - 1 - j : j;
          Core::mma(acc_[i][jj], fa[s & 1][i], fb[s & 1][jj]);
        }
    }
  }

  // The thread's accumulators as rows and columns of the tile.
  static constexpr int kRows = kMmaM * 2, kColumns = kMmaN * 2;
  GETT_DEVICE int row(int i) const { return m0_ + i / 2 * 16 + Fragment::row(lane_) + i % 2 * 8; }
  GETT_DEVICE int column(int j) const { return n0_ + j / 2 * 8 + Fragment::column(lane_) + j % 2; }
  GETT_DEVICE Acc get(int i, int j) const { return acc_[i / 2][j / 2][i % 2 * 2 + j % 2]; }
  GETT_DEVICE void set(int i, int j, Acc x) { acc_[i / 2][j / 2][i % 2 * 2 + j % 2] = x; }

  // Calls f(m, n, x, y) for neighbours (m, n) and (m, n + 1) of the tile.
  template <class F> GETT_DEVICE void visit(F&& f) const {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int j = 0; j < kMmaN; ++j)
        Fragment::for_each_pair<8>(lane_, [&](int m, int n, int r) {
          f(m0_ + i * 16 + m, n0_ + j * 8 + n, Vec<Acc, 2>{{acc_[i][j][r], acc_[i][j][r + 1]}});
        });
  }
};

}  // namespace gett
