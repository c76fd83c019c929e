// What planes cannot multiply, and how it is noticed. In planes of bfloat16 numbers below 2^-109 in magnitude lose
// bits, since their last plane would be below bfloat16's range. In scaled planes of float16 numbers lose bits that are
// far below the largest of those that share a scale. Infinities and NaN are right only where the products of all planes
// are, and numbers that round beyond bfloat16's range become infinite. Whoever splits numbers looks for small ones, and
// no sum of a tile may be infinite or NaN. A tile in which either is found is not stored, but its number is kept. Once
// a block has made all of its tiles, it makes those again by fused multiply-adds (mainloop/split_repair.cuh). Which
// tiles these are depends on the data alone.
#pragma once
#include "gett/core/types.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"

namespace gett {

// The smallest magnitude but zero of some numbers, as a word that compares like it.
struct Smallest {
  static constexpr uint32 kLeast = ((127u - 109u) << 24) - 1;  // of 2^-109
  uint32 word = 0xffffffffu;
  GETT_DEVICE void add(float x, float y) {
    word = min(word, min(__float_as_uint(x) * 2 - 1, __float_as_uint(y) * 2 - 1));
  }
  GETT_DEVICE bool is_lost() const { return word < kLeast; }
};

// Whether many numbers of a warp's share of a k-tile are so much smaller than the largest that they lose bits. One
// number that keeps hardly any bits is enough as well. Few that lose bits are no reason: of random numbers some do, and
// what they lose does not count against the other products.
struct LowNumbers {
  static constexpr float kLow = 0.03125f;      // of a scaled number: 2^-20 of the largest
  static constexpr float kGone = 2.384185791015625e-7f;  // 2^-37 of it: two planes have three bits
  static constexpr uint32 kLowBits = 0x2800u;  // of float16
  static constexpr uint32 kNone = 0x7bff7bffu;  // two halves without any
  static constexpr int kMost = 15;
  bool many = false;
  // Whether either of the two halves of `least`, which hold magnitudes of first planes, is a low number, or zero.
  static GETT_DEVICE bool is_low(uint32 least) {
    return (least & 0xffff) < kLowBits || least < kLowBits << 16;
  }
  // What a number counts for.
  static GETT_DEVICE int count(float x, float times) {
    const float size = fabsf(x * times);
    return x == 0 || size >= kLow ? 0 : size < kGone ? kMost + 1 : 1;
  }
  // All lanes of the warp come here.
  GETT_DEVICE void add(int counted) { many |= __reduce_add_sync(0xffffffffu, counted) > kMost; }
  GETT_DEVICE bool is_lost() const { return many; }
};

template <bool kScaled> struct SmallNumbers { typedef Smallest type; };
template <> struct SmallNumbers<true> { typedef LowNumbers type; };

// The guard's words in shared memory. They are the tiles to be made again, a bit for `per` of them. Then come the tiles
// in whose B small numbers were found, each in its place. A word behind them says whether the staged tile is not to be
// stored.
template <class Params> struct SplitGuard {
  static constexpr int kWords = 8, kPlaces = 8, kBytes = 4 * (kWords + kPlaces + 4);
  uint32 words;
  int per;
  GETT_DEVICE SplitGuard(const Params& p, uint32 words)
      : words(words), per((p.tiles / int(gridDim.x) + 32 * kWords) / (32 * kWords)) {}

  static GETT_DEVICE void init(uint32 words) {
    for (int i = 0; i < kBytes / 4; ++i) st_shared(words + i * 4, {0u});
  }
  GETT_DEVICE uint32 skip_at() const { return words + 4 * (kWords + kPlaces); }

  // Of B; the splitting warps are at most a few tiles ahead of those that multiply. A tile's place is told by its
  // number among all of the grid.
  GETT_DEVICE uint32 place(int t) const { return words + 4 * (kWords + t / int(gridDim.x) % kPlaces); }
  GETT_DEVICE void found_in_b(int t) const { st_shared(place(t), {uint32(t) + 1}); }
  GETT_DEVICE bool is_found_in_b(int t) const { return ld_shared_u32(place(t)) == uint32(t) + 1; }

  // All see the marks once the block is through.
  GETT_DEVICE void mark(int count) const {
    const int bit = count / per;
    or_shared(words + bit / 32 * 4, 1u << bit % 32);
  }
  GETT_DEVICE bool is_marked(int count) const {
    const int bit = count / per;
    return ld_shared_u32(words + bit / 32 * 4) >> bit % 32 & 1;
  }
  GETT_DEVICE bool any() const {
    uint32 all = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) all |= ld_shared_u32(words + i * 4);
    return all != 0;
  }
};

// The tiles of a pass: all of a block in the first one, in the second those that are marked, which are made again. A
// tile of the first is marked instead of stored where the consumers have found it lost.
template <class Guard> struct TilesOfPass {
  const Guard& guard;
  bool again;
  GETT_DEVICE bool takes(int count) const { return !again || guard.is_marked(count); }
  GETT_DEVICE bool stores(int count) const {
    if (again) return true;
    const bool skip = ld_shared_u32(guard.skip_at()) != 0;
    __syncwarp();
    if (skip && elect_one()) {
      guard.mark(count);
      st_shared(guard.skip_at(), {0u});
    }
    return !skip;
  }
};

}  // namespace gett
