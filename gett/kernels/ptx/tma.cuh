// TMA: copies of a box of a tensor map between global and shared memory, of one to five dimensions (PTX ISA,
// cp.async.bulk.tensor). A load signals an mbarrier; stores are committed and waited for in groups.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

struct alignas(64) TensorMap { uint64 opaque[16]; };

GETT_DEVICE void prefetch_tensormap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

GETT_DEVICE void tma_load(uint32 to, const TensorMap* map, uint32 bar, int c0) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3}], [%2];" ::
          "r"(to), "l"(map), "r"(bar), "r"(c0) : "memory");
}
GETT_DEVICE void tma_load(uint32 to, const TensorMap* map, uint32 bar, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::
          "r"(to), "l"(map), "r"(bar), "r"(c0), "r"(c1) : "memory");
}
GETT_DEVICE void tma_load(uint32 to, const TensorMap* map, uint32 bar, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(to), "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
GETT_DEVICE void tma_load(uint32 to, const TensorMap* map, uint32 bar, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::
          "r"(to), "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
GETT_DEVICE void tma_load(uint32 to, const TensorMap* map, uint32 bar, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::
          "r"(to), "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}

// One box for the blocks of the cluster whose ranks are bits of `mask`, to the same address and mbarrier in each.
GETT_DEVICE void tma_load_multicast(uint32 to, const TensorMap* map, uint32 bar, uint32 mask,
                                    int c0) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4}], [%2], %3;" ::
          "r"(to), "l"(map), "r"(bar), "h"(uint16(mask)), "r"(c0) : "memory");
}
GETT_DEVICE void tma_load_multicast(uint32 to, const TensorMap* map, uint32 bar, uint32 mask,
                                    int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5}], [%2], %3;" ::
          "r"(to), "l"(map), "r"(bar), "h"(uint16(mask)), "r"(c0), "r"(c1) : "memory");
}
GETT_DEVICE void tma_load_multicast(uint32 to, const TensorMap* map, uint32 bar, uint32 mask,
                                    int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::
          "r"(to), "l"(map), "r"(bar), "h"(uint16(mask)), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
GETT_DEVICE void tma_load_multicast(uint32 to, const TensorMap* map, uint32 bar, uint32 mask,
                                    int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::
          "r"(to), "l"(map), "r"(bar), "h"(uint16(mask)), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
GETT_DEVICE void tma_load_multicast(uint32 to, const TensorMap* map, uint32 bar, uint32 mask,
                                    int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::
          "r"(to), "l"(map), "r"(bar), "h"(uint16(mask)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}

GETT_DEVICE void tma_store(const TensorMap* map, uint32 from, int c0) {
  asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::
                   "l"(map), "r"(from), "r"(c0) : "memory");
}
GETT_DEVICE void tma_store(const TensorMap* map, uint32 from, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::
                   "l"(map), "r"(from), "r"(c0), "r"(c1) : "memory");
}
GETT_DEVICE void tma_store(const TensorMap* map, uint32 from, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::
                   "l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
GETT_DEVICE void tma_store(const TensorMap* map, uint32 from, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::
                   "l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
GETT_DEVICE void tma_store(const TensorMap* map, uint32 from, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::
                   "l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}
GETT_DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Returns once all but `Pending` groups have read their shared memory. The writes to global memory are complete when
// the grid has ended.
template <int Pending> GETT_DEVICE void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

}  // namespace gett
