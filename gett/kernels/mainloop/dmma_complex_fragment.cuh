// Fragments of complex numbers of float64 for mma.sync out of shared memory, for operands that TMA has brought, in
// either major. A number is a chunk of 16 bytes, which one access reads. To the instruction its parts are two numbers
// of k. Parts re and im of k 2t are those of t and t + 4. Parts of k 2t + 1 are those of t + 8 and t + 12.
//
// Lane 4g + t has row g of eight rows of A or columns of B. Of eight k it has 2t and 2t + 1, as A and B agree. Eight
// lanes, two rows, are served at a time. In rows of 128 bytes their chunks differ in both majors. The swizzle of
// neighbouring rows differs in the last bit alone, which their k have in common. Where rows are shorter, some lanes
// read the second k first; in which order they are multiplied is B's choice, as of float64. So accesses are free of
// bank conflicts, but for rows along K of 32 bytes or 16.
#pragma once
#include "gett/core/numeric.cuh"
#include "gett/mainloop/dmma_fragment.cuh"

namespace gett {

template <class Tile> struct DmmaTurn<complex128, Tile> {
  static constexpr int kS = Tile::kSwizzleBytes;
  static constexpr int kBit = kS == 128 ? 0 : Tile::kMajorK ? (kS == 64 ? 2 : kS == 32 ? 1 : 0) : (kS == 32 ? 2 : 4);
};

template <class Tile, bool kOfB, int kOrderBit> struct DmmaFragment<complex128, Tile, 1, 1, kOfB, kOrderBit> {
  static constexpr int kDeep = 8;  // k that lanes share out
  static constexpr bool kMajorK = Tile::kMajorK, kPairs = true;  // an access brings two numbers
  static constexpr int kS = Tile::kSwizzleBytes, kSlab = Tile::kSlab;
  // Where any order is free of conflicts, numbers are read in that of the products.
  static constexpr int kTurnBit = kS == 128 ? kOrderBit : DmmaTurn<complex128, Tile>::kBit;
  static constexpr int kCount = 2;  // accesses of eight k
  uint32 place_[kCount];  // of a lane's numbers in row g of the first eight k, in the order of the accesses
  bool exchanged_;  // numbers are multiplied in the other order than read

  // Row `first` is the first one of the warp, a multiple of 16.
  GETT_DEVICE DmmaFragment(int first, int lane) {
    const int row = first + (lane >> 2), t = lane & 3;
    const bool turned = (lane & kTurnBit) != 0;
    exchanged_ = kTurnBit != kOrderBit && turned != ((lane & kOrderBit) != 0);
#pragma unroll
    for (int q = 0; q < kCount; ++q) {
      const int k = 2 * t + (q ^ int(turned));
      const uint32 place = kMajorK ? k * 16 / kS * kSlab + swizzled(row * kS + k * 16 % kS)
                                   : row * 16 / kS * kSlab + swizzled(k * kS + row * 16 % kS);
      place_[q] = uint32(opaque(int(place)));  // kept, not computed in each step
    }
  }
  static GETT_DEVICE uint32 swizzled(int x) { return HardwareSwizzle<kS>::apply(uint32(x)); }

  // The place of access `q` in row g + `rows`, a multiple of eight, of the eight k number `s`. What lies between is
  // whole periods of the swizzle.
  GETT_DEVICE uint32 at(int rows, int s, int q) const {
    if constexpr (kMajorK) return place_[q] + s * (128 / kS) * kSlab + rows * kS;
    return place_[q] + rows * 16 / kS * kSlab + s * 8 * kS;
  }
  // The numbers of that row out of the tile at `tile`.
  GETT_DEVICE void load(uint32 tile, int rows, int s, complex128 (&x)[2]) const {
    double first[2], second[2];
    ld_shared_f64x2(tile + at(rows, s, 0), first);
    ld_shared_f64x2(tile + at(rows, s, 1), second);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      Parts<complex128>::at(x[0], part) = exchanged_ ? second[part] : first[part];
      Parts<complex128>::at(x[1], part) = exchanged_ ? first[part] : second[part];
    }
  }
};

// The same where the rows of A run along one contracted mode and those of B along another. A k-tile has four of each,
// in rows of 64 bytes, and a slab for each k of the other mode. Lane 4g + t takes k (t, t ^ c) of A's and of B's mode,
// c from 0 to 3. The lanes of a row then read different chunks of either operand.
template <class Tile, bool kOfB> struct DmmaFragment<complex128, Tile, 4, 4, kOfB, 0> {
  static constexpr int kDeep = 16;
  static constexpr bool kMajorK = true, kPairs = true;
  static constexpr int kS = Tile::kSwizzleBytes, kSlab = Tile::kSlab, kCount = 2;
  static_assert(Tile::kMajorK && kS == 64, "four numbers in a row");
  uint32 place_[4];  // by c

  GETT_DEVICE DmmaFragment(int first, int lane) {
    const int row = first + (lane >> 2), t = lane & 3;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int own = kOfB ? t ^ c : t, other = kOfB ? t : t ^ c;
      place_[c] = uint32(opaque(int(other * kSlab + HardwareSwizzle<kS>::apply(uint32(row * kS + own * 16)))));
    }
  }
  GETT_DEVICE uint32 at(int rows, int s, int q) const { return place_[s * 2 + q] + rows * kS; }
  GETT_DEVICE void load(uint32 tile, int rows, int s, complex128 (&x)[2]) const {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      double parts[2];
      ld_shared_f64x2(tile + at(rows, s, q), parts);
      x[q] = {parts[0], parts[1]};
    }
  }
};

}  // namespace gett
