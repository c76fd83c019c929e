// What the wgmma main loops do with a tile's sums, apart from the epilogue's work.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/numeric.cuh"
#include "gett/core/vec.cuh"
#include "gett/core/workspace.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

template <class Traits, class Store, class Scheduler> struct TileSums {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  static constexpr int kMmaM = Traits::kMmaM, kN = Traits::kBlockN;
  typedef Acc Accumulators[kMmaM][kN / 2];

  static GETT_DEVICE void zero(Accumulators& acc) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) acc[i][j] = gett::zero<Acc>();
  }

  // Where the tile lies. A plan's function that reads tensors needs to know it, even if a store warp stores D.
  static GETT_DEVICE TileId located(const Scheduler& scheduler, const Params& p, const TileId& id, int t) {
    if constexpr (Store::kStoreWarp && Store::Function::kReads) return scheduler.locate(p, opaque(t));
    return id;
  }

  // The sums of work tile `t` leave: to D, or to the workspace where they are a part of a tile's.
  static GETT_DEVICE void leave(const Params& p, const Scheduler& scheduler, Store& epilogue, const TileId& id, int t,
                                Accumulators& acc, int block, int lane, int mma_tile = 0) {
    if (leave_part(p, scheduler, id, t, acc, block, lane)) return;
    if constexpr (!Scheduler::kSplit)
      epilogue.store(p, located(scheduler, p, id, t), acc, block, lane, mma_tile);
  }

  // The same of a part alone; whether they are one. What a part is, and where it goes, is computed here, not kept
  // through the main loop.
  static GETT_DEVICE bool leave_part(const Params& p, const Scheduler& scheduler, const TileId& id, int t,
                                     const Accumulators& acc, int block, int lane) {
    if constexpr (Scheduler::kSplit) {
      store_partial(partial_tile<Traits::kBlockM * kN>(p, id), acc, GETT_RECOMPUTE(block), GETT_RECOMPUTE(lane));
      return true;
    }
    if constexpr (Scheduler::kParts > 0) {
      if (Scheduler::is_part(p, t)) {
        const int part = opaque(t);
        const KTileRange k_tiles = Scheduler::k_tiles(p, part, 0);
        if (k_tiles.first < k_tiles.last) {
          Acc* const to = scheduler.template partial<Traits::kBlockM * kN>(p, part);
          store_partial(to, acc, opaque(block), opaque(lane));
        }
        return true;
      }
    }
    return false;
  }

  // Stores a partial tile.
  static GETT_DEVICE void store_partial(Acc* to, const Accumulators& acc, int block, int lane) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      // Beside padding a thread's two rows are found once: found for each pair of columns, they would make it spill.
      const int first = Fragment::row(lane);
      const int found[2] = {FragmentRows<Traits>::at(block, i, first), FragmentRows<Traits>::at(block, i, first + 8)};
      Fragment::for_each_pair<kN>(lane, [&](int row, int column, int j) {
        const int m = Traits::kGroupValidRows > 0 ? found[j >> 1 & 1] : FragmentRows<Traits>::at(block, i, row);
        gett::store_partial<Scheduler, Traits::kBlockM, kN>(to, m, column, {acc[i][j], acc[i][j + 1]});
      });
    }
  }
};

}  // namespace gett
