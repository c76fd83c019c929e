// Places of the tiles ahead, worked out by the lanes of a warp at once: lane i does the i-th of the next 32 tiles, and
// one tile at a time is handed to all lanes. A single thread would take longer to find a tile than to move it.
#pragma once
#include "gett/sm90_cluster.cuh"

namespace gett {

// A struct of plain 32-bit members as lane `lane` has it.
template <class T> GETT_DEVICE T from_lane(const T& x, int lane) {
  static_assert(sizeof(T) % 4 == 0, "whole words");
  union U { T value; int words[sizeof(T) / 4]; GETT_DEVICE U() {} } mine, out;
  mine.value = x;
#pragma unroll
  for (int i = 0; i < int(sizeof(T) / 4); ++i) out.words[i] = __shfl_sync(0xffffffffu, mine.words[i], lane);
  return out.value;
}

// `find(TileId)` gives what is needed to know of a tile; `next` does so for the tiles of this block in turn.
template <class Traits, class Found> struct Ahead {
  TileId id_;
  Found found_;
  template <class Params, class F> GETT_DEVICE void next(const Params& p, int t, int turn, int lane, F&& find) {
    if (turn % 32) return;
    const int own = t + lane * Cluster<Traits>::step(p);
    id_ = Cluster<Traits>().locate(p, own < Cluster<Traits>::end(p) ? own : t);
    found_ = find(id_);
  }
};

}  // namespace gett
