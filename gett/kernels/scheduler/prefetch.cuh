// Places of the tiles ahead, worked out by the lanes of a warp at once: lane i does the i-th of the next 32 tiles, and
// one tile at a time is handed to all lanes. A single thread would take longer to find a tile than to move it.
#pragma once
#include "gett/core/shuffle.cuh"
#include "gett/scheduler/persistent.cuh"

namespace gett {

// `find(TileId)` gives what is needed to know of a tile; `next` does so for the tiles of this block in turn.
template <class Traits, class Found> struct WorkTilePrefetch {
  TileId id_;
  Found found_;
  template <class Params, class F> GETT_DEVICE void next(const Params& p, int t, int tile_count, int lane, F&& find) {
    if (tile_count % 32) return;
    const int own = t + lane * PersistentScheduler<Traits>::step(p);
    id_ = PersistentScheduler<Traits>().locate(p, own < PersistentScheduler<Traits>::end(p) ? own : t);
    found_ = find(id_);
  }
};

}  // namespace gett
