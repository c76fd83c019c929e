// Element types, fast division, asynchronous copies: what every kernel family uses. Needs no CUDA header, so that
// a kernel compiles with the compiler library alone.
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

GETT_DEVICE float to_float(half_t x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
GETT_DEVICE float to_float(bhalf_t x) { return __uint_as_float(uint32(x.bits) << 16); }

// convert<To>(from): every pair that an epilogue or a load may need.
template <class To, class From> struct Convert {
  static GETT_DEVICE To apply(From x) { return static_cast<To>(x); }
};
template <class T> struct Convert<T, T> { static GETT_DEVICE T apply(T x) { return x; } };
template <class To> struct Convert<To, half_t> {
  static GETT_DEVICE To apply(half_t x) { return Convert<To, float>::apply(to_float(x)); }
};
template <class To> struct Convert<To, bhalf_t> {
  static GETT_DEVICE To apply(bhalf_t x) { return Convert<To, float>::apply(to_float(x)); }
};
template <> struct Convert<half_t, half_t> { static GETT_DEVICE half_t apply(half_t x) { return x; } };
template <> struct Convert<bhalf_t, bhalf_t> { static GETT_DEVICE bhalf_t apply(bhalf_t x) { return x; } };
template <> struct Convert<half_t, double> {
  static GETT_DEVICE half_t apply(double x) { half_t y; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x)); return y; }
};
template <class From> struct Convert<half_t, From> {
  static GETT_DEVICE half_t apply(From x) {
    half_t y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(static_cast<float>(x))); return y;
  }
};
template <class From> struct Convert<bhalf_t, From> {
  static GETT_DEVICE bhalf_t apply(From x) {
    bhalf_t y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(static_cast<float>(x))); return y;
  }
};
template <class To> struct Convert<To, bool_t> {
  static GETT_DEVICE To apply(bool_t x) { return Convert<To, int>::apply(x.bits ? 1 : 0); }
};
template <> struct Convert<bool_t, bool_t> { static GETT_DEVICE bool_t apply(bool_t x) { return x; } };
template <class From> struct Convert<bool_t, From> {
  static GETT_DEVICE bool_t apply(From x) { return bool_t{uint8(x != From(0))}; }
};
template <class R, class From> struct Convert<complex_t<R>, From> {
  static GETT_DEVICE complex_t<R> apply(From x) { return {Convert<R, From>::apply(x), R(0)}; }
};
template <class R, class S> struct Convert<complex_t<R>, complex_t<S>> {
  static GETT_DEVICE complex_t<R> apply(complex_t<S> x) { return {R(x.re), R(x.im)}; }
};
template <class R> struct Convert<complex_t<R>, complex_t<R>> {
  static GETT_DEVICE complex_t<R> apply(complex_t<R> x) { return x; }
};
template <class R> struct Convert<complex_t<R>, half_t> {
  static GETT_DEVICE complex_t<R> apply(half_t x) { return {R(to_float(x)), R(0)}; }
};
template <class R> struct Convert<complex_t<R>, bhalf_t> {
  static GETT_DEVICE complex_t<R> apply(bhalf_t x) { return {R(to_float(x)), R(0)}; }
};
template <class R> struct Convert<complex_t<R>, bool_t> {
  static GETT_DEVICE complex_t<R> apply(bool_t x) { return {R(x.bits ? 1 : 0), R(0)}; }
};
template <class To, class From> GETT_DEVICE To convert(From x) { return Convert<To, From>::apply(x); }

// ---- arithmetic in the accumulator's type ----
template <class T> GETT_DEVICE T zero() { return T(0); }
template <> GETT_DEVICE complex64 zero<complex64>() { return {0.f, 0.f}; }
template <> GETT_DEVICE complex128 zero<complex128>() { return {0., 0.}; }
template <> GETT_DEVICE bool_t zero<bool_t>() { return bool_t{0}; }

