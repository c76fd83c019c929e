// Lookahead over work tiles: the lanes of a warp compute what is needed of the next 32 tiles of a block at once. Lane i
// does so for the i-th of them. For a single thread it would take longer to locate a tile than to copy it.
#pragma once
#include "gett/core/shuffle.cuh"
#include "gett/scheduler/persistent.cuh"

namespace gett {

// `find(TileId)` gives what is needed of a tile, such as the coordinates of its copies.
template <class Scheduler, class Found> struct WorkTilePrefetch {
  TileId id_;
  Found found_;  // of the lane's tile; `from_lane(found_, count % 32)` is that of the current one
  // Called for each tile t of the block; `count` is the number of tiles before it.
  template <class Params, class F> GETT_DEVICE void next(const Params& p, int t, int count, int lane, F&& find) {
    if (count % 32) return;
    const int own = t + lane * Scheduler::step(p);
    id_ = Scheduler().locate(p, own < Scheduler::end(p) ? own : t);
    found_ = find(id_);
  }
};

}  // namespace gett
