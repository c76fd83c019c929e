// Loads and stores that name their state space (PTX ISA, ld and st), and the 32-bit addresses that they take.
#pragma once
#include "gett/core/chunk.cuh"

namespace gett {

GETT_DEVICE uint32 smem_address(const void* p) { return uint32(__cvta_generic_to_shared(p)); }
// The compiler sees that the pointer is one to shared memory.
GETT_DEVICE char* smem_pointer(uint32 at) { return static_cast<char*>(__cvta_shared_to_generic(at)); }

// ---- words ----
GETT_DEVICE uint32 ld_shared_u32(uint32 at) {
  uint32 x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at));
  return x;
}
GETT_DEVICE double ld_shared_f64(uint32 at) {
  double x;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"(at));
  return x;
}
GETT_DEVICE void ld_shared_f64x2(uint32 at, double (&x)[2]) {
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(x[0]), "=d"(x[1]) : "r"(at));
}

GETT_DEVICE uint32 ld_shared_u16(uint32 at) {
  uint16 x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at) : "memory");
  return x;
}

// Sets bits, whoever else does so at the same time.
GETT_DEVICE void or_shared(uint32 at, uint32 bits) {
  asm volatile("red.shared.or.b32 [%0], %1;" ::"r"(at), "r"(bits) : "memory");
}

// ---- vectors of one, two or four words ----
GETT_DEVICE void ld_shared(uint32 at, uint32 (&x)[1]) {
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x[0]) : "r"(at));
}
GETT_DEVICE void ld_shared(uint32 at, uint32 (&x)[2]) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(at));
}
GETT_DEVICE void ld_shared(uint32 at, uint32 (&x)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
}
GETT_DEVICE void st_shared(uint32 at, const uint32 (&x)[1]) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x[0]) : "memory");
}
GETT_DEVICE void st_shared(uint32 at, const uint32 (&x)[2]) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(x[0]), "r"(x[1]) : "memory");
}
GETT_DEVICE void st_shared(uint32 at, const uint32 (&x)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}
// Reads nothing where `ok` is false, and leaves `x` undefined. With a branch around many of these loads the compiler
// would have to keep the previous values of `x`.
GETT_DEVICE void ld_shared_if(uint32 from, uint32 (&x)[4], bool ok) {
  asm volatile(
      "{\n"
      ".reg .pred ok;\n"
      "setp.ne.u32 ok, %5, 0;\n"
      "@ok ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}\n" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from), "r"(uint32(ok)) : "memory");
}

// ---- chunks of 16 bytes ----
GETT_DEVICE Chunk ld_shared_chunk(uint32 at) {
  Chunk c;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.w[0]), "=r"(c.w[1]), "=r"(c.w[2]), "=r"(c.w[3]) : "r"(at) : "memory");
  return c;
}
GETT_DEVICE void st_shared_chunk(uint32 at, const Chunk& c) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
               ::"r"(at), "r"(c.w[0]), "r"(c.w[1]), "r"(c.w[2]), "r"(c.w[3]) : "memory");
}
// Stores nothing where `ok` is false; without a branch, which would part the stores of a batch.
GETT_DEVICE void st_global_u16_if(void* to, uint32 x, bool ok) {
  asm volatile(
      "{\n"
      ".reg .pred ok;\n"
      "setp.ne.u32 ok, %2, 0;\n"
      "@ok st.global.u16 [%0], %1;\n"
      "}\n" ::"l"(to), "h"(uint16(x)), "r"(uint32(ok)) : "memory");
}
GETT_DEVICE void st_global_chunk_if(void* to, const Chunk& c, bool ok) {
  asm volatile(
      "{\n"
      ".reg .pred ok;\n"
      "setp.ne.u32 ok, %5, 0;\n"
      "@ok st.global.v4.u32 [%0], {%1, %2, %3, %4};\n"
      "}\n" ::"l"(to), "r"(c.w[0]), "r"(c.w[1]), "r"(c.w[2]), "r"(c.w[3]), "r"(uint32(ok)) : "memory");
}
GETT_DEVICE void st_shared_zeros(uint32 at) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
}
// Copies the chunk in which the tensor ends half-word by half-word, and writes zeros behind it.
GETT_DEVICE void copy_last_chunk(uint32 to, const char* end) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  const char* from = reinterpret_cast<const char*>(uint64(end) & ~15ull);
#pragma unroll 1
  for (; from < end; from += 2, to += 2) {
    uint16 x;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(from) : "memory");
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(x) : "memory");
  }
}

}  // namespace gett
