// Conversion between any two element types, and arithmetic in the accumulator's type.
#pragma once
#include "gett/ptx/convert.cuh"

namespace gett {

// convert<To>(from) is defined for every pair that an epilogue or a load may need.
template <class To, class From> struct Convert {
  static GETT_DEVICE To apply(From x) { return static_cast<To>(x); }
};
template <class T> struct Convert<T, T> { static GETT_DEVICE T apply(T x) { return x; } };
template <class To> struct Convert<To, half_t> {
  static GETT_DEVICE To apply(half_t x) { return Convert<To, float>::apply(cvt_f32(x)); }
};
template <class To> struct Convert<To, bhalf_t> {
  static GETT_DEVICE To apply(bhalf_t x) { return Convert<To, float>::apply(cvt_f32(x)); }
};
template <> struct Convert<half_t, half_t> { static GETT_DEVICE half_t apply(half_t x) { return x; } };
template <> struct Convert<bhalf_t, bhalf_t> { static GETT_DEVICE bhalf_t apply(bhalf_t x) { return x; } };
template <> struct Convert<half_t, double> {
  static GETT_DEVICE half_t apply(double x) { return cvt_f16(x); }
};
template <class From> struct Convert<half_t, From> {
  static GETT_DEVICE half_t apply(From x) { return cvt_f16(static_cast<float>(x)); }
};
template <class From> struct Convert<bhalf_t, From> {
  static GETT_DEVICE bhalf_t apply(From x) { return cvt_bf16(static_cast<float>(x)); }
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
template <class R> struct Convert<complex_t<R>, conj_t<R>> {
  static GETT_DEVICE complex_t<R> apply(conj_t<R> x) { return {x.re, -x.im}; }
};
template <class R> struct Convert<complex_t<R>, half_t> {
  static GETT_DEVICE complex_t<R> apply(half_t x) { return {R(cvt_f32(x)), R(0)}; }
};
template <class R> struct Convert<complex_t<R>, bhalf_t> {
  static GETT_DEVICE complex_t<R> apply(bhalf_t x) { return {R(cvt_f32(x)), R(0)}; }
};
template <class R> struct Convert<complex_t<R>, bool_t> {
  static GETT_DEVICE complex_t<R> apply(bool_t x) { return {R(x.bits ? 1 : 0), R(0)}; }
};
template <class To, class From> GETT_DEVICE To convert(From x) { return Convert<To, From>::apply(x); }

// ---- parts: of a complex number the real and the imaginary one ----
template <class T> struct Parts {
  static constexpr int kCount = 1;
  static GETT_DEVICE T& at(T& x, int) { return x; }
  static GETT_DEVICE const T& at(const T& x, int) { return x; }
  static GETT_DEVICE T conj(T x) { return x; }
};
template <class R> struct Parts<complex_t<R>> {
  typedef complex_t<R> T;
  static constexpr int kCount = 2;
  static GETT_DEVICE R& at(T& x, int part) { return part ? x.im : x.re; }
  static GETT_DEVICE const R& at(const T& x, int part) { return part ? x.im : x.re; }
  static GETT_DEVICE T conj(T x) { return {x.re, -x.im}; }
};

// A lane's sums of two columns of a row of complex numbers as an instruction of 16 rows has them: eight rows are real
// parts, eight imaginary ones. product(sums) adds to them.
template <class Product> GETT_DEVICE void add_by_parts(complex128& x, complex128& y, Product&& product) {
  double sums[4] = {x.re, y.re, x.im, y.im};
  product(sums);
  x = {sums[0], sums[2]};
  y = {sums[1], sums[3]};
}

// What a number in memory stands for, and whether it is its conjugate.
template <class T> struct Stored {
  typedef T type;
  static constexpr bool kConj = false;
};
template <class R> struct Stored<conj_t<R>> {
  typedef complex_t<R> type;
  static constexpr bool kConj = true;
};

// What a multiply-add takes of an element of an operand: a number of the accumulator's type, or the real number itself
// where sums are complex.
template <class Acc, class Element> struct FactorOf { typedef Acc type; };
template <class R> struct FactorOf<complex_t<R>, R> { typedef R type; };
template <class Acc, class Element> GETT_DEVICE typename FactorOf<Acc, Element>::type as_factor(Element x) {
  return convert<typename FactorOf<Acc, Element>::type>(x);
}

// ---- arithmetic in the accumulator's type; integers wrap around ----
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
template <class R> GETT_DEVICE void mul_add(complex_t<R>& c, R a, complex_t<R> b) {
  mul_add(c.re, a, b.re);
  mul_add(c.im, a, b.im);
}
template <class R> GETT_DEVICE void mul_add(complex_t<R>& c, complex_t<R> a, R b) { mul_add(c, b, a); }
template <class R> GETT_DEVICE void mul_add(complex_t<R>& c, R a, R b) { mul_add(c.re, a, b); }
template <class T> GETT_DEVICE T add(T a, T b) { return a + b; }
template <class R> GETT_DEVICE complex_t<R> add(complex_t<R> a, complex_t<R> b) { return {a.re + b.re, a.im + b.im}; }
GETT_DEVICE bool_t add(bool_t a, bool_t b) { return bool_t{uint8(a.bits | b.bits)}; }
// An epilogue does not multiply by alpha = 1: a complex 1 times an infinity is a NaN.
template <class T> GETT_DEVICE bool is_one(T x) { return x == T(1); }
template <class R> GETT_DEVICE bool is_one(complex_t<R> x) { return x.re == R(1) && x.im == R(0); }
GETT_DEVICE bool is_one(bool_t x) { return x.bits == 1; }
template <class T> GETT_DEVICE bool is_zero(T x) { return x == T(0); }
template <class R> GETT_DEVICE bool is_zero(complex_t<R> x) { return x.re == R(0) && x.im == R(0); }
GETT_DEVICE bool is_zero(bool_t x) { return x.bits == 0; }
template <class T, class A, class B> GETT_DEVICE T product(A a, B b) { T c = zero<T>(); mul_add(c, a, b); return c; }
template <class T> GETT_DEVICE T multiply(T a, T b) { return product<T>(a, b); }

}  // namespace gett
