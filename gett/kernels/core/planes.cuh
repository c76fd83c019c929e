// Numbers as sums of planes of a narrower type: the nearest number of that type, the nearest to what is left, and so
// on. Three planes of bfloat16 hold 24 bits, all that a float has. Two of float16 hold 22 bits of numbers that are
// scaled, since float16 has few exponents. A product of two such sums is that of pairs of planes; those of least value
// are left out (mainloop/wgmma_split.cuh).
#pragma once
#include "gett/ptx/convert.cuh"

namespace gett {

// The planes of two neighbours, x in the low half of each word.
template <class Plane, int kPlanes> GETT_DEVICE void split_planes(float x, float y, uint32 (&planes)[kPlanes]) {
#pragma unroll
  for (int p = 0; p < kPlanes; ++p) {
    planes[p] = cvt_x2(x, y, Plane());
    if (p + 1 < kPlanes) {  // what is left is exact
      x -= cvt_f32_low(planes[p], Plane());
      y -= cvt_f32_high(planes[p], Plane());
    }
  }
}

// The power of two that scales numbers for planes of float16: the largest comes to 2^15 or more, up to float16's
// largest. A number then keeps 22 bits as long as it is no less than 2^-17 of that. What smaller ones lose is less than
// 2^-39 of the largest. If all numbers are below 2^-59, they are scaled as if one were that large. The product of two
// inverses is then a float.
struct PlaneScale {
  static constexpr uint32 kTop = 15, kBias = 127, kLeast = kBias - 59;
  float times, inverse;
  GETT_DEVICE explicit PlaneScale(float largest) {
    // 2^-11 below a power of two, numbers would be rounded beyond float16's largest: they count as that power.
    const uint32 power = max((__float_as_uint(largest) + (1u << 12)) & 0x7f800000u, kLeast << 23);
    times = __uint_as_float(((2 * kBias + kTop) << 23) - power);
    inverse = __uint_as_float(power - (kTop << 23));
  }
};

}  // namespace gett
