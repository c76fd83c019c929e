// The loaders of an RS kernel (mainloop/wgmma_rs.cuh): a block's shared memory, its mbarriers, and the warps that
// fill A and B.
#pragma once
#include "gett/core/pipeline.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/mainloop/wgmma_rs_fragment.cuh"
#include "gett/scheduler/k_tiles.cuh"

namespace gett {

template <class Traits, class Index, class Store, class Scheduler, class Smem> struct WgmmaRSLoader {
  typedef typename Traits::Params Params;
  typedef typename Traits::LoaderTraitsA LoaderA;
  typedef typename Traits::LoaderTraitsB LoaderB;
  static constexpr int kStages = Traits::kStages, kGroups = Traits::kConsumerWarpgroups;
  static constexpr int kN = Traits::kBlockN, kRows = Traits::kBlockM;
  static constexpr int kSwizzleBytesA = LoaderA::kSwizzleBytes;
  static constexpr int kSwizzleBytesB = LoaderB::kSwizzleBytes;
  static constexpr int kE = sizeof(typename Traits::Element), kStepK = 32 / kE;  // k of an instruction
  static constexpr int kDepth = kSwizzleBytesA / kE;                             // k1 of a k-tile
  static constexpr int kHalves = kSwizzleBytesB / kE / kStepK;                   // instructions of a stage of B
  static constexpr bool kForwardA = Scheduler::kN == 2, kMulticastB = Scheduler::kM == 2;
  typedef typename WgmmaRSFragmentsOf<kE, kSwizzleBytesA, kHalves, kForwardA>::type Fragments;
  static constexpr int kBatches = kDepth / Fragments::kSteps, kParts = 2 * kBatches;
  typedef RSKTiles<Scheduler, kDepth, kForwardA> KTiles;
  static constexpr int kStageB = kN * kSwizzleBytesB;  // bytes
  // D is staged where A was. So the A of the next tile waits for the stores of this one, its B does not.
  static constexpr int kStaging = Store::kBytes;
  static constexpr int kLoaded = kGroups * Fragments::kGroupBytes;
  // A is loaded in one share, or in one for each warpgroup, with barriers of its own.
  static constexpr int kSharesA = Traits::kPerWarpgroupA ? kGroups : 1, kShareBytes = kLoaded / kSharesA;
  // Copies of a share, of which a block makes all or, where A is forwarded, half; and those with an mbarrier each.
  static constexpr int kPer = LoaderA::kTmaCopies / kSharesA, kOwn = kForwardA ? kPer : 1;
  // mbarriers of a share, by bytes from the first. In their order they say: copies have arrived; all blocks that need
  // the rows have read them; the forwarded half has arrived.
  static constexpr int kEmptyA = 8 * kOwn, kForwardedA = kEmptyA + 8;
  static constexpr int kBarsA = kForwardA ? kForwardedA + 8 : kForwardedA;
  static constexpr int kBarrierBytes = 16 * kStages + kSharesA * kBarsA + 8;
  static_assert(kLoaded <= Smem::kStages && kStaging <= Smem::kStages, "a k-tile of A, and D where it was");
  static_assert(Smem::kStages + kStages * kStageB <= Smem::kBarriers, "stages of B");
  static_assert(Smem::kBarriers + kBarrierBytes <= Smem::kSize - 1024, "mbarriers; 1024 bytes align the start");
  static_assert(kBatches > 0 && kRows == 64 * kGroups && Traits::kMmaM == 1, "tiles of an RS kernel");
  static_assert(LoaderA::kTmaCopies % kSharesA == 0, "a copy of A is one warpgroup's");
  static_assert(kSwizzleBytesB == 32 || kSwizzleBytesB == 64, "k2 of one instruction or two");
  static_assert(Scheduler::kSize <= 2, "of two operands, one is shared by two blocks");
  static_assert(!kForwardA || (kHalves == 2 && Traits::kPerWarpgroupA), "two blocks have a half of k2 each");
  static_assert(!kForwardA || Scheduler::kSplit, "nothing is staged where the other half of A may arrive");
  // mbarriers: `share` are those of the first share; `free` says that D's staging buffer, which is A's place too, may
  // be written or loaded.
  struct Bars { uint32 full, empty, share, free; };

  // Addresses; `start` is that of the first byte, where A lies and D is staged.
  struct Storage {
    uint32 start;
    GETT_DEVICE uint32 stages_b() const { return start + Smem::kStages; }
    GETT_DEVICE uint32 staging(int) const { return start; }
    GETT_DEVICE Bars bars() const {
      const uint32 full = start + Smem::kBarriers, share = full + 16 * kStages;
      return {full, full + 8 * kStages, share, share + kSharesA * kBarsA};
    }
    GETT_DEVICE uint32 free(int) const { return bars().free; }

    GETT_DEVICE void init_barriers() const {
      const Bars all = bars();
      for (int s = 0; s < kStages; ++s) {
        mbarrier_init(all.full + s * 8, 1);
        mbarrier_init(all.empty + s * 8, kGroups * Scheduler::kM);
      }
      for (int s = 0; s < kSharesA; ++s) {
        const uint32 bar = all.share + s * kBarsA;
        for (int i = 0; i < kOwn; ++i) mbarrier_init(bar + i * 8, 1);
        mbarrier_init(bar + kEmptyA, kGroups / kSharesA * 4 * Scheduler::kN);
        if (kForwardA) mbarrier_init(bar + kForwardedA, 1);
      }
      mbarrier_init(all.free, 1);
      fence_mbarrier_init();
    }
  };

  static GETT_DEVICE void produce_a(const Params& p, uint32 start, const Bars& bars) {
    uint32 phase = 1, phase_free = 0;
    const Scheduler scheduler;
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p)) {
      const TileId id = scheduler.locate(p, t);
      const auto at = Index::tile_coords_a(p, id.m, id.n, id.l);
      const KTiles k_tiles(p, t, id.slice);
      // Parts of tiles leave from registers. They are a block's first work tiles, so no staged tile is waited for.
      const bool staged = Store::kTmaStore && !Scheduler::is_part(p, t);
      for (int at_k = 0; at_k < k_tiles.count_; ++at_k, phase ^= 1) {
        const auto k = Index::k_coords_a(p, k_tiles.tile(p, at_k));
        // The last share goes first: D may be staged before its place, and then it does not wait for D's store. The
        // wait for the store of the tile before is repeated for every k-tile, since `free` keeps its phase until this
        // tile is staged.
#pragma unroll
        for (int s = kSharesA - 1; s >= 0; --s) {
          const uint32 bar = bars.share + s * kBarsA;
          if (staged && s * kShareBytes < kStaging) mbarrier_wait(bars.free, phase_free);
          mbarrier_wait(bar + kEmptyA, phase);
          const uint32 to = start + s * kShareBytes + (kForwardA ? scheduler.n_ * (kShareBytes / 2) : 0);
          if (kForwardA) mbarrier_arrive_expect_tx(bar + kForwardedA, LoaderA::kCopyBytes * kPer);
          else mbarrier_arrive_expect_tx(bar, LoaderA::kCopyBytes * kPer);
          // In several copies, so that copies of B are issued between them.
#pragma unroll 1
          for (int i = 0; i < kPer; ++i) {
            if (kForwardA) mbarrier_arrive_expect_tx(bar + i * 8, LoaderA::kCopyBytes);
            const uint32 full = bar + (kForwardA ? i * 8 : 0);
            Index::load_a(p, at, k, scheduler.n_, s * kPer + i, to + i * LoaderA::kCopyBytes, full);
          }
        }
      }
      if (staged) phase_free ^= 1;
    }
  }

  // Forwards this block's half of A to the other block. Its place there is free: the other block's warps, too, have
  // arrived at `empty`, or this half would not have been loaded. It is done by ordinary loads and stores, because the
  // copy engine limits these kernels. Two warps do it, because the other block would wait for one.
  static GETT_DEVICE void forward_a(const Params& p, uint32 start, const Bars& bars, int lane) {
    const Scheduler scheduler;
    const uint32 there = mapa(start, scheduler.n_ ^ 1) - start;
    uint32 phase = 0;
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p)) {
      const int count = KTiles(p, t, scheduler.locate(p, t).slice).count_;
      for (int at_k = 0; at_k < count; ++at_k, phase ^= 1) {
#pragma unroll 1
        for (int s = kSharesA - 1; s >= 0; --s) {
          uint32 from = start + s * kShareBytes + scheduler.n_ * (kShareBytes / 2) + lane * 16;
          const uint32 bar = bars.share + s * kBarsA;
#pragma unroll 1
          for (int i = 0; i < kPer; ++i) {
            mbarrier_wait(bar + i * 8, phase);
#pragma unroll 1
            for (int row = 0; row < kCopyRows; row += kVectors, from += kVectors * kForwardedRow)
              forward_rows(there + from, from, there + bar + kForwardedA);
          }
        }
      }
    }
  }

  static constexpr int kForwarders = 64, kForwardedRow = kForwarders * 16;  // threads, and bytes of one vector each
  static constexpr int kCopyRows = LoaderA::kCopyBytes / kForwardedRow;
  static constexpr int kVectors = kCopyRows % 4 == 0 ? 4 : kCopyRows % 3 == 0 ? 3 : 1;  // of a thread at a time
  static_assert(!kForwardA || LoaderA::kCopyBytes % kForwardedRow == 0, "whole vectors of all threads");
  static GETT_DEVICE void forward_rows(uint32 to, uint32 from, uint32 bar) {
    uint32 x[kVectors][4];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) ld_shared_if(from + j * kForwardedRow, x[j], true);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) st_async(to + j * kForwardedRow, x[j], bar);
  }

  static GETT_DEVICE void produce_b(const Params& p, uint32 stages_b, const Bars& bars) {
    PipelineState<kStages> stage(1);
    const Scheduler scheduler;
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p)) {
      const TileId id = scheduler.locate(p, t);
      const auto at = Index::tile_coords_b(p, id.m, id.n, id.l);
      const KTiles k_tiles(p, t, id.slice);
      for (int at_k = 0; at_k < k_tiles.count_; ++at_k) {
        const auto k = Index::k_coords_b(p, k_tiles.tile(p, at_k));
        const int first = k_tiles.first(at_k), last = first + k_tiles.steps(at_k);
#pragma unroll 1
        for (int s = first; s < last; ++s) {
          mbarrier_wait(stage.bar(bars.empty), stage.phase);
          mbarrier_arrive_expect_tx(stage.bar(bars.full), LoaderB::kTransactionBytes);
          if (!kMulticastB || s % 2 == scheduler.m_)
            Index::load_b(p, at, k, s, stages_b + stage.stage * kStageB, stage.bar(bars.full));
          ++stage;
        }
      }
    }
  }
};

}  // namespace gett
