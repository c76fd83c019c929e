// The loader of grouped launches: copies a k-tile of an operand by offsets of its rows and of its k, which stand in
// tables in shared memory. Elements that a problem does not have are zeros.
#pragma once
#include "gett/core/index.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/core/vec.cuh"
#include "gett/ptx/cp_async.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

template <class Traits, bool kIsA> struct GroupedLoader {
  typedef typename LoaderTraitsOf<Traits, kIsA>::type LoaderTraits;
  typedef typename LoaderTraits::Element Element;
  typedef typename LoaderTraits::Layout Layout;
  static constexpr int kRows = kIsA ? Traits::kBlockM : Traits::kBlockN, kBlockK = Traits::kBlockK;
  static constexpr int kVec = LoaderTraits::kVec, kCopy = kVec * int(sizeof(Element));
  static constexpr bool kMajorK = LoaderTraits::kMajorK;
  static constexpr int kAlong = (kMajorK ? kBlockK : kRows) / kVec;  // copies of a row of the tile
  static constexpr int kTotal = kAlong * (kMajorK ? kRows : kBlockK);
  static constexpr int kPer = (kTotal + Traits::kThreads - 1) / Traits::kThreads;
  static constexpr int kBytes = (kMajorK ? kRows : kBlockK) * Layout::kPitch;

  // `rows` and `ks` are offsets in bytes from `base`, kInvalid for what the problem has not.
  static GETT_DEVICE void load(
      const char* base, const long long* rows, const long long* ks, char* stage, int thread) {
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int v = thread + i * Traits::kThreads;
      if (kTotal % Traits::kThreads && v >= kTotal) break;
      const int line = v / kAlong, at = v % kAlong * kVec;
      const long long from = rows[kMajorK ? line : at] + ks[kMajorK ? at : line];
      const bool ok = exists(from);
      copy(stage + Layout::address(line, at * int(sizeof(Element))), base + (ok ? from : 0), ok);
    }
  }

 private:
  static GETT_DEVICE void copy(char* to, const char* from, bool ok) {
    if constexpr (kCopy >= 4) {
      cp_async<kCopy>(smem_address(to), from, ok);
    } else {  // too short for an asynchronous copy
      typedef typename Raw<kCopy>::type R;
      R x = 0;
      if (ok) x = *reinterpret_cast<const R*>(from);
      *reinterpret_cast<R*>(to) = x;
    }
  }
};

}  // namespace gett
