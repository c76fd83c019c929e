// What CUDA's compiler knows by itself, for a compiler of the host: qualifiers, vector types, intrinsics, a grid.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#define __device__
#define __forceinline__ inline
#define __constant__ static
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
static struct { int x, y, z; } threadIdx, blockIdx, gridDim;
template <class T> T max(T a, T b) { return a > b ? a : b; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned((unsigned long long)x * y >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  return unsigned(((unsigned long long)high << 32 | low) >> (n & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  const unsigned long long both = (unsigned long long)y << 32 | x;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) out |= unsigned(both >> (s >> 4 * i & 7) * 8 & 255) << 8 * i;
  return out;
}
inline int __ffs(unsigned x) { return __builtin_ffs(x); }
#ifdef HOST_BLOCKS
#include "blocks.h"
#else
// Lanes run one after the other, each to the end.
inline void __syncwarp() {}
inline void __syncthreads() {}
inline int __reduce_max_sync(unsigned, int x) { return x; }
inline int __reduce_add_sync(unsigned, int x) { return x; }
inline bool __any_sync(unsigned, bool x) { return x; }
inline int __shfl_sync(unsigned, int x, int) { return x; }
inline unsigned __shfl_xor_sync(unsigned, unsigned x, int) { return x; }
#endif
inline float __uint_as_float(unsigned x) {
  float y;
  memcpy(&y, &x, 4);
  return y;
}
inline unsigned __float_as_uint(float x) {
  unsigned y;
  memcpy(&y, &x, 4);
  return y;
}
inline double __longlong_as_double(long long x) {
  double y;
  memcpy(&y, &x, 8);
  return y;
}
inline long long __double_as_longlong(double x) {
  long long y;
  memcpy(&y, &x, 8);
  return y;
}
