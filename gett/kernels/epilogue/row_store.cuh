// The epilogue for rows of D that start anywhere. The staged tile is stored row by row. Between a row's first and its
// last multiple of 16 bytes in D, its elements leave in chunks of that size. The chunks are shifted on their way. The
// up to seven elements before and behind them leave one by one.
//
// A lane looks up a row for its warp, so that what all lanes do for a row is little.
//
// Knows rows of the staged tile (`Index::idx2crd_d`) and the offset tables. D's elements have two bytes, and C is not
// added.
#pragma once
#include "gett/contract/stores.cuh"
#include "gett/core/shuffle.cuh"
#include "gett/epilogue/staged.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

// A row of the tile and its chunks: where the first one goes, and where it lies in the staged tile. It also says how
// many chunks there are, and how many elements before them and behind.
struct RowPlace {
  uint32 low, high;  // address of the first chunk in D
  uint32 packed;     // place in the staged tile (17 bits), elements before (4) and behind (4), chunks (7)

  GETT_DEVICE RowPlace(uint64 to, int at, int chunks, int before, int behind)
      : low(uint32(to)), high(uint32(to >> 32)), packed(at << 15 | before << 11 | behind << 7 | chunks) {}
  GETT_DEVICE char* to() const { return reinterpret_cast<char*>(uint64(high) << 32 | low); }
  GETT_DEVICE uint32 from(uint32 staged) const { return staged + (packed >> 15) * 2; }
  GETT_DEVICE int before() const { return packed >> 11 & 15; }
  GETT_DEVICE int behind() const { return packed >> 7 & 15; }
  GETT_DEVICE int chunks() const { return packed & 127; }
};

// Row `row` of the tile, of which D has the first `length` elements; nothing of it where `inside` is false.
template <class Traits, class Index, class Table>
GETT_DEVICE RowPlace row_place(const typename Traits::Params& p, const Table& offsets, int row, int length,
                               bool inside) {
  const auto mn = Index::idx2crd_d(p, (inside ? row : 0) * Traits::kRowLengthD);
  const auto offset = offsets.rows_d()[mn.m] + offsets.columns_d()[mn.n];
  const uint64 to = uint64(p.d + offset);
  const int before = min(length, int(-(uint32(to) >> 1) & 7)), chunks = (length - before) / 8;
  if (!inside || !exists(offset)) return {0, 0, 0, 0, 0};
  return {to + before * 2, mn.at + before, chunks, before, length - before - chunks * 8};
}

// Which threads store what of a tile: a warp takes kPerWarp rows at a time, kLanes of its lanes the chunks of one row.
template <class Traits, int kThreads> struct RowShares {
  static constexpr int kLength = Traits::kRowLengthD, kRows = Traits::kBoxMN / kLength, kChunks = kLength / 8;
  static constexpr int kLanes = kChunks <= 8 ? 8 : kChunks <= 16 ? 16 : 32, kWarps = kThreads / 32;
  static constexpr int kShare = (kRows + kWarps - 1) / kWarps, kPerWarp = kShare < 32 ? kShare : 32;
  static constexpr int kStep = kWarps * kPerWarp;
  static_assert(sizeof(typename Traits::ElementD) == 2, "elements are half-words");
  static_assert(Traits::kStagingElements < 1 << 17, "places in 17 bits");
  static_assert(kLength * kRows == Traits::kBoxMN && kChunks <= kLanes, "whole rows, a chunk a lane");
};

