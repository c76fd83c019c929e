// What the main loops of warpgroups (mainloop/wgmma_ss.cuh and its neighbours) need of the generated MainloopTraits,
// Index and Smem, with what their loaders need.
#pragma once
#include "gett/contract/loaders.cuh"

#ifdef GETT_CONTRACT
namespace gett {
namespace contract {

// Of all of them. The struct extends TileShape.
template <class MainloopTraits>
concept WarpgroupLoop =
    WarpgroupTile<MainloopTraits> && PersistentParams<typename MainloopTraits::Params> &&
    requires { MainloopTraits::kStages; } &&                  // stages of the ring
    requires { MainloopTraits::kProducerRegs; } &&            // registers of a thread that loads
    requires { MainloopTraits::kConsumerRegs; } &&            // registers of a thread that multiplies
    requires { typename MainloopTraits::LoaderTraitsA; } &&   // what A's loader is told
    requires { typename MainloopTraits::LoaderTraitsB; };     // what B's loader is told

// Of those whose stages hold both operands, or one beside a stationary one.
template <class MainloopTraits, class Index, class Smem>
concept StagedLoop =
    WarpgroupLoop<MainloopTraits> && WarpgroupSmem<Smem> &&
    requires { MainloopTraits::kProducerWarpgroups; } &&  // warpgroups that load, split or transpose
    WarpgroupLoader<typename MainloopTraits::LoaderTraitsA> &&
    WarpgroupLoader<typename MainloopTraits::LoaderTraitsB> &&
    TmaIndex<Index, typename MainloopTraits::Params> &&
    (MainloopTraits::kMmaTilesPerStoreTile == 1 || MmaTilesIndex<Index>);

template <class MainloopTraits, class Index>
concept AddressedOperands =
    (MainloopTraits::LoaderTraitsA::kKind == kLoaderTma || MainloopTraits::LoaderTraitsA::kKind == kLoaderStationary ||
     AddressedA<Index, typename MainloopTraits::Params>) &&
    (MainloopTraits::LoaderTraitsB::kKind == kLoaderTma || MainloopTraits::LoaderTraitsB::kKind == kLoaderStationary ||
     AddressedB<Index, typename MainloopTraits::Params>);

template <class MainloopTraits, class Index, class Smem>
concept WgmmaSS =
    StagedLoop<MainloopTraits, Index, Smem> && AddressedOperands<MainloopTraits, Index> &&
    requires { MainloopTraits::kCpAsyncStages; } &&  // k-tiles that a gathering warp has in flight
    ((MainloopTraits::LoaderTraitsA::kKind != kLoaderStationary &&
      MainloopTraits::LoaderTraitsB::kKind != kLoaderStationary) ||
     StationaryIndex<Index, typename MainloopTraits::Params>);

template <class MainloopTraits, class Index, class Smem>
concept WgmmaTf32 =
    StagedLoop<MainloopTraits, Index, Smem> &&
    requires { MainloopTraits::kTransposedStages; };  // stages of B transposed; 0 where wgmma reads B as it is loaded

// Of those that multiply by parts: which operand is conjugated, and in which order k are taken.
template <class MainloopTraits>
concept OrderedK =
    requires { MainloopTraits::kLeadA; } &&  // k of a k-tile along the mode of A's rows; 1 where there is one mode
    requires { MainloopTraits::kLeadB; } &&  // k of a k-tile along the mode of B's rows
    requires { MainloopTraits::kConjA; } &&  // whether A is conjugated as it is multiplied
    requires { MainloopTraits::kConjB; };    // whether B is conjugated

template <class MainloopTraits, class Index, class Smem>
concept DmmaTma = StagedLoop<MainloopTraits, Index, Smem> && OrderedK<MainloopTraits>;

template <class MainloopTraits, class Index, class Smem>
concept WgmmaSplit =
    StagedLoop<MainloopTraits, Index, Smem> && AddressedOperands<MainloopTraits, Index> && OrderedK<MainloopTraits> &&
    requires { typename MainloopTraits::Plane; } &&   // an element of a plane
    requires { MainloopTraits::kPlanes; } &&          // planes of a number
    requires { MainloopTraits::kPlaneStages; } &&     // stages of B's planes
    requires { MainloopTraits::kProducts; } &&        // products of planes
    requires(int i) { MainloopTraits::plane_a(i); } &&  // the plane of A of product i, those of least value first
    requires(int i) { MainloopTraits::plane_b(i); } &&  // the plane of B of product i
    requires { MainloopTraits::kSumSteps; } &&        // instructions of 16 k whose products the tensor core sums
    requires { MainloopTraits::kScaled; } &&          // whether planes are those of scaled numbers
    requires { MainloopTraits::kChunkColumns; };      // columns of the first wgmma of a tile

// --- A in registers, rows along two contracted modes

template <class LoaderTraits>
concept CopiedA =
    requires { LoaderTraits::kSwizzleBytes; } &&  // bytes of k1 in a row
    requires { LoaderTraits::kTmaCopies; } &&     // copies of a k-tile
    requires { LoaderTraits::kCopyBytes; };       // bytes that one of them brings
template <class LoaderTraits>
concept CopiedB =
    requires { LoaderTraits::kSwizzleBytes; } &&      // bytes of k2 in a row
    requires { LoaderTraits::kTransactionBytes; };    // bytes of a stage

template <class Index> using AtA = const typename Index::TileCoordsA&;
template <class Index> using AtB = const typename Index::TileCoordsB&;
template <class Index> using MoveA = const typename Index::KCoordsA&;
template <class Index> using MoveB = const typename Index::KCoordsB&;
template <class Index, class Params>
concept WgmmaRSIndex =
    requires { typename Index::TileCoordsA; } &&  // coordinates of A's copies
    requires { typename Index::TileCoordsB; } &&  // coordinates of B's copies
    requires { typename Index::KCoordsA; } &&     // what a k-tile adds to A's coordinates
    requires { typename Index::KCoordsB; } &&     // what a k-tile adds to B's coordinates
    requires(const Params& p, int i) { Index::tile_coords_a(p, i, i, i); } &&  // coordinates of A's copies of a tile
    requires(const Params& p, int i) { Index::tile_coords_b(p, i, i, i); } &&  // coordinates of B's copies of a tile
    requires(const Params& p, int k) { Index::k_coords_a(p, k); } &&           // what k-tile k adds to A's
    requires(const Params& p, int k) { Index::k_coords_b(p, k); } &&           // what k-tile k adds to B's
    // issues a copy of A
    requires(const Params& p, AtA<Index> t, MoveA<Index> k, uint32 x) { Index::load_a(p, t, k, 0, 0, x, x); } &&
    // issues the copy of B for one k1
    requires(const Params& p, AtB<Index> t, MoveB<Index> k, uint32 x) { Index::load_b(p, t, k, 0, x, x); } &&
    requires(const Params& p) { Index::prefetch_tensormaps(p); };  // fetches the tensor maps themselves

template <class MainloopTraits, class Index, class Smem>
concept WgmmaRS =
    WarpgroupLoop<MainloopTraits> && WarpgroupSmem<Smem> &&
    requires { MainloopTraits::kPerWarpgroupA; } &&  // whether A is loaded and released by warpgroup
    CopiedA<typename MainloopTraits::LoaderTraitsA> && CopiedB<typename MainloopTraits::LoaderTraitsB> &&
    WgmmaRSIndex<Index, typename MainloopTraits::Params>;

}  // namespace contract
}  // namespace gett
#endif
