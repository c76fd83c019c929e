// Products of float64 by the tensor cores of Hopper, 16 x kK by kK x 8 (PTX ISA, mma m16n8k8 and m16n8k16 of .f64).
// Lane 4g + t has of A row g + 8 * (i % 2) at k = t + 4 * (i / 2). Of B it has column g at k = t + 4 * i. Sums lie as
// those of all m16n8.
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

}  // namespace gett
