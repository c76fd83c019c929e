// K-tiles of a block of crossed units: which ones, and how much of each.
//
// Slices of a split K take k-tiles in turn: rows are parts of L2's lines, whose other parts neighbouring k-tiles need, so
// those under way at a time are neighbours, and lines do not leave L2 half used. Where k-tiles may be divided, those that
// are left over when all slices have as many are cut along k1 into halves or quarters, each another slice's: all of them
// need all of A's rows, but the slowest slice is a quarter behind, not a whole k-tile.
#pragma once
#include "gett/scheduler/raster.cuh"

namespace gett {

template <class Traits, int kDepth, bool kDivided> struct RSKTiles {
  static constexpr int kParts = 4;  // of a k-tile that can be told apart
  int count_;                       // k-tiles of this block, the last of which may be a part of one
  int whole_, slice_, cut_;         // whole ones; how often the last is halved

  template <class Params> GETT_DEVICE RSKTiles(const Params& p, int slice) : whole_(p.k_tiles), slice_(slice), cut_(0) {
    if constexpr (kDivided) {
      whole_ = p.k_tiles / p.split_k;
      const int left = p.k_tiles - whole_ * p.split_k;
      cut_ = 4 * left <= p.split_k ? 2 : 2 * left <= p.split_k ? 1 : 0;
      count_ = whole_ + (slice < left << cut_);
    } else {
      if constexpr (Traits::kSplit) whole_ = (p.k_tiles - slice + p.split_k - 1) / p.split_k;
      count_ = whole_;
    }
  }
  // Without slices the compiler knows that all are one block's.
  template <class Params> GETT_DEVICE int tile(const Params& p, int i) const {
    if constexpr (!Traits::kSplit) return i;
    const int own = kDivided && i >= whole_ ? slice_ >> cut_ : slice_;
    return own + i * p.split_k;
  }
  // The first k1 of it, and how many.
  GETT_DEVICE int first(int i) const {
    return kDivided && i >= whole_ ? (slice_ & ((1 << cut_) - 1)) * (kDepth >> cut_) : 0;
  }
  GETT_DEVICE int steps(int i) const { return kDivided && i >= whole_ ? kDepth >> cut_ : kDepth; }
};

// Walks the k-tiles of a block's tiles.
template <class Params> struct KTileIterator {
  int t, kt, last;
  TileId id;
  GETT_DEVICE void open(const Params& p, int tile) {
    for (t = tile; t < p.tiles; t += gridDim.x) {
      id = locate_tile(p, t);
      kt = id.slice * p.k_tiles_per_slice;
      last = min(kt + p.k_tiles_per_slice, p.k_tiles);
      if (kt < last) return;
    }
  }
  GETT_DEVICE bool more(const Params& p) const { return t < p.tiles; }
  // Before `id` is used: where registers are scarce it is found again, and not kept since `open`.
  GETT_DEVICE void locate(const Params& p) {
    if constexpr (kSparing) id = locate_tile(p, anew(t));
  }
  // On to the next k-tile; true where it belongs to another tile.
  GETT_DEVICE bool step(const Params& p) {
    if (++kt < last) return false;
    open(p, t + gridDim.x);
    return true;
  }
};

}  // namespace gett
