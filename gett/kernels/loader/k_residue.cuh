// The residue of K: where the copies of an operand's k-tile write only kValidK of its kBlockK k. The others are zeroed
// once, in every stage, before the first product, and no copy writes them again. Both operands must have zeros there,
// since infinity times zero is a NaN. Copies may be in flight meanwhile: they write other bytes. Owns where the residue
// of a tile lies; schedule/tails.py says when there is one.
#pragma once
#include "gett/core/swizzle.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"

namespace gett {

// The chunks of 16 bytes of an operand's tile that no copy writes. In a K-major tile, [row][k], they are the end of
// every row, which the swizzle may put anywhere in the row. In an MN-major tile, [atom of rows][k], they are whole rows
// of k behind the valid ones. So the swizzle, which stays within a row, makes no difference.
template <class Tile, int kRows, int kValidK, int kBlockK, int kE> struct KResidue {
  static constexpr int kSwizzleBytes = Tile::kSwizzleBytes;
  static constexpr int kRowCount = Tile::kMajorK ? kRows : (kRows * kE + kSwizzleBytes - 1) / kSwizzleBytes;
  static constexpr int kChunks = (kBlockK - kValidK) * (Tile::kMajorK ? kE : kSwizzleBytes) / 16;  // of a row, an atom
  static constexpr int kCount = kRowCount * kChunks;
  static_assert(!Tile::kMajorK || kValidK == kBlockK || (kValidK * kE % 16 == 0 && kBlockK * kE <= kSwizzleBytes),
                "one swizzled row holds a K-major residue, in whole chunks");

  // The byte of chunk `i` in the tile.
  static GETT_DEVICE int at(int i) {
    constexpr int kPer = kChunks ? kChunks : 1;
    const int row = i / kPer, chunk = i % kPer;
    if (!Tile::kMajorK) return (row * kBlockK + kValidK) * kSwizzleBytes + chunk * 16;
    return HardwareSwizzle<kSwizzleBytes>::apply(row * kSwizzleBytes + kValidK * kE + chunk * 16);
  }
  static GETT_DEVICE void clear(uint32 tile, int thread, int threads) {
    for (int i = thread; i < kCount; i += threads) st_shared_zeros(tile + at(i));
  }
};

// The tiles of an operand in shared memory.
struct TileBuffers {
  uint32 start;
  int count, pitch;
};

// All kThreads threads of the consumers call this before their first product.
template <class ResidueA, class ResidueB, int kThreads>
GETT_DEVICE void zero_k_residues(TileBuffers a, TileBuffers b, int thread) {
  for (int i = 0; i < a.count; ++i) ResidueA::clear(a.start + i * a.pitch, thread, kThreads);
  for (int i = 0; i < b.count; ++i) ResidueB::clear(b.start + i * b.pitch, thread, kThreads);
  fence_proxy_async();
  named_barrier_sync(NamedBarrier::kZeroed, kThreads);
}

}  // namespace gett
