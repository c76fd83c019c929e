// Replaces gett/ptx/warpgroup.cuh on the host: a warp of one lane, of which no other thread is waited for.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

inline bool elected() { return true; }
inline void named_barrier(int, int) {}
inline void named_arrive(int, int) {}
inline void async_fence() {}

}  // namespace gett
