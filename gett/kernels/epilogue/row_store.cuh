// The epilogue for rows of D that start anywhere. The staged tile is stored row by row: whole sectors (32 bytes) of a
// row go in aligned chunks, which are shifted on their way; the up to fifteen elements before and behind them go one by
// one. A store that covers part of a sector is slow, so where a row continues the one before in D, the sector that both
// share is stored once. The start of a row is looked up once for all its elements.
//
// Knows rows of the staged tile (`Index::idx2crd_d`) and the offset tables. D's elements have two bytes, and C is not
// added.
#pragma once
#include "gett/epilogue/staged.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

// A row of the tile: its offset in D (kInvalid where D has no such row) and its address in shared memory.
struct RowPlace { long long to; uint32 from; };
template <class Traits, class Index, class Table>
GETT_DEVICE RowPlace row_place(const typename Traits::Params& p, const Table& at, uint32 staged, int row) {
  constexpr int kRows = Traits::kBoxMN / Traits::kRowLengthD;
  if (row < 0 || row >= kRows) return {kInvalid, staged};
  const auto mn = Index::idx2crd_d(p, row * Traits::kRowLengthD);
  const long long m = at.rows_d()[mn.m], n = at.columns_d()[mn.n];
  return {m != kInvalid && n != kInvalid ? m + n : kInvalid, staged + mn.at * 2};
}

// Stores the tile's rows of Traits::kRowLengthD elements, of which D has the first `length`; `staged` is the tile's
// address.
template <class Traits, class Index, class Table>
GETT_DEVICE void store_rows(const typename Traits::Params& p, typename Traits::ElementD* d, const Table& at,
                            uint32 staged, int length, int thread, int threads) {
  constexpr int kLength = Traits::kRowLengthD, kRows = Traits::kBoxMN / kLength, kChunks = kLength / 16 * 2;
  constexpr int kLanes = kChunks <= 8 ? 8 : kChunks <= 16 ? 16 : 32;  // that share a row
  constexpr int kPasses = (kChunks + kLanes - 1) / kLanes, kItems = kRows * kPasses;
  constexpr int kEnds = 32 / kLanes;  // single elements of a lane
  // Rows in a lane's registers at a time, most of which the accumulators still occupy.
  constexpr int kBatch = Traits::kMmaM * Traits::kBlockN / 2 > 96 || kEnds > 2 ? 1 : 2;
  static_assert(sizeof(typename Traits::ElementD) == 2, "elements are half-words");
  static_assert(kLength * kRows == Traits::kBoxMN, "whole rows");
  thread = opaque(thread);  // nothing of this is kept through the main loop
  const int lane = thread % kLanes, step = threads / kLanes;
#pragma unroll 1
  for (int first = thread / kLanes; first < kItems; first += kBatch * step) {
    long long to[kBatch];
    uint32 from[kBatch], single[kBatch][kEnds];
    Chunk x[kBatch], y[kBatch];
    int chunk[kBatch], end[kBatch][kEnds];  // elements from the row's first; negative where there is nothing to store
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      const int item = first + q * step, row = item / kPasses, pass = item % kPasses;
      const RowPlace here = row_place<Traits, Index>(p, at, staged, row);
      to[q] = here.to;
      from[q] = here.from;
      bool before = false, behind = false;  // whether D has the neighbouring row end to end with this one
      uint32 next = staged;
      if constexpr (Traits::kRowsContiguousD) {
        const RowPlace low = row_place<Traits, Index>(p, at, staged, row - 1);
        const RowPlace high = row_place<Traits, Index>(p, at, staged, row + 1);
        before = low.to != kInvalid && low.to + length == here.to;
        behind = high.to != kInvalid && here.to + length == high.to;
        next = high.from;
      }
      const bool exists = here.to != kInvalid;
      const int head = min(length, int(-(uint32(uint64(d + here.to)) >> 1) & 15)), whole = (length - head) / 16 * 2;
      const int i = pass * kLanes + lane, tail = head + whole * 8;
      chunk[q] = exists && i < whole ? head + i * 8 : -1;
      if (chunk[q] >= 0) {
        const uint32 in = (from[q] + chunk[q] * 2) & ~15u;
        x[q] = ld_shared_chunk(in);
        y[q] = ld_shared_chunk(in + 16);
      }
      // Sixteen lanes take the sector before the whole ones; the row before stores it if it is a neighbour. Sixteen
      // take the sector behind them, with the elements that the next row has of it.
#pragma unroll
      for (int e = 0; e < kEnds; ++e) {
        const int slot = lane + e * kLanes, at_tail = tail + slot - 16;
        const bool low = slot < head && !before;
        const bool high = at_tail < length || (behind && tail < length);
        end[q][e] = exists && pass == 0 && (slot < 16 ? low : high) ? (slot < 16 ? slot : at_tail) : -1;
        if (end[q][e] >= 0) {
          const bool beyond = end[q][e] >= length;
          single[q][e] = ld_shared_u16((beyond ? next - length * 2 : from[q]) + end[q][e] * 2);
        }
      }
    }
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      const uint32 skip = ((from[q] >> 1) + chunk[q]) & 7;
      if (chunk[q] >= 0) st_global_chunk(d + to[q] + chunk[q], shift_half_words(x[q], y[q], skip));
#pragma unroll
      for (int e = 0; e < kEnds; ++e)
        if (end[q][e] >= 0) st_global_u16(d + to[q] + end[q][e], single[q][e]);
    }
  }
}

template <class Traits, class Index, class Scheduler> struct RowStore : TableEpilogue<Traits, Index, Scheduler> {
  typedef TableEpilogue<Traits, Index, Scheduler> Table;
  typedef typename Table::Base Base;
  using Table::Table;
  static constexpr bool kStoresRows = true;

  // Stages and stores a tile; `acc` is overwritten.
  GETT_DEVICE void store(const typename Base::Params& p, const TileId& id,
                         typename Base::Acc (&acc)[Base::kMmaM][Base::kN / 2], int block, int lane, int = 0) {
    this->stage(p, id, acc, block, lane);
    const auto lt = Index::l_tile(p, id.l);
    const int m = opaque(id.m), n = opaque(id.n);  // not kept through the main loop
    const int length = min(Traits::kRowLengthD, Index::d_remaining(p, m, n));
    store_rows<Traits, Index>(p, p.d + lt.d, this->offsets_, smem_address(this->base_), length, this->thread_,
                              Base::kThreads);
  }
};

}  // namespace gett
