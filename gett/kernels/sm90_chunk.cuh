// Chunks of 16 bytes on their way through a thread's registers: moved whole, shifted by half-words, turned.
//
// Knows no operand and no tile. What needs the chip's own instructions comes first, the rest is plain arithmetic.
#pragma once
#include "gett/common.cuh"

namespace gett {

struct Chunk { uint32 w[4]; };

GETT_DEVICE Chunk load_chunk(uint32 at) {
  Chunk c;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.w[0]), "=r"(c.w[1]), "=r"(c.w[2]), "=r"(c.w[3]) : "r"(at) : "memory");
  return c;
}
GETT_DEVICE void store_chunk(uint32 at, const Chunk& c) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
               ::"r"(at), "r"(c.w[0]), "r"(c.w[1]), "r"(c.w[2]), "r"(c.w[3]) : "memory");
}
// Copies 16 bytes, or writes zeros where they lie behind `end`. A chunk in which the end is stays undone: a copy of fewer
// bytes would still read all sixteen. Returns whether that is so.
GETT_DEVICE bool copy_chunk(uint32 to, const char* from, const char* end) {
  const long long left = end - from;
  const bool cut = left > 0 && left < 16;
  if (!cut)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 ::"r"(to), "l"(from), "r"(left > 0 ? 16 : 0) : "memory");
  return cut;
}
// The chunk in which the end is, half-word by half-word, then zeros.
GETT_DEVICE void copy_last(uint32 to, const char* end) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  const char* from = reinterpret_cast<const char*>(uint64(end) & ~15ull);
#pragma unroll 1
  for (; from < end; from += 2, to += 2) {
    uint16 x;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(from) : "memory");
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(x) : "memory");
  }
}
GETT_DEVICE void copy_chunk(uint32 to, const char* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
GETT_DEVICE void store_global(void* to, const Chunk& c) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               ::"l"(to), "r"(c.w[0]), "r"(c.w[1]), "r"(c.w[2]), "r"(c.w[3]) : "memory");
}

GETT_DEVICE uint32 load_half(uint32 at) {
  uint16 x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at) : "memory");
  return x;
}
GETT_DEVICE void store_half(void* to, uint32 x) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(uint16(x)) : "memory");
}

// The 16 bytes that begin `skip` (0 to 7) half-words into x, y.
GETT_DEVICE Chunk shifted(const Chunk& x, const Chunk& y, uint32 skip) {
  uint32 w[7] = {x.w[0], x.w[1], x.w[2], x.w[3], y.w[0], y.w[1], y.w[2]};
  const uint32 last = skip & 4 ? y.w[3] : y.w[1];
  const bool four = skip & 4, two = skip & 2;
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = four ? w[i + 2] : w[i];
  w[5] = last;
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = two ? w[i + 1] : w[i];
  const uint32 bits = (skip & 1) * 16;
  Chunk out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.w[i] = __funnelshift_r(w[i], w[i + 1], bits);
  return out;
}
// The first `count` half-words; zeros behind them.
GETT_DEVICE Chunk kept(Chunk c, int count) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = count - 2 * i;
    c.w[i] = n >= 2 ? c.w[i] : n == 1 ? c.w[i] & 0xffffu : 0u;
  }
  return c;
}

// Chunk i holds eight half-words of row i; afterwards chunk j holds half-word j of the eight rows.
GETT_DEVICE void turn(const Chunk (&rows)[8], Chunk (&columns)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      columns[j].w[i] = __byte_perm(rows[2 * i].w[j / 2], rows[2 * i + 1].w[j / 2], j & 1 ? 0x7632 : 0x5410);
}

}  // namespace gett
