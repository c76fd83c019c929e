// What the stream kernels (kernel/stream_map.cuh, kernel/stream_sum.cuh, kernel/stream_matrix.cuh) need of the
// generated Traits, which has all of a kernel's constants, and of Index.
#pragma once
#include "gett/contract/params.cuh"
#include "gett/contract/stores.cuh"

#ifdef GETT_CONTRACT
namespace gett {
namespace contract {

template <class Params> concept StreamParamsOfA = requires(const Params& p) { p.a; };  // A
template <class Params> concept StreamParamsOfB = requires(const Params& p) { p.b; };  // B

template <class Traits>
concept AnyStream =
    requires { typename Traits::Params; } &&    // the kernel's argument
    requires { typename Traits::ElementC; } &&  // an element of C; of D where there is no C
    requires { typename Traits::ElementD; } &&  // an element of D
    requires { typename Traits::Acc; } &&       // what products and sums are computed in
    requires { Traits::kSourceC; } &&           // where C comes from: SourceC
    requires { Traits::kEpilogueOp; } &&        // whether there is a function of the result
    requires { Traits::kThreads; } &&           // threads of a block
    requires { Traits::kBox; } &&               // elements of a tile
    requires { Traits::kVec; } &&               // elements of a vector
    requires { Traits::kUnroll; } &&            // vectors of a thread at a time
    requires { Traits::kSmemBytes; } &&         // bytes of shared memory
    ResultParams<typename Traits::Params> &&
    StreamParamsOfA<typename Traits::Params> &&
    (Traits::kSourceC != kSourceVector || SourceParams<typename Traits::Params>);

// --- maps and sums: tiles of D's modes `o`, and of the summed modes `k`

template <class LoaderTraits>
concept StreamLoader =
    requires { typename LoaderTraits::Element; } &&  // an element of the tensor
    requires { LoaderTraits::kViaSmem; } &&          // whether its tile is transposed through shared memory
    requires { LoaderTraits::kBroadcast; } &&        // whether the elements of a vector are one element
    requires { LoaderTraits::kSharedByRows; } &&     // whether all rows of a tile of sums read the same vectors
    requires { LoaderTraits::kImageWhole; } &&       // whether a vector is one in the image in shared memory
    requires { LoaderTraits::kWidth; } &&            // elements of one access
    requires { LoaderTraits::kStep; } &&             // places of the image from an element of an access to the next
    requires { LoaderTraits::kImage; } &&            // elements of the image
    requires { LoaderTraits::kMask; } &&             // of the image's swizzle: bits
    requires { LoaderTraits::kShift; } &&            // of the image's swizzle: distance
    requires { LoaderTraits::kImageAdvance; };       // places of the image from a thread's vector to the next

template <class Traits>
concept Stream =
    AnyStream<Traits> &&
    requires { typename Traits::Element; } &&       // an element of A and B, the wider of the two
    requires { typename Traits::LoaderTraitsA; } && // how A is read
    requires { typename Traits::LoaderTraitsB; } && // how B is read
    requires { typename Traits::LoaderTraitsC; } && // how C is read
    StreamLoader<typename Traits::LoaderTraitsA> && StreamLoader<typename Traits::LoaderTraitsB> &&
    StreamLoader<typename Traits::LoaderTraitsC> &&
    requires { Traits::kHasB; } &&                  // whether there is a B
    (!Traits::kHasB || StreamParamsOfB<typename Traits::Params>);

template <class Index, class Params>
concept OutputIndex =
    requires(const Params& p, int i) { Index::o_tile(p, i); } &&  // offsets of a tile of D's modes
    requires(const Params& p, int i) { Index::o_ok(p, Index::o_tile(p, i), i); } &&  // whether D has element i of it
    requires(const Params& p, int i) { Index::o_a(p, Index::o_tile(p, i), i); } &&   // A's offset of element i
    requires(const Params& p, int i) { Index::o_d(p, Index::o_tile(p, i), i); };     // D's offset of element i
template <class Index, class Params>
concept OutputIndexB =
    requires(const Params& p, int i) { Index::o_b(p, Index::o_tile(p, i), i); };  // B's offset of element i
template <class Index, class Params>
concept OutputIndexC =
    requires(const Params& p, int i) { Index::o_c(p, Index::o_tile(p, i), i); };  // C's offset of element i
template <class Index, class Params, class Acc>
concept OutputFunction =
    requires(const Params& p, int i, Acc x) { Index::op(p, Index::o_tile(p, i), i, x); };  // the function at element i

// Of a tensor that is transposed through shared memory.
template <class Index, class Params>
concept ImageOfA =
    requires(const Params& p, int i) { Index::tile_index_a(p, i); } &&  // the tile's index of position i in A's order
    requires(const Params& p, int i) { Index::image_a(p, i); };         // the image's index of element i of the tile
template <class Index, class Params>
concept ImageOfB =
    requires(const Params& p, int i) { Index::tile_index_b(p, i); } &&  // the tile's index of position i in B's order
    requires(const Params& p, int i) { Index::image_b(p, i); };         // the image's index of element i of the tile
template <class Index, class Params>
concept ImageOfC =
    requires(const Params& p, int i) { Index::tile_index_c(p, i); } &&  // the tile's index of position i in C's order
    requires(const Params& p, int i) { Index::image_c(p, i); };         // the image's index of element i of the tile

// Of a tensor whose vectors are read in pieces: elements between neighbours.
template <class Index, class Params> concept StepOfA = requires(const Params& p) { Index::step_a(p); };  // A's
template <class Index, class Params> concept StepOfB = requires(const Params& p) { Index::step_b(p); };  // B's
template <class Index, class Params> concept StepOfC = requires(const Params& p) { Index::step_c(p); };  // C's

template <class LoaderTraits, int kVec>
concept InPieces = !LoaderTraits::kViaSmem && !LoaderTraits::kBroadcast && LoaderTraits::kWidth != kVec && kVec > 1;

// How far a thread's vectors are apart in a map whose steps are whole rows.
template <class Index, class Params> concept AdvanceOfA = requires(const Params& p) { Index::advance_a(p); };  // in A
template <class Index, class Params> concept AdvanceOfB = requires(const Params& p) { Index::advance_b(p); };  // in B
template <class Index, class Params> concept AdvanceOfC = requires(const Params& p) { Index::advance_c(p); };  // in C
template <class Index, class Params> concept AdvanceOfD = requires(const Params& p) { Index::advance_d(p); };  // in D

template <class Traits, class Index, class Params = typename Traits::Params>
concept StreamIndex =
    OutputIndex<Index, Params> && (!Traits::kEpilogueOp || OutputFunction<Index, Params, typename Traits::Acc>) &&
    (!Traits::kHasB || OutputIndexB<Index, Params>) &&
    (!Traits::LoaderTraitsA::kViaSmem || ImageOfA<Index, Params>) &&
    (!Traits::LoaderTraitsB::kViaSmem || ImageOfB<Index, Params>) &&
    (!InPieces<typename Traits::LoaderTraitsA, Traits::kVec> || StepOfA<Index, Params>) &&
    (!Traits::kHasB || !InPieces<typename Traits::LoaderTraitsB, Traits::kVec> || StepOfB<Index, Params>);

template <class Traits, class Index>
concept StreamMap =
    Stream<Traits> && StreamIndex<Traits, Index> &&
    requires { Traits::kPlain; } &&      // whether elements are copied as they are
    requires { Traits::kStoreOnce; } &&  // whether D is stored past the caches
    requires { Traits::kStep; } &&       // vectors of a step of all threads
    requires { Traits::kAdvance; } &&    // whether steps are whole rows
    (Traits::kSourceC == kSourceNone || OutputIndexC<Index, typename Traits::Params>) &&
    (!Traits::LoaderTraitsC::kViaSmem || ImageOfC<Index, typename Traits::Params>) &&
    (Traits::kSourceC == kSourceNone || !InPieces<typename Traits::LoaderTraitsC, Traits::kVec> ||
     StepOfC<Index, typename Traits::Params>) &&
    (!Traits::kAdvance || AdvanceOfD<Index, typename Traits::Params>) &&
    (!Traits::kAdvance || Traits::LoaderTraitsA::kViaSmem || AdvanceOfA<Index, typename Traits::Params>) &&
    (!Traits::kAdvance || !Traits::kHasB || Traits::LoaderTraitsB::kViaSmem ||
     AdvanceOfB<Index, typename Traits::Params>) &&
    (!Traits::kAdvance || Traits::kSourceC == kSourceNone || Traits::LoaderTraitsC::kViaSmem ||
     AdvanceOfC<Index, typename Traits::Params>);

template <class Index, class Params>
concept SumIndex =
    requires(const Params& p, int i) { Index::k_tile(p, i); } &&  // offsets of a tile of the summed modes
    requires(const Params& p, int i) { Index::k_ok(p, Index::k_tile(p, i), i); } &&  // whether it has element i
    requires(const Params& p, int i) { Index::k_a(p, Index::k_tile(p, i), i); } &&   // A's offset of element i
    requires(const Params& p, int i) { Index::tile_index_d(p, i); };  // the tile's index of position i in D's order
template <class Index, class Params>
concept SumIndexB =
    requires(const Params& p, int i) { Index::k_b(p, Index::k_tile(p, i), i); };  // B's offset of element i

template <class Params>
concept SumParams =
    requires(const Params& p) { p.tiles_o; } &&           // tiles of D
    requires(const Params& p) { p.split_k; } &&           // blocks that share a sum
    requires(const Params& p) { p.k_tiles; } &&           // tiles of the summed modes
    requires(const Params& p) { p.k_tiles_per_slice; };   // those of one block

template <class Traits, class Index>
concept StreamSum =
    Stream<Traits> && StreamIndex<Traits, Index> && SumIndex<Index, typename Traits::Params> &&
    (!Traits::kHasB || SumIndexB<Index, typename Traits::Params>) &&
    requires { Traits::kAlongK; } &&  // whether vectors run along a summed mode
    requires { Traits::kSplit; } &&   // whether several blocks share a sum
    requires { Traits::kLanesK; } &&  // threads that share a sum
    requires { Traits::kRows; } &&    // sums of a thread
    SumParams<typename Traits::Params> &&
    (!Traits::kSplit || SliceParams<typename Traits::Params>) &&
    (Traits::kSourceC == kSourceNone || OutputIndexC<Index, typename Traits::Params>);

// --- a large operand times a small matrix

template <class Traits, class Index, class Params = typename Traits::Params>
concept MatrixIndex =
    requires(const Params& p, int i) { Index::l_tile(p, i).a; } &&  // A's offset of a batch
    requires(const Params& p, int i) { Index::l_tile(p, i).b; } &&  // B's offset of a batch
    requires(const Params& p, int i) { Index::l_tile(p, i).d; } &&  // D's offset of a batch
    requires(const Params& p, int i) { Index::m_tile(p, i).a; } &&  // A's offset of a tile of M
    requires(const Params& p, int i) { Index::m_tile(p, i).d; } &&  // D's offset of a tile of M
    requires(const Params& p, int i) { Index::n_tile(p, i).b; } &&  // B's offset of N
    requires(const Params& p, int i) { Index::n_tile(p, i).d; } &&  // D's offset of N
    requires(const Params& p, int i) { Index::k_tile(p, i).a; } &&  // A's offset of K
    requires(const Params& p, int i) { Index::k_tile(p, i).b; } &&  // B's offset of K
    requires(const Params& p, int i) { Index::m_ok(p, Index::m_tile(p, i), i); } &&  // whether D has row i of the tile
    requires(const Params& p, int i) { Index::m_a(p, Index::m_tile(p, i), i); } &&   // A's offset of row i
    requires(const Params& p, int i) { Index::m_d(p, Index::m_tile(p, i), i); } &&   // D's offset of row i
    requires(const Params& p, int i) { Index::n_b(p, Index::n_tile(p, i), i); } &&   // B's offset of column i
    requires(const Params& p, int i) { Index::n_d(p, Index::n_tile(p, i), i); } &&   // D's offset of column i
    requires(const Params& p, int i) { Index::k_a(p, Index::k_tile(p, i), i); } &&   // A's offset of k i
    requires(const Params& p, int i) { Index::k_b(p, Index::k_tile(p, i), i); };     // B's offset of k i
template <class Index, class Params>
concept MatrixIndexC =
    requires(const Params& p, int i) { Index::m_c(p, Index::m_tile(p, i), i); } &&  // C's offset of row i
    requires(const Params& p, int i) { Index::n_c(p, Index::n_tile(p, i), i); };    // C's offset of column i

template <class Params>
concept MatrixParams =
    requires(const Params& p) { p.b; } &&      // B
    requires(const Params& p) { p.tiles_m; };  // tiles of M

template <class Traits, class Index>
concept StreamMatrix =
    AnyStream<Traits> && MatrixIndex<Traits, Index> &&
    MatrixParams<typename Traits::Params> &&
    requires { typename Traits::ElementA; } &&  // an element of A
    requires { typename Traits::ElementB; } &&  // an element of B
    requires { Traits::kExtras; } &&            // tensors that the function reads
    requires { Traits::kN; } &&                 // columns of the small matrix
    requires { Traits::kK; } &&                 // rows of the small matrix
    requires { Traits::kVecK; } &&              // elements of an access of A that lie along K
    requires { Traits::kVecN; } &&              // elements of an access of D that lie along N
    requires { Traits::kLanesN; } &&            // lanes that share a vector of A and make other columns each
    (Traits::kSourceC == kSourceNone || MatrixIndexC<Index, typename Traits::Params>) &&
    (!Traits::kEpilogueOp || FunctionIndex<Index, typename Traits::Params, typename Traits::Acc>);

}  // namespace contract
}  // namespace gett
#endif
