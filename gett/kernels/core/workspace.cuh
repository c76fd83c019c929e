// The workspace of split-K and of stream-K: the partial tiles that slices and shares leave, in the accumulator's type.
// The main kernels store them, kernel/splitk_reduce.cuh adds them.
#pragma once
#include "gett/core/numeric.cuh"
#include "gett/core/types.cuh"
#include "gett/core/vec.cuh"
#include "gett/ptx/opaque.cuh"

namespace gett {

// The partial tile number `tile` of `tiles` in a slice of batch l. Tiles of one slice are neighbours in row-major
// order, then come slices, then batches. The compiler must not see how the tile's place comes about: with several terms
// of an address to rearrange it loses that neighbours are aligned, and stores them one by one.
template <int kTileSize, class Params>
GETT_DEVICE auto* partial_tile(const Params& p, int l, int slice, int tile, int tiles) {
  return p.workspace + opaque((((long long)l * p.split_k + slice) * tiles + tile) * kTileSize);
}
template <int kTileSize, class Params, class TileId> GETT_DEVICE auto* partial_tile(const Params& p, const TileId& id) {
  return partial_tile<kTileSize>(p, id.l, id.slice, id.m * p.tiles_n + id.n, p.tiles_m * p.tiles_n);
}

// The partial tile of the first or the second part of a share of stream-K, of one of the `blocks` blocks of a cluster.
template <int kTileSize, class Params>
GETT_DEVICE auto* partial_of_share(const Params& p, int share, int part, int rank, int blocks) {
  return p.workspace + opaque(((long long)(2 * share + part) * blocks + rank) * kTileSize);
}

// The place of a row and a column in a partial tile, which runs along M or N as D does: so threads that store
// neighbours of D read neighbours.
template <class Scheduler, int kM, int kN> GETT_DEVICE constexpr int partial_place(int m, int n) {
  return Scheduler::kPartialsAlongM ? n * kM + m : m * kN + n;
}
// Stores the sums of a row's columns from n on in a partial tile.
template <class Scheduler, int kM, int kN, class Acc, int kCount>
GETT_DEVICE void store_partial(Acc* tile, int m, int n, const Acc (&x)[kCount]) {
  Acc* const to = tile + partial_place<Scheduler, kM, kN>(m, n);
  if constexpr (Scheduler::kPartialsAlongM) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) to[j * kM] = x[j];
  } else {
    store_all(to, x);
  }
}

// Adds up every `step`-th of `count` slices from `first` on, in this order. Several are loaded before they are added:
// the compiler would wait for each to save registers. load(s, x) loads a slice's elements.
template <int kV, class Acc, class Load>
GETT_DEVICE void add_slices(Acc (&x)[kV], int first, int step, int count, const Load& load) {
  constexpr int kHeldBytes = 128, kFit = kHeldBytes / (kV * int(sizeof(Acc)));
  constexpr int kAtOnce = kFit < 1 ? 1 : kFit > 8 ? 8 : kFit;
#pragma unroll 1
  for (int s = first; s < count; s += kAtOnce * step) {
    Acc slice[kAtOnce][kV];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (s + u * step < count) load(s + u * step, slice[u]);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (s + u * step >= count) break;
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = add(x[j], slice[u][j]);
    }
  }
}

// The partial sums of a tile of outputs in a slice, for sums without a GEMM (kernel/stream_sum.cuh): slices of all
// tiles.
template <int kTileSize, class Params> GETT_DEVICE auto* partial_outputs(const Params& p, int slice, int tile) {
  return p.workspace + ((long long)slice * p.tiles_o + tile) * kTileSize;
}

}  // namespace gett
