// Replaces gett/ptx/opaque.cuh on the host, where nothing depends on what the compiler sees.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

template <class T> T opaque(T x) { return x; }
template <int kCount> int opaque_below(int x) {
  if (x < 0 || x >= kCount) { printf("%d is not below %d\n", x, kCount); exit(1); }
  return x;
}
template <class T> const T& hidden(const T& x) { return x; }

}  // namespace gett
