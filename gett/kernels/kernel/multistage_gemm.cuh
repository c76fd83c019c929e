// The GEMM kernel of Ampere and later, and of types without tensor cores. Its parts are a main loop, an epilogue, a
// tile scheduler and a plan of shared memory. All warps do the same, part by part.
#pragma once
#include "gett/epilogue/padded.cuh"
#include "gett/mainloop/multistage.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/one_tile.cuh"

namespace gett {

template <class Mainloop, class Epilogue, class Scheduler, class Index> struct MultistageGemm {
  typedef typename Mainloop::Params Params;
  static constexpr int kThreads = Mainloop::kThreads;

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char smem[];
    const int thread = threadIdx.x;
    const TileId id = Scheduler::locate(p);
    const auto lt = Index::l_tile(p, id.l);
    const auto nt = Index::n_tile(p, id.n);
    const auto rows = Index::rows(lt, Index::m_tile(p, id.m));
    const Epilogue epilogue(smem, thread);
    Mainloop mainloop(smem, thread);
    griddepcontrol_wait();
    mainloop.init(p, rows, Index::columns(lt, nt));
    const KTileRange k_tiles = k_tile_range(p, id.slice);
    mainloop.fill(p, k_tiles);
    epilogue.prepare(p, rows, nt, kThreads);
    mainloop.multiply(p, k_tiles);
    epilogue.store(p, id, mainloop);
  }
};

}  // namespace gett
