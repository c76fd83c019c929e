// Swizzles: permutations of the 16-byte chunks of a tile in shared memory that keep a warp's accesses in different
// banks. Every swizzle of the kernels is Swizzle<Mask, Shift>, the XOR of a byte address with higher bits of itself
// (CuTe).
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// XORs the chunk's number (bits 4 and up) with the bits of Mask, taken from bit Shift on.
template <int Mask, int Shift> struct Swizzle {
  static GETT_DEVICE uint32 bits(uint32 x) { return ((x >> Shift) & Mask) << 4; }
  static GETT_DEVICE uint32 apply(uint32 x) { return x ^ bits(x); }
};
// The hardware's swizzle of TMA and wgmma, by the bytes of a row: 16 (no swizzle), 32, 64 or 128 (PTX ISA, swizzling
// modes).
template <int kBytes> using HardwareSwizzle = Swizzle<kBytes / 16 - 1, 7>;

// How the batches of a tall tile differ: each begins its rows with another of their first kSpread chunks. Where a warp
// stores the same element of neighbouring batches, which lie whole lines apart, it stores to different banks.
template <int kSpread> GETT_DEVICE int batch_bits(int batch) { return kSpread > 1 ? (batch & (kSpread - 1)) * 16 : 0; }

// A tile of rows of kPitch bytes whose chunks are permuted by the number of the row.
template <int Pitch, int Mask, int Shift> struct SwizzledTile {
  static constexpr int kPitch = Pitch;
  static GETT_DEVICE uint32 address(int row, int byte) {
    return uint32(row * Pitch + (byte ^ int(Swizzle<Mask, Shift>::bits(row))));
  }
  // The same byte `rows` rows behind that whose address is `first` (layouts/swizzle.py says for which rows).
  static GETT_DEVICE uint32 moved(uint32 first, int rows) {
    return (first ^ Swizzle<Mask, Shift>::bits(rows)) + rows * Pitch;
  }
};

}  // namespace gett
