// Which tile of which problem a block of a grouped launch makes.
//
// TableProblems: the table says so for each block. ListedProblems: the argument has the problems. RaggedProblems: all
// problems are parts of the same tensors. Their ends are in device memory, where a warp looks for its block.
#pragma once
#include "gett/contract/grouped.cuh"
#include "gett/core/problems.cuh"
#include "gett/core/shuffle.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

// Rows of tiles of a problem that are visited together.
static constexpr int kProblemRaster = 8;

// What a block makes.
struct ProblemTile {
  TileId id;
  int k_tiles, first_pair;
  char* d;
  OtherExtent other;
  ProblemOffsets origin;  // of the problem in the tensors
};

GETT_DEVICE TileId locate_in_problem(int tiles_m, int tiles_n, int tile) {
  return locate_tile(tiles_m, tiles_n, kProblemRaster, tile);
}

template <class Traits>
  GETT_REQUIRES(contract::TableProblems<Traits>)
struct TableProblems {
  typedef typename Traits::Params Params;
  // Whether the block has a tile.
  static GETT_DEVICE bool locate(const Params& p, ProblemTile& t) {
    const ProblemOutput output = p.outputs[p.tiles[blockIdx.x]];
    t.id = locate_in_problem(output.tiles_m, output.tiles_n, blockIdx.x - output.first_tile);
    t.k_tiles = output.k_tiles;
    t.first_pair = output.first_pair;
    t.d = output.d;
    t.other = {-1, 0};
    t.origin = {0, 0, 0};
    return true;
  }
  static GETT_DEVICE ProblemPair pair(const Params& p, const ProblemTile&, int number) { return p.pairs[number]; }
  static GETT_DEVICE int extent(const Params&, const ProblemTile&, const ProblemLayout& layout, ModeGroup group) {
    return layout.extent[group];
  }
};

// The argument has the problems in the order of their tiles. Extents are those of their layouts.
template <class Traits>
  GETT_REQUIRES(contract::ListedProblems<Traits>)
struct ListedProblems {
  typedef typename Traits::Params Params;
  static GETT_DEVICE int tiles(int extent, int block) { return (extent + block - 1) / block; }

  static GETT_DEVICE bool locate(const Params& p, ProblemTile& t) {
    int first = 0, last = p.count - 1;  // the problem that has the block's tile is one of these
    while (first < last) {
      const int middle = (first + last + 1) / 2;
      if (p.problems[middle].first_tile <= int(blockIdx.x)) first = middle; else last = middle - 1;
    }
    const ListedProblem& problem = p.problems[first];
    const ProblemLayout& layout = p.layouts[problem.layout];
    t.id = locate_in_problem(tiles(layout.extent[kGroupM], Traits::kBlockM),
                             tiles(layout.extent[kGroupN], Traits::kBlockN), int(blockIdx.x) - problem.first_tile);
    t.k_tiles = tiles(layout.extent[kGroupK], Traits::kBlockK);
    t.first_pair = first;
    t.d = problem.d;
    t.other = {-1, 0};
    t.origin = {0, 0, 0};
    return true;
  }
  static GETT_DEVICE ProblemPair pair(const Params& p, const ProblemTile& t, int number) {
    const ListedProblem& problem = p.problems[number];
    return {problem.a, problem.b, problem.layout, t.k_tiles};
  }
  static GETT_DEVICE int extent(const Params&, const ProblemTile&, const ProblemLayout& layout, ModeGroup group) {
    return layout.extent[group];
  }
};

// Problem e has rows ends[e - 1] to ends[e] - 1 of the ragged mode. Of the rows behind the last end D is zero: they are
// a problem without products.
template <class Traits>
  GETT_REQUIRES(contract::RaggedProblems<Traits>)
struct RaggedProblems {
  typedef typename Traits::Params Params;
  static constexpr ModeGroup kRagged = Traits::kRaggedGroup;
  static constexpr bool kSums = kRagged == kGroupK;

  static GETT_DEVICE int end(const Params& p, int e) {
    const long long x = e < 0 ? 0 : e < p.problems ? (long long)p.ends[e] : p.rows;
    return int(min(max(x, 0ll), (long long)p.rows));
  }
  static GETT_DEVICE int tiles(int extent, int block) { return (extent + block - 1) / block; }

  static GETT_DEVICE bool locate(const Params& p, ProblemTile& t) {
    const ProblemLayout& layout = p.layouts[0];
    const int lane = threadIdx.x & 31, count = p.problems + !kSums;
    int before = 0;
    for (int first = 0; first < count; first += 32) {
      const int e = first + lane, begin = end(p, e - 1), rows = e < count ? max(end(p, e) - begin, 0) : 0;
      int extents[kGroups] = {layout.extent[0], layout.extent[1], layout.extent[2], layout.extent[3]};
      extents[kRagged] *= rows;  // the table has the product of the other modes
      const int tiles_m = tiles(extents[kGroupM], Traits::kBlockM), tiles_n = tiles(extents[kGroupN], Traits::kBlockN);
      const int own = e < count ? tiles_m * tiles_n * extents[kGroupL] : 0;
      int sum = own;  // of this lane's problem and those before it
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int x = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += x;
      }
      const int block = int(blockIdx.x) - before;
      const uint32 behind = __ballot_sync(~0u, block < sum);
      if (behind) {
        const int from = __ffs(behind) - 1;
        t.id = locate_in_problem(from_lane(tiles_m, from), from_lane(tiles_n, from),
                                 block - from_lane(sum - own, from));
        t.k_tiles = first + from < p.problems ? tiles(from_lane(extents[kGroupK], from), Traits::kBlockK) : 0;
        t.first_pair = 0;
        t.d = p.d;
        t.other = {p.ragged_mode, from_lane(rows, from)};
        t.origin = from_lane(begin, from) * p.ragged_step + (first + from) * p.problem_step;
        return true;
      }
      before += __shfl_sync(~0u, sum, 31);
    }
    return false;
  }
  static GETT_DEVICE ProblemPair pair(const Params& p, const ProblemTile& t, int) { return {p.a, p.b, 0, t.k_tiles}; }
  static GETT_DEVICE int extent(const Params&, const ProblemTile& t, const ProblemLayout& layout, ModeGroup group) {
    return group == kRagged ? layout.extent[group] * t.other.extent : layout.extent[group];
  }
};

}  // namespace gett
