// Values of other lanes of a warp, whatever their type, in whole registers.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

template <class T> GETT_DEVICE T shuffle_xor(T x, int lanes) {
  constexpr int kWords = (int(sizeof(T)) + 3) / 4;
  union U { T t; uint32 w[kWords]; GETT_DEVICE U() {} } u;
  u.w[kWords - 1] = 0;
  u.t = x;
#pragma unroll
  for (int i = 0; i < kWords; ++i) u.w[i] = __shfl_xor_sync(0xffffffffu, u.w[i], lanes);
  return u.t;
}

// A struct of plain 32-bit members as lane `lane` has it.
template <class T> GETT_DEVICE T from_lane(const T& x, int lane) {
  static_assert(sizeof(T) % 4 == 0, "whole words");
  union U { T value; int words[sizeof(T) / 4]; GETT_DEVICE U() {} } mine, out;
  mine.value = x;
#pragma unroll
  for (int i = 0; i < int(sizeof(T) / 4); ++i) out.words[i] = __shfl_sync(0xffffffffu, mine.words[i], lane);
  return out.value;
}

}  // namespace gett
