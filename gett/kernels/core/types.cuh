// Element types, their names, and the macros of every header. Needs no CUDA header, so that a kernel compiles with the
// compiler library alone.
#pragma once
#define GETT_DEVICE __device__ __forceinline__

// Ends the launch bounds of a kernel that is compiled again, with GETT_ONE_BLOCK, if the compiler's own choice of
// resident blocks makes it spill.
#ifdef GETT_ONE_BLOCK
#define GETT_MIN_BLOCKS , 1
#else
#define GETT_MIN_BLOCKS
#endif

// A kernel that compiles badly all the same is compiled again with GETT_SPARING: what is cheap to work out is found anew
// where it is used, not kept through the main loop, and the loop is not unrolled. Any other kernel's text is the same
// with and without these macros: GETT_MAIN_LOOP stands before a main loop, and GETT_ANEW(x) is the number x, of which the
// compiler does not know that it is what it was before.
#ifdef GETT_SPARING
#define GETT_MAIN_LOOP _Pragma("unroll 1")
#define GETT_ANEW(x) gett::anew(x)
#define GETT_IS_SPARING true
#else
#define GETT_MAIN_LOOP
#define GETT_ANEW(x) x
#define GETT_IS_SPARING false
#endif

namespace gett {

enum Sparing : bool { kSparing = GETT_IS_SPARING };  // no variable, which would be in every cubin
GETT_DEVICE int anew(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Where C comes from: nowhere, element by element or in vectors from global memory, or by a tensor map.
enum SourceC { kSourceNone, kSourceVector, kSourceTma };
// How accumulators reach the staged tile of D: element by element, by stmatrix, by transposing stmatrix, in vectors of
// neighbours along N, in vectors of neighbours along M.
enum R2SCopy { kR2SScalar, kR2SStsm, kR2SStsmT, kR2SVecN, kR2SVecM };

typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;

// ---- element types ----
struct half_t { uint16 bits; };
struct bhalf_t { uint16 bits; };
struct bool_t { uint8 bits; };
template <class R> struct alignas(2 * sizeof(R)) complex_t { R re, im; };
typedef complex_t<float> complex64;
typedef complex_t<double> complex128;

}  // namespace gett
