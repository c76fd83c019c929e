// Crossed units, the fetching half: a block's shared memory, its barriers, and the warps that fill it. What A and B are and
// how they are shared is told in sm90_crossed.cuh.
#pragma once
#include "gett/epilogue/tma.cuh"
#include "gett/mainloop/wgmma_rs_fragment.cuh"
#include "gett/scheduler/k_tiles.cuh"

namespace gett {

template <class Traits, class Index> struct WgmmaRSLoader {
  typedef typename Traits::Params Params;
  static constexpr int kSlots = Traits::kStages, kGroups = Traits::kConsumerWarpgroups;
  static constexpr int kN = Traits::kBlockN, kRows = Traits::kBlockM;
  static constexpr int kSwizzleBytesA = Traits::LoaderTraitsA::kSwizzleBytes, kSwizzleBytesB = Traits::LoaderTraitsB::kSwizzleBytes;
  static constexpr int kDepth = kSwizzleBytesA / 2, kHalves = kSwizzleBytesB / 32;  // k1 of a k-tile, instructions of a slab
  typedef PersistentScheduler<Traits> Scheduler;
  static constexpr bool kForwardA = Scheduler::kN == 2, kMulticastB = Scheduler::kM == 2;
  typedef WgmmaRSFragments<kSwizzleBytesA, kHalves, kForwardA> Batch;
  static constexpr int kBatches = kDepth / Batch::kSteps, kParts = 2 * kBatches;
  typedef RSKTiles<Traits, kDepth, kForwardA> Units;
  static constexpr int kSlab = kN * kSwizzleBytesB;
  // D is staged where A was: the next tile's A has to wait for the stores, its B does not.
  static constexpr int kOffsets = Traits::kTmaStore ? 0 : EpilogueOffsets<Traits>::kBytes;
  static constexpr int kStaging = Traits::kSplit ? 0 : Epilogue<Traits, Index>::kStaging + kOffsets;
  static constexpr int kLoaded = kGroups * Batch::kGroupBytes;
  static constexpr int kBytesA = ((kLoaded > kStaging ? kLoaded : kStaging) + 1023) / 1024 * 1024;
  static constexpr int kSharesA = Traits::kPerWarpgroupA ? kGroups : 1, kShareBytes = kLoaded / kSharesA;  // of A, with own barriers
  // Copies of a share, which is filled whole or, where blocks share A, to half; those that have barriers of their own.
  static constexpr int kPer = Traits::kTmaCopiesA / kSharesA, kOwn = kForwardA ? kPer : 1;
  // Barriers of a share, by bytes from the first: copies that have arrived; the warpgroup's rows are read (by all blocks
  // that need them); the other block's half has arrived.
  static constexpr int kEmptyA = 8 * kOwn, kForwardedA = kEmptyA + 8, kBarsA = kForwardA ? kForwardedA + 8 : kForwardedA;
  static constexpr int kSmemBytes = 1024 + kBytesA + kSlots * kSlab + 16 * kSlots + kSharesA * kBarsA + 8;
  static_assert(kSmemBytes <= Traits::kSmemBytes, "the schedule reserved too little shared memory");
  static_assert(kBatches > 0 && kRows == 64 * kGroups && Traits::kMmaM == 1, "tiles of crossed units");
  static_assert(Traits::kTmaCopiesA % kSharesA == 0, "a copy of A is one warpgroup's");
  static_assert(kSwizzleBytesB == 32 || kSwizzleBytesB == 64, "k2 in runs of 16 or 32");
  static_assert(Scheduler::kSize <= 2, "of two operands, one is shared by two blocks");
  static_assert(!kForwardA || (kHalves == 2 && Traits::kPerWarpgroupA), "two blocks have a half of k2 each");
  static_assert(!kForwardA || Traits::kSplit, "nothing is staged where A was, for its other half may be on its way");
  // `share`: those of the first share; `free`: the staging buffer may be written, or, being A's place too, loaded.
  struct Bars { uint32 full, empty, share, free; };

  static GETT_DEVICE Bars init(uint32 start, int thread) {
    const uint32 full = start + kBytesA + kSlots * kSlab, share = full + 16 * kSlots;
    const Bars bars = {full, full + 8 * kSlots, share, share + kSharesA * kBarsA};
    if (thread != 0) return bars;
    for (int s = 0; s < kSlots; ++s) {
      mbarrier_init(bars.full + s * 8, 1);
      mbarrier_init(bars.empty + s * 8, kGroups * Scheduler::kM);
    }
    for (int s = 0; s < kSharesA; ++s) {
      const uint32 bar = bars.share + s * kBarsA;
      for (int i = 0; i < kOwn; ++i) mbarrier_init(bar + i * 8, 1);
      mbarrier_init(bar + kEmptyA, kGroups / kSharesA * 4 * Scheduler::kN);
      if (kForwardA) mbarrier_init(bar + kForwardedA, 1);
    }
    mbarrier_init(bars.free, 1);
    fence_mbarrier_init();
    return bars;
  }

  static GETT_DEVICE void produce_a(const Params& p, uint32 start, const Bars& bars) {
    uint32 phase = 1, phase_free = 0;
    const Scheduler team;
    for (int t = Scheduler::first(p); t < p.tiles; t += Scheduler::step(p), phase_free ^= 1) {
      const TileId id = team.locate(p, t);
      const auto at = Index::tile_coords_a(p, id.m, id.n, id.l);
      const Units units(p, id.slice);
      for (int at_k = 0; at_k < units.count_; ++at_k, phase ^= 1) {
        const auto k = Index::k_coords_a(p, units.tile(p, at_k));
        // The last share first: D may be staged before it, and it need not wait until D has left. That the tile before
        // has left is waited for with every k-tile, for the barrier cannot move on before this tile is staged.
#pragma unroll
        for (int s = kSharesA - 1; s >= 0; --s) {
          const uint32 bar = bars.share + s * kBarsA;
          if (Traits::kTmaStore && s * kShareBytes < kStaging) mbarrier_wait(bars.free, phase_free);
          mbarrier_wait(bar + kEmptyA, phase);
          const uint32 to = start + s * kShareBytes + (kForwardA ? team.n_ * (kShareBytes / 2) : 0);
          if (kForwardA) mbarrier_arrive_expect_tx(bar + kForwardedA, Traits::kTmaCopyBytesA * kPer);
          else mbarrier_arrive_expect_tx(bar, Traits::kTmaCopyBytesA * kPer);
          // In pieces, so that slabs of B get their turn.
#pragma unroll 1
          for (int i = 0; i < kPer; ++i) {
            if (kForwardA) mbarrier_arrive_expect_tx(bar + i * 8, Traits::kTmaCopyBytesA);
            Index::load_a(p, at, k, team.n_, s * kPer + i, to + i * Traits::kTmaCopyBytesA, bar + (kForwardA ? i * 8 : 0));
          }
        }
      }
    }
  }

  // Sends this block's half of A to where the other block has room for it. It has: its warps, too, have said that they
  // need the k-tile before no more, else this half would not have been fetched.
  // By ordinary loads and stores: the copy engine is what limits these kernels. Two warps do it, else it is this that
  // the other block waits for.
  static GETT_DEVICE void forward_a(const Params& p, uint32 start, const Bars& bars, int lane) {
    const Scheduler team;
    const uint32 there = mapa(start, team.n_ ^ 1) - start;
    uint32 phase = 0;
    for (int t = Scheduler::first(p); t < p.tiles; t += Scheduler::step(p)) {
      const int count = Units(p, team.locate(p, t).slice).count_;
      for (int at_k = 0; at_k < count; ++at_k, phase ^= 1) {
#pragma unroll 1
        for (int s = kSharesA - 1; s >= 0; --s) {
          uint32 from = start + s * kShareBytes + team.n_ * (kShareBytes / 2) + lane * 16;
          const uint32 bar = bars.share + s * kBarsA;
#pragma unroll 1
          for (int i = 0; i < kPer; ++i) {
            mbarrier_wait(bar + i * 8, phase);
#pragma unroll 1
            for (int row = 0; row < kPieceRows; row += kVectors, from += kVectors * kForwardedRow)
              forward_rows(there + from, from, there + bar + kForwardedA);
          }
        }
      }
    }
  }

  static constexpr int kForwarders = 64, kForwardedRow = kForwarders * 16, kPieceRows = Traits::kTmaCopyBytesA / kForwardedRow;
  static constexpr int kVectors = kPieceRows % 4 == 0 ? 4 : kPieceRows % 3 == 0 ? 3 : 1;  // of a lane at a time
  static_assert(!kForwardA || Traits::kTmaCopyBytesA % kForwardedRow == 0, "whole vectors of all senders");
  static GETT_DEVICE void forward_rows(uint32 to, uint32 from, uint32 bar) {
    uint32 x[kVectors][4];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) ld_shared_v4_if(from + j * kForwardedRow, x[j], true);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) st_async(to + j * kForwardedRow, x[j], bar);
  }

  static GETT_DEVICE void produce_b(const Params& p, uint32 slabs, const Bars& bars) {
    int slot = 0;
    uint32 phase = 1;
    const Scheduler team;
    for (int t = Scheduler::first(p); t < p.tiles; t += Scheduler::step(p)) {
      const TileId id = team.locate(p, t);
      const auto at = Index::tile_coords_b(p, id.m, id.n, id.l);
      const Units units(p, id.slice);
      for (int at_k = 0; at_k < units.count_; ++at_k) {
        const auto k = Index::k_coords_b(p, units.tile(p, at_k));
        const int first = units.first(at_k), end = first + units.steps(at_k);
#pragma unroll 1
        for (int s = first; s < end; ++s) {
          mbarrier_wait(bars.empty + slot * 8, phase);
          mbarrier_arrive_expect_tx(bars.full + slot * 8, Traits::kTransactionBytesB);
          if (!kMulticastB || s % 2 == team.m_) Index::load_b(p, at, k, s, slabs + slot * kSlab, bars.full + slot * 8);
          if (++slot == kSlots) { slot = 0; phase ^= 1; }
        }
      }
    }
  }
};

}  // namespace gett
