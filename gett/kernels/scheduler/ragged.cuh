// The persistent tile scheduler of problems that are parts of the same tensors, whose ends are in device memory.
//
// Problem e has rows ends[e - 1] to ends[e] - 1 of the ragged mode. The tiles of the problems are numbered one problem
// after the other. A problem's first tile begins where the problem does, so its last one reaches into the problem
// behind: loads read those rows, and no store writes them. The rows behind the last end are problem number p.problems.
// It has no k-tiles, so that D is zero there.
//
// A warp counts the tiles of all problems once, and each thread looks its tiles up in shared memory. The coordinate of
// a tile along the ragged mode is that of its first row, and its batch has the number of its problem above.
#pragma once
#include "gett/contract/schedulers.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/persistent.cuh"

namespace gett {

// The row at which problem `e` ends, whatever the offsets are within the tensors. A row of the ragged mode has
// p.row_length rows of tiles.
template <class Params> GETT_DEVICE int ragged_end(const Params& p, int e) {
  const long long x = e < 0 ? 0 : e < p.problems ? (long long)p.ends[e] : p.rows;
  return int(min(max(x, 0ll), (long long)p.rows)) * p.row_length;
}

// Rows of the problem of batch `l` from row `row` on: those of a tile of `most` rows that are stored.
template <class Params> GETT_DEVICE int ragged_left(const Params& p, int l, int row, int most) {
  return min(max(ragged_end(p, l / p.ragged_batches) - row, 0), most);
}

// What is the same whichever mode is ragged: clusters take every gridDim.x-th work tile, and sums are whole.
template <class Traits> struct RaggedTiles : ClusterTiles<Traits> {
  typedef ClusterTiles<Traits> Base;
  static constexpr int kSize = Base::kSize;
  static constexpr bool kEachPanel = false, kEmptyTiles = true;
  static_assert(!Traits::kSplit, "sums are whole");

  template <class Params> static GETT_DEVICE int first(const Params&) { return blockIdx.x / kSize; }
  template <class Params> static GETT_DEVICE int step(const Params&) { return gridDim.x / kSize; }
  GETT_DEVICE RaggedTiles() {}
  explicit GETT_DEVICE RaggedTiles(int rank) : Base(rank) {}
};

template <class Traits>
  GETT_REQUIRES(contract::PersistentRagged<Traits>)
struct PersistentRagged : RaggedTiles<Traits> {
  typedef ClusterTiles<Traits> Base;
  static constexpr int kAtOnce = 4;  // problems that a lane counts the tiles of at a time
  // Rows that a cluster makes.
  static constexpr int kRows = Traits::kRaggedRows * (Traits::kRaggedM ? Base::kM : Base::kN);

