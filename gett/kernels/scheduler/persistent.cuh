// The persistent tile schedulers: which work tiles a cluster of blocks makes, and which block fetches what for the
// others. kClusterM x kClusterN neighbouring tiles are made by one cluster. The blocks of a row need the same A, those
// of a column the same B. Each fetches a part of it, which the copy engine multicasts to all of them.
//
// PersistentRaster: clusters take tiles in turn, in the order of the raster. PersistentBatches: in that of a raster
// over several batches. PersistentPanel: the tiles of a cluster are in one panel after the other, or in one only
// (kOnePanel). A panel is a row of tiles (kPanelA), which need the same rows of A, or a column, which need the same
// of B.
//
// Several blocks fill a stage, so a block's `empty` barrier waits for the warpgroups of the whole cluster. All blocks
// of a cluster have the same k-tiles in the same order. Where tiles do not suffice, the surplus block does the same
// work and stores nothing. Coordinates past the last tile are harmless, since copies read zeros there.
#pragma once
#include "gett/contract/schedulers.cuh"
#include "gett/core/workspace.cuh"
#include "gett/ptx/cluster.cuh"
#include "gett/ptx/mbarrier.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

// The part of a shared operand that a block fetches, and the ranks in the cluster that it is for, as bits.
struct Multicast { uint32 part, mask; };

// What both schedulers share: a block's place in its cluster, and the cluster's in the raster.
template <class Traits> struct ClusterTiles {
  static constexpr int kM = Traits::kClusterM, kN = Traits::kClusterN, kSize = kM * kN;
  static constexpr bool kSplit = Traits::kSplit, kPartialsAlongM = Traits::kPartialsAlongM;
  static constexpr bool kEmptyTiles = kSplit;  // whether a work tile may have no k-tiles
  int m_, n_;

  GETT_DEVICE ClusterTiles() : m_(0), n_(0) {
    if constexpr (kSize > 1) *this = ClusterTiles(cluster_ctarank());
  }
  explicit GETT_DEVICE ClusterTiles(int rank) : m_(rank % kM), n_(rank / kM) {}
  GETT_DEVICE Multicast multicast_a() const {
    uint32 row = 0;
#pragma unroll
    for (int j = 0; j < kN; ++j) row |= 1u << (j * kM);
    return {uint32(n_), row << m_};
  }
  GETT_DEVICE Multicast multicast_b() const { return {uint32(m_), ((1u << kM) - 1) << (n_ * kM)}; }

  // Before the first use of another block's barriers.
  static GETT_DEVICE void sync() {
    if constexpr (kSize > 1) {
      __syncthreads();
      cluster_sync_relaxed();
    } else {
      __syncthreads();
    }
  }
  // Before a block ends: no other block accesses its shared memory any more.
  static GETT_DEVICE void finish() {
    if constexpr (kSize > 1) cluster_sync();
  }

  // A warpgroup has read a stage: it arrives at the barrier of each block that writes to this block's copy of the
  // stage.
  static GETT_DEVICE void release(uint32 bar, int lane) {
    if constexpr (kSize > 1) {
      if (lane < kSize) mbarrier_arrive_cluster(bar, lane);
    } else {
      if (lane == 0) mbarrier_arrive(bar);
    }
  }

  // K-tiles of work tile `t`, which is in slice `slice`, and whether it is a part of a tile beside whole ones.
  template <class Params> static GETT_DEVICE KTileRange k_tiles(const Params& p, int, int slice) {
    return k_tile_range(p, slice);
  }
  template <class Params> static GETT_DEVICE bool is_part(const Params&, int) { return false; }
  static constexpr int kParts = 0;  // work tiles of a block that are parts, which come first

  template <class Params> GETT_DEVICE TileId locate(const Params& p, int t) const {
    const TileId id = locate_tile(p, t);  // of the clusters'
    if constexpr (kSize == 1) return id;
    return {place<kM>(id.m, m_), place<kN>(id.n, n_), id.l, id.slice};
  }
  // The tile of a block along M or N. Tiles of a cluster are neighbours, or kTileDistance apart where halves of D's
  // tiles are exchanged.
  template <int kCount> static GETT_DEVICE int place(int at, int own) {
    constexpr int kDistance = kCount == 2 ? Traits::kTileDistance : 1;
    if constexpr (kDistance == 1) return at * kCount + own;
    return (at / kDistance * kCount + own) * kDistance + at % kDistance;
  }
  template <class Params> static GETT_DEVICE bool exists(const Params& p, const TileId& id) {
    return (kM == 1 || id.m < p.tiles_m) && (kN == 1 || id.n < p.tiles_n);
  }
};

// The work tiles of a cluster go from `first` to below `end` by `step`. On a grid of kOrderedClusters they start in the
// device's order of clusters.
template <class Traits>
  GETT_REQUIRES(contract::PersistentRaster<Traits>)
struct PersistentRaster : ClusterTiles<Traits> {
  static constexpr int kSize = ClusterTiles<Traits>::kSize;
  static constexpr bool kEachPanel = false;

