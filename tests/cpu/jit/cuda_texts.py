"""Kernels that the tests of compilation share: good ones, and one for each fault that a compiler reports."""

from __future__ import annotations

GOOD = """
extern "C" __global__ void reverse(float* p) {
  __shared__ float s[100];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = s[99 - threadIdx.x];
}
extern "C" __global__ void scale(float* p, float x) { p[threadIdx.x] *= x; }
"""
# 96 live values at 32 registers a thread.
SPILLING = """
extern "C" __global__ void __launch_bounds__(256, 8) spilling(float* p, int n) {
  float a[96];
#pragma unroll
  for (int i = 0; i < 96; i++) a[i] = p[i * n + threadIdx.x];
  for (int k = 0; k < n; k++) {
#pragma unroll
    for (int i = 0; i < 96; i++) a[i] = a[i] * a[(i + 7) % 96] + p[k];
  }
#pragma unroll
  for (int i = 0; i < 96; i++) p[i * n + threadIdx.x] = a[i];
}
"""
# A local array under a run-time index: a stack frame, but no spill.
INDEXED = """
extern "C" __global__ void indexed(float* p, int n) {
  float a[16];
  for (int i = 0; i < n; i++) a[i] = p[i];
  p[0] = a[n / 3];
}
"""
# Accumulators are read while the instruction that writes them may still run.
SERIALISED = """
extern "C" __global__ void serialised(float* p, unsigned long long da, unsigned long long db, int n) {
  float d[4] = {0, 0, 0, 0};
  for (int i = 0; i < n; i++) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3},%4,%5,1,1,1,0,0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(da), "l"(db));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    d[0] += p[i];
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  p[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
"""
HALF = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void halve(__half* p, __nv_bfloat16* q) {
  p[threadIdx.x] = __hmul(p[threadIdx.x], __float2half(0.5f));
  q[threadIdx.x] = __float2bfloat16(__half2float(p[threadIdx.x]));
}
"""
