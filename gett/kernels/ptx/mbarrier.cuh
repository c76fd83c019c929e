// mbarrier: barriers in shared memory that count arrivals and the bytes of asynchronous copies (PTX ISA, mbarrier). An
// mbarrier is named by its 32-bit address in shared memory.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

GETT_DEVICE void mbarrier_init(uint32 bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
// Makes the initialised barriers visible to the other blocks of the cluster and to the copy engine.
GETT_DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
GETT_DEVICE void mbarrier_arrive(uint32 bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// Arrives, and has the phase also wait for `bytes` bytes of copies.
GETT_DEVICE void mbarrier_arrive_expect_tx(uint32 bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
// Arrives at the barrier that block `rank` of the cluster has at this block's address `bar`. Its release has the scope
// of the block: it orders no ordinary accesses of this thread for the other block. A release at the cluster's scope
// would wait for all memory traffic of the thread.
GETT_DEVICE void mbarrier_arrive_cluster(uint32 bar, uint32 rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(bar), "r"(rank) : "memory");
}
// Returns once the phase of parity `phase` is complete.
GETT_DEVICE void mbarrier_wait(uint32 bar, uint32 phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(bar), "r"(phase) : "memory");
}

}  // namespace gett
