// Numbers of 16 bits, two to a register: places and coordinates that loaders keep for each of a thread's accesses.
#pragma once
#include "gett/core/types.cuh"
#include "gett/ptx/opaque.cuh"

namespace gett {

// The compiler sees through none of them: it would compute them where they are used.
template <int kCount> struct Halfwords {
  uint32 words[(kCount + 1) / 2];

  GETT_DEVICE int operator[](int i) const { return int(i & 1 ? words[i / 2] >> 16 : words[i / 2] & 0xffff); }
  // Sets number `i`; those before it have been set.
  GETT_DEVICE void set(int i, uint32 x) { words[i / 2] = opaque(i & 1 ? words[i / 2] | x << 16 : x); }
  GETT_DEVICE void hide() {
#pragma unroll
    for (int i = 0; i < (kCount + 1) / 2; ++i) words[i] = opaque(words[i]);
  }
};

}  // namespace gett
