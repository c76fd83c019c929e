// The products of a warp's rows of A and eight columns of B, as mma.sync of float64 sums them: numbers, or complex ones
// by four products of their parts. Sums of complex numbers are those of IEEE multiply-adds, part by part.
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
  static GETT_DEVICE void add(double (&acc)[kMmaM][kSums], int j, const double (&a)[kMmaM][1][kA],
                              const double (&b)[1][kB], uint32) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) Mma::mma(&acc[i][j * 4], a[i][0], b[0]);
  }
};

template <class Mma, bool kConjA, bool kConjB> struct DmmaProducts<complex128, Mma, kConjA, kConjB> {
  // The signs that products have are B's, of which there are fewer numbers than of A.
  template <int kMmaM, int kSums, int kA, int kB>
  static GETT_DEVICE void add(complex128 (&acc)[kMmaM][kSums], int j, const double (&a)[kMmaM][2][kA],
                              const double (&b)[2][kB], uint32 zero) {
    constexpr bool kMinus = kConjA == kConjB;  // sign of the product of the imaginary parts
    double re[kB], im[kB], minus_re[kB], minus_im[kB];
#pragma unroll
    for (int i = 0; i < kB; ++i) {
      re[i] = settled(b[0][i], zero);
      im[i] = settled(b[1][i], zero);
      minus_re[i] = negative(b[0][i], zero);
      minus_im[i] = negative(b[1][i], zero);
    }
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      multiply<0>(&acc[i][j * 4], a[i][0], re);
      multiply<1>(&acc[i][j * 4], a[i][0], either<kConjB>(minus_im, im));
    }
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      multiply<0>(&acc[i][j * 4], a[i][1], either<kMinus>(minus_im, im));
      multiply<1>(&acc[i][j * 4], a[i][1], either<kConjA>(minus_re, re));
    }
  }

 private:
  template <bool kFirst, int kB>
  static GETT_DEVICE const double (&either(const double (&x)[kB], const double (&y)[kB]))[kB] {
    if constexpr (kFirst) return x;
    else return y;
  }
  // Of the bits alone: an addition would take the unit that multiplies.
  static GETT_DEVICE double negative(double x, uint32 zero) {
    return __hiloint2double(__double2hiint(x) ^ int(0x80000000 | zero), __double2loint(x) | zero);
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
