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

  // Stores a slice's partial tile to the workspace.
  static GETT_DEVICE void store_partial(const Params& p, const TileId& id, const Accumulators& acc, int block,
                                        int lane) {
    Acc* const to = partial_tile<Traits::kBlockM * kN>(p, id);
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
      Fragment::for_each_pair<kN>(lane, [&](int row, int column, int j) {
        const int m = FragmentRows<Traits>::at(block, i, row);
        store_two(to + m * kN + column, acc[i][j], acc[i][j + 1]);
      });
  }
};

}  // namespace gett
