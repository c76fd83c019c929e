// The pieces of a gathered operand (loader/gather.cuh): where they are, how they get into a warp's ring, and from there
// into the tile. Knows one operand at a time.
#pragma once
#include "gett/core/swizzle.cuh"
#include "gett/loader/operand_index.cuh"
#include "gett/ptx/cp_async.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

// The pieces of one gathered operand that one warp brings in for a k-tile.
template <class Traits, class Index, bool kIsA> struct GatherPieces : OperandIndex<Traits, Index, kIsA> {
  typedef OperandIndex<Traits, Index, kIsA> Operand;
  typedef typename Operand::Params Params;
  typedef typename Operand::LoaderTraits LoaderTraits;
  using Operand::kBox;
  using Operand::kE;
  using Operand::mn_ok;
  using Operand::mn_tile;
  using Operand::offset;
  using Operand::origin;
  static constexpr int kRunElements = LoaderTraits::kRunElements;
  static constexpr int kWarps = 4 * Traits::kProducerWarpgroups;
  static constexpr int kRowCount = LoaderTraits::kMajorK ? kBox : Traits::kBlockK;  // of the tile in shared memory
  static constexpr int kInner = LoaderTraits::kMajorK ? Traits::kBlockK : kBox;
  // Where pieces are transposed (gather_transpose.cuh), those of kTransposeK neighbouring k make a row of the tile, and
  // eight of them belong to one warp.
  static constexpr int kTransposeK = LoaderTraits::kTransposeK;
  static constexpr int kSegments = kTransposeK ? kTransposeK : kInner / kRunElements, kPieces = kRowCount * kSegments;
  static constexpr int kStep = kTransposeK ? 8 : 1;
  static constexpr int kPer = (kPieces + kStep * kWarps - 1) / (kStep * kWarps) * kStep;  // pieces of a warp
  static constexpr int kOut = kRunElements * kE / 16, kIn = kOut + 1;  // chunks of a piece in the tile and in memory
  static constexpr int kLoads = (kPer * kIn + 31) / 32, kStores = (kPer * kOut + 31) / 32;
  static constexpr int kWords = (kStores + 7) / 8;
  // In the ring, chunks that are read together are neighbours, and those written together are in different banks.
  static constexpr int kGroups = (kPer / kStep) | 1;
  static constexpr int kRingBytes = (kTransposeK ? kGroups * kStep : kPer) * kIn * 16;  // of a warp and k-tile
  static constexpr int kSwizzleBytes = LoaderTraits::kSwizzleBytes;
  static constexpr int kSlab = (kRowCount + 7) / 8 * 8 * kSwizzleBytes;  // bytes of a column of swizzle atoms
  static_assert(kE == 2 && kRunElements % 8 == 0 && kInner % kRunElements == 0,
                "pieces are whole chunks of 16-bit elements");

  int offset_[kLoads];   // elements from the tile's origin to the chunk
  int top_;              // the largest offset of a piece
  uint32 skip_[kWords];  // for each chunk stored its piece's offset modulo 8, four bits each

  // Pieces of a row have consecutive numbers, so that the copies of a warp touch as few L2 lines as possible.
  static GETT_DEVICE int row(int piece) { return uint32(piece) / kSegments; }
  static GETT_DEVICE int inner(int piece) { return uint32(piece) % kSegments * (kTransposeK ? 1 : kRunElements); }
  static GETT_DEVICE int mn_of(int piece) { return LoaderTraits::kMajorK ? row(piece) : inner(piece); }
  static GETT_DEVICE int k_of(int piece) { return LoaderTraits::kMajorK ? inner(piece) : row(piece); }
  // The place in the ring of chunk `chunk` of the warp's piece `q`.
  static GETT_DEVICE uint32 place(uint32 q, uint32 chunk) {
    return (kTransposeK ? (q % 8 * kIn + chunk) * kGroups + q / 8 : q * kIn + chunk) * 16;
  }

  // Writes the offsets of the warp's pieces in a tile into its table; returns the tile's origin in bytes.
  //
  // Padding reads the elements of other pieces of the tile. With an address of its own far away, a warp would check the
  // tensor's end (`load`) in all k-tiles. What is read goes to rows and columns that are not stored, or is zeroed
  // (`shift`).
  static GETT_DEVICE long long tabulate(const Params& p, const TileId& id, int* table, int warp, int lane) {
    const auto l = Index::l_tile(p, id.l);
    __syncwarp();
    const auto t = mn_tile(p, id);
    const long long at = (origin(l) + origin(t)) * kE;
#pragma unroll 1
    for (int q = lane; q < kPer; q += 32) {
      const auto has = [&](int own) {
        return own < kPieces && mn_ok(p, t, mn_of(own)) && Index::k_ok(p, k_of(own));
      };
      const int piece = padding_source<8>(warp * kPer + q, has);
      table[q] = offset(p, t, mn_of(piece), k_of(piece));
    }
    __syncwarp();
    return at;
  }

  GETT_DEVICE void plan_loads(const int* table, int lane) {
    int top = 0;
#pragma unroll 1
    for (int q = lane; q < kPer; q += 32) top = max(top, table[q]);
    top_ = __reduce_max_sync(~0u, top);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint32 at = lane + 32 * i;
      offset_[i] = at < kPer * kIn ? table[at / kIn] + int(at % kIn) * 8 : 0;
    }
  }
  // Copies the chunks of one k-tile; `from` is the origin of tile and k-tile. Past the tensor nothing is read.
  GETT_DEVICE void load(const char* from, const char* end, uint32 ring, int lane) const {
    if (from + (long long)(top_ + kIn * 8) * kE <= end) {
      copy<false>(from, end, ring, lane);
    } else {
      copy<true>(from, end, ring, lane);
    }
  }
  template <bool kEnds> GETT_DEVICE void copy(const char* from, const char* end, uint32 ring, int lane) const {
    if constexpr (kEnds || kSparing) lane = opaque(lane);
    static_assert(kLoads <= 32, "one bit for each copy");
    uint32 cut = 0;  // copies of chunks in which the tensor ends
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint32 at = lane + 32 * i;
      if (kPer * kIn % 32 && i == kLoads - 1 && at >= kPer * kIn) continue;
      const char* chunk = reinterpret_cast<const char*>(uint64(from + (long long)offset_[i] * kE) & ~15ull);
      const uint32 to = ring + place(at / kIn, at % kIn);
      if constexpr (kEnds) cut |= uint32(cp_async_chunk(to, chunk, end)) << i; else cp_async_chunk(to, chunk);
    }
    if constexpr (kEnds) {
#pragma unroll 1
      for (; cut; cut &= cut - 1) {
        const uint32 at = lane + 32 * (__ffs(cut) - 1);
        copy_last_chunk(ring + place(at / kIn, at % kIn), end);
      }
    }
  }

  GETT_DEVICE void plan_stores(const int* table, int lane) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) skip_[i] = 0;
