// Values of every type that the compiler cannot see through. Their types stay. A real number whose bits were hidden as
// an integer would be kept as one. It would be copied to and from the registers of wgmma while a product writes them.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

GETT_DEVICE float opaque(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
GETT_DEVICE double opaque(double x) {
  asm volatile("" : "+d"(x));
  return x;
}
GETT_DEVICE uint32 opaque(uint32 x) {
  asm volatile("" : "+r"(x));
  return x;
}
GETT_DEVICE long long opaque(long long x) {
  asm volatile("" : "+l"(x));
  return x;
}
GETT_DEVICE uint64 opaque(uint64 x) {
  asm volatile("" : "+l"(x));
  return x;
}
// A number of which the compiler knows that it is one of the first kCount, and no more: divisions need that.
template <int kCount> GETT_DEVICE int opaque_below(int x) {
  x = opaque(x);
  __builtin_assume(0 <= x && x < kCount);
  return x;
}
// The same object, of which the compiler keeps nothing that it has read before.
template <class T> GETT_DEVICE const T& hidden(const T& x) {
  return *reinterpret_cast<const T*>(opaque(reinterpret_cast<uint64>(&x)));
}
GETT_DEVICE bool_t opaque(bool_t x) { return x; }
template <class R> GETT_DEVICE complex_t<R> opaque(complex_t<R> x) { return {opaque(x.re), opaque(x.im)}; }

}  // namespace gett
