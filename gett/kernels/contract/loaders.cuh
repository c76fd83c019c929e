// What the loaders need of the generated text: of LoaderTraitsA and LoaderTraitsB, which are structs in MainloopTraits,
// and the functions of Index by which they find or bring an operand. The main loops ask for them (contract/loops.cuh).
#pragma once
#include "gett/contract/params.cuh"
#include "gett/contract/tiles.cuh"

#ifdef GETT_CONTRACT
namespace gett {
namespace contract {

// --- by tensor map: TmaLoader (loader/tma.cuh), StationaryOperand (loader/stationary.cuh)

// Of each operand of WgmmaSS, WgmmaSplit, WgmmaTf32 and DmmaTma, whatever brings it.
template <class LoaderTraits>
concept WarpgroupLoader =
    requires { LoaderTraits::kKind; } &&              // how the operand gets into shared memory: LoaderKind
    requires { LoaderTraits::kMajorK; } &&            // whether rows of the tile run along K
    requires { LoaderTraits::kSwizzleBytes; } &&      // bytes of a row that take part in the swizzle; 16 for none
    requires { LoaderTraits::kRows; } &&              // rows of M or columns of N of the tile, those of padding too
    requires { LoaderTraits::kValidK; } &&            // k of a k-tile that copies write; the others stay zero
    requires { LoaderTraits::kTransactionBytes; } &&  // bytes that the tensor map's copies of a k-tile bring
    requires { LoaderTraits::kKTiles; } &&            // k-tiles of a panel of a stationary operand; else 0
    requires { LoaderTraits::kRunElements; } &&       // elements of a piece of a gathered operand; else 0
    requires { LoaderTraits::kTransposeK; } &&        // k whose pieces are transposed together; else 0
    requires { LoaderTraits::kKept; } &&              // whether stages keep the operand's k-tiles for later tiles
    (LoaderTraits::kKind != kLoaderCpAsyncTile ||
     requires { LoaderTraits::kVector; });            // elements that a thread copies at once by cp.async

// Also where no tensor map brings either operand: the copies of a stage are none then.
template <class Index, class Params>
concept TmaIndex =
    requires { typename Index::TileCoords; } &&  // coordinates of a tile's copies
    requires(const Params& p, int i) { Index::tile_coords(p, i, i, i); } &&  // of tile m, n and batch l
    // issues the copies of a k-tile to A's and B's places, or, if not whole, of what no stage keeps
    requires(const Params& p, AtTile<Index> t, uint32 x) { Index::load_stage(p, t, 0, x, x, x, {}, {}, true); } &&
    requires(const Params& p) { Index::prefetch_tensormaps(p); };  // fetches the tensor maps themselves

template <class Index, class Params>
concept StationaryIndex =
    // issues the copies of a k-tile of the stationary operand
    requires(const Params& p, AtTile<Index> t, uint32 x) { Index::load_stationary(p, t, 0, x, x); };

template <class Index>
concept MmaTilesIndex =
    requires(typename Index::TileCoords& t) { Index::next_mma_tile(t); };  // moves A's coordinates to the next MMA tile

// --- by threads: GatherLoader (loader/gather.cuh), CpAsyncTileLoader (loader/cp_async_tile.cuh)

template <class Index, class Params>
concept AddressedK =
    requires(const Params& p, int k) { Index::k_ok(p, k); } &&  // whether k-tiles have the k, but for K's end
    requires(const Params& p, AtK<Index> t) { Index::k_whole(p, t); };  // whether K ends behind the k-tile

template <class Index, class Params>
concept AddressedA =
    ParamsOfA<Params> && AddressedK<Index, Params> &&
    requires(const Params& p, int l) { Index::l_tile(p, l).a; } &&    // A's offset of a batch
    requires(const Params& p, int i) { Index::m_tile(p, i).a; } &&    // A's offset of a tile
    requires(const Params& p, int i) { Index::k_tile(p, i).a; } &&    // A's offset of a k-tile
    requires(const Params& p, AtM<Index> t, int m) { Index::m_ok(p, t, m); } &&  // whether D has row m of the tile
    requires(const Params& p, AtM<Index> t, int m) { Index::m_a(p, t, m); } &&   // A's offset of row m
    requires(const Params& p, int k) { Index::k_a(p, k); } &&         // A's offset of a k of the k-tile
    requires(const Params& p, AtK<Index> t, int k) { Index::valid_k_a(p, t, k); };  // elements of A before K's end

template <class Index, class Params>
concept AddressedB =
    ParamsOfB<Params> && AddressedK<Index, Params> &&
    requires(const Params& p, int l) { Index::l_tile(p, l).b; } &&    // B's offset of a batch
    requires(const Params& p, int i) { Index::n_tile(p, i).b; } &&    // B's offset of a tile
    requires(const Params& p, int i) { Index::k_tile(p, i).b; } &&    // B's offset of a k-tile
    requires(const Params& p, AtN<Index> t, int n) { Index::n_ok(p, t, n); } &&  // whether D has column n
    requires(const Params& p, AtN<Index> t, int n) { Index::n_b(p, t, n); } &&   // B's offset of column n
    requires(const Params& p, int k) { Index::k_b(p, k); } &&         // B's offset of a k of the k-tile
    requires(const Params& p, AtK<Index> t, int k) { Index::valid_k_b(p, t, k); };  // elements of B before K's end

// --- of the multistage kernels: CpAsyncLoader (loader/cp_async.cuh), RegisterLoader (loader/register.cuh)

template <class LoaderTraits>
concept MultistageLoader =
    requires { typename LoaderTraits::Element; } &&  // an element of the operand
    requires { typename LoaderTraits::Layout; } &&   // where a row and a byte of it lie: SwizzledTile
    requires { LoaderTraits::kCpAsync; } &&          // by cp.async; else through registers
    requires { LoaderTraits::kMajorK; } &&           // whether rows of the tile run along K
    requires { LoaderTraits::kVecK; } &&             // whether vectors of the tensor run along K
    requires { LoaderTraits::kVec; } &&              // elements of a vector
    requires { LoaderTraits::kRowVectors; } &&       // whether a vector through registers stays one in a row
    requires { LoaderTraits::kRowStep; } &&          // rows between its elements, or a thread's copies by cp.async
    requires { LoaderTraits::kByteStep; } &&         // bytes of a row between its elements
    requires { LoaderTraits::kWalked; } &&           // whether accesses follow the tensor in memory: idx2crd
    requires { LoaderTraits::kSpread; } &&           // chunks of K-major rows by which batches through registers differ
    requires { LoaderTraits::kZeroFill; } &&         // whether k of padding are zeroed at first
    requires { LoaderTraits::kCached; } &&           // whether cp.async of 16 bytes goes through the first cache
    requires { LoaderTraits::kTileElements; };       // elements of the box, without padding

// K cut into boxes, or flattened: then offsets of each k stand in the k table.
template <class Index, class Params>
concept BoxedK =
    requires(const Params& p, int i) { Index::k_tile(p, i).a; } &&  // A's offset of a k-tile
    requires(const Params& p, int i) { Index::k_tile(p, i).b; } &&  // B's offset of a k-tile
    requires(const Params& p, int i) { Index::k_tile(p, i).rem; } &&  // what a ragged K has left, from the k-tile on
    requires(const Params& p, int k) { Index::k_a(p, k); } &&       // A's offset of a k of the k-tile
    requires(const Params& p, int k) { Index::k_b(p, k); } &&       // B's offset of a k of the k-tile
    requires(const Params& p, int k) { Index::k_ok(p, k); } &&      // whether k-tiles have the k
    requires(const Params& p, int k) { Index::k_coord(p, k); };     // the k's coordinate along K's ragged dimension
template <class Index, class Params>
concept FlattenedK =
    requires(const Params& p, int k) { Index::k_entry(p, k).a; } &&  // A's offset of a k
    requires(const Params& p, int k) { Index::k_entry(p, k).b; };    // B's offset of a k

template <class Index, class Params>
concept WalkedA = requires(const Params& p, int i) { Index::idx2crd_a(p, i).m; };  // row and k of the i-th in A's order
template <class Index, class Params>
concept WalkedB = requires(const Params& p, int i) { Index::idx2crd_b(p, i).m; };  // column and k of the i-th in B's

}  // namespace contract
}  // namespace gett
#endif
