// D whose rows start anywhere: the staged tile leaves row by row. The whole aligned 16-byte chunks of a row, shifted on
// their way, go in single stores; the up to seven elements before and behind them one by one. Where a row starts is
// looked up once for all its elements.
//
// Knows rows of the staged tile (`Index::d_unpack`) and the offset tables; D's elements have two bytes, C is not added.
#pragma once
#include "gett/epilogue.cuh"
#include "gett/sm90_chunk.cuh"

namespace gett {

// Stores the tile's rows of Traits::kRowD elements, of which D has the first `length`; `staged` is the tile's address.
template <class Traits, class Index, class Table>
GETT_DEVICE void store_rows(const typename Traits::Params& p, typename Traits::ElementD* d, const Table& at,
                            uint32 staged, int length, int thread, int threads) {
  constexpr int kRow = Traits::kRowD, kRows = Traits::kBoxMN / kRow, kChunks = kRow / 8;
  constexpr int kLanes = kChunks <= 8 ? 8 : kChunks <= 16 ? 16 : 32;  // that share a row
  constexpr int kTurns = (kChunks + kLanes - 1) / kLanes, kItems = kRows * kTurns;
  constexpr int kEnds = kLanes == 8 ? 2 : 1;  // single elements of a lane
  // Rows on their way through a lane's registers, which accumulators still occupy.
  constexpr int kBatch = Traits::kMi * Traits::kBlockN / 2 > 96 ? 1 : 2;
  static_assert(sizeof(typename Traits::ElementD) == 2 && kRow * kRows == Traits::kBoxMN, "whole rows of half-words");
  asm volatile("" : "+r"(thread));  // nothing of this is to be kept through the main loop
  const int lane = thread % kLanes, step = threads / kLanes;
#pragma unroll 1
  for (int first = thread / kLanes; first < kItems; first += kBatch * step) {
    long long to[kBatch];
    uint32 from[kBatch];
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      const int item = first + q * step;
      to[q] = kInvalid;
      from[q] = staged;
      if (item >= kItems) continue;
      const auto mn = Index::d_unpack(p, item / kTurns * kRow);
      const long long row = at.rows_d()[mn.m], column = at.columns_d()[mn.n];
      if (row != kInvalid && column != kInvalid) to[q] = row + column;
      from[q] += mn.at * 2;
    }
    Chunk x[kBatch], y[kBatch];
    uint32 single[kBatch][kEnds];
    int chunk[kBatch], end[kBatch][kEnds];  // elements from the row's first; negative where there is nothing to store
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      const int turn = (first + q * step) % kTurns;
      const int head = min(length, int(-(uint32(uint64(d + to[q])) >> 1) & 7)), whole = (length - head) / 8;
      const int i = turn * kLanes + lane;
      chunk[q] = to[q] != kInvalid && i < whole ? head + i * 8 : -1;
      if (chunk[q] >= 0) {
        const uint32 in = (from[q] + chunk[q] * 2) & ~15u;
        x[q] = load_chunk(in);
        y[q] = load_chunk(in + 16);
      }
#pragma unroll
      for (int e = 0; e < kEnds; ++e) {
        const int slot = lane + e * kLanes, behind = head + whole * 8 + slot - 8;
        const bool mine = to[q] != kInvalid && turn == 0;
        end[q][e] = mine && slot < head ? slot : mine && slot >= 8 && slot < 16 && behind < length ? behind : -1;
        if (end[q][e] >= 0) single[q][e] = load_half(from[q] + end[q][e] * 2);
      }
    }
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      if (chunk[q] >= 0) store_global(d + to[q] + chunk[q], shifted(x[q], y[q], (from[q] >> 1) + chunk[q] & 7));
#pragma unroll
      for (int e = 0; e < kEnds; ++e)
        if (end[q][e] >= 0) store_half(d + to[q] + end[q][e], single[q][e]);
    }
  }
}

}  // namespace gett
