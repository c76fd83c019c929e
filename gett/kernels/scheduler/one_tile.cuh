// The usual tile scheduler of the multistage kernels: one tile of D, or one slice of K of it, for each block. Blocks
// are numbered along the raster; as many run at a time as the multiprocessors have room for. A second kernel adds
// slices.
#pragma once
#include "gett/contract/schedulers.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

template <class Traits>
  GETT_REQUIRES(contract::OneTile<Traits>)
struct OneTile {
  static constexpr bool kSplit = Traits::kSplit;  // whether K is split
  // Which way the elements of a partial tile run in the workspace: D's own.
  static constexpr bool kPartialsAlongM = Traits::kPartialsAlongM;

  static constexpr int kParts = 0;  // work tiles of a block that are parts of tiles

  // The only work tile of a block.
  template <class Params> static GETT_DEVICE int first(const Params&) { return blockIdx.x; }
  template <class Params> static GETT_DEVICE TileId locate(const Params& p, int t) { return locate_tile(p, t); }
  template <class Params> static GETT_DEVICE KTileRange k_tiles(const Params& p, int, int slice) {
    return k_tile_range(p, slice);
  }
};

}  // namespace gett
