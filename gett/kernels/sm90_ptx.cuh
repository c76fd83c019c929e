// PTX of sm_90a, each instruction once: barriers, tensor-map copies, wgmma bookkeeping (PTX ISA 8.x and later).
#pragma once
#include "gett/common.cuh"

namespace gett {

struct alignas(64) TensorMap { uint64 opaque[16]; };

GETT_DEVICE void barrier_init(uint32 bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
GETT_DEVICE void barrier_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
GETT_DEVICE void barrier_expect(uint32 bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
GETT_DEVICE void barrier_arrive(uint32 bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// Returns once the phase of parity `phase` is complete.
GETT_DEVICE void barrier_wait(uint32 bar, uint32 phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(bar), "r"(phase) : "memory");
}

// ---- clusters ----
GETT_DEVICE uint32 cluster_rank() {
  uint32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
GETT_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// For what `barrier_fence` has released.
GETT_DEVICE void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Arrives at the barrier that block `rank` of the cluster has at this block's `bar`. Orders no ordinary accesses of
// this thread for the other block: a release at the cluster's scope would wait for all of the thread's memory traffic.
GETT_DEVICE void barrier_arrive_at(uint32 bar, uint32 rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(bar), "r"(rank) : "memory");
}
// Where block `rank` of the cluster has what this block has at `here`.
GETT_DEVICE uint32 address_at(uint32 here, uint32 rank) {
  uint32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
  return there;
}

// True in one thread of a whole warp. The compiler knows that it is one, and issues copies without asking each time.
GETT_DEVICE bool elected() {
  uint32 is;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n" : "=r"(is));
  return is != 0;
}

template <int Count> GETT_DEVICE void registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count)); }
// Whether `up` warpgroups find the registers that they ask for: a block has what its threads began with, whole eights
// each, and who asks for more waits for ever.
GETT_DEVICE constexpr bool registers_suffice(int down, int down_count, int up, int up_count) {
  const int groups = down + up;
  return down * down_count + up * up_count <= 65536 / (128 * groups) / 8 * 8 * groups;
}
template <int Count> GETT_DEVICE void registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count)); }

// Barrier `id` among `threads` threads of the block.
GETT_DEVICE void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

GETT_DEVICE void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- tensor-map copies ----
GETT_DEVICE void load_box(uint32 to, const TensorMap* map, uint32 bar, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(to), "l"(map), "r"(bar), "r"(c0), "r"(c1) : "memory");
}
GETT_DEVICE void load_box(uint32 to, const TensorMap* map, uint32 bar, int c0) {
  asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];"
               ::"r"(to), "l"(map), "r"(bar), "r"(c0) : "memory");
}
GETT_DEVICE void load_box(uint32 to, const TensorMap* map, uint32 bar, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
               ::"r"(to), "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
GETT_DEVICE void load_box(uint32 to, const TensorMap* map, uint32 bar, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               ::"r"(to), "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
GETT_DEVICE void load_box(uint32 to, const TensorMap* map, uint32 bar, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
               ::"r"(to), "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}
// One box for several blocks of the cluster, to the same place and barrier in each.
GETT_DEVICE void spread_box(uint32 to, const TensorMap* map, uint32 bar, uint32 mask, int c0) {
  asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4}], [%2], %3;"
               ::"r"(to), "l"(map), "r"(bar), "h"((unsigned short)mask), "r"(c0) : "memory");
}
GETT_DEVICE void spread_box(uint32 to, const TensorMap* map, uint32 bar, uint32 mask, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4, %5}], [%2], %3;"
               ::"r"(to), "l"(map), "r"(bar), "h"((unsigned short)mask), "r"(c0), "r"(c1) : "memory");
}
GETT_DEVICE void spread_box(uint32 to, const TensorMap* map, uint32 bar, uint32 mask, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4, %5, %6}], [%2], %3;"
               ::"r"(to), "l"(map), "r"(bar), "h"((unsigned short)mask), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
GETT_DEVICE void spread_box(uint32 to, const TensorMap* map, uint32 bar, uint32 mask, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;"
               ::"r"(to), "l"(map), "r"(bar), "h"((unsigned short)mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
GETT_DEVICE void spread_box(uint32 to, const TensorMap* map, uint32 bar, uint32 mask, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;"
               ::"r"(to), "l"(map), "r"(bar), "h"((unsigned short)mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}
GETT_DEVICE void store_box(const TensorMap* map, uint32 from, int c0) {
  asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::"l"(map), "r"(from), "r"(c0) : "memory");
}
GETT_DEVICE void store_box(const TensorMap* map, uint32 from, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
               ::"l"(map), "r"(from), "r"(c0), "r"(c1) : "memory");
}
GETT_DEVICE void store_box(const TensorMap* map, uint32 from, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
               ::"l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
GETT_DEVICE void store_box(const TensorMap* map, uint32 from, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               ::"l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
GETT_DEVICE void store_box(const TensorMap* map, uint32 from, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
               ::"l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}
GETT_DEVICE void prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
GETT_DEVICE void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int Pending> GETT_DEVICE void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// Before a block ends: its shared memory has been read. That the writes have landed is the end of the grid's business.
GETT_DEVICE void store_wait() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
// Makes ordinary writes to shared memory visible to the copy engine and the tensor cores.
GETT_DEVICE void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Sixteen bytes to the shared memory of another block, whose barrier counts them (`to` and `bar` are its addresses).
GETT_DEVICE void send_vector(uint32 to, const uint32 (&x)[4], uint32 bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(bar) : "memory");
}

// ---- wgmma ----
GETT_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GETT_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending> GETT_DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory"); }
// Keeps reads of the accumulators behind the wait.
template <class Acc, int N> GETT_DEVICE void wgmma_keep(Acc (&acc)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}

}  // namespace gett
