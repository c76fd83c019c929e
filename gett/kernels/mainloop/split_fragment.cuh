// Fragments of A for wgmma out of a tile of numbers in shared memory. A fragment is a thread's share of 64 rows and of
// the k of one sum, as planes. Lane 4g + t has rows g and g + 8, and of each step of 16 k 2t, 2t + 1, 2t + 8 and 2t +
// 9. Where rows of floats run along K, a thread reads a chunk, four neighbours, which are its k in the fragment's order
// (mainloop/split_order.cuh). Of complex numbers it reads two chunks. Where rows run along M, it reads single numbers.
//
// Where planes are scaled, the numbers of a row and of the k of one sum share a scale, which four lanes agree on.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/numeric.cuh"
#include "gett/core/planes.cuh"
#include "gett/core/shuffle.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/mainloop/split_guard.cuh"
#include "gett/mainloop/split_order.cuh"
#include "gett/ptx/half2.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

// A thread's share of A: planes as wgmma takes them, and what scales the sums of its two rows back.
template <class Planes, bool kScaled> struct SplitShare { Planes planes; };
template <class Planes> struct SplitShare<Planes, true> {
  Planes planes;
  float inverse[2];
};

template <class Tile, class Traits> struct SplitFragment {
  typedef typename SmallNumbers<Traits::kScaled>::type Small;
  static constexpr int kRows = Traits::LoaderTraitsA::kRows, kPlanes = Traits::kPlanes;
  static constexpr int kParts = Parts<typename Traits::Element>::kCount, kSumSteps = Traits::kSumSteps;
  static constexpr int kS = Tile::kSwizzleBytes, kE = 4 * kParts;
  static constexpr int kWords = Tile::kMajorK ? 4 : kParts, kLoads = 4 * kParts / kWords;  // of a row and step
  static constexpr bool kScaled = Traits::kScaled;
  typedef SplitOrder<Traits> Order;
  typedef uint32 Planes[kSumSteps][kParts][kPlanes][4];
  typedef SplitShare<Planes, kScaled> Share;
  // Of two rows that are eight apart: parts of k = 2t, 2t + 1, 2t + 8, 2t + 9 of each step.
  typedef float Numbers[kSumSteps][2][4 * kParts];
  uint32 place_;   // of the thread's first number of step 0, from the start of the tile
  bool rows_[2];   // whether its rows are rows of the box

  // The thread `lane` of the warpgroup that multiplies block `block` of 64 rows.
  GETT_DEVICE SplitFragment(int block, int lane) {
    const int row = (block < Tile::kBlocks ? block : Tile::kBlocks - 1) * 64 + Fragment::row(lane), t = lane & 3;
    if constexpr (Tile::kMajorK)
      place_ = t * Order::kChunk / kS * Tile::kSlab + swizzled(row * kS + t * Order::kChunk % kS);
    else place_ = row * kE / kS * Tile::kSlab + swizzled(2 * t * kS + row * kE % kS);
    place_ = uint32(opaque(int(place_)));  // kept, not computed in each step
#pragma unroll
    for (int r = 0; r < 2; ++r) rows_[r] = kRows % 64 == 0 || row + r * 8 < kRows;
  }
  static GETT_DEVICE uint32 swizzled(int x) { return HardwareSwizzle<kS>::apply(uint32(x)); }
  // The place of load `i` of the thread's row `r` of two in step `s`. What differs from the first one is bits that the
  // swizzle does not take: they are exchanged or added.
  GETT_DEVICE uint32 at(int s, int r, int i) const {
    if constexpr (Tile::kMajorK) {
      const int byte = Order::parcel(s * kParts + i);
      return (place_ ^ byte % kS) + byte / kS * Tile::kSlab + r * 8 * kS;
    }
    const uint32 next_row = r * 8 * kE % kS, next_k = kS == 128 ? i % 2 * 16 : 0;  // in rows of 128 bytes chunks differ
    return (place_ ^ next_row ^ next_k) + r * 8 * kE / kS * Tile::kSlab + (s * 16 + i % 2 + i / 2 * 8) * kS;
  }

  // Reads the numbers of sum `sum` of a k-tile. Returns a word that stands for all that was loaded.
  GETT_DEVICE uint32 read(uint32 tile, int sum, Numbers& x) const {
    uint32 loaded = 0;
#pragma unroll
    for (int s = 0; s < kSumSteps; ++s)
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          uint32 word[kWords];
          ld_shared(tile + at(sum * kSumSteps + s, r, i), word);
          loaded |= word[0];
#pragma unroll
          for (int w = 0; w < kWords; ++w) x[s][r][i * kWords + w] = __uint_as_float(word[w]);
        }
    return loaded;
  }
  // The largest magnitude of a row.
  static GETT_DEVICE float largest(const Numbers& x, int r) {
    float most[kSumSteps];  // apart, so that neither waits for the other
#pragma unroll
    for (int s = 0; s < kSumSteps; ++s) {
      most[s] = fabsf(x[s][r][0]);
#pragma unroll
      for (int i = 1; i < 4 * kParts; ++i) most[s] = fmaxf(most[s], fabsf(x[s][r][i]));
    }
    return fmaxf(most[0], most[kSumSteps - 1]);
  }
  // The largest number of a row, out of those of the four lanes that have it.
  static GETT_DEVICE float largest_of_row(float most) {
    most = fmaxf(most, shuffle_xor(most, 1));
    return fmaxf(most, shuffle_xor(most, 2));
  }

  // Makes planes of all numbers, in pairs: how(x, y, r, planes) makes those of two numbers of row r. They are made
  // here: were they made between products, these would wait for each other.
  template <class How> static GETT_DEVICE void split(const Numbers& x, Planes& a, How&& how) {
#pragma unroll
    for (int s = 0; s < kSumSteps; ++s)
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            uint32 planes[kPlanes];
            how(x[s][r][2 * h * kParts + part], x[s][r][(2 * h + 1) * kParts + part], r, planes);
#pragma unroll
            for (int p = 0; p < kPlanes; ++p) a[s][part][p][r + 2 * h] = uint32(opaque(int(planes[p])));
          }
  }
  GETT_DEVICE void split_whole(const Numbers& x, Planes& a, Smallest& smallest) const {
    split(x, a, [&](float first, float second, int r, uint32 (&planes)[kPlanes]) {
      split_planes<typename Traits::Plane>(first, second, planes);
      if (rows_[r]) smallest.add(first, second);  // rows of padding hold anything
    });
  }
  // Returns halves that tell whether there may be low numbers.
  GETT_DEVICE uint32 split_scaled(const Numbers& x, const float (&times)[2], Planes& a) const {
    uint32 least = LowNumbers::kNone;
    split(x, a, [&](float first, float second, int r, uint32 (&planes)[kPlanes]) {
      split_planes<typename Traits::Plane>(first * times[r], second * times[r], planes);
      if (rows_[r]) least = min_abs_f16x2(least, planes[0]);
    });
    return least;
  }
  // How many of the thread's numbers are low.
  GETT_DEVICE int count_low(const Numbers& x, const float (&times)[2]) const {
    int count = 0;
#pragma unroll
    for (int s = 0; s < kSumSteps; ++s)
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int i = 0; i < 4 * kParts; ++i)
          if (rows_[r]) count += LowNumbers::count(x[s][r][i], times[r]);
    return count;
  }

  // The share of sum `sum` of the k-tile at `tile`. Returns a word that stands for all that was loaded.
  GETT_DEVICE uint32 load(uint32 tile, int sum, Share& a, Small& small) const {
    Numbers x;
    const uint32 loaded = read(tile, sum, x);
    if constexpr (!kScaled) {
      split_whole(x, a.planes, small);
    } else {
      float times[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const PlaneScale scale(largest_of_row(largest(x, r)));
        times[r] = scale.times;
        a.inverse[r] = scale.inverse;
      }
      const uint32 least = split_scaled(x, times, a.planes);
      if (__any_sync(0xffffffffu, LowNumbers::is_low(least))) small.add(count_low(x, times));
    }
    return loaded;
  }
};

}  // namespace gett
