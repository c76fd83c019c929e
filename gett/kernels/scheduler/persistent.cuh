// Blocks of a Hopper kernel that share operands. kClusterM x kClusterN neighbouring tiles are worked on by one cluster:
// the blocks of a row need the same A, those of a column the same B, so each fetches a part of it and the copy engine
// writes that part to all of them. Owns who shares what, the walk over the tiles, and the barriers across blocks.
//
// A stage is filled by several blocks, so a block's `empty` barrier waits for the warpgroups of the whole cluster. All
// blocks of a cluster do the same k-tiles in the same order; where tiles do not suffice, the surplus block runs along
// and stores nothing. A box's coordinates past the last tile are harmless: copies stay inside the tensor or read zeros.
#pragma once
#include "gett/ptx/cluster.cuh"
#include "gett/ptx/mbarrier.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

// What a block fetches of a shared operand, and for whom (bits of `mask` are ranks in the cluster).
struct Multicast { uint32 part, mask; };

// An H200 deals its 66 clusters of two out to its GPCs in turn: four, then rounds of eight, rounds of seven, and two.
// Requests of one GPC for the same line of L2 are joined when they come close together, so its clusters take neighbouring
// tiles, which this permutation numbers (a grid without clusters has its blocks there by eights anyway). Speed alone
// depends on it.
__constant__ const unsigned char kClusterOrder[66] = {
    0, 1, 2, 3, 4, 8, 16, 24, 32, 40, 48, 57, 5, 9, 17, 25, 33, 41, 49, 58, 6, 10, 18, 26, 34, 42, 50, 59, 7, 11,
    19, 27, 35, 43, 51, 60, 12, 20, 28, 36, 44, 52, 61, 13, 21, 29, 37, 45, 53, 62, 14, 22, 30, 38, 46, 54, 63,
    15, 23, 31, 39, 47, 55, 64, 56, 65};

template <class Traits> struct PersistentScheduler {
  static constexpr int kM = Traits::kClusterM, kN = Traits::kClusterN, kSize = kM * kN;
  int m_, n_;

  GETT_DEVICE PersistentScheduler() : m_(0), n_(0) {
    if constexpr (kSize > 1) {
      const int rank = cluster_ctarank();
      m_ = rank % kM;
      n_ = rank / kM;
    }
  }
  GETT_DEVICE Multicast multicast_a() const {
    uint32 row = 0;
#pragma unroll
    for (int j = 0; j < kN; ++j) row |= 1u << (j * kM);
    return {uint32(n_), row << m_};
  }
  GETT_DEVICE Multicast multicast_b() const { return {uint32(m_), ((1u << kM) - 1) << (n_ * kM)}; }

  // All blocks' barriers are ready; or nobody will touch another's shared memory any more.
  static GETT_DEVICE void sync() {
    if constexpr (kSize > 1) {
      __syncthreads();
      cluster_sync_relaxed();
    } else {
      __syncthreads();
    }
  }
  static GETT_DEVICE void finish() {
    if constexpr (kSize > 1) cluster_sync();
  }

  // A warpgroup has read a stage: whoever writes to this block's copy of it may go on.
  static GETT_DEVICE void release(uint32 bar, int lane) {
    if constexpr (kSize > 1) {
      if (lane < kSize) mbarrier_arrive_cluster(bar, lane);
    } else {
      if (lane == 0) mbarrier_arrive(bar);
    }
  }

  // Tiles of this cluster: from `first` to below `end` by `step`. Neighbours where an operand stays for a line of them;
  // where it stays for one line, clusters are dealt out to the lines in turn, and those of a line share its tiles.
  template <class Params> static GETT_DEVICE int first(const Params& p) {
    const int own = blockIdx.x / kSize;
    if constexpr (Traits::kOnePanel) {
      const int count = panels(p);
      return own < count * step(p) ? own % count * panel_length(p) + own / count : p.tiles;
    }
    return Traits::kEachPanel ? first_of(p, own) : kSize == 2 && gridDim.x == 132 ? kClusterOrder[own] : own;
  }
  template <class Params> static GETT_DEVICE int end(const Params& p) {
    const int own = blockIdx.x / kSize;
    if constexpr (Traits::kOnePanel) return (own % panels(p) + 1) * panel_length(p);
    return Traits::kEachPanel ? first_of(p, own + 1) : p.tiles;
  }
  template <class Params> static GETT_DEVICE int step(const Params& p) {
    const int clusters = gridDim.x / kSize;
    if constexpr (Traits::kOnePanel) return clusters / panels(p);
    return Traits::kEachPanel ? 1 : clusters;
  }
  // Clusters along a line of tiles, which need the same rows of the operand that stays.
  template <class Params> static GETT_DEVICE int panel_length(const Params& p) {
    return Traits::kStationaryA ? (p.tiles_n + kN - 1) / kN : (p.tiles_m + kM - 1) / kM;
  }
  template <class Params> static GETT_DEVICE int panels(const Params& p) { return p.tiles / panel_length(p); }
  template <class Params> static GETT_DEVICE int first_of(const Params& p, int block) {
    const int blocks = gridDim.x / kSize, each = p.tiles / blocks;
    return block * each + min(block, p.tiles - each * blocks);
  }
  template <class Params> GETT_DEVICE TileId locate(const Params& p, int t) const {
    if constexpr (kSize == 1) return locate_tile(p, t);
    struct { int tiles_m, tiles_n, group_m, split_k; } const q = {
        (p.tiles_m + kM - 1) / kM, (p.tiles_n + kN - 1) / kN, p.group_m, p.split_k};
    const TileId id = locate_tile(q, t);
    return {place<kM>(id.m, m_), place<kN>(id.n, n_), id.l, id.slice};
  }
  // Tile of a block along M or N, of the cluster's number there: neighbours, or where blocks trade, kExchangeDistance apart.
  template <int kCount> static GETT_DEVICE int place(int at, int own) {
    constexpr int kDistance = kCount == 2 && Traits::kExchangeDistance > 1 ? Traits::kExchangeDistance : 1;
    if constexpr (kDistance == 1) return at * kCount + own;
    return (at / kDistance * kCount + own) * kDistance + at % kDistance;
  }
  template <class Params> static GETT_DEVICE bool exists(const Params& p, const TileId& id) {
    return (kM == 1 || id.m < p.tiles_m) && (kN == 1 || id.n < p.tiles_n);
  }
};

}  // namespace gett
