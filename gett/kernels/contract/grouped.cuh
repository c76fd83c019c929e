// What the kernels of grouped launches (kernel/grouped_gemm.cuh) need of the generated text: Params, the traits of the
// main loop, and those of the tile scheduler, which are in the same struct.
#pragma once
#include "gett/contract/loaders.cuh"

#ifdef GETT_CONTRACT
namespace gett {
namespace contract {

// Of every grouped launch: the modes of all problems.
template <class Params>
concept GroupedParams =
    requires(const Params& p) { p.layouts; } &&  // groups of modes
    requires(const Params& p) { p.modes; };      // modes of all layouts

template <class Params>
concept TableParams =
    requires(const Params& p) { p.outputs; } &&  // blocks of D
    requires(const Params& p) { p.pairs; } &&    // pairs of operands, by output
    requires(const Params& p) { p.tiles; };      // the output that each block works on

template <class Params>
concept ListedParams =
    requires(const Params& p) { p.problems; } &&  // the problems
    requires(const Params& p) { p.count; };       // how many there are

template <class Params>
concept RaggedParams =
    requires(const Params& p) { p.a; } &&            // A
    requires(const Params& p) { p.b; } &&            // B
    requires(const Params& p) { p.d; } &&            // D
    requires(const Params& p) { p.ends; } &&         // where the rows of each problem end
    requires(const Params& p) { p.problems; } &&     // how many problems there are
    requires(const Params& p) { p.rows; } &&         // extent of the ragged mode
    requires(const Params& p) { p.ragged_mode; } &&  // its number among the modes
    requires(const Params& p) { p.ragged_step; } &&  // bytes from row to row
    requires(const Params& p) { p.problem_step; };   // bytes from problem to problem

template <class MainloopTraits>
concept TableProblems = TableParams<typename MainloopTraits::Params>;

template <class MainloopTraits>
concept ListedProblems = Tile<MainloopTraits> && ListedParams<typename MainloopTraits::Params>;

template <class MainloopTraits>
concept RaggedProblems =
    Tile<MainloopTraits> && RaggedParams<typename MainloopTraits::Params> &&
    requires { MainloopTraits::kRaggedGroup; };  // the group that has the ragged mode: ModeGroup

template <class LoaderTraits>
concept GroupedLoader =
    requires { typename LoaderTraits::Element; } &&  // an element of the operand
    requires { typename LoaderTraits::Layout; } &&   // how the tile lies in shared memory
    requires { LoaderTraits::kMajorK; } &&           // whether rows of the tile run along K
    requires { LoaderTraits::kSpread; } &&           // 1: a tile has one batch
    requires { LoaderTraits::kVec; };                // elements that a thread copies at once, along a row

template <class MainloopTraits>
concept GroupedGemm =
    Tile<MainloopTraits> && GroupedParams<typename MainloopTraits::Params> &&
    requires { MainloopTraits::kStages; } &&                 // stages of the ring
    requires { MainloopTraits::kThreads; } &&                // threads of a block
    requires { MainloopTraits::kWarpsM; } &&                 // warps along M
    requires { MainloopTraits::kWarpsN; } &&                 // warps along N
    requires { MainloopTraits::kTensorCores; } &&            // products by mma.sync; else by multiply-adds
    requires { typename MainloopTraits::LoaderTraitsA; } &&  // what A's loader is told
    requires { typename MainloopTraits::LoaderTraitsB; } &&  // what B's loader is told
    GroupedLoader<typename MainloopTraits::LoaderTraitsA> && GroupedLoader<typename MainloopTraits::LoaderTraitsB>;

}  // namespace contract
}  // namespace gett
#endif
