// Permutations of the 16-byte chunks of a tile in shared memory.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// A tile in shared memory: rows of kPitch bytes whose 16-byte chunks are permuted by the row number.
template <int Pitch, int Mask, int Shift> struct SwizzledTile {
  static constexpr int kPitch = Pitch;
  static GETT_DEVICE uint32 address(int row, int byte) {
    if constexpr (Mask == 0) return uint32(row * Pitch + byte);
    return uint32(row * Pitch + (byte ^ (((row >> Shift) & Mask) << 4)));
  }
};

}  // namespace gett
