// Instructions of whole warps and warpgroups: election, register counts, named barriers, the asynchronous proxy, and
// launches that overlap.
#pragma once
#include "gett/core/named_barriers.cuh"
#include "gett/core/types.cuh"

namespace gett {

// True in one thread of a whole warp. The compiler knows that it is one thread, and emits copies without a loop over
// the active lanes.
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

template <int Count> GETT_DEVICE void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count> GETT_DEVICE void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
// Whether a block has the registers that `dec` warpgroups keep and `inc` warpgroups ask for. A block owns what its
// threads started with, in multiples of 8; a warpgroup that asks for more waits for ever.
GETT_DEVICE constexpr bool setmaxnreg_fits(int dec, int dec_count, int inc, int inc_count) {
  const int groups = dec + inc;
  return dec * dec_count + inc * inc_count <= 65536 / (128 * groups) / 8 * 8 * groups;
}

// `at` among `threads` threads of the block.
GETT_DEVICE void named_barrier_sync(NamedBarrier at, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(int(at)), "r"(threads) : "memory");
}
// Whether any of the threads that wait says so.
GETT_DEVICE bool named_barrier_or(NamedBarrier at, int threads, bool x) {
  uint32 any;
  asm volatile(
      "{\n"
      ".reg .pred x, any;\n"
      "setp.ne.u32 x, %3, 0;\n"
      "barrier.cta.red.or.pred any, %1, %2, x;\n"
      "selp.u32 %0, 1, 0, any;\n"
      "}\n" : "=r"(any) : "r"(int(at)), "r"(threads), "r"(uint32(x)) : "memory");
  return any != 0;
}
GETT_DEVICE void named_barrier_arrive(NamedBarrier at, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(int(at)), "r"(threads) : "memory");
}

// Makes ordinary writes to shared memory visible to the copy engine and to the tensor cores.
GETT_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Programmatic dependent launch, from sm_90 on: a grid may start while the one ahead of it in the stream ends. It waits
// here until that one has ended and its writes are visible.
GETT_DEVICE void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace gett
