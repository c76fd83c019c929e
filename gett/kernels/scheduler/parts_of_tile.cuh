// The partial tiles of a tile in the workspace, in the order in which they are added.
#pragma once
#include "gett/core/workspace.cuh"
#include "gett/scheduler/persistent.cuh"

namespace gett {

// The tile that a block of split-K's second kernel stores, and where the partial tiles of its slices lie.
template <class Traits, class Scheduler> struct PartsOfTile {
  static constexpr int kSize = Traits::kBlockM * Traits::kBlockN;
  TileId id;
  template <class Params> GETT_DEVICE PartsOfTile(const Params& p, int block) {
    const int tiles = p.tiles_m * p.tiles_n, l = block / tiles, tile = block - l * tiles, m = tile / p.tiles_n;
    id = {m, tile - m * p.tiles_n, l, 0};
  }
  template <class Params> GETT_DEVICE int count(const Params& p) const { return p.split_k; }
  template <class Params> GETT_DEVICE auto* at(const Params& p, int slice) const {
    return partial_tile<kSize>(p, TileId{id.m, id.n, id.l, slice});
  }
};

// The same of stream-K. A tile's parts are those of neighbouring shares. The first one may be the second part of its
// share, the others are the first parts of theirs.
template <class Traits, class SchedulerTraits> struct PartsOfTile<Traits, StreamK<SchedulerTraits>> {
  typedef StreamK<SchedulerTraits> Scheduler;
  static constexpr int kSize = Traits::kBlockM * Traits::kBlockN;
  TileId id;
  int rank, share, part, last;  // the block in its cluster; the first share, its part; the last share
  template <class Params> GETT_DEVICE PartsOfTile(const Params& p, int block) {
    const int tile = block / Scheduler::kSize, from = tile * p.k_tiles;
    rank = block % Scheduler::kSize;
    id = Scheduler(rank).locate_divided(p, tile);
    share = share_of(p, from);
    part = tile - share_begin(p, share) / p.k_tiles;
    last = share_of(p, from + p.k_tiles - 1);
  }
  template <class Params> GETT_DEVICE int count(const Params& p) const {
    return Scheduler::exists(p, id) ? last - share + 1 : 0;
  }
  template <class Params> GETT_DEVICE auto* at(const Params& p, int i) const {
    return partial_of_share<kSize>(p, share + i, i == 0 ? part : 0, rank, Scheduler::kSize);
  }
};

}  // namespace gett
