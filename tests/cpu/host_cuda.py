"""Runs device code of the gathering door on the host: the kernels' own headers, with the chip's instructions replaced.

Knows which helpers those headers ask for (`sm90_chunk.cuh` keeps them in one place); a shared-memory address is an
offset into one array here. Lanes run one after the other, so only code between barriers can be run.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import gett

KERNELS = Path(gett.__file__ or "").parent / "kernels"
FIRST = "struct Chunk { uint32 w[4]; };"
PURE = "// The 16 bytes that begin"
STUBS = """
// Memory is zero before, and what is stored is not.
static void once(void* to) {
  uint16 before;
  memcpy(&before, to, 2);
  if (before) { printf("stored twice: %p\\n", to); exit(1); }
}
static char shared_memory[1 << 20];
static int careful_copies = 0;  // that asked where the tensor ends
GETT_DEVICE Chunk load_chunk(uint32 at) { Chunk c; memcpy(&c, shared_memory + at, 16); return c; }
GETT_DEVICE void store_chunk(uint32 at, const Chunk& c) { memcpy(shared_memory + at, &c, 16); }
GETT_DEVICE bool copy_chunk(uint32 to, const char* from, const char* end) {
  const long long left = end - from;
  ++careful_copies;
  if (left > 0 && left < 16) { memset(shared_memory + to, 0x7b, 16); return true; }
  if (left > 0) memcpy(shared_memory + to, from, 16); else memset(shared_memory + to, 0, 16);
  return false;
}
GETT_DEVICE void copy_last(uint32 to, const char* end) {
  const char* from = reinterpret_cast<const char*>(uint64(end) & ~15ull);
  memset(shared_memory + to, 0, 16);
  memcpy(shared_memory + to, from, end - from);
}
GETT_DEVICE void copy_chunk(uint32 to, const char* from) { memcpy(shared_memory + to, from, 16); }
GETT_DEVICE void store_global(void* to, const Chunk& c) {
  if (uint64(to) % 16) { printf("a chunk goes to %p\\n", to); exit(1); }
  for (int i = 0; i < 8; ++i) once((char*)to + 2 * i);
  memcpy(to, &c, 16);
}
GETT_DEVICE uint32 load_half(uint32 at) { uint16 x; memcpy(&x, shared_memory + at, 2); return x; }
GETT_DEVICE void store_half(void* to, uint32 x) {
  once(to);
  memcpy(to, &x, 2);
}
"""
PRELUDE = """
#include <cstdio>
#include <cstdlib>
#include <cstring>
#define __device__
#define __forceinline__ inline
#define GETT_DEVICE inline
namespace gett {
typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
struct FastDiv { uint32 d, mul, shift; };
inline int fast_div(int n, const FastDiv& f) {
  return int((uint32((uint64(uint32(n)) * f.mul) >> 32) + uint32(n)) >> f.shift);
}
inline int fast_mod(int n, const FastDiv& f) { return n - fast_div(n, f) * int(f.d); }
inline long long wide(int x, int s) { return (long long)x * s; }
inline long long wide(int x, long long s) { return x * s; }
struct MN { int m, n; };
struct MNAt { int m, n, at; };
struct TileId { int m, n, l, slice; };
struct half_t { uint16 bits; };
static constexpr long long kInvalid = -0x7fffffffffffffffLL - 1;
struct Share { uint32 part, mask; };
template <class T> T max(T a, T b) { return a > b ? a : b; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
inline uint32 __funnelshift_r(uint32 low, uint32 high, uint32 n) {
  return uint32(((uint64(high) << 32 | low) >> (n & 31)));
}
inline uint32 __byte_perm(uint32 x, uint32 y, uint32 s) {
  const uint64 both = uint64(y) << 32 | x;
  uint32 out = 0;
  for (int i = 0; i < 4; ++i) out |= uint32(both >> (s >> 4 * i & 7) * 8 & 255) << 8 * i;
  return out;
}
inline void __syncwarp() {}
inline int __ffs(uint32 x) { return __builtin_ffs(x); }
inline int __reduce_max_sync(unsigned, int x) { return x; }
inline uint32 smem_address(const void*) { return 0; }
}
"""


def header(name: str) -> str:
    """The body of a kernel header, without its includes."""
    lines = (KERNELS / name).read_text().splitlines()
    return "\n".join(x for x in lines if not x.startswith(("#include", "#pragma once")))


def chunk_header() -> str:
    """`sm90_chunk.cuh` with its instructions replaced."""
    text = header("sm90_chunk.cuh")
    first, pure = text.index(FIRST), text.index(PURE)
    return text[: first + len(FIRST)] + STUBS + text[pure:]


def sparing_macros() -> str:
    """What `common.cuh` says of sparing kernels."""
    text = header("common.cuh")
    return text[text.index("#ifdef GETT_SPARING") : text.index("typedef unsigned char")] + "}\n"


def run_host(tmp: Path, body: str, data: bytes = b"", *, sparing: bool = False) -> bytes:
    """Output of a program of prelude, headers and `body`, compiled for the host as a sparing kernel or not."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no compiler for the host")
    source, program = tmp / "program.cpp", tmp / "program"
    source.write_text("#define GETT_SPARING\n" * sparing + PRELUDE + sparing_macros() + body)
    flags = ["-std=c++17", "-O1", "-w", "-fpermissive", "-fsanitize=address,undefined", "-fno-sanitize=alignment,shift"]
    done = subprocess.run([compiler, *flags, str(source), "-o", str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    ran = subprocess.run([str(program)], input=data, capture_output=True)
    assert ran.returncode == 0, (ran.stdout[-500:], ran.stderr[-3000:])
    return ran.stdout
