// Replaces gett/ptx/ldmatrix.cuh on the host: declared, for code that is not run.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

void ldmatrix4(uint32 (&)[4], uint32);
void ldmatrix4_trans(uint32 (&)[4], uint32);
void ldmatrix2(uint32 (&)[2], uint32);
void ldmatrix2_trans(uint32 (&)[2], uint32);
void stmatrix4(uint32, uint32, uint32, uint32, uint32);
void stmatrix2(uint32, uint32, uint32);
void stmatrix4_trans(uint32, uint32, uint32, uint32, uint32);
void stmatrix2_trans(uint32, uint32, uint32);

}  // namespace gett
