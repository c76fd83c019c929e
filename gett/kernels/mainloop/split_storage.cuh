// The shared memory of a kernel that multiplies planes: behind the stages of both operands as they are in memory lie
// stages of B's planes, which wgmma reads. A has none: its planes are fragments in registers.
//
// The order of k within an instruction is free as long as A's and B's agree. Where A's rows run along K, a thread reads
// four neighbours of a row at once, which a fragment has at k = 2t, 2t + 1, 2t + 8 and 2t + 9 (kPermuteK). B's planes
// have the same order.
#pragma once
#include "gett/mainloop/shared_storage.cuh"
#include "gett/mainloop/split_guard.cuh"

namespace gett {

template <class Loader> struct PlaneLoaderTraits {
  static constexpr int kSwizzleBytes = Loader::kSwizzleBytes / 2;
  static constexpr bool kMajorK = Loader::kMajorK;
};

template <class Traits, class Index, class Store, class Scheduler, class Smem>
struct SplitStorage : SharedStorage<Traits, Index, Store, Scheduler, Smem> {
  typedef SharedStorage<Traits, Index, Store, Scheduler, Smem> Base;
  typedef typename Traits::LoaderTraitsB LoaderB;
  typedef SmemOperand<PlaneLoaderTraits<LoaderB>, LoaderB::kRows, 8, Traits::kBlockK, 2> PlaneB;
  static constexpr int kPlanes = Traits::kPlanes, kPlaneStages = Traits::kPlaneStages;
  static constexpr int kPlaneStageBytes = kPlanes * PlaneB::kBytes;
  static constexpr bool kPermuteK = Traits::LoaderTraitsA::kMajorK;
  static constexpr int kSplitters = 4;  // warps that split B
  static_assert(Smem::kPlanes + kPlaneStages * kPlaneStageBytes <= Smem::kStaging, "planes");
  typedef SplitGuard<typename Traits::Params> Guard;
  static_assert(Smem::kBarriers + Base::kBarrierBytes + 16 * kPlaneStages + 8 + Guard::kBytes <= Base::kEnd,
                "mbarriers of the planes, words of the guard");

  GETT_DEVICE uint32 planes(int i) const { return this->start + Smem::kPlanes + i * kPlaneStageBytes; }
  GETT_DEVICE uint32 planes_full() const { return this->start + Smem::kBarriers + Base::kBarrierBytes; }
  GETT_DEVICE uint32 planes_empty() const { return planes_full() + kPlaneStages * 8; }
  // The mbarrier of the end: all tiles have been made, and those to be made again are known.
  GETT_DEVICE uint32 judged() const { return planes_empty() + kPlaneStages * 8; }
  GETT_DEVICE uint32 guard() const { return judged() + 8; }

  // A stage is empty once all warps have read it: those that multiply take A, those that split take B. Planes are
  // empty once the warpgroups have multiplied with them.
  GETT_DEVICE void init_barriers() const {
    for (int s = 0; s < Traits::kStages; ++s) {
      mbarrier_init(this->full() + s * 8, 1);
      mbarrier_init(this->empty() + s * 8, 4 * Traits::kConsumerWarpgroups + kSplitters);
    }
    for (int s = 0; s < kPlaneStages; ++s) {
      mbarrier_init(planes_full() + s * 8, kSplitters);
      mbarrier_init(planes_empty() + s * 8, Traits::kConsumerWarpgroups);
    }
    for (int g = 0; g < Store::kBuffers; ++g) mbarrier_init(this->free(g), 1);
    mbarrier_init(judged(), 1);
    Guard::init(guard());
    fence_mbarrier_init();
  }
};

}  // namespace gett
