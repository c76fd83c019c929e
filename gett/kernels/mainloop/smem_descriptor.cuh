// Matrix descriptors of wgmma (PTX ISA, asynchronous warpgroup level matrix shared memory layout).
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// Where a warpgroup's matrix descriptors point: start addresses by 64-row block and step of 16 k. Slabs have as many
// rows as the box, up to whole periods of the swizzle; instructions that reach further multiply what lies behind, into
// rows that nobody stores, and the tile is given room up to a multiple of kGrain rows so that they stay inside the
// block's shared memory.
//
// Chunks (of one span) of a block of an MN-major tile may be kInterleave chunks from each other: then blocks one after the
// other start at chunks one after the other.
template <class LoaderTraits, int kRows, int kGrain, int kBlockK, int kE, int kInterleave = 1> struct SmemOperand {
  static constexpr int kBlocks = (kRows + 63) / 64;
  static constexpr int kSwizzleBytes = LoaderTraits::kSwizzleBytes;
  static constexpr bool kMajorK = LoaderTraits::kMajorK;
  // Bytes of a row's k; K-major rows are whole spans, though wgmma may not read all of the last.
  static constexpr int kDeep = LoaderTraits::kMajorK ? (kBlockK * kE + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes : kBlockK * kE;
  static constexpr int kBytes = ((kRows + kGrain - 1) / kGrain * kGrain * kDeep + 1023) / 1024 * 1024;
  // From k-tile to k-tile of an operand that stays: without the room behind the rows, which the next k-tile gives.
  static constexpr int kPitch = ((kRows + 7) / 8 * 8 * kDeep + 1023) / 1024 * 1024;
  static constexpr int kStep = 32 / kE;  // k of one instruction
  static constexpr int kSlab = (LoaderTraits::kMajorK ? (kRows + 7) / 8 * 8 : kBlockK) * kSwizzleBytes;
  // Fields LBO and SBO in bytes; their roles are exchanged for MN-major tiles without swizzle.
  static constexpr int kLead = LoaderTraits::kMajorK ? kSlab : (kSwizzleBytes == 16 ? 128 : kSlab * kInterleave);
  static constexpr int kStride = LoaderTraits::kMajorK ? 8 * kSwizzleBytes : (kSwizzleBytes == 16 ? kSlab * kInterleave : 8 * kSwizzleBytes);
  static constexpr uint64 kField = kSwizzleBytes == 128 ? 1 : kSwizzleBytes == 64 ? 2 : kSwizzleBytes == 32 ? 3 : 0;
  static constexpr uint64 kFixed = (uint64(kLead / 16) << 16) | (uint64(kStride / 16) << 32) | (kField << 62);

  // Byte offset of rows 64 * block and step `s` inside the tile.
  static GETT_DEVICE int at(int block, int s) {
    block = min(block, kBlocks - 1);  // blocks without a row repeat the last
    if (LoaderTraits::kMajorK) {
      const int k = s * 32;
      return (kSwizzleBytes == 16 ? 2 * s * kSlab : k / kSwizzleBytes * kSlab + k % kSwizzleBytes) + block * 64 * kSwizzleBytes;
    }
    constexpr int kPer = 64 * kE / kSwizzleBytes;
    const int chunk = kInterleave == 1 ? block * kPer : block / kInterleave * kInterleave * kPer + block % kInterleave;
    return s * kStep * kSwizzleBytes + chunk * kSlab;
  }
  static GETT_DEVICE uint64 descriptor(uint32 tile, int block, int s) {
    const uint32 low = uint32(kFixed) + (tile >> 4) + uint32(at(block, s)) / 16;  // `tile` is below 2**18
    return (kFixed >> 32 << 32) | low;
  }
};

}  // namespace gett
