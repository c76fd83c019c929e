// The products of a warp's rows of A and eight columns of B, as mma.sync of float64 sums them. Of complex numbers,
// whose parts are neighbours along k, it sums (re, im) of A times (re, -im) of B, and times (im, re): the parts of the
// product, each as IEEE multiply-adds sum them.
#pragma once
#include "gett/core/numeric.cuh"

namespace gett {

// A number where a product takes it. Those that come two at a time the instruction wants apart, or beside others: to
// ptxas they are results of an operation, since it would repeat plain copies before each product. `zero` is 0, which
// the compiler does not know.
GETT_DEVICE double settled(double x, uint32 zero) {
  return __hiloint2double(__double2hiint(x) | zero, __double2loint(x) | zero);
}

template <class Acc, class Mma, bool kConjA, bool kConjB> struct DmmaProducts;

template <class Mma, bool kConjA, bool kConjB> struct DmmaProducts<double, Mma, kConjA, kConjB> {
  // Adds those of group `j` of eight columns to the sums; `a` has the blocks of rows.
  template <int kMmaM, int kSums, int kA, int kB>
  static GETT_DEVICE void add(double (&acc)[kMmaM][kSums], int j, const double (&a)[kMmaM][kA], const double (&b)[kB],
                              uint32) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) Mma::mma(&acc[i][j * 4], a[i], b);
  }
};

template <class Mma, bool kConjA, bool kConjB> struct DmmaProducts<complex128, Mma, kConjA, kConjB> {
  // All signs are B's, of which there are fewer numbers than of A: of conjugates too.
  template <int kMmaM, int kSums, int kA, int kB>
  static GETT_DEVICE void add(complex128 (&acc)[kMmaM][kSums], int j, const double (&a)[kMmaM][kA],
                              const double (&b)[kB], uint32 zero) {
    double real[kB], imaginary[kB];
#pragma unroll
    for (int i = 0; i < kB; i += 2) {
      real[i] = b[i];
      real[i + 1] = signed_as<kConjA == kConjB>(b[i + 1], zero);
      imaginary[i] = signed_as<kConjB>(b[i + 1], zero);
      imaginary[i + 1] = signed_as<kConjA>(b[i], zero);
    }
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      multiply<0>(&acc[i][j * 4], a[i], real);
      multiply<1>(&acc[i][j * 4], a[i], imaginary);
    }
  }

 private:
  // A number, or that with the other sign: by its bits, since an addition would take the unit that multiplies.
  template <bool kMinus> static GETT_DEVICE double signed_as(double x, uint32 zero) {
    if constexpr (!kMinus) return settled(x, zero);
    return __hiloint2double(__double2hiint(x) ^ int(0x80000000 | zero), __double2loint(x));
  }
  template <int kPart, int kA, int kB>
  static GETT_DEVICE void multiply(complex128* acc, const double (&a)[kA], const double (&b)[kB]) {
    double sums[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) sums[r] = Parts<complex128>::at(acc[r], kPart);
    Mma::mma(sums, a, b);
#pragma unroll
    for (int r = 0; r < 4; ++r) Parts<complex128>::at(acc[r], kPart) = sums[r];
  }
};

}  // namespace gett
