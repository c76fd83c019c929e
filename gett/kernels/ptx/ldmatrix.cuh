// ldmatrix, and stmatrix from sm_90 on: 8 x 8 matrices of 16-bit elements between shared memory and the registers of a
// warp (PTX ISA). Lanes 8q to 8q + 7 give the addresses of the rows of matrix q. `_trans` transposes each matrix.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

GETT_DEVICE void ldmatrix4(uint32 (&r)[4], uint32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
GETT_DEVICE void ldmatrix4_trans(uint32 (&r)[4], uint32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
GETT_DEVICE void ldmatrix2(uint32 (&r)[2], uint32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}
GETT_DEVICE void ldmatrix2_trans(uint32 (&r)[2], uint32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}

GETT_DEVICE void stmatrix4(uint32 at, uint32 a, uint32 b, uint32 c, uint32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
GETT_DEVICE void stmatrix2(uint32 at, uint32 a, uint32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b) : "memory");
}
GETT_DEVICE void stmatrix4_trans(uint32 at, uint32 a, uint32 b, uint32 c, uint32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
GETT_DEVICE void stmatrix2_trans(uint32 at, uint32 a, uint32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b) : "memory");
}

}  // namespace gett
