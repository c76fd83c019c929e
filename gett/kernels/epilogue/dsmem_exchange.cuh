// Rows of D that two blocks have half of each. Where the operand's rows leave a tile only 16 bytes of D's, two blocks of a
// cluster, neighbours along that dimension, trade halves of their staged tiles: each then stores rows of 32 bytes of one
// half. A row of 16 bytes writes half a sector, and the store of a tile takes four times as long.
//
// Owns the trade's barriers and the way of a vector; knows two staged tiles of 16-byte vectors, D's fastest dimension
// first, and nothing of what lies in them. For blocks of one tile: what comes lies where stages were.
#pragma once
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/persistent.cuh"

namespace gett {

template <class Traits, int kThreads> struct Trade {
  static constexpr bool kOn = Traits::kTrade > 0;
  static constexpr int kVectors = Traits::kStageElements * int(sizeof(typename Traits::ElementD)) / 16;
  static constexpr int kHalf = kVectors / 2, kBars = kOn ? 2 : 0;
  static_assert(!kOn || (Traits::kAlone && Cluster<Traits>::kSize == 2), "two blocks of one tile each");

  // Barriers behind those of the two staging buffers: the other block may be written to; what it sends has come.
  static constexpr int kRoom = 16, kCame = 24;
  static GETT_DEVICE void init(uint32 free) {
    for (int i = 0; i < kBars; ++i) barrier_init(free + kRoom + i * 8, 1);
  }
  // All of this block's stages have been read.
  static GETT_DEVICE void offer(uint32 free, int thread) {
    if (thread != 0) return;
    barrier_expect(free + kCame, kHalf * 16);
    barrier_arrive_at(free + kRoom, cluster_rank() ^ 1);
  }
  // Takes the staged tile apart: the first block's half of it goes to that block's `to`, the second's to the second's.
  static GETT_DEVICE void give(uint32 free, uint32 from, uint32 to, int thread) {
    const uint32 rank = cluster_rank(), there = address_at(to, rank ^ 1), bar = address_at(free + kCame, rank ^ 1);
    barrier_wait(free + kRoom, 0);
#pragma unroll 2
    for (int i = thread; i < kHalf; i += kThreads) {
      const uint32 at = (2 * i + rank) * 16;
      const Chunk send = load_chunk(from + ((rank ^ 1) * kHalf + i) * 16), keep = load_chunk(from + (rank * kHalf + i) * 16);
      send_vector(there + at, send.w, bar);
      store_chunk(to + at, keep);
    }
  }
  // For whoever sends the tile off.
  static GETT_DEVICE void came(uint32 free) {
    barrier_wait(free + kCame, 0);
    async_fence();
  }
};

}  // namespace gett
