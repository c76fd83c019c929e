// Replaces gett/ptx/convert.cuh on the host: declared, for code that is not run.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

float cvt_f32(half_t);
float cvt_f32(bhalf_t);
half_t cvt_f16(float);
half_t cvt_f16(double);
bhalf_t cvt_bf16(float);
uint32 cvt_x2(float, float, half_t);
uint32 cvt_x2(float, float, bhalf_t);
uint32 cvt_tf32(uint32);
uint32 cvt_u32(bool_t);

}  // namespace gett
