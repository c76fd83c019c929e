// Conversions that are one instruction each (PTX ISA, cvt).
#pragma once
#include "gett/core/types.cuh"

namespace gett {

GETT_DEVICE float to_float(half_t x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
GETT_DEVICE float to_float(bhalf_t x) { return __uint_as_float(uint32(x.bits) << 16); }

// Nearest TF32; the multiplier would cut the low bits off instead, which biases long sums.
GETT_DEVICE uint32 cvt_rna_tf32(uint32 x) {
  uint32 y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x))); return y;
}

GETT_DEVICE uint32 cvt_rn_x2(float low, float high, half_t) {
  uint32 y; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y;
}
GETT_DEVICE uint32 cvt_rn_x2(float low, float high, bhalf_t) {
  uint32 y; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y;
}

}  // namespace gett
