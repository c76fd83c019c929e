// Iterators over the k-tiles of a block.
#pragma once
#include "gett/scheduler/persistent.cuh"

namespace gett {

// Iterates over all k-tiles of all work tiles of a block.
template <class Params, class Scheduler> struct KTileIterator {
  int t, kt, last;
  TileId id;
  // Moves to the first k-tile of work tile `tile`, or of the first one behind it that has any.
  GETT_DEVICE void begin(const Params& p, int tile) {
    for (t = tile; t < Scheduler::end(p); t += Scheduler::step(p)) {
      id = Scheduler().locate(p, t);
      const KTileRange range = Scheduler::k_tiles(p, t, id.slice);
      kt = range.first;
      last = range.last;
      if (kt < last) return;
    }
  }
  GETT_DEVICE void begin(const Params& p) { begin(p, Scheduler::first(p)); }
  GETT_DEVICE bool more(const Params& p) const { return t < Scheduler::end(p); }
  // Called before `id` is used: a sparing kernel locates the tile again and does not keep `id` since `begin`.
  GETT_DEVICE void locate(const Params& p) {
    if constexpr (kSparing) id = Scheduler().locate(p, opaque(t));
  }
  // Moves to the next k-tile; true where it belongs to another work tile.
  GETT_DEVICE bool next(const Params& p) {
    if (++kt < last) return false;
    begin(p, t + Scheduler::step(p));
    return true;
  }
};

// K-tiles of an RS kernel: which ones a block has, and how much of each.
//
// Slices of split-K take k-tiles in turn. A row of a k-tile is a part of an L2 line, whose other parts belong to
// neighbouring k-tiles. So the k-tiles in flight at a time are neighbours, and lines are read from memory once. Some
// k-tiles are left over when all slices have equally many. Where they may be divided (kDivided), they are cut along k1
// into halves or quarters for several slices. Each part needs all rows of A, but the slowest slice is a quarter behind
// instead of a k-tile.
//
// Without slices a work tile has the k-tiles that the scheduler says, which are neighbours.
template <class Scheduler, int kDepth, bool kDivided> struct RSKTiles {
  int count_;                // k-tiles of the work tile, the last of which may be a part of one
  int whole_, slice_, cut_;  // whole ones; the slice; how often the last is halved
  int begin_;                // the first one, without slices

  template <class Params>
  GETT_DEVICE RSKTiles(const Params& p, int t, int slice) : whole_(p.k_tiles), slice_(slice), cut_(0), begin_(0) {
    if constexpr (kDivided) {
      whole_ = p.k_tiles / p.split_k;
      const int left = p.k_tiles - whole_ * p.split_k;
      cut_ = 4 * left <= p.split_k ? 2 : 2 * left <= p.split_k ? 1 : 0;
      count_ = whole_ + (slice < left << cut_);
    } else {
      if constexpr (Scheduler::kSplit) whole_ = (p.k_tiles - slice + p.split_k - 1) / p.split_k;
      if constexpr (Scheduler::kParts > 0) {
        const KTileRange range = Scheduler::k_tiles(p, t, 0);
        begin_ = range.first;
        whole_ = range.last - range.first;
      }
      count_ = whole_;
    }
  }
  // The number of the work tile's i-th k-tile.
  template <class Params> GETT_DEVICE int tile(const Params& p, int i) const {
    if constexpr (!Scheduler::kSplit) return begin_ + i;
    const int own = kDivided && i >= whole_ ? slice_ >> cut_ : slice_;
    return own + i * p.split_k;
  }
  // The first k1 of the i-th k-tile, and how many it has.
  GETT_DEVICE int first(int i) const {
    return kDivided && i >= whole_ ? (slice_ & ((1 << cut_) - 1)) * (kDepth >> cut_) : 0;
  }
  GETT_DEVICE int steps(int i) const { return kDivided && i >= whole_ ? kDepth >> cut_ : kDepth; }
};

}  // namespace gett
