// The epilogue of the multistage kernels: accumulators are staged in rows of N where the stages were, then stored as
// vectors in D's order (epilogue/vector.cuh). Slices of K store partial tiles instead.
#pragma once
#include "gett/contract/stores.cuh"
#include "gett/core/batched.cuh"
#include "gett/core/workspace.cuh"
#include "gett/epilogue/vector.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

// Stores accumulators of a slice to its partial tile of kM x kN elements.
template <class Scheduler, class Acc, int kM, int kN> struct StorePartial {
  Acc* to_;
  template <int kV> GETT_DEVICE void operator()(int m, int n, const Vec<Acc, kV>& x) const {
    store_partial<Scheduler, kM, kN>(to_, m, n, x.x);
  }
};

template <class Traits, class Index, class Scheduler, class Smem>
  GETT_REQUIRES(contract::PaddedEpilogue<Traits, Index, Smem>)
struct PaddedEpilogue {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef BatchedResult<Traits> Result;
  typedef PaddedTile<Result> Staged;
  typedef LinearCombination<Result> Op;
  static constexpr int kOffsetsBytes = Scheduler::kSplit ? 0 : EpilogueOffsets<Result>::kBytes;
  static_assert(Scheduler::kSplit || Smem::kStaging + Staged::kBytes <= Smem::kKTable, "staged tile");
  static_assert(Smem::kOffsets + kOffsetsBytes <= Smem::kSize, "offsets of rows and columns");

  typedef TileOp<Traits, Index> Function;
  // Whether the function is applied to accumulators before they are staged; else it is where C is added.
  static constexpr bool kFinish = Function::kOn && Traits::kSourceC == kSourceNone;

  // Stages accumulators; they are scaled here unless the function has been applied to them.
  struct StoreStaged {
    const Op& op_;
    const Staged& staged_;
    template <int kV> GETT_DEVICE void operator()(int m, int n, Vec<Acc, kV> x) const {
#pragma unroll
      for (int j = 0; j < kV && !kFinish; ++j) x.x[j] = op_.scale(x.x[j]);
      staged_.store(m, n, x);
    }
  };
  // Scales accumulators and applies the function to them.
  struct Finish {
    const Op& op_;
    const Function& function_;
    template <class Fragment> GETT_DEVICE void operator()(Fragment& fragment) const {
      function_.apply(fragment, [&](Acc x) { return op_.scale(x); });
    }
  };

  char* base_;
  int thread_;
  EpilogueOffsets<Result> offsets_;

  GETT_DEVICE PaddedEpilogue(char* smem, int thread)
      : base_(smem + Smem::kStaging), thread_(thread),
        offsets_(smem + Smem::kOffsets) {}

  // Before the products: the offsets of the tile's rows and columns.
  template <class Rows, class NTile>
  GETT_DEVICE void prepare(const Params& p, const Rows& rows, const NTile& nt, int threads) const {
    if constexpr (!Scheduler::kSplit) offsets_.template fill<Index, Staged>(p, rows, nt, thread_, threads);
  }

  // The sums of work tile `t` leave: to D, or to the workspace where they are a part of a tile's.
  template <class Mainloop>
  GETT_DEVICE void store(const Params& p, const Scheduler& scheduler, const TileId& id, int t,
                         Mainloop& products) const {
    constexpr int kTile = Traits::kBlockM * Traits::kBlockN;
    typedef StorePartial<Scheduler, Acc, Traits::kBlockM, Traits::kBlockN> Partial;
    if constexpr (Scheduler::kSplit) {
      products.visit(Partial{partial_tile<kTile>(p, id)});
    } else {
      if constexpr (Scheduler::kParts > 0) {
        if (Scheduler::is_part(p, t)) {
          products.visit(Partial{scheduler.template partial<kTile>(p, t)});
          return;
        }
      }
      const Op op(p);
      const Staged staged{base_};
      const Function function(p, id);
      if constexpr (kFinish) products.for_each_fragment(Finish{op, function});
      products.visit(StoreStaged{op, staged});
      __syncthreads();
      store_vectors<Result, Index, Mainloop::kThreads>(p, offsets_, staged, function, thread_);
    }
  }
};

}  // namespace gett
