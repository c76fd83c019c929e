// Division of indices by extents, and coordinates in a tile.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

struct FastDiv { uint32 d, mul, shift; };
GETT_DEVICE int fast_div(int n, const FastDiv& f) { return int((__umulhi(uint32(n), f.mul) + uint32(n)) >> f.shift); }
GETT_DEVICE int fast_mod(int n, const FastDiv& f) { return n - fast_div(n, f) * int(f.d); }
GETT_DEVICE long long wide(int x, int s) { return (long long)x * s; }
GETT_DEVICE long long wide(int x, long long s) { return x * s; }
GETT_DEVICE int wide(int x, uint32 s) { return x * int(s); }
struct MN { int m, n; };
struct MNAt { int m, n, at; };  // and where the element lies in the staged tile
static constexpr long long kInvalid = -0x7fffffffffffffffLL - 1;

}  // namespace gett
