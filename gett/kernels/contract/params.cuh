// What the headers read of the generated struct Params, the argument of a kernel. Its further members are the text's
// own: tensor maps, strides `s`, divisors `f`, counts `i` and the tensors of an epilogue's function, which only
// functions of Index read.
//
// A line of a concept is a member that a text must have, and what it says. docs/contract.md shows these lines. Where a
// member is missing, the compiler's error ends in its line.
#pragma once
#include "gett/core/types.cuh"

#ifdef GETT_CONTRACT
namespace gett {
namespace contract {

// Of every kernel: what an element of D is made of.
template <class Params>
concept ResultParams =
    requires(const Params& p) { p.alpha; } &&  // factor of the products, of the accumulator's type
    requires(const Params& p) { p.beta; } &&   // factor of C
    requires(const Params& p) { p.d; };        // D

// Of every GEMM kernel: how tiles are numbered.
template <class Params>
concept RasterParams =
    requires(const Params& p) { p.tiles_m; } &&  // tiles of M
    requires(const Params& p) { p.tiles_n; } &&  // tiles of N
    requires(const Params& p) { p.group_m; } &&  // rows of tiles that are visited together
    requires(const Params& p) { p.split_k; } &&  // slices of K
    requires(const Params& p) { p.f; } &&        // divisors; the first ones are those of RasterDivisor
    requires(const Params& p) { p.whole_groups; } &&  // groups of `group_m` rows of clusters' tiles
    requires(const Params& p) { p.k_tiles; } &&  // k-tiles of all slices
    requires(const Params& p) { p.k_tiles_per_slice; };  // k-tiles of one slice, but the last

// Of kernels whose blocks make several tiles.
template <class Params>
concept PersistentParams =
    RasterParams<Params> &&
    requires(const Params& p) { p.tiles; };  // work tiles of all clusters: of all batches and slices

// Of stream-K, whose clusters divide tiles.
template <class Params>
concept StreamKParams =
    PersistentParams<Params> && requires(const Params& p) { p.shares; } &&  // clusters, each of which has a share
    requires(const Params& p) { p.share_k_tiles; } &&                       // k-tiles of a share
    requires(const Params& p) { p.longer_shares; };                         // shares that have one more

// Of persistent kernels whose problems are parts of the same tensors.
template <class Params>
concept RaggedTileParams =
    RasterParams<Params> && requires(const Params& p) { p.ends; } &&  // where the rows of each problem end
    requires(const Params& p) { p.problems; } &&                      // how many problems there are
    requires(const Params& p) { p.rows; } &&                          // extent of the ragged mode
    requires(const Params& p) { p.row_length; } &&      // rows of tiles that each row of the ragged mode has
    requires(const Params& p) { p.ragged_batches; };    // batches of a problem

// Of those whose rows are summed.
template <class Params>
concept RaggedSumParams =
    RaggedTileParams<Params> && PersistentParams<Params> &&
    requires(const Params& p) { p.problem_tiles; };  // work tiles of a problem

// Of kernels whose threads address A, or B.
template <class Params>
concept ParamsOfA =
    requires(const Params& p) { p.a; } &&       // A
    requires(const Params& p) { p.cosize_a; };  // elements from A's first one to behind its last one
template <class Params>
concept ParamsOfB =
    requires(const Params& p) { p.b; } &&       // B
    requires(const Params& p) { p.cosize_b; };  // elements from B's first one to behind its last one

// Of the multistage kernels.
template <class Params>
concept MultistageParams =
    RasterParams<Params> && ResultParams<Params> &&
    requires(const Params& p) { p.a; } &&         // A
    requires(const Params& p) { p.b; } &&         // B
    requires(const Params& p) { p.extent_k; };    // contracted elements, for a flattened K

// Where C is read as vectors, and where slices of K are stored.
template <class Params> concept SourceParams = requires(const Params& p) { p.c; };         // C
template <class Params> concept SliceParams = requires(const Params& p) { p.workspace; };  // partial tiles

// Types of Index as its functions take them.
template <class Index> using AtM = const typename Index::MTile&;
template <class Index> using AtN = const typename Index::NTile&;
template <class Index> using AtL = const typename Index::LTile&;
template <class Index> using AtK = const typename Index::KTile&;
template <class Index> using AtTile = const typename Index::TileCoords&;
template <class Index> using AtStore = const typename Index::StoreCoords&;

}  // namespace contract
}  // namespace gett
#endif
