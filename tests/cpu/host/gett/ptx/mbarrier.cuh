// Replaces gett/ptx/mbarrier.cuh on the host: nobody waits.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

inline void mbarrier_init(uint32, int) {}
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive_expect_tx(uint32, int) {}
inline void mbarrier_arrive(uint32) {}
inline void mbarrier_arrive_cluster(uint32, uint32) {}
inline void mbarrier_wait(uint32, uint32) {}

}  // namespace gett
