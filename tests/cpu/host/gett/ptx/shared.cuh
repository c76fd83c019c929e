// Replaces gett/ptx/shared.cuh on the host: an address of shared memory is an offset into one array. Global memory is
// zero before it is stored to, and no half-word is stored twice.
#pragma once
#include "gett/core/chunk.cuh"

namespace gett {

static char shared_memory[1 << 20];
inline void once(void* to) {
  uint16 before;
  memcpy(&before, to, 2);
  if (before) { printf("stored twice: %p\n", to); exit(1); }
}
inline uint32 smem_address(const void*) { return 0; }
inline Chunk ld_shared_chunk(uint32 at) { Chunk c; memcpy(&c, shared_memory + at, 16); return c; }
inline void st_shared_chunk(uint32 at, const Chunk& c) { memcpy(shared_memory + at, &c, 16); }
inline void st_shared_zeros(uint32 at) { memset(shared_memory + at, 0, 16); }
template <int N> void ld_shared(uint32 at, uint32 (&x)[N]) { memcpy(x, shared_memory + at, sizeof x); }
template <int N> void st_shared(uint32 at, const uint32 (&x)[N]) { memcpy(shared_memory + at, x, sizeof x); }
inline void copy_last_chunk(uint32 to, const char* end) {
  const char* from = reinterpret_cast<const char*>(uint64(end) & ~15ull);
  memset(shared_memory + to, 0, 16);
  memcpy(shared_memory + to, from, end - from);
}
inline void st_global_chunk_if(void* to, const Chunk& c, bool ok) {
  if (!ok) return;
  if (uint64(to) % 16) { printf("a chunk goes to %p\n", to); exit(1); }
  for (int i = 0; i < 8; ++i) once((char*)to + 2 * i);
  memcpy(to, &c, 16);
}
static uint32 vector_loads[1 << 16];  // addresses of the loads of vectors that may be left out
static int vector_load_count = 0;
inline void ld_shared_if(uint32 from, uint32 (&x)[4], bool ok) {
  vector_loads[vector_load_count++] = from;
  if (ok) memcpy(x, shared_memory + from, sizeof x);
}
inline uint32 ld_shared_u32(uint32 at) { uint32 x; memcpy(&x, shared_memory + at, 4); return x; }
inline double ld_shared_f64(uint32 at) { double x; memcpy(&x, shared_memory + at, 8); return x; }
inline void ld_shared_f64x2(uint32 at, double (&x)[2]) { memcpy(x, shared_memory + at, 16); }
inline void or_shared(uint32 at, uint32 bits) { *(uint32*)(shared_memory + at) |= bits; }
inline uint32 ld_shared_u16(uint32 at) { uint16 x; memcpy(&x, shared_memory + at, 2); return x; }
inline void st_global_u16_if(void* to, uint32 x, bool ok) {
  if (!ok) return;
  once(to);
  memcpy(to, &x, 2);
}

}  // namespace gett
