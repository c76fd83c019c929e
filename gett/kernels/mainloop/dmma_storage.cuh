// The shared memory of a kernel that multiplies float64 or complex128: stages, and the staged tile of D. Each warp
// reads its own fragments, and so releases a stage by itself.
#pragma once
#include "gett/mainloop/shared_storage.cuh"

namespace gett {

template <class Traits, class Index, class Store, class Scheduler, class Smem>
struct DmmaStorage : SharedStorage<Traits, Index, Store, Scheduler, Smem> {
  typedef SharedStorage<Traits, Index, Store, Scheduler, Smem> Base;
  static_assert(Base::kE == 8 || Base::kE == 16, "numbers of 64 bits, or two of them");

  GETT_DEVICE void init_barriers() const {
    for (int s = 0; s < Traits::kStages; ++s) {
      mbarrier_init(this->full() + s * 8, 1);
      mbarrier_init(this->empty() + s * 8, 4 * Traits::kConsumerWarpgroups * Scheduler::kSize);
    }
    for (int g = 0; g < Store::kBuffers; ++g) mbarrier_init(this->free(g), 1);
    fence_mbarrier_init();
  }
};

}  // namespace gett
