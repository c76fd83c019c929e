// The order of k within a k-tile of planes. It is free as long as A's fragments and B's planes agree. They have that of
// A's tile in memory, but where A's rows run along K. There a thread reads chunks of 16 bytes. A step of 16 k takes the
// four neighbours of one or two of them. They are what a fragment has at k = 2t, 2t + 1, 2t + 8 and 2t + 9 (kPermute).
//
// If thread t read chunk t of rows of 128 bytes, two neighbouring rows would have the same four chunks. These lie in
// the same banks after the swizzle. It reads chunk 2t of them, or 2t + 1: the other step of real numbers, the other
// half of complex ones (kSpread). The swizzle exchanges even and odd chunks of every other row. Complex numbers in
// shorter rows are read in the order in memory, chunks t and t + 4. Rows of B along K have 128 bytes as well then. Of
// shorter rows a thread would read parts of two slabs, for which it has no registers where others copy.
#pragma once
#include "gett/core/numeric.cuh"

namespace gett {

template <class Traits> struct SplitOrder {
  typedef typename Traits::LoaderTraitsA LoaderA;
  typedef typename Traits::LoaderTraitsB LoaderB;
  static constexpr int kParts = Parts<typename Traits::Element>::kCount;
  static constexpr bool kSpread = LoaderA::kMajorK && LoaderA::kSwizzleBytes == 128 && Traits::kBlockK * kParts >= 32 &&
                                  (!LoaderB::kMajorK || LoaderB::kSwizzleBytes == 128);
  static constexpr bool kPermute = kSpread || (LoaderA::kMajorK && kParts == 1);
  static constexpr int kChunk = kSpread ? 32 : 16;  // bytes from a chunk of a thread or of a parcel to the next one
  // The byte of a row at which four such chunks begin, of number `parcel`.
  static GETT_DEVICE constexpr int parcel(int n) { return kSpread ? n / 2 * 128 + n % 2 * 16 : n * 64; }
  // Where number `k` of A's tile stands among the planes.
  static GETT_DEVICE constexpr int place(int k) {
    const bool steps = kSpread && kParts == 1;  // even and odd chunks are two steps
    const int step = steps ? k >> 2 & 1 : k >> 4, t = (steps ? k >> 3 : k >> 2) & 3;
    return kPermute ? step * 16 + t * 2 + (k & 1) + (k >> 1 & 1) * 8 : k;
  }
  // A bijection of k by which kCount neighbours are read and written in different banks where rows run along N. They
  // differ in their lowest bits, and so do their places.
  template <int kCount> static GETT_DEVICE constexpr int apart(int k) {
    const bool steps = kSpread && kParts == 1;
    if (!kPermute || kCount == 2) return k;
    return kCount == 4 ? k ^ (k & 2) << (steps ? 2 : 1) : k ^ (k & (steps ? 6 : 2)) << 2;
  }
};

}  // namespace gett
