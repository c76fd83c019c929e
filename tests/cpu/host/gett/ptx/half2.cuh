// Replaces gett/ptx/half2.cuh on the host. Bits of positive numbers are ordered as these are.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

inline uint32 min_abs_f16x2(uint32 x, uint32 y) {
  y &= 0x7fff7fff;
  return min(x & 0xffff, y & 0xffff) | min(x >> 16, y >> 16) << 16;
}

}  // namespace gett