#pragma unroll
    for (int i = 0; i < kStores; ++i) {
      const uint32 at = lane + 32 * i;
      if (at < kPer * kOut) skip_[i / 8] |= uint32(table[at / kOut] & 7) << i % 8 * 4;
    }
  }
  // Shifts the chunks of one k-tile into the operand's tile. Beyond K's end both operands get zeros.
  template <class KTile>
  GETT_DEVICE void store(const Params& p, const KTile& k, bool whole, const char* from, uint32 ring, uint32 tile,
                         int warp, int lane) const {
    const uint32 skip = uint32(uint64(from)) / kE;
    if (whole) {
      shift<true>(p, k, skip, ring, tile, warp, lane);
    } else {
      shift<false>(p, k, skip, ring, tile, warp, lane);
    }
  }
  template <bool kWhole, class KTile>
  GETT_DEVICE void shift(const Params& p, const KTile& k, uint32 skip, uint32 ring, uint32 tile, int warp,
                         int lane) const {
    // To save registers, places are computed again for each k-tile.
    if constexpr (!kWhole || Traits::kProducerRegs < 120) lane = opaque(lane);
    if constexpr (kWhole) {
      constexpr int kBatch = 2;  // chunks in a lane's registers at a time
#pragma unroll
      for (int first = 0; first < kStores; first += kBatch) {
        Moving<kBatch> x;
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          const int i = first + j;
          x.at[j] = lane + 32 * i;
          x.ok[j] = i < kStores - 1 || (i < kStores && (kPer * kOut % 32 == 0 || x.at[j] < kPer * kOut));
          x.skip[j] = i < kStores ? skip + (skip_[i / 8] >> i % 8 * 4) : 0;
        }
        shift_and_store<true>(p, k, x, ring, tile, warp);
      }
    } else {
      // The last k-tile of a sum, in a loop, which is half the code.
      uint32 rest[kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) rest[i] = skip_[i];
#pragma unroll 1
      for (int at = lane; at < kPer * kOut; at += 32) {
        shift_and_store<false>(p, k, Moving<1>{{at}, {true}, {skip + rest[0]}}, ring, tile, warp);
#pragma unroll
        for (int i = 0; i < kWords; ++i) rest[i] = rest[i] >> 4 | (i + 1 < kWords ? rest[i + 1] << 28 : 0);
      }
    }
  }
  // Chunks of a warp by number, whether it has them, and the half-words to skip.
  template <int kBatch> struct Moving {
    int at[kBatch];
    bool ok[kBatch];
    uint32 skip[kBatch];
  };
  template <bool kWhole, int kBatch, class KTile>
  static GETT_DEVICE void shift_and_store(const Params& p, const KTile& k, const Moving<kBatch>& which, uint32 ring,
                                          uint32 tile, int warp) {
    Chunk x[kBatch], y[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const uint32 at = which.at[j], in = ring + (at / kOut * kIn + at % kOut) * 16;
      if (!which.ok[j]) continue;
      x[j] = ld_shared_chunk(in);
      y[j] = ld_shared_chunk(in + 16);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const uint32 at = which.at[j], chunk = at % kOut;
      const int piece = warp * kPer + int(at / kOut);
      if (!which.ok[j] || (kPer * kWarps != kPieces && piece >= kPieces)) continue;
      Chunk c = shift_half_words(x[j], y[j], which.skip[j] & 7);
      if (!kWhole) c = keep_first(c, Operand::valid_k(p, k, k_of(piece)) - int(chunk) * 8);
      const uint32 byte = inner(piece) * kE + chunk * 16, line = row(piece);
      const uint32 swizzle = HardwareSwizzle<kSwizzleBytes>::bits(line * kSwizzleBytes);
      const uint32 to = tile + byte / kSwizzleBytes * kSlab + line * kSwizzleBytes;
      st_shared_chunk(to + ((byte % kSwizzleBytes) ^ swizzle), c);
    }
  }
};

}  // namespace gett
