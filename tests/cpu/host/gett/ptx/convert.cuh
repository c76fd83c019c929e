// Replaces gett/ptx/convert.cuh on the host: to and from 16 bits. Others are declared, for code that is not run.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

half_t cvt_f16(double);

// The nearest number of 16 bits, one with an even last bit of two.
inline uint32 nearest(float x, bhalf_t) {
  const uint32 bits = __float_as_uint(x);
  return bits + 0x7fff + (bits >> 16 & 1) >> 16;
}
inline uint32 nearest(float x, half_t) {
  const uint32 sign = __float_as_uint(x) >> 16 & 0x8000;
  const float size = fabsf(x);
  if (!(size < 65520)) return sign | (size > 0 ? 0x7c00 : 0x7e00);
  int power;
  frexpf(size < 0x1p-14f ? 0x1p-14f : size, &power);  // size < 2^power
  const int last = power - 11;  // exponent of the last bit
  return sign | uint32(rintf(ldexpf(size, -last))) + (uint32(last + 24) << 10);
}
template <class T> uint32 cvt_x2(float low, float high, T) { return nearest(low, T()) | nearest(high, T()) << 16; }
inline float cvt_f32_low(uint32 x, bhalf_t) { return __uint_as_float(x << 16); }
inline float cvt_f32_low(uint32 x, half_t) {
  const int exponent = x >> 10 & 31, fraction = x & 1023;
  const float most = fraction ? NAN : INFINITY;
  const float size = exponent == 31 ? most : exponent ? ldexpf(1024 + fraction, exponent - 25) : ldexpf(fraction, -24);
  return x >> 15 & 1 ? -size : size;
}
template <class T> float cvt_f32_high(uint32 x, T) { return cvt_f32_low(x >> 16, T()); }
inline float cvt_f32(half_t x) { return cvt_f32_low(x.bits, x); }
inline float cvt_f32(bhalf_t x) { return cvt_f32_low(x.bits, x); }
inline half_t cvt_f16(float x) { return {uint16(nearest(x, half_t()))}; }
inline bhalf_t cvt_bf16(float x) { return {uint16(nearest(x, bhalf_t()))}; }
uint32 cvt_tf32(uint32);
uint32 cvt_u32(bool_t);

}  // namespace gett
