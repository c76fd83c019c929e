// Arithmetic on two numbers of float16 in a register (PTX ISA, half precision floating point instructions). Where
// both may be had at once, they are half the work of float32.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// The smaller of each half of `x`, and of the magnitude of that half of `y`. ptxas takes magnitudes and minima of three
// registers together (VHMNMX).
GETT_DEVICE uint32 min_abs_f16x2(uint32 x, uint32 y) {
  uint32 z;
  asm("{\n"
      ".reg .b32 t;\n"
      "abs.f16x2 t, %2;\n"
      "min.f16x2 %0, %1, t;\n"
      "}\n" : "=r"(z) : "r"(x), "r"(y));
  return z;
}

}  // namespace gett
