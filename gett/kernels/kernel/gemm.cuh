// The GEMM kernel of Hopper: warp-specialised and persistent, put together from a main loop, an epilogue, a tile
// scheduler and a plan of shared memory. Owns the roles of the warps and nothing else.
//
// Producer warpgroups come first: their first kLoadWarps warps fill stages, the next ones store D, one for each staging
// buffer. The consumer warpgroups multiply and stage D.
#pragma once
#include "gett/ptx/shared.cuh"
#include "gett/ptx/tma.cuh"
#include "gett/ptx/warpgroup.cuh"

namespace gett {

template <class Mainloop, class Epilogue, class Scheduler, class Smem> struct Gemm {
  typedef typename Mainloop::Params Params;
  static constexpr int kProducers = Mainloop::kProducerWarpgroups;
  static constexpr int kLoadWarps = Mainloop::kLoadWarps, kStoreWarps = Epilogue::kStoreWarp ? Epilogue::kBuffers : 0;
  static_assert(kLoadWarps + kStoreWarps <= 4 * kProducers, "warps of the producer warpgroups");
  static_assert(setmaxnreg_fits(kProducers, Mainloop::kProducerRegs, Mainloop::kConsumerWarpgroups,
                                Mainloop::kConsumerRegs), "registers of a block");

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char raw[];
    const typename Mainloop::Storage smem = {(smem_address(raw) + 1023) & ~1023u};
    char* const base = raw + (smem.start - smem_address(raw));
    const int thread = threadIdx.x;
    if (thread == 0) {
      Mainloop::prefetch_tensormaps(p);
      smem.init_barriers();
    }
    griddepcontrol_wait();  // nothing is read or written before the launch that this one overlaps has ended
    Scheduler::sync();
    if (thread < 128 * kProducers) {
      setmaxnreg_dec<Mainloop::kProducerRegs>();
      Mainloop::load(p, smem, base, thread);
      if constexpr (kStoreWarps > 0) {
        const int warp = thread >> 5, buffer = kStoreWarps > 1 ? warp - kLoadWarps : 0;
        if (warp >= kLoadWarps && warp < kLoadWarps + kStoreWarps)
          Mainloop::template store<Epilogue>(p, smem, buffer, thread & 31);
      }
    } else {
      setmaxnreg_inc<Mainloop::kConsumerRegs>();
      Mainloop::consume(p, smem, base, thread - 128 * kProducers);
    }
    Scheduler::finish();  // the other blocks of the cluster may still write here
  }
};

}  // namespace gett
