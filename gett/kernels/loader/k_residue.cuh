// K tails of the Hopper family: the copies of an operand's k-tile write kValidK of kBlockK k, and never the others, so
// those are zeroed once, in every stage, before the first product: zeros of one operand alone would not do (Inf * 0).
// The copies may be under way meanwhile: no byte is written by both. Owns where the tail of a tile lies;
// schedule/tails.py says when there is one.
#pragma once
#include "gett/ptx/warpgroup.cuh"

namespace gett {

// The pieces of 16 bytes of an operand's tile that no copy writes. K-major, [row][span of k]: the end of every row, and
// the swizzle may put it anywhere within the row. MN-major, [chunk of rows][k]: rows of k behind those of each chunk,
// whole, so that the swizzle, which keeps to its row, makes no difference.
template <class Tile, int kRows, int kValidK, int kBlockK, int kE> struct KResidue {
  static constexpr int kSwizzleBytes = Tile::kSwizzleBytes;
  static constexpr int kLines = Tile::kMajorK ? kRows : (kRows * kE + kSwizzleBytes - 1) / kSwizzleBytes;
  static constexpr int kPieces = (kBlockK - kValidK) * (Tile::kMajorK ? kE : kSwizzleBytes) / 16;  // of a line
  static constexpr int kCount = kLines * kPieces;
  static_assert(!Tile::kMajorK || kValidK == kBlockK || (kValidK * kE % 16 == 0 && kBlockK * kE <= kSwizzleBytes),
                "one swizzled row holds a K-major tail, in whole pieces");

  // Byte of piece `i` in the tile.
  static GETT_DEVICE int at(int i) {
    constexpr int kPer = kPieces ? kPieces : 1;
    const int line = i / kPer, piece = i % kPer;
    if (!Tile::kMajorK) return (line * kBlockK + kValidK) * kSwizzleBytes + piece * 16;
    const int byte = line * kSwizzleBytes + kValidK * kE + piece * 16;
    return byte ^ (((byte >> 7) & (kSwizzleBytes / 16 - 1)) << 4);
  }
  static GETT_DEVICE void clear(uint32 tile, int thread, int threads) {
    for (int i = thread; i < kCount; i += threads)
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(tile + at(i)), "r"(0) : "memory");
  }
};

// An operand's tiles in shared memory.
struct TileBuffers {
  uint32 start;
  int count, pitch;
};

// All `kThreads` threads that multiply call this before their first product.
template <class TailA, class TailB, int kThreads> GETT_DEVICE void zero_k_residues(TileBuffers a, TileBuffers b, int thread) {
  constexpr int kCleared = 6;  // a named barrier that nobody else uses
  for (int i = 0; i < a.count; ++i) TailA::clear(a.start + i * a.pitch, thread, kThreads);
  for (int i = 0; i < b.count; ++i) TailB::clear(b.start + i * b.pitch, thread, kThreads);
  fence_proxy_async();
  named_barrier_sync(kCleared, kThreads);
}

}  // namespace gett
