// What warps and warpgroups of a block agree on: one elected thread, register counts, named barriers, dependent grids.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// True in one thread of a whole warp. The compiler knows that it is one, and issues copies without asking each time.
GETT_DEVICE bool elect_one() {
  uint32 is;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n" : "=r"(is));
  return is != 0;
}

template <int Count> GETT_DEVICE void setmaxnreg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count)); }
// Whether `up` warpgroups find the registers that they ask for: a block has what its threads began with, whole eights
// each, and who asks for more waits for ever.
GETT_DEVICE constexpr bool setmaxnreg_fits(int down, int down_count, int up, int up_count) {
  const int groups = down + up;
  return down * down_count + up * up_count <= 65536 / (128 * groups) / 8 * 8 * groups;
}
template <int Count> GETT_DEVICE void setmaxnreg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count)); }

// Barrier `id` among `threads` threads of the block.
GETT_DEVICE void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

GETT_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Makes ordinary writes to shared memory visible to the copy engine and the tensor cores.
GETT_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Launches that overlap (from sm_90 on): the first lets the next start once all its blocks run, and the next waits here
// until the first has ended and its writes can be seen.
GETT_DEVICE void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
GETT_DEVICE void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace gett
