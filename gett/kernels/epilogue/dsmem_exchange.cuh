// Exchange of halves of D's tiles between two blocks of a cluster, through distributed shared memory. The rows of an
// operand may leave a tile rows of D of 16 bytes. Two blocks that are neighbours along that dimension then exchange
// halves of their staged tiles. Each stores one half, in rows of 32 bytes. A row of 16 bytes writes half a sector, and
// the store of such a tile takes four times as long.
//
// Owns the exchange's barriers and the path of a vector. Knows two staged tiles of 16-byte vectors in D's order,
// nothing of what they contain. Requires blocks of one tile: what arrives lies where the stages were.
#pragma once
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/persistent.cuh"

namespace gett {

template <class Traits, class Scheduler, int kThreads> struct DsmemExchange {
  static constexpr bool kOn = Traits::kExchange;
  static constexpr int kVectors = Traits::kStagingElements * int(sizeof(typename Traits::ElementD)) / 16;
  static constexpr int kHalfVectors = kVectors / 2, kBarriers = kOn ? 2 : 0;
  static_assert(!kOn || (Traits::kReuseMainloopSmem && Scheduler::kSize == 2),
                "two blocks of one tile each");

  // mbarriers behind those of the two staging buffers: the other block may be written to; what it sends has arrived.
  static constexpr int kReadyOffset = 16, kArrivedOffset = 24;
  static GETT_DEVICE void init(uint32 free) {
    for (int i = 0; i < kBarriers; ++i) mbarrier_init(free + kReadyOffset + i * 8, 1);
  }
  // All of this block's stages have been read.
  static GETT_DEVICE void arrive_ready(uint32 free, int thread) {
    if (thread != 0) return;
    mbarrier_arrive_expect_tx(free + kArrivedOffset, kHalfVectors * 16);
    mbarrier_arrive_cluster(free + kReadyOffset, cluster_ctarank() ^ 1);
  }
  // Splits the staged tile: the half of the first block goes to that block's `to`, the other half to the second's.
  static GETT_DEVICE void send(uint32 free, uint32 from, uint32 to, int thread) {
    const uint32 rank = cluster_ctarank(), there = mapa(to, rank ^ 1), bar = mapa(free + kArrivedOffset, rank ^ 1);
    mbarrier_wait(free + kReadyOffset, 0);
#pragma unroll 2
    for (int i = thread; i < kHalfVectors; i += kThreads) {
      const uint32 at = (2 * i + rank) * 16;
      const Chunk send = ld_shared_chunk(from + ((rank ^ 1) * kHalfVectors + i) * 16);
      const Chunk keep = ld_shared_chunk(from + (rank * kHalfVectors + i) * 16);
      st_async(there + at, send.w, bar);
      st_shared_chunk(to + at, keep);
    }
  }
  // The store warp waits here before it stores the tile.
  static GETT_DEVICE void wait(uint32 free) {
    mbarrier_wait(free + kArrivedOffset, 0);
    fence_proxy_async();
  }
};

}  // namespace gett
