// Replaces gett/ptx/shared.cuh where whole blocks run on the host: an address of shared memory is an offset into it.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

inline uint32 smem_address(const void* p) { return uint32(static_cast<const char*>(p) - smem); }
inline char* smem_pointer(uint32 at) { return smem + at; }
inline double ld_shared_f64(uint32 at) { double x; memcpy(&x, smem + at, 8); return x; }
inline void ld_shared_f64x2(uint32 at, double (&x)[2]) { memcpy(x, smem + at, 16); }
uint32 ld_shared_u32(uint32 at);  // of kernels that are not run

}  // namespace gett
