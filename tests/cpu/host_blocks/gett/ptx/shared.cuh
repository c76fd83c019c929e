// Replaces gett/ptx/shared.cuh where whole blocks run on the host: an address of shared memory is an offset into it.
#pragma once
#include "gett/core/chunk.cuh"

namespace gett {

inline uint32 smem_address(const void* p) { return uint32(static_cast<const char*>(p) - smem); }
inline char* smem_pointer(uint32 at) { return smem + at; }

inline void st_global_chunk(void* to, const Chunk& c) {
  if (uint64(to) % 16) { printf("a chunk goes to %p\n", to); exit(1); }
  memcpy(to, &c, 16);
}

}  // namespace gett
