// The atoms of mma.sync for Ampere and later, by the types of A's and B's elements (PTX ISA, mma). An atom multiplies
// kM x kStepK by kStepK x 8 elements; an atom of floats multiplies TF32. Sums of lane 4g + t are columns 2t and 2t + 1
// of row g, then of row g + 8 where there are 16 rows. Of numbers of float64 it has k = t of row, or column, g.
#pragma once
#include "gett/core/numeric.cuh"
#include "gett/ptx/dmma.cuh"

namespace gett {

template <class A, class B = A> struct MmaAtom;
template <> struct MmaAtom<half_t> {
  typedef float Acc;
  typedef uint32 Reg;
  static constexpr int kM = 16, kStepK = 16, kRegsA = 4, kRegsB = 2;
  static GETT_DEVICE void mma(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <> struct MmaAtom<bhalf_t> {
  typedef float Acc;
  typedef uint32 Reg;
  static constexpr int kM = 16, kStepK = 16, kRegsA = 4, kRegsB = 2;
  static GETT_DEVICE void mma(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <> struct MmaAtom<float> {
  typedef float Acc;
  typedef uint32 Reg;
  static constexpr int kM = 16, kStepK = 8, kRegsA = 4, kRegsB = 2;
  static GETT_DEVICE void mma(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <> struct MmaAtom<double> {
  typedef double Acc;
  typedef double Reg;
  static constexpr int kM = 16, kStepK = 4, kRegsA = 2, kRegsB = 1;
  static GETT_DEVICE void mma(double (&c)[4], const double (&a)[2], const double (&b)[1]) {
    dmma_16x8x4(c, a, b[0]);
  }
};
// Rows of the instruction are real parts of eight rows of the product, then imaginary ones: (re, -im) and (im, re) of
// A, of which a lane has re, im, -im, re, times (re, im) of B. Parts are neighbours along k.
template <> struct MmaAtom<complex128> {
  typedef complex128 Acc;
  typedef double Reg;
  static constexpr int kM = 8, kStepK = 4, kRegsA = 4, kRegsB = 2;
  static GETT_DEVICE void mma(complex128 (&c)[2], const double (&a)[4], const double (&b)[2]) {
    add_by_parts(c[0], c[1], [&](double (&sums)[4]) { dmma_16x8x8(sums, a, b); });
  }
};
// The same times real numbers: re and im of A.
template <> struct MmaAtom<complex128, double> {
  typedef complex128 Acc;
  typedef double Reg;
  static constexpr int kM = 8, kStepK = 4, kRegsA = 2, kRegsB = 1;
  static GETT_DEVICE void mma(complex128 (&c)[2], const double (&a)[2], const double (&b)[1]) {
    add_by_parts(c[0], c[1], [&](double (&sums)[4]) { dmma_16x8x4(sums, a, b[0]); });
  }
};
// Real numbers of 16 rows times re, then im of B.
template <> struct MmaAtom<double, complex128> {
  typedef complex128 Acc;
  typedef double Reg;
  static constexpr int kM = 16, kStepK = 4, kRegsA = 2, kRegsB = 2;
  static GETT_DEVICE void mma(complex128 (&c)[4], const double (&a)[2], const double (&b)[2]) {
    double re[4] = {c[0].re, c[1].re, c[2].re, c[3].re}, im[4] = {c[0].im, c[1].im, c[2].im, c[3].im};
    dmma_16x8x4(re, a, b[0]);
    dmma_16x8x4(im, a, b[1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] = {re[i], im[i]};
  }
};

}  // namespace gett
