// Vectors of elements that move as one register group, the same for short elements in whole words, words of numbers.
#pragma once
#include "gett/core/types.cuh"
#include "gett/ptx/global.cuh"

namespace gett {

template <int Bytes> struct Raw;
template <> struct Raw<1> { typedef uint8 type; };
template <> struct Raw<2> { typedef uint16 type; };
template <> struct Raw<4> { typedef uint32 type; };
template <> struct Raw<8> { typedef uint2 type; };
template <> struct Raw<16> { typedef uint4 type; };
// Vectors of more than 16 bytes hold elements, and do not move as one.
template <class T, int N> struct alignas(sizeof(T) * N) Vec {
  T x[N];
  static GETT_DEVICE Vec load(const void* p) {
    typedef typename Raw<sizeof(T) * N>::type Register;
    union U { Register r; Vec v; GETT_DEVICE U() {} } u;
    u.r = *static_cast<const Register*>(p);
    return u.v;
  }
  GETT_DEVICE auto raw() const {
    typedef typename Raw<sizeof(T) * N>::type Register;
    union U { Register r; Vec v; GETT_DEVICE U() {} } u;
    u.v = *this;
    return u.r;
  }
  GETT_DEVICE void store(void* p) const { *static_cast<decltype(raw())*>(p) = raw(); }
  // To global memory, as one instruction: of an assignment the compiler may make one for each element.
  GETT_DEVICE void store_global(void* p) const { st_global(static_cast<decltype(raw())*>(p), raw()); }
  // To global memory that nobody reads soon: L2 lets go of it first.
  GETT_DEVICE void store_once(void* p) const { __stcs(static_cast<decltype(raw())*>(p), raw()); }
};

// Neighbours at once, as far as an access goes: 16 bytes.
template <class T, int kCount> GETT_DEVICE void store_all(T* at, const T (&x)[kCount]) {
  constexpr int kMost = 16 / int(sizeof(T)), kV = kCount < kMost ? kCount : kMost;
#pragma unroll
  for (int i = 0; i < kCount; i += kV) {
    Vec<T, kV> v;
#pragma unroll
    for (int j = 0; j < kV; ++j) v.x[j] = x[i + j];
    v.store(at + i);
  }
}
template <class T> GETT_DEVICE void store_two(T* at, T x, T y) { store_all(at, {x, y}); }
template <class T> GETT_DEVICE Vec<T, 2> load_two(const T* at) {
  if constexpr (sizeof(T) <= 8) return Vec<T, 2>::load(at);
  else return {{at[0], at[1]}};
}

// Numbers as the words that registers hold.
GETT_DEVICE void to_words(float x, uint32* words) { words[0] = __float_as_uint(x); }
GETT_DEVICE void to_words(double x, uint32* words) {
  const uint64 bits = uint64(__double_as_longlong(x));
  words[0] = uint32(bits);
  words[1] = uint32(bits >> 32);
}
GETT_DEVICE void to_words(complex128 x, uint32* words) {
  to_words(x.re, words);
  to_words(x.im, words + 2);
}
template <class T> GETT_DEVICE T from_words(const uint32* words) {
  if constexpr (sizeof(T) == 16) return {from_words<double>(words), from_words<double>(words + 2)};
  else if constexpr (sizeof(T) == 8) return __longlong_as_double((long long)(uint64(words[1]) << 32 | words[0]));
  else return __uint_as_float(words[0]);
}

// As Vec, in whole words: single 16-bit elements that live from k-tile to k-tile would take a register each.
template <class T, int N> struct Words {
  static constexpr int kBits = 8 * int(sizeof(T)), kCount = N * kBits / 32;
  static_assert(kBits < 32 && N * kBits % 32 == 0, "short elements that fill words");
  struct Elements {
    Vec<uint32, kCount> words;
    GETT_DEVICE T operator[](int j) const {
      union U { typename Raw<sizeof(T)>::type raw; T value; GETT_DEVICE U() {} } u;
      u.raw = typename Raw<sizeof(T)>::type(words.x[j * kBits / 32] >> j * kBits % 32);
      return u.value;
    }
  };
  Elements x;
  static GETT_DEVICE Words zeros() {
    Words w;
#pragma unroll
    for (int i = 0; i < kCount; ++i) w.x.words.x[i] = 0;
    return w;
  }
  static GETT_DEVICE Words load(const void* p) { return {{Vec<uint32, kCount>::load(p)}}; }
  GETT_DEVICE void store(void* p) const { x.words.store(p); }
};

}  // namespace gett
