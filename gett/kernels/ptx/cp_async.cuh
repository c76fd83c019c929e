// Asynchronous copies of Ampere from global to shared memory (PTX ISA, cp.async).
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// Copies Bytes from global to shared memory; where `ok` is false it writes zeros and reads nothing. Copies of 16 bytes
// pass the first cache by, unless kCached; others cannot. L2 fetches whole lines, of which later copies take the rest.
template <int Bytes, bool kCached = false> GETT_DEVICE void cp_async(uint32 to, const void* from, bool ok) {
  const int n = ok ? Bytes : 0;
  if constexpr (Bytes == 16 && !kCached) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;"
                 ::"r"(to), "l"(from), "n"(Bytes), "r"(n) : "memory");
  }
}
// The same. A bit test is one instruction here. As a bool the compiler would keep it in a register of its own.
#define GETT_UNLESS "{\n.reg .pred no;\n.reg .b32 bit;\nand.b32 bit, %3, %4;\nsetp.eq.b32 no, bit, 0;\n"
template <int Bytes, bool kCached = false> GETT_DEVICE void cp_async(uint32 to, const void* from, BitTest ok) {
  if constexpr (Bytes == 16 && !kCached) {
    asm volatile(GETT_UNLESS "cp.async.cg.shared.global.L2::128B [%0], [%1], %2, no;\n}"
                 ::"r"(to), "l"(from), "n"(Bytes), "r"(ok.word), "r"(ok.mask) : "memory");
  } else {
    asm volatile(GETT_UNLESS "cp.async.ca.shared.global.L2::128B [%0], [%1], %2, no;\n}"
                 ::"r"(to), "l"(from), "n"(Bytes), "r"(ok.word), "r"(ok.mask) : "memory");
  }
}
// Copies Bytes without a condition.
template <int Bytes> GETT_DEVICE void cp_async(uint32 to, const void* from) {
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(Bytes) : "memory");
  }
}
// Copies Bytes, or does nothing. A branch around a copy would cost more than the predicate: each of its sides waits for
// earlier reads of shared memory.
template <int Bytes, bool kCached = false> GETT_DEVICE void cp_async_if(BitTest ok, uint32 to, const void* from) {
  if constexpr (Bytes == 16 && !kCached) {
    asm volatile(GETT_UNLESS "@!no cp.async.cg.shared.global.L2::128B [%0], [%1], %2;\n}"
                 ::"r"(to), "l"(from), "n"(Bytes), "r"(ok.word), "r"(ok.mask) : "memory");
  } else {
    asm volatile(GETT_UNLESS "@!no cp.async.ca.shared.global.L2::128B [%0], [%1], %2;\n}"
                 ::"r"(to), "l"(from), "n"(Bytes), "r"(ok.word), "r"(ok.mask) : "memory");
  }
}
#undef GETT_UNLESS
// Arrives at an mbarrier when all copies that this thread has issued so far have landed.
GETT_DEVICE void cp_async_mbarrier_arrive(uint32 bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
GETT_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending> GETT_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Copies 16 bytes, or writes zeros where they lie behind `end`. If the tensor ends inside the 16 bytes nothing is
// copied, since a copy of fewer bytes still reads all sixteen. Returns whether that is so.
GETT_DEVICE bool cp_async_chunk(uint32 to, const char* from, const char* end) {
  const long long left = end - from;
  const bool cut = left > 0 && left < 16;
  if (!cut)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 ::"r"(to), "l"(from), "r"(left > 0 ? 16 : 0) : "memory");
  return cut;
}
GETT_DEVICE void cp_async_chunk(uint32 to, const char* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

}  // namespace gett
