// The products of a warp's rows of A and eight columns of B, as mma.sync of float64 sums them.
//
// Parts of complex numbers are neighbours along k. Of 16 rows of the instruction eight are the real parts of rows of
// the product, and eight the imaginary ones. They are (re, -im) and (im, re) of A, times (re, im) of B, which is
// multiplied as it is. Each part is summed as IEEE multiply-adds would be. All signs are A's, those of conjugates too.
#pragma once
#include "gett/core/numeric.cuh"

namespace gett {

// A number where a product takes it, or that with the other sign. Numbers that come two at a time are not where the
// instruction wants them, so they are moved. To ptxas the moved numbers are results of an operation, since it would
// repeat plain copies before each product. `zero` is 0, which the compiler does not know.
template <bool kMinus = false> GETT_DEVICE double settled(double x, uint32 zero) {
  const int sign = kMinus ? int(0x80000000) : 0;  // an addition would take the unit that multiplies
  return __hiloint2double((__double2hiint(x) ^ sign) | int(zero), __double2loint(x) | int(zero));
}

// The four numbers that products take of a complex number of A. With kMoves the first two are moved as well.
template <bool kConjA, bool kConjB, bool kMoves>
GETT_DEVICE void complex_rows(double* to, double re, double im, uint32 zero) {
  to[0] = kMoves ? settled(re, zero) : re;
  to[1] = kMoves || kConjA ? settled<kConjA>(im, zero) : im;
  to[2] = settled<kConjA == kConjB>(im, zero);
  to[3] = settled<kConjB>(re, zero);
}

// A word that depends on numbers: what uses it comes after their loads.
template <int kCount> GETT_DEVICE uint32 word_of(const double (&x)[kCount]) {
  uint32 word = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) word |= uint32(__double2loint(x[i]));
  return word;
}

template <class Acc, class Mma, bool kConjA, bool kConjB> struct DmmaProducts;

template <class Mma, bool kConjA, bool kConjB> struct DmmaProducts<double, Mma, kConjA, kConjB> {
  // A's numbers of a step, of a block of 64 rows, where products take them.
  typedef double Rows[Mma::kK / 2];

  // Makes them of numbers as they are loaded: of rows g and g + 8, k by k. kMoves: they come two at a time.
  template <bool kMoves, int kA> static GETT_DEVICE void prepare(Rows& to, const double (&from)[kA], uint32 zero) {
#pragma unroll
    for (int i = 0; i < kA; ++i) to[i] = kMoves ? settled(from[i], zero) : from[i];
  }
  // Adds the products of group `j` of eight columns to the sums.
  template <int kSums, int kB>
  static GETT_DEVICE void add(double (&acc)[kSums], int j, const Rows& a, const double (&b)[kB]) {
    Mma::mma(&acc[j * 4], a, b);
  }
  static GETT_DEVICE uint32 word_of(const Rows& a) { return gett::word_of(a); }
};

template <class Mma, bool kConjA, bool kConjB> struct DmmaProducts<complex128, Mma, kConjA, kConjB> {
  typedef double Rows[2][Mma::kK / 2];  // of row g and of row g + 8

  template <bool kMoves, int kA> static GETT_DEVICE void prepare(Rows& to, const double (&from)[kA], uint32 zero) {
    static_assert(kA == 8 && Mma::kK == 16, "two numbers of either row");
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        complex_rows<kConjA, kConjB, true>(to[r] + 4 * k, from[4 * k + r], from[4 * k + 2 + r], zero);
  }
  template <int kSums, int kB>
  static GETT_DEVICE void add(complex128 (&acc)[kSums], int j, const Rows& a, const double (&b)[kB]) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      add_by_parts(acc[j * 4 + r * 2], acc[j * 4 + r * 2 + 1], [&](double (&sums)[4]) { Mma::mma(sums, a[r], b); });
  }
  static GETT_DEVICE uint32 word_of(const Rows& a) { return gett::word_of(a[0]) | gett::word_of(a[1]); }
};

}  // namespace gett