  template <class Params> static GETT_DEVICE int first(const Params&) {
    const int own = blockIdx.x / kSize;
    if constexpr (Traits::kOrderedClusters > 0) {
      if (gridDim.x == Traits::kOrderedClusters * kSize) return Traits::cluster_order(own);
    }
    return own;
  }
  template <class Params> static GETT_DEVICE int end(const Params& p) { return p.tiles; }
  template <class Params> static GETT_DEVICE int step(const Params&) { return gridDim.x / kSize; }
};

// The raster where neighbouring batches are visited together.
template <class Traits>
  GETT_REQUIRES(contract::PersistentBatches<Traits>)
struct PersistentBatches : PersistentRaster<Traits> {
  static_assert(PersistentRaster<Traits>::kSize == 1 && !Traits::kSplit, "tiles of single blocks, and whole sums");
  template <class Params> GETT_DEVICE TileId locate(const Params& p, int t) const {
    return locate_tile_of_batches<Traits::kGroupL>(p, t);
  }
};

// Stream-K: the tiles that do not fill the clusters in whole waves are divided among all of them. Their k-tiles, end to
// end, are dealt out in equal shares. A share is shorter than a tile's k-tiles, so it has parts of two tiles at most.
// These are the first work tiles of a cluster; the second may be empty. The others are whole tiles. Their numbers come
// first in the raster.
template <class Traits>
  GETT_REQUIRES(contract::StreamK<Traits>)
struct StreamK : ClusterTiles<Traits> {
  typedef ClusterTiles<Traits> Base;
  static constexpr int kSize = Base::kSize, kParts = 2;
  static constexpr bool kEachPanel = false;
  static_assert(!Traits::kSplit, "tiles are whole, or divided by shares");

  template <class Params> static GETT_DEVICE int first(const Params&) { return blockIdx.x / kSize; }
  template <class Params> static GETT_DEVICE int end(const Params& p) { return p.tiles; }
  template <class Params> static GETT_DEVICE int step(const Params& p) { return p.shares; }

  template <class Params> static GETT_DEVICE bool is_part(const Params& p, int t) { return t < kParts * p.shares; }
  template <class Params> static GETT_DEVICE KTileRange k_tiles(const Params& p, int t, int) {
    if (!is_part(p, t)) return {0, p.k_tiles};
    return part_of_share(p, t).k_tiles;
  }
  GETT_DEVICE StreamK() {}
  explicit GETT_DEVICE StreamK(int rank) : Base(rank) {}
  template <class Params> GETT_DEVICE TileId locate(const Params& p, int t) const {
    if (is_part(p, t)) return locate_divided(p, part_of_share(p, t).tile);
    return Base::locate(p, t - kParts * p.shares);
  }
  // Tile number `tile` of those that are divided.
  template <class Params> GETT_DEVICE TileId locate_divided(const Params& p, int tile) const {
    return Base::locate(p, p.tiles - kParts * p.shares + tile);
  }
  // Where the sums of a part go.
  template <int kTileSize, class Params> GETT_DEVICE auto* partial(const Params& p, int t) const {
    const int second = t >= p.shares;
    return partial_of_share<kTileSize>(p, t - second * p.shares, second, this->m_ + this->n_ * Base::kM, kSize);
  }
};

// Where an operand is stationary for each panel in turn, the work tiles of a cluster are neighbours. Where it is for
// one panel, clusters are assigned to panels in turn, and those of a panel share it.
template <class Traits>
  GETT_REQUIRES(contract::PersistentPanel<Traits>)
struct PersistentPanel : ClusterTiles<Traits> {
  typedef ClusterTiles<Traits> Base;
  static constexpr int kSize = Base::kSize;
  static constexpr bool kOnePanel = Traits::kOnePanel, kEachPanel = !kOnePanel;

  template <class Params> static GETT_DEVICE int first(const Params& p) {
    const int own = blockIdx.x / kSize;
    if constexpr (kOnePanel) {
      const int count = panels(p);
      return own < count * step(p) ? own % count * panel_length(p) + own / count : p.tiles;
    }
    return first_of(p, own);
  }
  template <class Params> static GETT_DEVICE int end(const Params& p) {
    const int own = blockIdx.x / kSize;
    if constexpr (kOnePanel) return (own % panels(p) + 1) * panel_length(p);
    return first_of(p, own + 1);
  }
  template <class Params> static GETT_DEVICE int step(const Params& p) {
    return kOnePanel ? gridDim.x / kSize / panels(p) : 1;
  }
  // Clusters along a panel.
  template <class Params> static GETT_DEVICE int panel_length(const Params& p) {
    return Traits::kPanelA ? (p.tiles_n + Base::kN - 1) / Base::kN : (p.tiles_m + Base::kM - 1) / Base::kM;
  }

 private:
  template <class Params> static GETT_DEVICE int panels(const Params& p) { return p.tiles / panel_length(p); }
  template <class Params> static GETT_DEVICE int first_of(const Params& p, int block) {
    const int blocks = gridDim.x / kSize, each = p.tiles / blocks;
    return block * each + min(block, p.tiles - each * blocks);
  }
};

}  // namespace gett
