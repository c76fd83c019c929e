// Replaces gett/ptx/mma_sync.cuh where whole blocks run on the host: atoms of float64 and of its complex numbers. Lanes
// tell each other their numbers, and each adds up the products of its own sums.
#pragma once
#include "gett/core/types.cuh"

namespace gett {
namespace blocks {

struct Numbers { double a[4], b[2]; };
static Numbers told_numbers[1024];

// The numbers of all lanes of the warp, until `wait`.
template <int kA, int kB> const Numbers* numbers_of_warp(const double (&a)[kA], const double (&b)[kB]) {
  for (int i = 0; i < kA; ++i) told_numbers[current].a[i] = a[i];
  for (int i = 0; i < kB; ++i) told_numbers[current].b[i] = b[i];
  wait();
  return told_numbers + current / 32 * 32;
}
// The sum over k = 0 to 3 of number `i` of A in a row times number `j` of B in a column.
inline double dot(const Numbers* warp, int row, int i, int column, int j) {
  double sum = 0;
  for (int k = 0; k < 4; ++k) sum += warp[4 * row + k].a[i] * warp[4 * column + k].b[j];
  return sum;
}
inline int row() { return current % 32 / 4; }
inline int column(int x) { return current % 4 * 2 + x; }

}  // namespace blocks

template <class A, class B = A> struct MmaAtom;
template <> struct MmaAtom<double> {
  typedef double Acc;
  typedef double Reg;
  static constexpr int kM = 16, kStepK = 4, kRegsA = 2, kRegsB = 1;
  static void mma(double (&c)[4], const double (&a)[2], const double (&b)[1]) {
    const auto* warp = blocks::numbers_of_warp(a, b);
    for (int i = 0; i < 4; ++i) c[i] += blocks::dot(warp, blocks::row(), i / 2, blocks::column(i % 2), 0);
    blocks::wait();
  }
};
template <> struct MmaAtom<complex128> {
  typedef complex128 Acc;
  typedef double Reg;
  static constexpr int kM = 8, kStepK = 4, kRegsA = 4, kRegsB = 2;
  static void mma(complex128 (&c)[2], const double (&a)[4], const double (&b)[2]) {
    const auto* warp = blocks::numbers_of_warp(a, b);
    for (int x = 0; x < 2; ++x) {
      const int row = blocks::row(), column = blocks::column(x);
      c[x].re += blocks::dot(warp, row, 0, column, 0) + blocks::dot(warp, row, 2, column, 1);
      c[x].im += blocks::dot(warp, row, 1, column, 0) + blocks::dot(warp, row, 3, column, 1);
    }
    blocks::wait();
  }
};
template <> struct MmaAtom<complex128, double> {
  typedef complex128 Acc;
  typedef double Reg;
  static constexpr int kM = 8, kStepK = 4, kRegsA = 2, kRegsB = 1;
  static void mma(complex128 (&c)[2], const double (&a)[2], const double (&b)[1]) {
    const auto* warp = blocks::numbers_of_warp(a, b);
    for (int x = 0; x < 2; ++x) {
      c[x].re += blocks::dot(warp, blocks::row(), 0, blocks::column(x), 0);
      c[x].im += blocks::dot(warp, blocks::row(), 1, blocks::column(x), 0);
    }
    blocks::wait();
  }
};
template <> struct MmaAtom<double, complex128> {
  typedef complex128 Acc;
  typedef double Reg;
  static constexpr int kM = 16, kStepK = 4, kRegsA = 2, kRegsB = 2;
  static void mma(complex128 (&c)[4], const double (&a)[2], const double (&b)[2]) {
    const auto* warp = blocks::numbers_of_warp(a, b);
    for (int i = 0; i < 4; ++i) {
      c[i].re += blocks::dot(warp, blocks::row(), i / 2, blocks::column(i % 2), 0);
      c[i].im += blocks::dot(warp, blocks::row(), i / 2, blocks::column(i % 2), 1);
    }
    blocks::wait();
  }
};

}  // namespace gett
