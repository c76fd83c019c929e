// The GEMM kernel of Hopper: warp-specialised and persistent. One warp of the producer warpgroup keeps kStages stages
// full by TMA (loader/tma.cuh), or two producer warpgroups gather (loader/gather.cuh). The consumer warpgroups multiply
// by wgmma (mainloop/wgmma_ss.cuh) and stage D, which further warps of the producer warpgroup store (epilogue/tma.cuh).
//
// A small operand may be stationary (loader/stationary.cuh): it stays in shared memory behind the stages, which then
// hold the other operand alone. A store tile may consist of kMmaTilesPerStoreTile MMA tiles, neighbours along the last
// dimension of M's box: they are staged one after the other and stored at once, in rows longer than the accumulators
// would allow.
#pragma once
#include "gett/loader/tma.cuh"
#include "gett/mainloop/wgmma_ss.cuh"

namespace gett {

template <class Traits, class Index, class Mma, class Smem> struct WarpSpecializedGemm {
  typedef typename Traits::Params Params;
  typedef SharedStorage<Traits, Index, Smem> Storage;
  typedef PersistentScheduler<Traits> Scheduler;
  typedef Epilogue<Traits, Index> Store;
  static constexpr int kProducers = Traits::kProducerWarpgroups;
  static_assert(setmaxnreg_fits(kProducers, Traits::kProducerRegs, Traits::kConsumerWarpgroups, Traits::kConsumerRegs),
                "registers of a block");

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char raw[];
    const Storage smem = {(smem_address(raw) + 1023) & ~1023u};
    char* const base = raw + (smem.start - smem_address(raw));
    const int thread = threadIdx.x;
    if (thread == 0) {
      Index::prefetch_tensormaps(p);
      smem.init_barriers();
    }
    Scheduler::sync();
    if (thread < 128 * kProducers) {
      setmaxnreg_dec<Traits::kProducerRegs>();
      if constexpr (Traits::kGather) {
        GatherLoader<Traits, Index>::run(p, base + Smem::kGather, smem.start, Storage::kStageBytes,
                                         Storage::TileA::kBytes, smem.full(), smem.empty(), thread);
      } else if (thread < 32) {
        TmaLoader<Traits, Index, Smem>::run(p, smem, thread);
      }
      if constexpr (Store::kStoreWarp) {  // one warp for each staging buffer
        const int warp = thread >> 5;
        if (warp >= 1 && warp <= Storage::kStagingBuffers)
          Store::store_loop(p, smem.staging(warp - 1), smem.free(warp - 1), warp - 1, thread & 31);
      }
    } else {
      setmaxnreg_inc<Traits::kConsumerRegs>();
      WgmmaSSMainloop<Traits, Index, Mma, Smem>::consume(p, smem, base, thread - 128 * kProducers);
    }
    Scheduler::finish();  // the other blocks may still write here
  }
};

}  // namespace gett
