// Integers that address tensors: division by extents through reciprocals, offsets, and coordinates in a tile.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// A divisor d with its reciprocal: n / d = (umulhi(n, mul) + n) >> shift for 0 <= n < 2^31.
struct FastDiv { uint32 d, mul, shift; };
GETT_DEVICE int fast_div(int n, const FastDiv& f) { return int((__umulhi(uint32(n), f.mul) + uint32(n)) >> f.shift); }
GETT_DEVICE int fast_mod(int n, const FastDiv& f) { return n - fast_div(n, f) * int(f.d); }

// A coordinate times a stride. The stride's type says whether the product needs 64 bits.
GETT_DEVICE long long wide(int x, int s) { return (long long)x * s; }
GETT_DEVICE long long wide(int x, long long s) { return x * s; }
GETT_DEVICE int wide(int x, uint32 s) { return x * int(s); }

struct MN { int m, n; };
struct MNAt { int m, n, at; };  // with the element's place in the staged tile
static constexpr long long kInvalid = -0x7fffffffffffffffLL - 1;  // the offset of what a tensor does not have

}  // namespace gett
