// What the multistage kernels (mainloop/multistage.cuh with mainloop/mma_sync.cuh or mainloop/simt.cuh) need of the
// generated MainloopTraits, Index and Smem, with what their loaders need.
#pragma once
#include "gett/contract/loaders.cuh"

#ifdef GETT_CONTRACT
namespace gett {
namespace contract {

// Where all tensors lie. BatchedIndex (core/batched.cuh) makes of it what the parts of the kernel see.
template <class Index, class Params>
concept GemmIndex =
    requires { typename Index::LTile; } &&  // offsets of a batch, or of a block's batches
    requires { typename Index::MTile; } &&  // offsets of a tile of M, and what m_ok needs
    requires { typename Index::NTile; } &&  // offsets of a tile of N, and what n_ok needs
    requires(const Params& p, int i) { Index::l_tile(p, i).a; } &&  // A's offset of a batch
    requires(const Params& p, int i) { Index::l_tile(p, i).b; } &&  // B's offset of a batch
    requires(const Params& p, int i) { Index::l_tile(p, i).d; } &&  // D's offset of a batch
    requires(const Params& p, int i) { Index::m_tile(p, i).a; } &&  // A's offset of a tile of M
    requires(const Params& p, int i) { Index::m_tile(p, i).d; } &&  // D's offset of a tile of M
    requires(const Params& p, int i) { Index::n_tile(p, i).b; } &&  // B's offset of a tile of N
    requires(const Params& p, int i) { Index::n_tile(p, i).d; } &&  // D's offset of a tile of N
    requires(const Params& p, AtM<Index> t, int m) { Index::m_ok(p, t, m); } &&  // whether D has row m of the tile
    requires(const Params& p, AtM<Index> t, int m) { Index::m_a(p, t, m); } &&   // A's offset of row m
    requires(const Params& p, AtM<Index> t, int m) { Index::m_d(p, t, m); } &&   // D's offset of row m
    requires(const Params& p, AtN<Index> t, int n) { Index::n_ok(p, t, n); } &&  // whether D has column n
    requires(const Params& p, AtN<Index> t, int n) { Index::n_b(p, t, n); } &&   // B's offset of column n
    requires(const Params& p, AtN<Index> t, int n) { Index::n_d(p, t, n); };     // D's offset of column n
template <class Index, class Params>
concept GemmIndexC =
    requires(const Params& p, int i) { Index::l_tile(p, i).c; } &&  // C's offset of a batch
    requires(const Params& p, int i) { Index::m_tile(p, i).c; } &&  // C's offset of a tile of M
    requires(const Params& p, int i) { Index::n_tile(p, i).c; } &&  // C's offset of a tile of N
    requires(const Params& p, AtM<Index> t, int m) { Index::m_c(p, t, m); } &&  // C's offset of row m
    requires(const Params& p, AtN<Index> t, int n) { Index::n_c(p, t, n); };    // C's offset of column n

// Where a block makes several batches.
template <class Index, class Params>
concept BatchesIndex =
    requires(const Params& p, AtL<Index> t, int l) { Index::l_ok(p, t, l); } &&  // whether D has batch l
    requires(const Params& p, AtL<Index> t, int l) { Index::l_a(p, t, l); } &&   // A's offset of batch l
    requires(const Params& p, AtL<Index> t, int l) { Index::l_b(p, t, l); } &&   // B's offset of batch l
    requires(const Params& p, AtL<Index> t, int l) { Index::l_d(p, t, l); };     // D's offset of batch l
template <class Index, class Params>
concept BatchesIndexC =
    requires(const Params& p, AtL<Index> t, int l) { Index::l_c(p, t, l); };  // C's offset of batch l

template <class EpilogueTraits, class Index>
concept BatchedIndex =
    BatchedTile<EpilogueTraits> &&
    requires { EpilogueTraits::kSourceC; } &&  // where C comes from: SourceC
    GemmIndex<Index, typename EpilogueTraits::Params> &&
    (EpilogueTraits::kSourceC != kSourceVector || GemmIndexC<Index, typename EpilogueTraits::Params>) &&
    (EpilogueTraits::kBatch == 1 || BatchesIndex<Index, typename EpilogueTraits::Params>) &&
    (EpilogueTraits::kBatch == 1 || EpilogueTraits::kSourceC != kSourceVector ||
     BatchesIndexC<Index, typename EpilogueTraits::Params>);

template <class MainloopTraits, class Index, class Smem>
concept Multistage =
    BatchedTile<MainloopTraits> && MultistageSmem<Smem> && MultistageParams<typename MainloopTraits::Params> &&
    requires { MainloopTraits::kStages; } &&                 // stages of the ring
    requires { MainloopTraits::kThreads; } &&                // threads of a block
    requires { MainloopTraits::kWarpsM; } &&                 // warps along M
    requires { MainloopTraits::kWarpsN; } &&                 // warps along N
    requires { MainloopTraits::kTensorCores; } &&            // products by mma.sync; else by multiply-adds
    requires { MainloopTraits::kKTiles; } &&                 // k-tiles of a block where its stages hold all; else 0
    requires { MainloopTraits::kAhead; } &&                  // whether fragments are loaded before their k-tile begins
    requires { MainloopTraits::kKTable; } &&                 // whether K is flattened
    requires { MainloopTraits::kKRagged; } &&                // whether the last k-tile is not whole
    requires { typename MainloopTraits::Offset; } &&         // bytes from a tile's origin to a thread's vector
    requires { typename MainloopTraits::LoaderTraitsA; } &&  // what A's loader is told
    requires { typename MainloopTraits::LoaderTraitsB; } &&  // what B's loader is told
    MultistageLoader<typename MainloopTraits::LoaderTraitsA> &&
    MultistageLoader<typename MainloopTraits::LoaderTraitsB> &&
    (MainloopTraits::kKTable || BoxedK<Index, typename MainloopTraits::Params>) &&
    (!MainloopTraits::kKTable || FlattenedK<Index, typename MainloopTraits::Params>) &&
    (!MainloopTraits::LoaderTraitsA::kWalked || WalkedA<Index, typename MainloopTraits::Params>) &&
    (!MainloopTraits::LoaderTraitsB::kWalked || WalkedB<Index, typename MainloopTraits::Params>);

}  // namespace contract
}  // namespace gett
#endif
