// Replaces gett/ptx/mma_sync.cuh where whole blocks run on the host: atoms of float64 and of its complex numbers. Lanes
// tell each other their numbers, and each adds up the products of its own sums.
#pragma once
#include "gett/core/numeric.cuh"

namespace gett {
namespace blocks {

struct Numbers { double a[4], b[2]; };
static Numbers told_numbers[1024];

// What an atom adds to the sums of row g, and of row g + 8 where there is one, of the columns of a lane.
struct Warp {
  const Numbers* lanes;
  // The sum over k = 0 to 3 of number `i` of A in the lane's row times number `j` of B in its column `x`.
  double dot(int i, int x, int j) const {
    const int row = current % 32 / 4, column = current % 4 * 2 + x;
    double sum = 0;
    for (int k = 0; k < 4; ++k) sum += lanes[4 * row + k].a[i] * lanes[4 * column + k].b[j];
    return sum;
  }
};
// Calls add(warp) once all lanes have told their numbers.
template <int kA, int kB, class Add> void multiply(const double (&a)[kA], const double (&b)[kB], const Add& add) {
  for (int i = 0; i < kA; ++i) told_numbers[current].a[i] = a[i];
  for (int i = 0; i < kB; ++i) told_numbers[current].b[i] = b[i];
  wait();
  add(Warp{told_numbers + current / 32 * 32});
  wait();
}
template <class Sum, int kRows, int kA, int kB> struct Atom {
  typedef Sum Acc;
  typedef double Reg;
  static constexpr int kM = kRows, kStepK = 4, kRegsA = kA, kRegsB = kB;
};

}  // namespace blocks

template <class A, class B = A> struct MmaAtom;
template <> struct MmaAtom<double> : blocks::Atom<double, 16, 2, 1> {
  static void mma(double (&c)[4], const double (&a)[2], const double (&b)[1]) {
    blocks::multiply(a, b, [&](const blocks::Warp& warp) {
      for (int i = 0; i < 4; ++i) c[i] += warp.dot(i / 2, i % 2, 0);
    });
  }
};
template <> struct MmaAtom<complex128> : blocks::Atom<complex128, 8, 4, 2> {
  static void mma(complex128 (&c)[2], const double (&a)[4], const double (&b)[2]) {
    blocks::multiply(a, b, [&](const blocks::Warp& warp) {
      for (int x = 0; x < 2; ++x) {
        c[x].re += warp.dot(0, x, 0) + warp.dot(2, x, 1);
        c[x].im += warp.dot(1, x, 0) + warp.dot(3, x, 1);
      }
    });
  }
};
template <> struct MmaAtom<complex128, double> : blocks::Atom<complex128, 8, 2, 1> {
  static void mma(complex128 (&c)[2], const double (&a)[2], const double (&b)[1]) {
    blocks::multiply(a, b, [&](const blocks::Warp& warp) {
      for (int x = 0; x < 2; ++x) c[x] = {c[x].re + warp.dot(0, x, 0), c[x].im + warp.dot(1, x, 0)};
    });
  }
};
template <> struct MmaAtom<double, complex128> : blocks::Atom<complex128, 16, 2, 2> {
  static void mma(complex128 (&c)[4], const double (&a)[2], const double (&b)[2]) {
    blocks::multiply(a, b, [&](const blocks::Warp& warp) {
      for (int i = 0; i < 4; ++i)
        c[i] = {c[i].re + warp.dot(i / 2, i % 2, 0), c[i].im + warp.dot(i / 2, i % 2, 1)};
    });
  }
};

}  // namespace gett
