// Replaces gett/ptx/convert.cuh on the host: declared, for code that is not run.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

float to_float(half_t);
float to_float(bhalf_t);
uint32 cvt_rna_tf32(uint32);
uint32 cvt_rn_x2(float, float, half_t);
uint32 cvt_rn_x2(float, float, bhalf_t);

}  // namespace gett
