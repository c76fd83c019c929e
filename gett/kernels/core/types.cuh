// Element types, macros of every header, and the enumerators that generated traits name. Needs no CUDA header, so that
// a kernel compiles with the compiler library alone.
#pragma once

#define GETT_DEVICE __device__ __forceinline__

// Stand at the end of a kernel's launch bounds. With GETT_MIN_BLOCKS the compiler chooses how many blocks are resident,
// GETT_MIN_BLOCKS_OF asks for a number of them. A kernel that spills is compiled again with GETT_KEEP_PACKED, then with
// GETT_FEWER_BLOCKS.
#if defined GETT_SPARING
#define GETT_MIN_BLOCKS , 1
#define GETT_MIN_BLOCKS_OF(n) , 1
#elif defined GETT_FEWER_BLOCKS
#define GETT_MIN_BLOCKS , 1
#define GETT_MIN_BLOCKS_OF(n) , n > 1 ? n - 1 : 1
#else
#define GETT_MIN_BLOCKS
#define GETT_MIN_BLOCKS_OF(n) , n
#endif

// A kernel that still spills is compiled again with GETT_SPARING, which saves registers. Values that are cheap to
// compute are computed where they are used, not kept through the main loop. The main loop is not unrolled. Without
// GETT_SPARING the macros change nothing. GETT_MAIN_LOOP stands before a main loop. GETT_RECOMPUTE(x) is the value of
// x, of which the compiler does not know that it is the same as before.
#ifdef GETT_SPARING
#define GETT_MAIN_LOOP _Pragma("unroll 1")
#define GETT_RECOMPUTE(x) gett::opaque(x)
#define GETT_IS_SPARING true
#else
#define GETT_MAIN_LOOP
#define GETT_RECOMPUTE(x) x
#define GETT_IS_SPARING false
#endif
#if defined GETT_KEEP_PACKED || defined GETT_SPARING
#define GETT_KEEPS_PACKED true
#else
#define GETT_KEEPS_PACKED false
#endif

// What a class needs of its template arguments: a concept of gett/kernels/contract. It is checked with GETT_CONTRACT
// alone, which needs C++20. A text that does not compile is compiled again with it, for the one line that says what the
// text lacks; compiled always, the concepts would take 2 % of a kernel's time.
#ifdef GETT_CONTRACT
#define GETT_REQUIRES(...) requires __VA_ARGS__
#else
#define GETT_REQUIRES(...)
#endif

namespace gett {

// Variables would be symbols of every cubin. kKeepPacked: what several accesses of a thread share a register for is
// taken out of it where it is used, not once before the main loop.
enum Sparing : bool { kSparing = GETT_IS_SPARING, kKeepPacked = GETT_KEEPS_PACKED };

// The value of x, hidden from the compiler: it cannot hoist what depends on it, nor keep it in registers.
GETT_DEVICE int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;

// A condition: whether a word has bits of a mask.
struct BitTest {
  uint32 word, mask;
  GETT_DEVICE operator bool() const { return word & mask; }
};

struct half_t { uint16 bits; };
struct bhalf_t { uint16 bits; };
struct bool_t { uint8 bits; };
template <class R> struct alignas(2 * sizeof(R)) complex_t { R re, im; };
typedef complex_t<float> complex64;
typedef complex_t<double> complex128;
// A complex number of which memory holds the conjugate: converting it to complex_t negates the imaginary part.
template <class R> struct alignas(2 * sizeof(R)) conj_t { R re, im; };
typedef conj_t<float> conj64;
typedef conj_t<double> conj128;

// Where C comes from: there is none; in vectors or elements from global memory; by a tensor map.
enum SourceC { kSourceNone, kSourceVector, kSourceTma };
// How accumulators are copied to the staged tile of D, from registers to shared memory. They go element by element, by
// stmatrix, or by transposing stmatrix. They go in vectors of elements that are neighbours along N, or along M. Or they
// go in pairs of neighbouring columns, or singly, to the places that a swizzle gives them.
enum R2SCopy { kR2SScalar, kR2SStsm, kR2SStsmT, kR2SVecN, kR2SVecM, kR2SPairN, kR2SOne };
// How an operand of wgmma gets into shared memory: by TMA with every k-tile; by TMA once, to stay; gathered; by
// cp.async.
enum LoaderKind { kLoaderTma, kLoaderStationary, kLoaderGather, kLoaderCpAsyncTile };

// The traits of an operand's loader, A's or B's, out of those of a main loop.
template <class Traits, bool kIsA> struct LoaderTraitsOf { typedef typename Traits::LoaderTraitsA type; };
template <class Traits> struct LoaderTraitsOf<Traits, false> { typedef typename Traits::LoaderTraitsB type; };

}  // namespace gett
