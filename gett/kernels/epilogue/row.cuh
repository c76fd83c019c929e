// D whose rows start anywhere: the staged tile leaves row by row. Whole sectors (32 bytes) of a row go in aligned
// chunks, shifted on their way; the up to fifteen elements before and behind them go one by one. Memory is slow where a
// store cuts a sector, so where a row continues the one before in D, the sector that both have part of is stored once.
// Where a row starts is looked up once for all its elements.
//
// Knows rows of the staged tile (`Index::idx2crd_d`) and the offset tables; D's elements have two bytes, C is not added.
#pragma once
#include "gett/epilogue/vector.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

// A row of the tile: its offset in D (kInvalid: D has no such row) and its address in shared memory.
struct RowPlace { long long to; uint32 from; };
template <class Traits, class Index, class Table>
GETT_DEVICE RowPlace row_place(const typename Traits::Params& p, const Table& at, uint32 staged, int row) {
  constexpr int kRows = Traits::kBoxMN / Traits::kRowLengthD;
  if (row < 0 || row >= kRows) return {kInvalid, staged};
  const auto mn = Index::idx2crd_d(p, row * Traits::kRowLengthD);
  const long long m = at.rows_d()[mn.m], n = at.columns_d()[mn.n];
  return {m != kInvalid && n != kInvalid ? m + n : kInvalid, staged + mn.at * 2};
}

// Stores the tile's rows of Traits::kRowLengthD elements, of which D has the first `length`; `staged` is the tile's address.
template <class Traits, class Index, class Table>
GETT_DEVICE void store_rows(const typename Traits::Params& p, typename Traits::ElementD* d, const Table& at,
                            uint32 staged, int length, int thread, int threads) {
  constexpr int kRowVectors = Traits::kRowLengthD, kRows = Traits::kBoxMN / kRowVectors, kChunks = kRowVectors / 16 * 2;
  constexpr int kLanes = kChunks <= 8 ? 8 : kChunks <= 16 ? 16 : 32;  // that share a row
  constexpr int kTurns = (kChunks + kLanes - 1) / kLanes, kItems = kRows * kTurns;
  constexpr int kEnds = 32 / kLanes;  // single elements of a lane
  // Rows on their way through a lane's registers, which accumulators still occupy.
  constexpr int kBatch = Traits::kMmaM * Traits::kBlockN / 2 > 96 || kEnds > 2 ? 1 : 2;
  static_assert(sizeof(typename Traits::ElementD) == 2 && kRowVectors * kRows == Traits::kBoxMN, "whole rows of half-words");
  asm volatile("" : "+r"(thread));  // nothing of this is to be kept through the main loop
  const int lane = thread % kLanes, step = threads / kLanes;
#pragma unroll 1
  for (int first = thread / kLanes; first < kItems; first += kBatch * step) {
    long long to[kBatch];
    uint32 from[kBatch], single[kBatch][kEnds];
    Chunk x[kBatch], y[kBatch];
    int chunk[kBatch], end[kBatch][kEnds];  // elements from the row's first; negative where there is nothing to store
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      const int item = first + q * step, row = item / kTurns, turn = item % kTurns;
      const RowPlace here = row_place<Traits, Index>(p, at, staged, row);
      to[q] = here.to;
      from[q] = here.from;
      bool before = false, behind = false;  // is there a neighbour in D?
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
      const int i = turn * kLanes + lane, tail = head + whole * 8;
      chunk[q] = exists && i < whole ? head + i * 8 : -1;
      if (chunk[q] >= 0) {
        const uint32 in = (from[q] + chunk[q] * 2) & ~15u;
        x[q] = ld_shared_v4(in);
        y[q] = ld_shared_v4(in + 16);
      }
      // Sixteen lanes for the sector before the whole ones, which the row before has stored if it is a neighbour, and
      // sixteen for the one behind, with what the next row has of it.
#pragma unroll
      for (int e = 0; e < kEnds; ++e) {
        const int slot = lane + e * kLanes, at_tail = tail + slot - 16;
        const bool low = slot < head && !before;
        const bool high = at_tail < length || (behind && tail < length);
        end[q][e] = exists && turn == 0 && (slot < 16 ? low : high) ? (slot < 16 ? slot : at_tail) : -1;
        if (end[q][e] >= 0) {
          const bool beyond = end[q][e] >= length;
          single[q][e] = ld_shared_u16((beyond ? next - length * 2 : from[q]) + end[q][e] * 2);
        }
      }
    }
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      if (chunk[q] >= 0) st_global_v4(d + to[q] + chunk[q], shift_half_words(x[q], y[q], (from[q] >> 1) + chunk[q] & 7));
#pragma unroll
      for (int e = 0; e < kEnds; ++e)
        if (end[q][e] >= 0) st_global_u16(d + to[q] + end[q][e], single[q][e]);
    }
  }
}

}  // namespace gett