GETT_DEVICE void mul_add(float& c, float a, float b) { c = fmaf(a, b, c); }
GETT_DEVICE void mul_add(double& c, double a, double b) { c = fma(a, b, c); }
GETT_DEVICE void mul_add(int& c, int a, int b) { c = int(uint32(c) + uint32(a) * uint32(b)); }
GETT_DEVICE void mul_add(uint32& c, uint32 a, uint32 b) { c += a * b; }
GETT_DEVICE void mul_add(long long& c, long long a, long long b) { c = (long long)(uint64(c) + uint64(a) * uint64(b)); }
GETT_DEVICE void mul_add(uint64& c, uint64 a, uint64 b) { c += a * b; }
GETT_DEVICE void mul_add(bool_t& c, bool_t a, bool_t b) { c.bits |= uint8(a.bits && b.bits); }
template <class R> GETT_DEVICE void mul_add(complex_t<R>& c, complex_t<R> a, complex_t<R> b) {
  mul_add(c.re, a.re, b.re);
  mul_add(c.im, a.re, b.im);
  mul_add(c.re, -a.im, b.im);
  mul_add(c.im, a.im, b.re);
}
template <class T> GETT_DEVICE T add(T a, T b) { return a + b; }
template <class R> GETT_DEVICE complex_t<R> add(complex_t<R> a, complex_t<R> b) { return {a.re + b.re, a.im + b.im}; }
GETT_DEVICE bool_t add(bool_t a, bool_t b) { return bool_t{uint8(a.bits | b.bits)}; }
// alpha = 1 is not multiplied by: complex 1 times an infinity would make a NaN.
template <class T> GETT_DEVICE bool is_one(T x) { return x == T(1); }
template <class R> GETT_DEVICE bool is_one(complex_t<R> x) { return x.re == R(1) && x.im == R(0); }
GETT_DEVICE bool is_one(bool_t x) { return x.bits == 1; }
template <class T> GETT_DEVICE bool is_zero(T x) { return x == T(0); }
template <class R> GETT_DEVICE bool is_zero(complex_t<R> x) { return x.re == R(0) && x.im == R(0); }
GETT_DEVICE bool is_zero(bool_t x) { return x.bits == 0; }
template <class T> GETT_DEVICE T multiply(T a, T b) { T c = zero<T>(); mul_add(c, a, b); return c; }

// ---- indices ----
struct FastDiv { uint32 d, mul, shift; };
GETT_DEVICE int fast_div(int n, const FastDiv& f) { return int((__umulhi(uint32(n), f.mul) + uint32(n)) >> f.shift); }
GETT_DEVICE int fast_mod(int n, const FastDiv& f) { return n - fast_div(n, f) * int(f.d); }
GETT_DEVICE long long wide(int x, int s) { return (long long)x * s; }
GETT_DEVICE long long wide(int x, long long s) { return x * s; }
GETT_DEVICE int wide(int x, uint32 s) { return x * int(s); }
struct MN { int m, n; };
struct MNAt { int m, n, at; };  // and where the element lies in the staged tile
static constexpr long long kInvalid = -0x7fffffffffffffffLL - 1;

// ---- vectors of elements, moved as one register group ----
template <int Bytes> struct Raw;
template <> struct Raw<1> { typedef uint8 type; };
template <> struct Raw<2> { typedef uint16 type; };
template <> struct Raw<4> { typedef uint32 type; };
template <> struct Raw<8> { typedef uint2 type; };
template <> struct Raw<16> { typedef uint4 type; };
template <class T, int N> struct alignas(sizeof(T) * N) Vec {
  T x[N];
  static GETT_DEVICE Vec load(const void* p) {
    typedef typename Raw<sizeof(T) * N>::type R;
    union U { R r; Vec v; GETT_DEVICE U() {} } u;
    u.r = *static_cast<const R*>(p);
    return u.v;
  }
  GETT_DEVICE void store(void* p) const {
    typedef typename Raw<sizeof(T) * N>::type R;
    union U { R r; Vec v; GETT_DEVICE U() {} } u;
    u.v = *this;
    *static_cast<R*>(p) = u.r;
  }
};

// ---- shared memory and asynchronous copies ----
GETT_DEVICE uint32 smem_address(const void* p) { return uint32(__cvta_generic_to_shared(p)); }

// Copies Bytes from global to shared memory; where `ok` is false it writes zeros and reads nothing.
template <int Bytes> GETT_DEVICE void copy_async(uint32 to, const void* from, bool ok) {
  const int n = ok ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes), "r"(n) : "memory");
  }
}
// Copies Bytes without a condition.
template <int Bytes> GETT_DEVICE void copy_async(uint32 to, const void* from) {
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(Bytes) : "memory");
  }
}
GETT_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending> GETT_DEVICE void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory"); }

// Launches that overlap (from sm_90 on): the first lets the next start once all its blocks run, and the next waits here
// until the first has ended and its writes can be seen.
GETT_DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
GETT_DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A tile in shared memory: rows of kPitch bytes whose 16-byte chunks are permuted by the row number.
template <int Pitch, int Mask, int Shift> struct Smem {
  static constexpr int kPitch = Pitch;
  static GETT_DEVICE uint32 address(int row, int byte) {
    if constexpr (Mask == 0) return uint32(row * Pitch + byte);
    return uint32(row * Pitch + (byte ^ (((row >> Shift) & Mask) << 4)));
  }
};

}  // namespace gett
