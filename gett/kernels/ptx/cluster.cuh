// Thread block clusters and distributed shared memory (PTX ISA, barrier.cluster, mapa, st.async).
#pragma once
#include "gett/core/types.cuh"

namespace gett {

GETT_DEVICE uint32 cluster_ctarank() {
  uint32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
GETT_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Suffices where `fence_mbarrier_init` has released what the other blocks must see.
GETT_DEVICE void cluster_sync_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The address of what block `rank` of the cluster has at this block's address `here`.
GETT_DEVICE uint32 mapa(uint32 here, uint32 rank) {
  uint32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
  return there;
}
// Stores 16 bytes to the shared memory of another block, whose mbarrier counts them. `to` and `bar` are `mapa`'s.
GETT_DEVICE void st_async(uint32 to, const uint32 (&x)[4], uint32 bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(bar) : "memory");
}

}  // namespace gett
