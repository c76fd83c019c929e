// Fences and groups of wgmma (PTX ISA, asynchronous warpgroup level matrix instructions). The product itself is
// generated, since its text depends on N.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// Orders the warpgroup's accesses of registers before those of the products that follow.
GETT_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GETT_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Returns once all but `Pending` groups of products are complete.
template <int Pending> GETT_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// Keeps the compiler from reading the accumulators before the wait.
template <class Acc, int N> GETT_DEVICE void wgmma_fence_operand(Acc (&acc)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}
// Accumulators that the first product overwrites: they hold nothing yet.
template <class Acc, int N> GETT_DEVICE void wgmma_new_operand(Acc (&acc)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "=f"(acc[i]));
}

}  // namespace gett
