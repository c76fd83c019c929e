// Integers that address tensors: division by extents through reciprocals, offsets, and coordinates in a tile.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// A divisor d with its reciprocal: n / d = (umulhi(n, mul) + n) >> shift for 0 <= n < 2^31.
struct FastDiv { uint32 d, mul, shift; };
GETT_DEVICE int fast_div(int n, const FastDiv& f) { return int((__umulhi(uint32(n), f.mul) + uint32(n)) >> f.shift); }
GETT_DEVICE int fast_mod(int n, const FastDiv& f) { return n - fast_div(n, f) * int(f.d); }

// The same of a place in a tile and a literal: one product and its high word, exact where n * kD < 2^32. Numbers that
// the compiler knows to have 16 bits it divides as such, and takes ten instructions.
template <int kD> GETT_DEVICE int tile_div(int n) {
  static_assert(0 < kD && kD <= 1 << 16, "within a tile");
  if constexpr ((kD & (kD - 1)) == 0) return int(uint32(n) / kD);
  else return int(uint64(uint32(n)) * uint32((0x100000000ull + kD - 1) / kD) >> 32);
}
template <int kD> GETT_DEVICE int tile_mod(int n) { return n - tile_div<kD>(n) * kD; }

// A coordinate times a stride. The stride's type says whether the product needs 64 bits.
GETT_DEVICE long long wide(int x, int s) { return (long long)x * s; }
GETT_DEVICE long long wide(int x, long long s) { return x * s; }
GETT_DEVICE int wide(int x, uint32 s) { return x * int(s); }

struct MN { int m, n; };
struct MNAt { int m, n, at; };  // with the element's place in the staged tile
// The offset of what a tensor does not have. The sum of two is one, too, and so is that of one and any other offset.
static constexpr long long kInvalid = -(1LL << 62);
GETT_DEVICE bool exists(long long offset) { return int(offset >> 32) >= -(1 << 29); }
// The same in 32 bits, for tensors whose offsets have 29.
static constexpr int kShortInvalid = -(1 << 30);
GETT_DEVICE bool exists(int offset) { return offset >= -(1 << 29); }

}  // namespace gett
