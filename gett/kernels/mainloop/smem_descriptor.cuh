// Operands in shared memory as wgmma reads them: matrix descriptors (PTX ISA, asynchronous warpgroup level matrix
// shared memory layout).
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// The tile of an operand: columns of swizzle atoms (slabs). K-major, [slab][row][kSwizzleBytes of k]; MN-major, [slab
// of kSwizzleBytes of rows][k]. A tile has as many rows as the box, up to whole atoms of eight rows. Instructions that
// reach further multiply what lies behind, into rows that are not stored. kBytes are rounded up to kGrain rows, so that
// instructions stay inside the block's shared memory.
//
// The slabs of a block of 64 rows of an MN-major tile may be kInterleave slabs apart. Neighbouring blocks then start at
// neighbouring slabs.
template <class LoaderTraits, int kRows, int kGrain, int kBlockK, int kE, int kInterleave = 1> struct SmemOperand {
  static constexpr int kBlocks = (kRows + 63) / 64;
  static constexpr int kSwizzleBytes = LoaderTraits::kSwizzleBytes;
  static constexpr bool kMajorK = LoaderTraits::kMajorK;
  // Bytes of k of a row. K-major rows are whole slabs, though wgmma need not read all of the last one.
  static constexpr int kRowBytes =
      kMajorK ? (kBlockK * kE + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes : kBlockK * kE;
  static constexpr int kBytes = ((kRows + kGrain - 1) / kGrain * kGrain * kRowBytes + 1023) / 1024 * 1024;
  // From k-tile to k-tile of a stationary operand. The rows behind a tile's end are those of the next k-tile.
  static constexpr int kPitch = ((kRows + 7) / 8 * 8 * kRowBytes + 1023) / 1024 * 1024;
  static constexpr int kStep = 32 / kE;  // k of one instruction
  static constexpr int kSlab = (kMajorK ? (kRows + 7) / 8 * 8 : kBlockK) * kSwizzleBytes;
  // The fields LBO and SBO in bytes. Their meaning is exchanged for MN-major tiles without swizzle.
  static constexpr int kLead = kMajorK ? kSlab : (kSwizzleBytes == 16 ? 128 : kSlab * kInterleave);
  static constexpr int kStride =
      kMajorK ? 8 * kSwizzleBytes : (kSwizzleBytes == 16 ? kSlab * kInterleave : 8 * kSwizzleBytes);
  static constexpr uint64 kField = kSwizzleBytes == 128 ? 1 : kSwizzleBytes == 64 ? 2 : kSwizzleBytes == 32 ? 3 : 0;
  static constexpr uint64 kFixed = (uint64(kLead / 16) << 16) | (uint64(kStride / 16) << 32) | (kField << 62);

  // The byte in the tile of rows 64 * block and k step `s`.
  static GETT_DEVICE int at(int block, int s) {
    block = min(block, kBlocks - 1);  // blocks without rows repeat the last one
    if (kMajorK) {
      const int k = s * 32;
      return (kSwizzleBytes == 16 ? 2 * s * kSlab : k / kSwizzleBytes * kSlab + k % kSwizzleBytes) +
             block * 64 * kSwizzleBytes;
    }
    constexpr int kPer = 64 * kE / kSwizzleBytes;
    const int slab = kInterleave == 1 ? block * kPer : block / kInterleave * kInterleave * kPer + block % kInterleave;
    return s * kStep * kSwizzleBytes + slab * kSlab;
  }
  // The byte at which row `first` begins: rows of whole atoms, or of whole slabs where rows run along M and N.
  static GETT_DEVICE constexpr int at_row(int first) {
    return kMajorK ? first * kSwizzleBytes : first * kE / kSwizzleBytes * kSlab;
  }
  // The descriptor; `tile` is an address of shared memory below 2^18.
  static GETT_DEVICE uint64 descriptor(uint32 tile, int block, int s) {
    const uint32 low = uint32(kFixed) + (tile >> 4) + uint32(at(block, s)) / 16;
    return (kFixed >> 32 << 32) | low;
  }
};

}  // namespace gett
