// Numbers as sums of planes of a narrower type: the nearest number of that type, the nearest to what is left, and so
// on. Three planes of bfloat16 hold 24 bits, all that a float has. A product of two such sums is that of pairs of
// planes; those of least value are left out (mainloop/wgmma_split.cuh).
#pragma once
#include "gett/ptx/convert.cuh"

namespace gett {

// The planes of two neighbours, x in the low half of each word.
template <int kPlanes> GETT_DEVICE void split_planes(float x, float y, uint32 (&planes)[kPlanes]) {
#pragma unroll
  for (int p = 0; p < kPlanes; ++p) {
    planes[p] = cvt_x2(x, y, bhalf_t());
    if (p + 1 < kPlanes) {  // what is left is exact
      x -= __uint_as_float(planes[p] << 16);
      y -= __uint_as_float(planes[p] & 0xffff0000u);
    }
  }
}

}  // namespace gett
