// The main loop that multiplies floats as sums of planes of bfloat16. TMA brings both operands as they are in memory
// (loader/tma.cuh); a warpgroup splits B into planes in shared memory (loader/split.cuh); the consumer warpgroups split
// their rows of A on the way to registers (mainloop/split_fragment.cuh) and multiply pairs of planes by wgmma, those of
// least value first.
//
// The tensor core truncates its sums, so they must be short: the products of 16 k are summed in registers of their own,
// which are then added to the tile's by ordinary additions, rounded to nearest.
#pragma once
#include "gett/core/pipeline.cuh"
#include "gett/loader/split.cuh"
#include "gett/loader/tma.cuh"
#include "gett/mainloop/split_fragment.cuh"
#include "gett/mainloop/split_repair.cuh"
#include "gett/mainloop/split_storage.cuh"
#include "gett/mainloop/tile_sums.cuh"
#include "gett/ptx/wgmma.cuh"

namespace gett {

template <class Traits, class Index, class Mma, class Store, class Scheduler, class Smem> struct WgmmaSplit {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef TileSums<Traits, Store, Scheduler> Sums;
  typedef SplitStorage<Traits, Index, Store, Scheduler, Smem> Storage;
  typedef typename Storage::PlaneB PlaneB;
  typedef typename Storage::Guard Guard;
  typedef PipelineState<Storage::kPlaneStages> PlaneState;
  static constexpr int kPlanes = Storage::kPlanes, kN = Traits::kBlockN, kSteps = Traits::kBlockK / 16;
  static constexpr int kUnroll = kSteps % 2 ? 2 : 1;  // two sets of fragments take turns
  typedef SplitFragment<typename Storage::TileA, Traits::LoaderTraitsA::kRows, kPlanes> FragmentA;
  typedef uint32 Planes[kPlanes][4];
  static constexpr int kProducerWarpgroups = Traits::kProducerWarpgroups;
  static constexpr int kConsumerWarpgroups = Traits::kConsumerWarpgroups, kLoadWarps = 1;
  static constexpr int kProducerRegs = Traits::kProducerRegs, kConsumerRegs = Traits::kConsumerRegs;

  // The store warp: all tiles but those that are not to be stored, then those that are made again.
  template <class Epilogue> static GETT_DEVICE void store(const Params& p, const Storage& smem, int buffer, int lane) {
    const Guard guard(p, smem.guard());
    Epilogue::store_loop(p, smem.staging(buffer), smem.free(buffer), buffer, lane, FirstTiles<Guard>{guard});
    if (elect_one()) mbarrier_arrive(smem.judged());
    __syncwarp();
    if (guard.any())
      Epilogue::store_loop(p, smem.staging(buffer), smem.free(buffer), buffer, lane, MarkedTiles<Guard>{guard});
  }
  static GETT_DEVICE void prefetch_tensormaps(const Params& p) { Index::prefetch_tensormaps(p); }

  // The warpgroups that do not multiply: one warp of the first loads, the second one splits.
  static GETT_DEVICE void load(const Params& p, const Storage& smem, char*, int thread) {
    if (thread < 32) {
      typedef TmaLoader<Traits, Index, Scheduler, Storage> Loader;
      const auto stage = Loader::run(p, smem, thread, typename Loader::Stage(1), AllTiles());
      const Guard guard(p, smem.guard());
      mbarrier_wait(smem.judged(), 0);
      if (guard.any()) Loader::run(p, smem, thread, stage, MarkedTiles<Guard>{guard});
    }
    if (thread >= 128) SplitTransform<Traits, Scheduler, Storage>::run(p, smem, thread - 128);
  }

  // Takes this thread's share of step `s` of A out of a stage; gives the stage back after the last step.
  static GETT_DEVICE void take(const Params& p, const Storage& smem, PipelineState<Traits::kStages>& stage, int s,
                               int group, int lane, Planes& a, Smallest& smallest) {
    if (s == 0) mbarrier_wait(stage.bar(smem.full()), stage.phase);
    FragmentA::load(smem.stage(stage.stage), group, s, lane, a, smallest);
    // What follows depends on all planes (a count is never negative), so they are made here, not after the next wait.
    uint32 all = 0;
#pragma unroll
    for (int q = 0; q < kPlanes; ++q) all |= a[q][0] | a[q][1] | a[q][2] | a[q][3];
    if (s == kSteps - 1) return give_back(p, smem, stage, all, lane);
    all &= uint32(p.k_tiles) >> 31;
    if (all) st_shared(smem.guard(), {all});
  }
  // Gives the stage back once this warp has loaded `word`, which stands for all that it reads of it: the address of the
  // mbarrier depends on the word, so the arrival comes after the loads. Nothing is added, a count is never negative.
  static GETT_DEVICE void give_back(const Params& p, const Storage& smem, PipelineState<Traits::kStages>& stage,
                                    uint32 word, int lane) {
    const uint32 bar = stage.bar(smem.empty()) + (word & uint32(p.k_tiles) >> 31);
    __syncwarp();
    if ((lane & 31) == 0) mbarrier_arrive(bar);
    ++stage;
  }

  static GETT_DEVICE void consume(const Params& p, const Storage& smem, char* base, int thread) {
    const int group = thread >> 7, lane = thread & 127;
    Store epilogue(base + Smem::kStaging, smem.free(0), thread, group);
    const Guard guard(p, smem.guard());
    if constexpr (Store::kStoreWarp) epilogue.skip_at_ = guard.skip_at();
    int count = 0;
    const Scheduler scheduler;
    const uint32 planes = smem.planes(0) & 0x3ffff;
    PipelineState<Traits::kStages> stage(0);
    PlaneState made(0);
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p), ++count) {
      typename Sums::Accumulators acc;
      const Tile tile = start(p, scheduler, epilogue, t, acc);
      Planes a[2];
      Smallest smallest;
      if (tile.k_tiles.first < tile.k_tiles.last) take(p, smem, stage, 0, group, lane, a[0], smallest);
#pragma unroll 1
      for (int kt = tile.k_tiles.first; kt < tile.k_tiles.last; kt += kUnroll) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          if (u > 0 && kt + u >= tile.k_tiles.last) break;
          mbarrier_wait(made.bar(smem.planes_full()), made.phase);
          const uint32 b = planes + made.stage * Storage::kPlaneStageBytes;
#pragma unroll
          for (int s = 0; s < kSteps; ++s) {
            const int now = (u + s) % 2;
            Acc sum[kN / 2];
            wgmma_new_operand(sum);
            wgmma_fence();
#pragma unroll
            for (int q = 0; q < Traits::kProducts; ++q)
              Mma::mma(sum, a[now][Traits::plane_a(q)],
                       PlaneB::descriptor(b + Traits::plane_b(q) * PlaneB::kBytes, 0, s), q > 0);
            wgmma_commit();
            // While they run, the next fragments are made.
            if (s + 1 < kSteps || kt + u + 1 < tile.k_tiles.last)
              take(p, smem, stage, (s + 1) % kSteps, group, lane, a[now ^ 1], smallest);
            wgmma_wait<0>();
            wgmma_fence_operand(sum);
            keep(a[now]);
#pragma unroll
            for (int j = 0; j < kN / 2; ++j) acc[0][j] += sum[j];
          }
          if (lane == 0) mbarrier_arrive(made.bar(smem.planes_empty()));
          ++made;
        }
      }
      const bool lost = smallest.is_lost() || guard.is_found_in_b(t) || !are_finite(acc[0], group, lane);
      if constexpr (Scheduler::kSplit) {
        if (lost) guard.mark(count);  // the sums of slices are not added yet
      } else if constexpr (Store::kStoreWarp) {
        epilogue.skip_ = lost;  // the store warp marks the tile
      } else if (named_barrier_or(kVoteBarrier, 128 * kConsumerWarpgroups, lost)) {
        if (thread == 0) guard.mark(count);
        continue;
      }
      leave(p, scheduler, epilogue, tile.id, t, acc, group, lane);
    }
    if constexpr (Store::kStoreWarp) {
      mbarrier_wait(smem.judged(), 0);
      epilogue.skip_ = false;
    } else {
      named_barrier_sync(kVoteBarrier, 128 * kConsumerWarpgroups);
      if (thread == 0) mbarrier_arrive(smem.judged());
    }
    if (guard.any()) {
      count = 0;
      for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p), ++count) {
        if (!guard.is_marked(count)) continue;
        typename Sums::Accumulators acc;
        const Tile tile = start(p, scheduler, epilogue, t, acc);
#pragma unroll 1
        for (int kt = tile.k_tiles.first; kt < tile.k_tiles.last; ++kt) {
          mbarrier_wait(stage.bar(smem.full()), stage.phase);
          const uint32 at = smem.stage(stage.stage);
          const uint32 word =
              fma_k_tile<typename Storage::TileA, typename Storage::TileB, Traits::LoaderTraitsB::kRows,
                         Traits::kBlockK, kN>(at, at + Storage::kStageA, group, lane, acc[0]);
          give_back(p, smem, stage, word, lane);
        }
        leave(p, scheduler, epilogue, tile.id, t, acc, group, lane);
      }
    }
    if constexpr (!Scheduler::kSplit) epilogue.finish();
  }

 private:
  static constexpr int kVoteBarrier = 3;  // named barriers of the consumer warpgroups: whether a tile is made again

  struct Tile {
    TileId id;
    KTileRange k_tiles;
  };
  // The store warp, where there is one, locates the tile.
  static GETT_DEVICE Tile start(const Params& p, const Scheduler& scheduler, Store& epilogue, int t,
                                typename Sums::Accumulators& acc) {
    const TileId id = Store::kStoreWarp ? TileId{0, 0, 0, 0} : scheduler.locate(p, t);
    const KTileRange k_tiles = k_tile_range(p, Scheduler::kSplit ? scheduler.locate(p, t).slice : 0);
    Sums::zero(acc);
    epilogue.prepare(p, id);
    return {id, k_tiles};
  }
  // A tile's sums leave: to D, or to the workspace.
  static GETT_DEVICE void leave(const Params& p, const Scheduler& scheduler, Store& epilogue, const TileId& id, int t,
                                typename Sums::Accumulators& acc, int group, int lane) {
    if constexpr (Scheduler::kSplit) {
      Sums::store_partial(p, scheduler.locate(p, t), acc, group, lane);
    } else {
      epilogue.store(p, Sums::located(scheduler, p, id, t), acc, group, lane);
    }
  }
  // Whether all sums of the tile are; rows and columns of padding hold anything.
  static GETT_DEVICE bool are_finite(const Acc (&acc)[kN / 2], int group, int lane) {
    bool all = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      bool row = true;
#pragma unroll
      for (int j = 0; j < kN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool padding = Traits::kBoxN < kN && j * 8 + Fragment::column(lane) + e >= Traits::kBoxN;
          row &= padding | (fabsf(acc[j * 4 + r * 2 + e]) <= 3.402823466e38f);  // false for NaN
        }
      all &= row | (FragmentRows<Traits>::at(group, 0, Fragment::row(lane) + r * 8) >= Traits::kBoxM);
    }
    return all;
  }
  // Registers that products read keep what they hold until here.
  static GETT_DEVICE void keep(const uint32 (&a)[kPlanes][4]) {
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) asm volatile("" ::"r"(a[p][0]), "r"(a[p][1]), "r"(a[p][2]), "r"(a[p][3]));
  }
};

}  // namespace gett
