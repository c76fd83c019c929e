// The atoms of mma.sync for Ampere and later, by element type (PTX ISA, mma). An atom multiplies 16 x kStepK by kStepK
// x 8 elements; a float atom multiplies TF32.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

template <class Element> struct MmaAtom;
template <> struct MmaAtom<half_t> {
  typedef float Acc;
  typedef uint32 Reg;
  static constexpr int kStepK = 16, kRegsA = 4, kRegsB = 2;
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
  static constexpr int kStepK = 16, kRegsA = 4, kRegsB = 2;
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
  static constexpr int kStepK = 8, kRegsA = 4, kRegsB = 2;
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
  static constexpr int kStepK = 4, kRegsA = 2, kRegsB = 1;
  static GETT_DEVICE void mma(double (&c)[4], const double (&a)[2], const double (&b)[1]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3]) : "d"(a[0]), "d"(a[1]), "d"(b[0]));
#else
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(c[0]), "+d"(c[1]) : "d"(a[0]), "d"(b[0]));
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(c[2]), "+d"(c[3]) : "d"(a[1]), "d"(b[0]));
#endif
  }
};

}  // namespace gett
