// Conversions between element types that are one instruction each (PTX ISA, cvt).
#pragma once
#include "gett/core/types.cuh"

namespace gett {

GETT_DEVICE float cvt_f32(half_t x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
GETT_DEVICE float cvt_f32(bhalf_t x) { return __uint_as_float(uint32(x.bits) << 16); }

GETT_DEVICE half_t cvt_f16(float x) {
  half_t y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
// From double at once: by way of float the value would be rounded twice.
GETT_DEVICE half_t cvt_f16(double x) {
  half_t y;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x));
  return y;
}
GETT_DEVICE bhalf_t cvt_bf16(float x) {
  bhalf_t y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

// Two values in one register, the first in the low half.
GETT_DEVICE uint32 cvt_x2(float low, float high, half_t) {
  uint32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
GETT_DEVICE uint32 cvt_x2(float low, float high, bhalf_t) {
  uint32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

// The two values of such a register.
GETT_DEVICE float cvt_f32_low(uint32 x, bhalf_t) { return __uint_as_float(x << 16); }
GETT_DEVICE float cvt_f32_high(uint32 x, bhalf_t) { return __uint_as_float(x & 0xffff0000u); }
GETT_DEVICE float cvt_f32_low(uint32 x, half_t) { return cvt_f32(half_t{uint16(x)}); }
GETT_DEVICE float cvt_f32_high(uint32 x, half_t) { return cvt_f32(half_t{uint16(x >> 16)}); }

// To the nearest TF32. The tensor core truncates the low bits, which would bias long sums.
GETT_DEVICE uint32 cvt_tf32(uint32 x) {
  uint32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
  return y;
}

// A boolean as 0 or 1. It is an instruction because the compiler would otherwise keep the value in a predicate. Moving
// it there and back takes registers until they spill.
GETT_DEVICE uint32 cvt_u32(bool_t x) {
  uint32 y;
  asm("min.u32 %0, %1, 1;" : "=r"(y) : "r"(uint32(x.bits)));
  return y;
}

}  // namespace gett
