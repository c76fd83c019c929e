// Replaces gett/ptx/shared.cuh where whole blocks run on the host: an address of shared memory is an offset into it.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

inline uint32 smem_address(const void* p) { return uint32(static_cast<const char*>(p) - smem); }
inline char* smem_pointer(uint32 at) { return smem + at; }

}  // namespace gett
