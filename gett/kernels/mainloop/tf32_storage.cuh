// The shared memory of a kernel that multiplies TF32 with A in registers. wgmma reads rows of B along K. Where B's rows
// run along K, wgmma reads the stages. Otherwise stages of B transposed lie behind those of both operands.
#pragma once
#include "gett/mainloop/shared_storage.cuh"

namespace gett {

// The layout of B transposed. A row is that of a whole k-tile, in the widest swizzle that it is made of.
template <int kBlockK> struct TransposedLoaderTraits {
  static constexpr bool kMajorK = true;
  static constexpr int kSwizzleBytes = kBlockK % 32 == 0 ? 128 : kBlockK % 16 == 0 ? 64 : 32;
};

template <class Traits, class Index, class Store, class Scheduler, class Smem>
struct Tf32Storage : SharedStorage<Traits, Index, Store, Scheduler, Smem> {
  typedef SharedStorage<Traits, Index, Store, Scheduler, Smem> Base;
  typedef typename Traits::LoaderTraitsB LoaderB;
  typedef SmemOperand<TransposedLoaderTraits<Traits::kBlockK>, LoaderB::kRows, 8, Traits::kBlockK, 4> TransposedB;
  static constexpr int kTransposedStages = Traits::kTransposedStages;
  static constexpr bool kTransposes = kTransposedStages > 0;
  static constexpr int kTransposers = 4;  // warps that transpose B
  static_assert(Base::kE == 4, "TF32 has four bytes in shared memory");
  static_assert(kTransposes || LoaderB::kMajorK, "wgmma reads rows of B along K");
  static_assert(Smem::kPlanes + kTransposedStages * TransposedB::kBytes <= Smem::kStaging || !kTransposes,
                "B transposed");
  static_assert(Smem::kBarriers + Base::kBarrierBytes + 16 * kTransposedStages <= Base::kEnd, "mbarriers");

  GETT_DEVICE uint32 transposed(int i) const { return this->start + Smem::kPlanes + i * TransposedB::kBytes; }
  GETT_DEVICE uint32 transposed_full() const { return this->start + Smem::kBarriers + Base::kBarrierBytes; }
  GETT_DEVICE uint32 transposed_empty() const { return transposed_full() + kTransposedStages * 8; }

  // A stage is empty once all warps of the cluster that read it have arrived. These are the warps that multiply, which
  // load A from it, and those that transpose B.
  GETT_DEVICE void init_barriers() const {
    constexpr int kWarps = 4 * Traits::kConsumerWarpgroups;
    for (int s = 0; s < Traits::kStages; ++s) {
      mbarrier_init(this->full() + s * 8, 1);
      mbarrier_init(this->empty() + s * 8, (kWarps + (kTransposes ? kTransposers : 0)) * Scheduler::kSize);
    }
    for (int s = 0; s < kTransposedStages; ++s) {
      mbarrier_init(transposed_full() + s * 8, kTransposers);
      mbarrier_init(transposed_empty() + s * 8, kWarps);
    }
    for (int g = 0; g < Store::kBuffers; ++g) mbarrier_init(this->free(g), 1);
    fence_mbarrier_init();
  }
};

}  // namespace gett