  // The first work tile of each problem, of the rows behind the last end, and of what lies behind all tiles.
  static GETT_DEVICE int* first_tiles() {
    static __shared__ int first[Traits::kRaggedTable];
    return first;
  }
  // Before the barrier that comes first in a kernel: the first warp counts the tiles.
  template <class Params> static GETT_DEVICE void start(const Params& p) {
    if (threadIdx.x >= 32) return;
    int* const first = first_tiles();
    const int lane = threadIdx.x, beside = tiles_beside(p) * p.ragged_batches;
    int before = 0;
    for (int from = 0; from <= p.problems; from += 32 * kAtOnce) {
      int own[kAtOnce];  // all ends are read before any tile is counted
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int e = from + i * 32 + lane;
        own[i] = e <= p.problems ? tiles_along(ragged_end(p, e) - ragged_end(p, e - 1)) * beside : 0;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int e = from + i * 32 + lane;
        int sum = own[i];  // of this lane's problem and those before it
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
          const int x = __shfl_up_sync(0xffffffffu, sum, step);
          if (lane >= step) sum += x;
        }
        if (e <= p.problems) first[e] = before + sum - own[i];
        before += __shfl_sync(0xffffffffu, sum, 31);
      }
    }
    if (lane == 0) first[p.problems + 1] = before;
  }

  template <class Params> static GETT_DEVICE int end(const Params& p) { return first_tiles()[p.problems + 1]; }
  template <class Params> static GETT_DEVICE KTileRange k_tiles(const Params& p, int t, int) {
    return {0, t < first_tiles()[p.problems] ? p.k_tiles : 0};
  }

  GETT_DEVICE PersistentRagged() {}
  explicit GETT_DEVICE PersistentRagged(int rank) : RaggedTiles<Traits>(rank) {}
  template <class Params> GETT_DEVICE TileId locate(const Params& p, int t) const {
    const int* const first = first_tiles();
    int e = 0, last = p.problems;  // the problem that has the tile is one of these
    while (e < last) {
      const int middle = (e + last + 1) / 2;
      if (first[middle] <= t) e = middle; else last = middle - 1;
    }
    const int begin = ragged_end(p, e - 1), along = tiles_along(ragged_end(p, e) - begin), beside = tiles_beside(p);
    const TileId id = locate_tile(Traits::kRaggedM ? along : beside, Traits::kRaggedM ? beside : along, p.group_m,
                                  t - first[e]);
    const int m = id.m * Base::kM + this->m_, n = id.n * Base::kN + this->n_, l = e * p.ragged_batches + id.l;
    if constexpr (Traits::kRaggedM) return {begin + m * Traits::kRaggedRows, n, l, 0};
    return {m, begin + n * Traits::kRaggedRows, l, 0};
  }
  // Rows behind a problem's end are not stored, and so neither are tiles of none.
  template <class Params> static GETT_DEVICE bool exists(const Params& p, const TileId& id) {
    return Traits::kRaggedM ? Base::kN == 1 || id.n < p.tiles_n : Base::kM == 1 || id.m < p.tiles_m;
  }

 private:
  // Tiles of clusters along the ragged mode, of a problem of so many rows.
  static GETT_DEVICE int tiles_along(int rows) { return (max(rows, 0) + kRows - 1) / kRows; }
  template <class Params> static GETT_DEVICE int tiles_beside(const Params& p) {
    return Traits::kRaggedM ? (p.tiles_n + Base::kN - 1) / Base::kN : (p.tiles_m + Base::kM - 1) / Base::kM;
  }
};

// Where rows are summed: problems are batches, and the k-tiles of a work tile are those of its problem's rows. Loads
// end at the last row, and what lies behind it is zero in shared memory.
template <class Traits>
  GETT_REQUIRES(contract::PersistentRaggedSums<Traits>)
struct PersistentRaggedSums : RaggedTiles<Traits> {
  // K-tiles of each problem.
  static GETT_DEVICE int* counts() {
    static __shared__ int count[Traits::kRaggedTable];
    return count;
  }
  // Before the barrier that comes first in a kernel.
  template <class Params> static GETT_DEVICE void start(const Params& p) {
    if (threadIdx.x >= 32) return;
    int* const count = counts();
#pragma unroll 4
    for (int e = threadIdx.x; e < p.problems; e += 32) {
      const int rows = max(ragged_end(p, e) - ragged_end(p, e - 1), 0);
      count[e] = (rows + Traits::kRaggedRows - 1) / Traits::kRaggedRows;
    }
  }

  template <class Params> static GETT_DEVICE int end(const Params& p) { return p.tiles; }
  template <class Params> static GETT_DEVICE KTileRange k_tiles(const Params& p, int t, int) {
    return {0, counts()[t / p.problem_tiles]};
  }
  GETT_DEVICE PersistentRaggedSums() {}
  explicit GETT_DEVICE PersistentRaggedSums(int rank) : RaggedTiles<Traits>(rank) {}
};

// A kernel by such a scheduler.
template <class Kernel, class Scheduler> struct RaggedGemm {
  template <class Params> static GETT_DEVICE void run(const Params& p) {
    griddepcontrol_wait();  // the launch that this one overlaps may have written the ends
    Scheduler::start(p);
    Kernel::run(p);
  }
};

}  // namespace gett
