// Gathered pieces that are transposed. The operand's rows run along one contracted mode (k1). The other operand's rows,
// and so the tile's K, run along another (k2). Pieces of k1 are gathered as others are. Between the ring and the tile,
// blocks of 8 x 8 elements are transposed in registers. So whole chunks of k2 are stored.
//
// The tile's K is k1 * kTransposeK + k2. Lanes take neighbouring groups of eight pieces, whose chunks lie side by side.
#pragma once
#include "gett/loader/gather_pieces.cuh"

namespace gett {

template <class Traits, class Index, bool kIsA> struct TransposedPieces : GatherPieces<Traits, Index, kIsA> {
  typedef GatherPieces<Traits, Index, kIsA> Base;
  typedef typename Base::Params Params;
  typedef typename Base::LoaderTraits LoaderTraits;
  static constexpr int kE = Base::kE, kTransposeK = LoaderTraits::kTransposeK;
  static constexpr int kSwizzleBytes = LoaderTraits::kSwizzleBytes;
  static constexpr int kUsed = Base::kPer / 8, kItems = kUsed * Base::kOut;  // 8 x 8 blocks of a warp
  static constexpr int kBlocks = (kItems + 31) / 32;                         // of a lane
  static_assert(LoaderTraits::kMajorK && kTransposeK % 8 == 0, "chunks of k2");
  static_assert(kTransposeK * LoaderTraits::kRunElements == Traits::kBlockK, "a tile's K is k1 times k2");

  uint32 skips_[kBlocks];  // offsets modulo 8 of a block's pieces, four bits each

  GETT_DEVICE void plan_stores(const int* table, int lane) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const uint32 at = lane + 32 * i;
      skips_[i] = 0;
      if (at >= kItems) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) skips_[i] |= uint32(table[at % kUsed * 8 + j] & 7) << 4 * j;
    }
  }
  // Transposes the chunks of one k-tile into the operand's tile. Beyond K's end both operands are zeros.
  template <class KTile>
  GETT_DEVICE void store(const Params& p, const KTile& k, bool whole, const char* from, uint32 ring, uint32 tile,
                         int warp, int lane) const {
    const uint32 skip = uint32(uint64(from)) / kE;
    lane = opaque(lane);  // to save registers, places are computed again for each k-tile
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const uint32 at = lane + 32 * i, group = at % kUsed, chunk = at / kUsed;
      const int first = warp * Base::kPer + int(group) * 8;  // its pieces are eight k2 of a row
      if (at >= kItems || first >= Base::kPieces) continue;
      const int k2 = Base::k_of(first);
      Chunk rows[8], columns[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint32 in = ring + Base::place(group * 8 + j, chunk);
        const Chunk x = ld_shared_chunk(in), y = ld_shared_chunk(in + Base::kGroups * 16);
        rows[j] = shift_half_words(x, y, (skip + (skips_[i] >> 4 * j)) & 7);
      }
      if (!whole) {  // one test for eight pieces is cheaper than the code twice
#pragma unroll
        for (int j = 0; j < 8; ++j) rows[j] = keep_first(rows[j], Base::valid_k(p, k, k2 + j) - int(chunk) * 8);
      }
      transpose8x8(rows, columns);
      const uint32 line = Base::mn_of(first), to = tile + line * kSwizzleBytes;
      const uint32 swizzle = HardwareSwizzle<kSwizzleBytes>::bits(line * kSwizzleBytes);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint32 byte = ((chunk * 8 + j) * kTransposeK + k2) * kE;
        st_shared_chunk(to + byte / kSwizzleBytes * Base::kSlab + ((byte % kSwizzleBytes) ^ swizzle), columns[j]);
      }
    }
  }
};

}  // namespace gett