// Stores the chunks of a warp's rows; `place(i)` is row i of them, `staged` the tile's address.
template <class Shares, class Place> GETT_DEVICE void store_chunks(uint32 staged, const Place& place, int lane) {
  constexpr int kLanes = Shares::kLanes, kAtOnce = 32 / kLanes, kBatch = Shares::kPerWarp >= 4 * kAtOnce ? 4 : 1;
  const int chunk = lane % kLanes;
#pragma unroll 1
  for (int first = 0; first < Shares::kPerWarp; first += kAtOnce * kBatch) {
    Chunk x[kBatch], y[kBatch];
    char* to[kBatch];
    uint32 skip[kBatch];
    bool ok[kBatch];
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      const RowPlace row = place(first + q * kAtOnce + lane / kLanes);
      ok[q] = chunk < row.chunks();
      to[q] = row.to() + chunk * 16;
      // Where there is nothing to store something is read all the same: a branch would part the rows.
      const uint32 from = row.from(staged) + (ok[q] ? chunk * 16 : 0);
      skip[q] = from >> 1 & 7;
      x[q] = ld_shared_chunk(from & ~15u);
      y[q] = ld_shared_chunk((from & ~15u) + 16);
    }
#pragma unroll
    for (int q = 0; q < kBatch; ++q) st_global_chunk_if(to[q], shift_half_words(x[q], y[q], skip[q]), ok[q]);
  }
}

// Stores the elements before and behind the chunks: of sixteen lanes eight have those before, eight those behind.
template <class Shares, class Place> GETT_DEVICE void store_ends(uint32 staged, const Place& place, int lane) {
  constexpr int kBatch = Shares::kPerWarp >= 8 ? 4 : 1;
  const bool behind = lane & 8;
  const int i = lane & 7;
#pragma unroll 1
  for (int first = 0; first < Shares::kPerWarp; first += 2 * kBatch) {
    char* to[kBatch];
    uint32 x[kBatch];
    bool ok[kBatch];
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      const RowPlace row = place(first + q * 2 + lane / 16);
      const int at = (behind ? row.chunks() * 8 + i : i - 8) * 2;
      ok[q] = behind ? i < row.behind() : 8 - i <= row.before();
      to[q] = row.to() + at;
      x[q] = ld_shared_u16(row.from(staged) + (ok[q] ? at : 0));
    }
#pragma unroll
    for (int q = 0; q < kBatch; ++q) st_global_u16_if(to[q], x[q], ok[q]);
  }
}

// Stores the tile's rows of Traits::kRowLengthD elements, of which D has the first `length`; `staged` is the tile's
// address. All lanes of a warp call it together.
template <class Traits, class Index, int kThreads, class Table>
GETT_DEVICE void store_rows(const typename Traits::Params& p, const Table& offsets, uint32 staged, int length,
                            int thread) {
  typedef RowShares<Traits, kThreads> Shares;
  const int lane = thread % 32;
#pragma unroll 1
  for (int first = thread / 32 * Shares::kPerWarp; first < Shares::kRows; first += Shares::kStep) {
    const bool inside = lane < Shares::kPerWarp && first + lane < Shares::kRows;
    const RowPlace mine = row_place<Traits, Index>(p, offsets, first + lane, length, inside);
    // Numbers from kPerWarp on, which a last batch may have, are below 32 and those of lanes without a row.
    const auto place = [&](int i) { return from_lane(mine, i); };
    store_chunks<Shares>(staged, place, lane);
    store_ends<Shares>(staged, place, lane);
  }
}

template <class Traits, class Index, class Scheduler>
  GETT_REQUIRES(contract::RowStore<Traits, Index>)
struct RowStore : TableEpilogue<Traits, Index, Scheduler> {
  typedef TableEpilogue<Traits, Index, Scheduler> Table;
  typedef typename Table::Base Base;
  using Table::Table;
  static constexpr bool kStoresRows = true;

  // Stages and stores a tile; `acc` is overwritten.
  GETT_DEVICE void store(const typename Base::Params& p, const TileId& id,
                         typename Base::Acc (&acc)[Base::kMmaM][Base::kN / 2], int block, int lane, int = 0) {
    this->stage(p, id, acc, block, lane);
    const int m = opaque(id.m), n = opaque(id.n);  // not kept through the main loop
    const int length = min(Traits::kRowLengthD, Index::d_remaining(p, m, n));
    store_rows<Traits, Index, Base::kThreads>(p, this->offsets_, smem_address(this->base_), length,
                                              opaque_below<Base::kThreads>(this->thread_));
  }
};

}  // namespace gett
