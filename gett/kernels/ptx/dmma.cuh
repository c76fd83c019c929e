// Products of float64 by the tensor cores (PTX ISA, mma of .f64): on Hopper 16 x kK by kK x 8, before it 8 x 4 by 4 x
// 8. Lane 4g + t has of A row g + 8 * (i % 2) at k = t + 4 * (i / 2). Of B it has column g at k = t + 4 * i. Sums lie
// as those of all m16n8.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

template <int kK> struct Dmma;
template <> struct Dmma<8> {
  static constexpr int kK = 8;
  static GETT_DEVICE void mma(double* c, const double (&a)[4], const double (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
  }
};
template <> struct Dmma<16> {
  static constexpr int kK = 16;
  static GETT_DEVICE void mma(double* c, const double (&a)[8], const double (&b)[4]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, {%0,%1,%2,%3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
                   "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
  }
};

GETT_DEVICE void dmma_8x8x4(double& c0, double& c1, double a, double b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
               : "+d"(c0), "+d"(c1) : "d"(a), "d"(b));
}
// For Ampere and later.
GETT_DEVICE void dmma_16x8x4(double (&c)[4], const double (&a)[2], double b) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3]) : "d"(a[0]), "d"(a[1]), "d"(b));
#else
  dmma_8x8x4(c[0], c[1], a[0], b);
  dmma_8x8x4(c[2], c[3], a[1], b);
#endif
}
GETT_DEVICE void dmma_16x8x8(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
  Dmma<8>::mma(c, a, b);
#else
  dmma_16x8x4(c, {a[0], a[1]}, b[0]);
  dmma_16x8x4(c, {a[2], a[3]}, b[1]);
#endif
}

}  // namespace gett
