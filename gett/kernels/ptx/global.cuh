// Stores to global memory that stay one instruction each (PTX ISA, st). Of an assignment the compiler may make a store
// for each element where addresses have several terms, which takes four times the requests of L1.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

GETT_DEVICE void st_global(uint8* p, uint8 x) { *p = x; }
GETT_DEVICE void st_global(uint16* p, uint16 x) { *p = x; }
GETT_DEVICE void st_global(uint32* p, uint32 x) { *p = x; }
GETT_DEVICE void st_global(uint2* p, uint2 x) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "r"(x.x), "r"(x.y) : "memory");
}
GETT_DEVICE void st_global(uint4* p, uint4 x) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}

}  // namespace gett
