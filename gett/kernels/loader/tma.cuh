// The loader by TMA. One warp of the producer warpgroup fills the stages of a warp-specialised kernel, k-tile by
// k-tile, for all work tiles of the block. The generated Index issues the copies of a stage. Where D is staged in the
// stages, those of a tile are filled once the store of the tile before has read them. Where all work tiles read the
// same k-tiles of an operand, a stage keeps its own (kKeeps).
#pragma once
#include "gett/core/pipeline.cuh"
#include "gett/ptx/mbarrier.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/prefetch.cuh"

namespace gett {

template <class Traits, class Index, class Scheduler, class Storage> struct TmaLoader {
  typedef typename Traits::Params Params;
  typedef PipelineState<Traits::kStages> Stage;

  static GETT_DEVICE void run(const Params& p, const Storage& smem, int lane) {
    run(p, smem, lane, Stage(1), AllTiles());
  }
  // Loads the tiles that `tiles` takes, from stage `stage` on; returns the stage behind the last.
  template <class Tiles>
  static GETT_DEVICE Stage run(const Params& p, const Storage& smem, int lane, Stage stage, const Tiles& tiles) {
    const Scheduler scheduler;
    typename Storage::Stationary stationary(p, smem.stationary_bars());
    WorkTilePrefetch<Scheduler, typename Index::TileCoords> prefetch;
    int count = 0, filled = 0;
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p), ++count) {
      prefetch.next(p, t, count, lane, [&](const TileId& id) { return Index::tile_coords(p, id.m, id.n, id.l); });
      if (!tiles.takes(count)) continue;
      if constexpr (Storage::kReusedStages) {
        if (count == 1) mbarrier_wait(smem.free(0), 0);  // parity tells neighbouring phases apart, and no others
        if (count > 0) mbarrier_wait(smem.free(0), count & 1);
      }
      auto at = from_lane(prefetch.found_, count % 32);
      stationary.template fetch<Index>(p, t, at, smem.stationary());
      const int slice = Scheduler::kSplit ? __shfl_sync(0xffffffffu, prefetch.id_.slice, count % 32) : 0;
#pragma unroll 1
      for (int mma_tile = 0; mma_tile < Traits::kMmaTilesPerStoreTile; ++mma_tile) {
        if constexpr (Traits::kMmaTilesPerStoreTile > 1) {
          if (mma_tile > 0) Index::next_mma_tile(at);
        }
        // The bound is computed from the parameters again for each k-tile: a loop with a known count would be unrolled.
        for (int kt = Scheduler::k_tiles(p, t, slice).first; kt < Scheduler::k_tiles(p, t, slice).last; ++kt) {
          mbarrier_wait(stage.bar(smem.empty()), stage.phase);
          const uint32 bar = stage.bar(smem.full()), to = smem.stage(stage.stage);
          const bool whole = !Storage::kKeeps || filled < Traits::kStages;
          if constexpr (Storage::kKeeps) ++filled;
          if (elect_one()) {
            mbarrier_arrive_expect_tx(bar, whole ? Storage::kTransactionBytes : Storage::kRenewedBytes);
            Index::load_stage(p, at, kt, to, to + Storage::kStageA, bar, scheduler.multicast_a(),
                              scheduler.multicast_b(), whole);
          }
          __syncwarp();
          ++stage;
        }
      }
    }
    return stage;
  }
};

}  // namespace gett
