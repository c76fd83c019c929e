// The kernel of operands whose contiguous modes are two different contracted modes: A's rows run along k1, B's along
// k2. No matrix descriptor expresses that, so A comes from registers (wgmma RS), where pairs of k2 are packed; no tile
// is transposed in memory. Its warps: two producers, a store warp or two that forward A, and the consumer warpgroups.
//
// A k-tile is kDepth of k1 times 16 or 32 of k2. A lies as [row][k2][k1], and its place is free for the next k-tile as
// soon as it is in registers. B lies as [n][k2] for one k1 at a time, one or two instructions deep, in a ring of
// kStages.
//
// kPerWarpgroupA: the rows of A are loaded and released by warpgroup, with mbarriers of each. The warpgroups then
// differ by up to the depth of the ring, and one multiplies while the other's rows arrive. A warpgroup may have fewer
// than 64 rows (kGroupValidRows); the rest of its 64 are padding.
//
// kForwardA: two blocks that are neighbours along N need the same A. Each loads its half of k2 from memory and forwards
// it to the other (WgmmaRSLoader::forward_a), so L2 has half as many requests for A. A multicast would be sent row by
// row, and a row of 32 bytes takes longer that way than two; loads from the other's memory bring 7 bytes a clock, these
// stores 19.
//
// kMulticastB: two blocks that are neighbours along M need the same B. They take turns in loading a stage for both.
#pragma once
#include "gett/mainloop/wgmma_rs.cuh"

namespace gett {

template <class Traits, class Index, class Mma, class Smem> struct WgmmaRSGemm {
  typedef WgmmaRSLoader<Traits, Index, Smem> Loader;
  typedef WgmmaRSMainloop<Traits, Index, Mma, Smem> Mainloop;
  typedef typename Loader::Params Params;
  typedef typename Loader::Scheduler Scheduler;
  static constexpr int kGroups = Traits::kConsumerWarpgroups;
  static_assert(setmaxnreg_fits(1, Traits::kProducerRegs, kGroups, Traits::kConsumerRegs), "registers of a block");

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char raw[];
    const uint32 start = (smem_address(raw) + 1023) & ~1023u, stages_b = start + Smem::kStages;
    const int thread = threadIdx.x;
    if (thread == 0) Index::prefetch_tensormaps(p);
    const typename Loader::Bars bars = Loader::init(start, thread);
    Scheduler::sync();
    if (thread < 128) {
      setmaxnreg_dec<Traits::kProducerRegs>();
      if (thread < 32 && elect_one()) Loader::produce_b(p, stages_b, bars);
      if (thread >> 5 == 1 && elect_one()) Loader::produce_a(p, start, bars);
      if constexpr (Traits::kTmaStore) {
        if (thread >> 5 == 2) Epilogue<Traits, Index>::store_loop(p, start, bars.free, 0, thread & 31);
      }
      if constexpr (Loader::kForwardA) {
        if (thread >= 64) Loader::forward_a(p, start, bars, thread - 64);
      }
    } else {
      setmaxnreg_inc<Traits::kConsumerRegs>();
      Mainloop::consume(p, raw + (start - smem_address(raw)), start, stages_b, bars, thread - 128);
    }
    Scheduler::finish();  // the other block may still arrive here
  }
};

}  // namespace gett
