// What the epilogues need of the generated EpilogueTraits and Index.
#pragma once
#include "gett/contract/params.cuh"
#include "gett/contract/tiles.cuh"

#ifdef GETT_CONTRACT
namespace gett {
namespace contract {

// Of every epilogue. The struct extends TileShape, that of warpgroups through StagedTileTraits.
template <class EpilogueTraits>
concept Epilogue =
    Tile<EpilogueTraits> && ResultParams<typename EpilogueTraits::Params> &&
    requires { EpilogueTraits::kSourceC; } &&     // where C comes from: SourceC
    requires { typename EpilogueTraits::Offset; } &&  // what holds an offset of D and of C
    requires { EpilogueTraits::kVecD; } &&        // elements of a vector of D
    requires { EpilogueTraits::kLine; } &&        // vectors of a line of the tile; 0 where it is not stored in lines
    requires { EpilogueTraits::kLines; } &&       // lines of a plane
    requires { EpilogueTraits::kLineLanes; } &&   // threads that share a line
    requires { EpilogueTraits::kStepM; } &&       // rows of the tile between neighbours of D's fastest dimension
    requires { EpilogueTraits::kStepN; } &&       // columns of the tile between neighbours of D's fastest dimension
    requires { EpilogueTraits::kEpilogueOp; } &&  // whether there is a function of the result
    requires { EpilogueTraits::kExtras; } &&      // tensors that the function reads
    (EpilogueTraits::kSourceC != kSourceVector || SourceParams<typename EpilogueTraits::Params>);

// The plan's function at an element of a tile (epilogue/epilogue_op.cuh).
template <class Index> using AtRow = const typename Index::OpRow&;
template <class Index> using AtColumn = const typename Index::OpColumn&;
template <class Index> using AtElement = const typename Index::OpElement&;
template <class Index, class Params, class Acc>
concept FunctionIndex =
    requires { typename Index::OpRow; } &&      // what a row fixes: whether D has it, values and offsets of tensors
    requires { typename Index::OpColumn; } &&   // what a column fixes
    requires { typename Index::OpElement; } &&  // values that each element reads
    requires { Index::kElementReads; } &&       // how many tensors each element reads
    requires(const Params& p, AtL<Index> l, AtM<Index> m) { Index::op_row(p, l, m, 0); } &&     // that of a row
    requires(const Params& p, AtL<Index> l, AtN<Index> n) { Index::op_column(p, l, n, 0); } &&  // that of a column
    requires(const Params& p, AtRow<Index> r, AtColumn<Index> c) { Index::op_element(p, r, c); } &&  // an element's
    // the function of alpha * X + beta * C
    requires(AtRow<Index> r, AtColumn<Index> c, AtElement<Index> e, Acc x) { Index::op(r, c, e, x); };

// The offsets of rows and columns in D, and the order of its elements: of the stores by threads, and of the addition of
// slices (epilogue/vector.cuh, kernel/splitk_reduce.cuh).
template <class Index, class Params>
concept OffsetsOfD =
    requires(const Params& p, int i) { Index::l_tile(p, i).d; } &&  // D's offset of a batch
    requires(const Params& p, int i) { Index::m_tile(p, i).d; } &&  // D's offset of a tile of M
    requires(const Params& p, int i) { Index::n_tile(p, i).d; } &&  // D's offset of a tile of N
    requires(const Params& p, int i) { Index::m_ok(p, Index::m_tile(p, i), i); } &&  // whether D has row i of the tile
    requires(const Params& p, int i) { Index::n_ok(p, Index::n_tile(p, i), i); } &&  // whether D has column i
    requires(const Params& p, int i) { Index::m_d(p, Index::m_tile(p, i), i); } &&   // D's offset of row i
    requires(const Params& p, int i) { Index::n_d(p, Index::n_tile(p, i), i); };     // D's offset of column i
template <class Index, class Params>
concept OffsetsOfC =
    requires(const Params& p, int i) { Index::l_tile(p, i).c; } &&  // C's offset of a batch
    requires(const Params& p, int i) { Index::m_tile(p, i).c; } &&  // C's offset of a tile of M
    requires(const Params& p, int i) { Index::n_tile(p, i).c; } &&  // C's offset of a tile of N
    requires(const Params& p, int i) { Index::m_c(p, Index::m_tile(p, i), i); } &&  // C's offset of row i
    requires(const Params& p, int i) { Index::n_c(p, Index::n_tile(p, i), i); };    // C's offset of column i
template <class Index, class Params>
concept OrderOfD =
    requires(const Params& p, int i) { Index::idx2crd_d(p, i).m; };  // row and column of the i-th in D's order

// The second kernel of split-K, on the Index of the text.
template <class EpilogueTraits, class Index>
concept SliceSums =
    Epilogue<EpilogueTraits> && SliceParams<typename EpilogueTraits::Params> &&
    OffsetsOfD<Index, typename EpilogueTraits::Params> && OrderOfD<Index, typename EpilogueTraits::Params> &&
    (EpilogueTraits::kSourceC != kSourceVector || OffsetsOfC<Index, typename EpilogueTraits::Params>) &&
    (!EpilogueTraits::kEpilogueOp ||
     FunctionIndex<Index, typename EpilogueTraits::Params, typename EpilogueTraits::Acc>);

// Of the multistage kernels; their offsets are GemmIndex's.
template <class EpilogueTraits, class Index, class Smem>
concept PaddedEpilogue =
    BatchedTile<EpilogueTraits> && Epilogue<EpilogueTraits> && MultistageSmem<Smem> &&
    OrderOfD<Index, typename EpilogueTraits::Params> && SliceParams<typename EpilogueTraits::Params>;

// --- of wgmma's accumulators, by way of the staged tile of D

template <class Index, class Params>
concept StagingIndex =
    requires(const Params& p, int m) { Index::staging_m(p, m); } &&  // place of row m in the staged tile
    requires(const Params& p, int n) { Index::staging_n(p, n); };    // place of column n in the staged tile

template <class EpilogueTraits, class Index>
concept StagedEpilogue =
    WarpgroupTile<EpilogueTraits> && Epilogue<EpilogueTraits> && SliceParams<typename EpilogueTraits::Params> &&
    requires { EpilogueTraits::kStagingElements; } &&   // elements of the staged tile, with gaps
    requires { EpilogueTraits::kSwizzleBytesD; } &&     // bytes of a row of it that the swizzle exchanges
    requires { EpilogueTraits::kR2SCopy; } &&           // how accumulators get to the staged tile: R2SCopy
    requires { EpilogueTraits::kR2SVector; } &&         // elements of one store to the staged tile
    requires { EpilogueTraits::kR2SStepN; } &&          // groups of eight columns between two of these
    requires { EpilogueTraits::kColumnsBy8; } &&        // whether eight columns lie in one dimension
    requires { EpilogueTraits::kStagingStepN; } &&      // places of the staged tile from a column to the next
    requires { EpilogueTraits::kRecomputePlaces; } &&   // whether places are computed for each tile, to save registers
    StagingIndex<Index, typename EpilogueTraits::Params> &&
    (!EpilogueTraits::kEpilogueOp ||
     FunctionIndex<Index, typename EpilogueTraits::Params, typename EpilogueTraits::Acc>);

// Of those whose consumers store D: VectorStore and RowStore.
template <class Index, class Params>
concept StagedOrderOfD =
    OrderOfD<Index, Params> &&
    requires(const Params& p, int i) { Index::idx2crd_d(p, i).at; };  // the i-th's place in the staged tile

template <class EpilogueTraits, class Index>
concept TableEpilogue =
    StagedEpilogue<EpilogueTraits, Index> && OffsetsOfD<Index, typename EpilogueTraits::Params> &&
    StagedOrderOfD<Index, typename EpilogueTraits::Params>;

template <class EpilogueTraits, class Index>
concept VectorStore =
    TableEpilogue<EpilogueTraits, Index> &&
    (EpilogueTraits::kSourceC != kSourceVector || OffsetsOfC<Index, typename EpilogueTraits::Params>);

template <class Index, class Params>
concept RowIndex =
    // elements that D has from a tile of M and one of N on along its fastest dimension
    requires(const Params& p, int i) { Index::d_remaining(p, i, i); };

template <class EpilogueTraits, class Index>
concept RowStore =
    TableEpilogue<EpilogueTraits, Index> && RowIndex<Index, typename EpilogueTraits::Params> &&
    requires { EpilogueTraits::kRowLengthD; };  // elements of a row of D

template <class Index, class Params>
concept StoreIndex =
    requires { typename Index::StoreCoords; } &&  // coordinates of the copies of a tile of D
    requires(const Params& p, int i) { Index::store_coords(p, i, i, i); };  // of tile m, n and batch l
template <class Index, class Params>
concept WholeStore =
    requires(const Params& p, AtStore<Index> t, uint32 x) { Index::store_tile(p, t, x); };  // copies a staged tile to D
template <class Index, class Params>
concept PartStore =
    // copies part `i` of a tile to D: of those staged one after the other, or what block `i` has of two blocks' tiles
    requires(const Params& p, AtStore<Index> t, uint32 x, int i) { Index::store_tile(p, t, x, i); };
template <class Index, class Params>
concept SourceIndex =
    requires(const Params& p, AtStore<Index> t, uint32 x) { Index::load_c(p, t, x, x); };  // brings C's tile

template <class EpilogueTraits, class Index>
concept TmaSource =
    SourceIndex<Index, typename EpilogueTraits::Params> &&
    requires { EpilogueTraits::kTransactionBytesC; };  // bytes that C's copies of a tile bring

template <class EpilogueTraits, class Index>
concept TmaStore =
    StagedEpilogue<EpilogueTraits, Index> && StoreIndex<Index, typename EpilogueTraits::Params> &&
    requires { EpilogueTraits::kRepairs; } &&            // whether tiles may be made again instead of stored
    requires { EpilogueTraits::kStoreWarp; } &&          // whether a warp that does not multiply issues the stores
    requires { EpilogueTraits::kReuseMainloopSmem; } &&  // whether D is staged where the stages were
    requires { EpilogueTraits::kExchange; } &&           // whether two blocks exchange halves of their tiles
    requires { EpilogueTraits::kSubtiles; } &&           // parts of the tile that are staged one after the other
    requires { EpilogueTraits::kSubtileBuffers; } &&     // how many are staged at a time
    (EpilogueTraits::kExchange || EpilogueTraits::kSubtiles > 1 ||
     WholeStore<Index, typename EpilogueTraits::Params>) &&
    (!(EpilogueTraits::kExchange || EpilogueTraits::kSubtiles > 1) ||
     PartStore<Index, typename EpilogueTraits::Params>) &&
    (EpilogueTraits::kSourceC != kSourceTma || TmaSource<EpilogueTraits, Index>);

}  // namespace contract
}  // namespace gett
#endif
