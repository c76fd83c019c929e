// Fragments of A that come from registers in wgmma (RS), of 16-bit types and of TF32. They are what a warpgroup holds
// of a k-tile at a time, out of [row][k2][k1] in shared memory. Knows places and registers, no pipeline.
#pragma once
#include "gett/core/fragment.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

// A word that depends on all vectors of a batch: what uses it comes after their loads.
GETT_DEVICE uint32 word_of_all(const uint32 (&x)[2][4][2][4]) {
  uint32 word = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int q = 0; q < 4; ++q) word |= x[i][q][0][0] | x[i][q][1][0];
  return word;
}

// Fragments of a batch of A: 8 k1 times 32 k2, or 16 times 16. Lane 4g + t needs (k2 = 2t, 2t + 1) and (2t + 8, 2t + 9)
// of rows g and g + 8. It reads vectors of eight k1 at two neighbouring k2 and packs their half-words in pairs. Lanes
// of odd g read the odd k2 first, so that under the copy's swizzle eight lanes access eight different banks.
//
// With kForwardA the first 16 k2 of all rows of a warpgroup come before the second 16. The part that is multiplied has
// registers of its own. So shared memory is released when three quarters of the products are still to come.
template <int kSwizzleBytes, int kHalves, bool kForwardA> struct WgmmaRSFragments {
  static constexpr int kRowBytes = 16 * (kForwardA ? 1 : kHalves) * kSwizzleBytes;
  static constexpr int kSteps = 16 / kHalves;  // k1 of a batch
  static constexpr int kGroupBytes = 64 * 16 * kHalves * kSwizzleBytes;  // of a warpgroup
  static constexpr int kPart = kSteps / 2;  // k1 whose registers are distinguished at compile time
  uint32 even_, low_, high_;
  uint32 x_[2][4][2][4];  // [half of k2, or eight of k1][quarter of the fragment][k2 even, odd][pair of k1]
  uint32 part_[kForwardA ? 2 : 1][4][2][2];

  GETT_DEVICE WgmmaRSFragments(int group, int lane) {
    const int t = lane & 3, odd_row = (lane >> 2) & 1;
    const uint32 row = group * kGroupBytes + Fragment::row(lane) * kRowBytes;
    even_ = HardwareSwizzle<kSwizzleBytes>::apply(row + (2 * t + odd_row) * kSwizzleBytes);
    low_ = odd_row ? 0x1054 : 0x5410;
    high_ = odd_row ? 0x3276 : 0x7632;
  }

  GETT_DEVICE void load(uint32 tile, int batch, bool ok) {
    constexpr int kHalf = kHalves == 1 ? 0 : kForwardA ? kGroupBytes / 2 : 16 * kSwizzleBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32 chunk = (kHalves == 2 ? batch : 2 * batch + i) * 16;
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const uint32 at = tile + (q & 1) * 8 * kRowBytes + (q >> 1) * 8 * kSwizzleBytes + i * kHalf;
        ld_shared_if(at + (even_ ^ chunk), x_[i][q][0], ok);
        ld_shared_if(at + (even_ ^ chunk ^ kSwizzleBytes), x_[i][q][1], ok);
      }
    }
  }
  // Moves the batch's second part to the registers of the first: 32 moves, during a product. In return both parts share
  // the code of their products, each of which takes the compiler some 40 ms.
  GETT_DEVICE void advance() {
    each([this](int i, int q, int odd, int w) {
      x_[i][q][odd][w] = kHalves == 2 ? x_[i][q][odd][w + 2] : x_[1][q][odd][w];
    });
  }
  // Moves part `kFrom / 2` of the batch to the registers that are multiplied.
  template <int kFrom> GETT_DEVICE void select() {
    each([this](int i, int q, int odd, int w) { part_[i][q][odd][w] = x_[i][q][odd][w + kFrom]; });
  }
  // Calls `move` for each register of a part: half of k2, quarter of the fragment, parity of k2, pair of k1.
  template <class F> static GETT_DEVICE void each(F&& move) {
#pragma unroll
    for (int i = 0; i < kHalves; ++i)
#pragma unroll
      for (int q = 0; q < 4; ++q)
#pragma unroll
        for (int w = 0; w < kPart / 2; ++w)
#pragma unroll
          for (int odd = 0; odd < 2; ++odd) move(i, q, odd, w);
  }
  GETT_DEVICE void select(int half) {
    if (half) select<2>();
    else select<0>();
  }
  // A register of the batch's last load.
  GETT_DEVICE uint32 last() const { return x_[1][3][1][3]; }
  GETT_DEVICE uint32 loaded() const { return word_of_all(x_); }
  // Quarter `q` of the fragment of step `s` (k1) of the part and half `h` of k2.
  GETT_DEVICE uint32 at(int s, int h, int q) const {
    if constexpr (kForwardA) return __byte_perm(part_[h][q][0][s >> 1], part_[h][q][1][s >> 1], s & 1 ? high_ : low_);
    else return __byte_perm(x_[h][q][0][s >> 1], x_[h][q][1][s >> 1], s & 1 ? high_ : low_);
  }
};

