// Products on the CUDA cores, one fused multiply-add each: float32 in IEEE precision, complex, integers, booleans, and
// 16-bit floats in float32. A warp is 4 x 8 threads, each of which has kTm x kTn accumulators. A real operand beside a
// complex one is multiplied as it is, by two multiply-adds where complex numbers take four.
#pragma once
#include "gett/core/numeric.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/core/vec.cuh"

namespace gett {

template <class Traits> struct SimtMma {
  typedef typename Traits::Element Element;
  typedef typename Traits::Acc Acc;
  // Booleans are kept as 0 or 1 in whole registers, where a product takes one instruction.
  template <class T, int = 0> struct Pick { typedef T type; };
  template <int I> struct Pick<bool_t, I> { typedef uint32 type; };
  typedef typename Pick<Acc>::type Sum;
  static constexpr int kWarpM = Traits::kBlockM / Traits::kWarpsM, kWarpN = Traits::kBlockN / Traits::kWarpsN;
  static constexpr int kTm = kWarpM / 4, kTn = kWarpN / 8;
  static_assert(kWarpM % 4 == 0 && kWarpN % 8 == 0, "a warp's tile is made of 4 x 8 threads");
  typedef typename Traits::LoaderTraitsA LoaderTraitsA;
  typedef typename Traits::LoaderTraitsB LoaderTraitsB;
  typedef typename LoaderTraitsA::Element ElementA;
  typedef typename LoaderTraitsB::Element ElementB;
  static constexpr int kEa = sizeof(ElementA), kEb = sizeof(ElementB), kE = kEa > kEb ? kEa : kEb;
  template <class E> struct Factor { typedef typename FactorOf<Sum, E>::type type; };

  // Elements read from shared memory at once: along the free group, or along K (8 bytes, to spare registers).
  static GETT_DEVICE constexpr int fit(int n, int limit) {
    return n % limit == 0 ? limit : (limit > 1 ? fit(n, limit / 2) : 1);
  }
  static constexpr int kVm = LoaderTraitsA::kMajorK ? 1 : fit(kTm, 16 / kEa);
  static constexpr int kVn = LoaderTraitsB::kMajorK ? 1 : fit(kTn, 16 / kEb);
  static constexpr int kKv = fit(Traits::kBlockK, kE >= 8 ? 1 : 8 / kE);

  Sum acc_[kTm][kTn];
  int m0_, n0_, b0_, tm_, tn_;  // first row and column of the result, rows before B's part, place in the warp
  int batch_;

  GETT_DEVICE void init(int warp, int lane, int batch = 0) {
    m0_ = warp % Traits::kWarpsM * kWarpM + batch * Traits::kBlockM;
    n0_ = warp / Traits::kWarpsM * kWarpN;
    b0_ = batch * Traits::kBlockN;
    batch_ = batch;
    tm_ = lane >> 3;
    tn_ = lane & 7;
#pragma unroll
    for (int i = 0; i < kTm; ++i)
#pragma unroll
      for (int j = 0; j < kTn; ++j) acc_[i][j] = zero<Sum>();
  }

  // Rows of one thread: whole vectors along the free group, or rows that neighbour those of the other threads.
  GETT_DEVICE int m_of(int i) const { return m0_ + (i / kVm) * (4 * kVm) + tm_ * kVm + i % kVm; }
  GETT_DEVICE int n_of(int j) const { return n0_ + (j / kVn) * (8 * kVn) + tn_ * kVn + j % kVn; }

  static GETT_DEVICE void add_product(uint32& c, uint32 a, uint32 b, bool_t) { c |= a & b; }
  template <class A, class B, class E> static GETT_DEVICE void add_product(Sum& c, A a, B b, E) { mul_add(c, a, b); }
  static GETT_DEVICE uint32 factor(bool_t x) { return cvt_u32(x); }
  template <class E> static GETT_DEVICE typename Factor<E>::type factor(E x) { return as_factor<Sum>(x); }
  static GETT_DEVICE bool_t result(uint32 x, bool_t) { return bool_t{uint8(x)}; }
  template <class E> static GETT_DEVICE Acc result(Sum x, E) { return x; }

  GETT_DEVICE void multiply(const char* a, const char* b) {
#pragma unroll (kE < 4 ? 1 : 4)
    for (int k = 0; k < Traits::kBlockK; k += kKv) {
      typename Factor<ElementA>::type fa[kTm][kKv];
      typename Factor<ElementB>::type fb[kTn][kKv];
      load<LoaderTraitsA, kTm, kVm>(fa, a, k, [&](int i) { return m_of(i); });
      load<LoaderTraitsB, kTn, kVn>(fb, b, k, [&](int j) { return b0_ + n_of(j); });
#pragma unroll
      for (int q = 0; q < kKv; ++q)
#pragma unroll
        for (int i = 0; i < kTm; ++i)
#pragma unroll
          for (int j = 0; j < kTn; ++j) add_product(acc_[i][j], fa[i][q], fb[j][q], Element{});
    }
  }

  template <class LoaderTraits, int kT, int kV, class F, class At>
  GETT_DEVICE void load(F (&f)[kT][kKv], const char* tile, int k, At&& at) {
    typedef typename LoaderTraits::Element Number;
    constexpr int kBytes = sizeof(Number);
    if constexpr (LoaderTraits::kMajorK) {
      const int byte = k * kBytes ^ batch_bits<LoaderTraits::kSpread>(batch_);
#pragma unroll
      for (int i = 0; i < kT; ++i) {
        const auto v = Vec<Number, kKv>::load(tile + LoaderTraits::Layout::address(at(i), byte));
#pragma unroll
        for (int q = 0; q < kKv; ++q) f[i][q] = factor(v.x[q]);
      }
    } else {
#pragma unroll
      for (int q = 0; q < kKv; ++q)
#pragma unroll
        for (int i = 0; i < kT; i += kV) {
          const auto v = Vec<Number, kV>::load(tile + LoaderTraits::Layout::address(k + q, at(i) * kBytes));
#pragma unroll
          for (int j = 0; j < kV; ++j) f[i + j][q] = factor(v.x[j]);
        }
    }
  }

  // The thread's accumulators as rows and columns of the tile.
  static constexpr int kRows = kTm, kColumns = kTn;
  GETT_DEVICE int row(int i) const { return m_of(i); }
  GETT_DEVICE int column(int j) const { return n_of(j); }
  GETT_DEVICE Acc get(int i, int j) const { return result(acc_[i][j], Element{}); }
  GETT_DEVICE void set(int i, int j, Acc x) { acc_[i][j] = factor(x); }

  // Calls f(m, n, x) for the thread's elements, with all neighbours along N at once.
  template <class F> GETT_DEVICE void visit(F&& f) const {
#pragma unroll
    for (int i = 0; i < kTm; ++i)
#pragma unroll
      for (int j = 0; j < kTn; j += kVn) {
        Vec<Acc, kVn> x;
#pragma unroll
        for (int v = 0; v < kVn; ++v) x.x[v] = result(acc_[i][j + v], Element{});
        f(m_of(i), n_of(j), x);
      }
  }
};

}  // namespace gett
