// The GEMM kernel of Ampere and later, and of types without tensor cores. Its parts are a main loop, an epilogue, a
// tile scheduler and a plan of shared memory. All warps do the same, part by part, for each work tile of the block: the
// scheduler says which tile it is and which k-tiles it has.
#pragma once
#include "gett/epilogue/padded.cuh"
#include "gett/mainloop/multistage.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/one_tile.cuh"
#include "gett/scheduler/persistent.cuh"

namespace gett {

template <class Mainloop, class Epilogue, class Scheduler, class Index> struct MultistageGemm {
  typedef typename Mainloop::Params Params;
  static constexpr int kThreads = Mainloop::kThreads;

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char smem[];
    if constexpr (Scheduler::kParts == 0) {
      make(p, Scheduler::first(p), smem, threadIdx.x);
    } else {
      for (int t = Scheduler::first(p); t < Scheduler::end(p); t += Scheduler::step(p)) {
        // What follows from the thread is computed for each tile: kept, it would take a fifth more registers. An empty
        // part of a share leaves zeros, which nobody reads.
        make(p, t, smem, opaque(threadIdx.x));
        __syncthreads();  // the tile has left shared memory
      }
    }
  }

  // Work tile `t`.
  static GETT_DEVICE void make(const Params& p, int t, char* smem, int thread) {
    const Scheduler scheduler;
    const TileId id = scheduler.locate(p, t);
    const auto lt = Index::l_tile(p, id.l);
    const auto nt = Index::n_tile(p, id.n);
    const auto rows = Index::rows(lt, Index::m_tile(p, id.m));
    const Epilogue epilogue(smem, thread);
    Mainloop mainloop(smem, thread);
    griddepcontrol_wait();
    mainloop.init(p, rows, Index::columns(lt, nt));
    const KTileRange k_tiles = Scheduler::k_tiles(p, t, id.slice);
    mainloop.fill(p, k_tiles);
    epilogue.prepare(p, rows, nt, kThreads);
    mainloop.multiply(p, k_tiles);
    epilogue.store(p, scheduler, id, t, mainloop);
  }
};

}  // namespace gett