// Fragments of TF32: a batch is 8 k1 times 16 k2, or 16 times 8. Lane 4g + t needs k2 = t and t + 4 of rows g and g +
// 8. It reads vectors of four k1, so registers have what wgmma takes. Lanes of odd g read k2 = t + 4 first.
template <int kSwizzleBytes, int kHalves, bool kForwardA> struct WgmmaRSWords {
  static constexpr int kRowBytes = 8 * (kForwardA ? 1 : kHalves) * kSwizzleBytes;
  static constexpr int kSteps = 16 / kHalves;  // k1 of a batch
  static constexpr int kGroupBytes = 64 * 8 * kHalves * kSwizzleBytes;  // of a warpgroup
  static constexpr int kPart = kSteps / 2;  // k1 whose registers are distinguished at compile time
  uint32 first_[2];  // of k2 = t and t + 4, in the lane's order
  bool odd_row_;
  uint32 x_[2][4][2][4];  // [half of k2, or eight of k1][quarter of the fragment, in the lane's order][four of k1][k1]
  uint32 part_[kForwardA ? 2 : 1][4][4];

  GETT_DEVICE WgmmaRSWords(int group, int lane) {
    const int t = lane & 3;
    odd_row_ = (lane >> 2 & 1) != 0;
    const uint32 row = group * kGroupBytes + Fragment::row(lane) * kRowBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      first_[i] = HardwareSwizzle<kSwizzleBytes>::apply(row + (t + 4 * (i ^ int(odd_row_))) * kSwizzleBytes);
  }

  GETT_DEVICE void load(uint32 tile, int batch, bool ok) {
    constexpr int kHalf = kHalves == 1 ? 0 : kForwardA ? kGroupBytes / 2 : 8 * kSwizzleBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int q = 0; q < 4; ++q)
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          const uint32 chunk = (kHalves == 2 ? 2 * batch + v : 4 * batch + 2 * i + v) * 16;
          ld_shared_if(tile + (q & 1) * 8 * kRowBytes + i * kHalf + (first_[q >> 1] ^ chunk), x_[i][q][v], ok);
        }
  }
  // Moves the batch's second part to the registers of the first.
  GETT_DEVICE void advance() {
#pragma unroll
    for (int i = 0; i < kHalves; ++i)
#pragma unroll
      for (int q = 0; q < 4; ++q)
#pragma unroll
        for (int v = 0; v < 2 / kHalves; ++v)
#pragma unroll
          for (int w = 0; w < 4; ++w) x_[i][q][v][w] = kHalves == 2 ? x_[i][q][1][w] : x_[1][q][v][w];
  }
  // Moves part `half` of the batch to the registers that are multiplied.
  GETT_DEVICE void select(int half) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int q = 0; q < 4; ++q)
#pragma unroll
        for (int w = 0; w < 4; ++w) part_[kForwardA ? i : 0][q][w] = half ? x_[i][q][1][w] : x_[i][q][0][w];
  }
  // A register of the batch's last load.
  GETT_DEVICE uint32 last() const { return x_[1][3][1][3]; }
  GETT_DEVICE uint32 loaded() const { return word_of_all(x_); }
  // Quarter `q` of the fragment of step `s` (k1) of the part and half `h` of k2.
  GETT_DEVICE uint32 at(int s, int h, int q) const {
    if constexpr (kForwardA) return odd_row_ ? part_[h][q ^ 2][s] : part_[h][q][s];
    else return odd_row_ ? x_[h][q ^ 2][s >> 2][s & 3] : x_[h][q][s >> 2][s & 3];
  }
};

// By the bytes of an element.
template <int kE, int kSwizzleBytes, int kHalves, bool kForwardA> struct WgmmaRSFragmentsOf {
  typedef WgmmaRSFragments<kSwizzleBytes, kHalves, kForwardA> type;
};
template <int kSwizzleBytes, int kHalves, bool kForwardA>
struct WgmmaRSFragmentsOf<4, kSwizzleBytes, kHalves, kForwardA> {
  typedef WgmmaRSWords<kSwizzleBytes, kHalves, kForwardA> type;
};

}  // namespace gett
