// Fragments of float64 for mma.sync out of shared memory, for operands that TMA has brought, in either major.
//
// Lane 4g + t has row g of eight rows of A or columns of B, and two k of each eight. That is in the PTX ISA under mma
// m16n8k8 and m16n8k16 of .f64. Which k those are is free as long as A and B agree. Of 16 k lane t takes 4t to 4t + 3,
// two at a time. Lanes of the upper half begin with the last two. So rows along K are read by whole chunks. Accesses
// are free of bank conflicts in both majors, but for rows along K of 32 bytes or 16. Where rows along M or N are short,
// some lanes read the second k first. B's are multiplied in the order in which they are read, if t alone decides it: A,
// which is loaded less often, follows. Else they are exchanged once they are there.
//
// Rows of A may run along one contracted mode and those of B along another, of which a k-tile has kLeadA and kLeadB. Of
// 16 k each lane then has two of A's mode times two of B's. Bit 0 of t chooses between the halves of A's rows, bit 1
// between those of B's. The next number along the other mode is in another slab, at places of the same banks. So each
// of the two bits also exchanges the order in which two neighbours along the other operand's rows are read.
#pragma once
#include "gett/core/swizzle.cuh"
#include "gett/ptx/opaque.cuh"
#include "gett/ptx/shared.cuh"

namespace gett {

// kOrderBit: the bit of t by which lanes take the second of two k first, in both operands; 0 for none.
template <class Element, class Tile, int kLeadA, int kLeadB, bool kOfB, int kOrderBit> struct DmmaFragment;

// The bit of the lane, of t or of g, that decides which k is read first.
template <class Element, class Tile> struct DmmaTurn;
template <class Tile> struct DmmaTurn<double, Tile> {
  static constexpr int kS = Tile::kSwizzleBytes;
  static constexpr int kBit = Tile::kMajorK || kS == 128 ? 0 : kS == 64 ? 2 : kS == 32 ? 1 : 8;
};

// The order that B's tile asks for: bits 0 and 1 of a lane are t's.
template <class Element, class TileB, int kLeadA>
constexpr int kDmmaOrderBit = kLeadA > 1 ? 0 : DmmaTurn<Element, TileB>::kBit & 3;

template <class Tile, int kLeadA, int kLeadB, bool kOfB, int kOrderBit>
struct DmmaFragment<double, Tile, kLeadA, kLeadB, kOfB, kOrderBit> {
  static constexpr int kDeep = 16;  // k that lanes share out
  static constexpr bool kMajorK = Tile::kMajorK, kTwoLeads = kLeadA > 1;
  static constexpr bool kPairs = kMajorK && !kTwoLeads;  // an access brings two numbers
  static constexpr int kLead = kOfB ? kLeadB : kLeadA, kOther = kOfB ? kLeadA : kLeadB;
  static constexpr int kS = Tile::kSwizzleBytes, kSlab = Tile::kSlab;
  static_assert(!kTwoLeads || (kMajorK && kLead * 8 == kS && kOrderBit == 0), "rows of one mode");
  // Where any order is free of conflicts, numbers are read in that of the products.
  static constexpr int kOwnBit = DmmaTurn<double, Tile>::kBit, kTurnBit = kOwnBit || kPairs ? kOwnBit : kOrderBit;
  static constexpr int kCount = kPairs ? 1 : 2;  // accesses of eight k
  uint32 place_[2][kCount];  // of a lane's numbers in row g of the first 16 k, by halves
  bool exchanged_;  // numbers are multiplied in the other order than read

  // Row `first` is the first one of the warp, a multiple of 16.
  GETT_DEVICE DmmaFragment(int first, int lane) {
    const int row = first + (lane >> 2), t = lane & 3;
    const bool turned = (lane & kTurnBit) != 0;
    exchanged_ = kTurnBit != kOrderBit && turned != ((lane & kOrderBit) != 0);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int q = 0; q < kCount; ++q) {
        const int k = kTwoLeads ? along_own(t, half, q) + along_other(t, half, q) * kLead
                                : 4 * t + 2 * (half ^ (t >> 1)) + (kMajorK ? 0 : q ^ int(turned));
        const uint32 place = kMajorK ? k * 8 / kS * kSlab + swizzled(row * kS + k * 8 % kS)
                                     : row * 8 / kS * kSlab + swizzled(k * kS + row * 8 % kS);
        place_[half][q] = uint32(opaque(int(place)));  // kept, not computed in each step
      }
  }
  // Of two leads, the k along the operand's own rows and along the other's.
  static GETT_DEVICE int along_own(int t, int half, int q) { return along(kOfB, kLead, t, half, q); }
  static GETT_DEVICE int along_other(int t, int half, int q) { return along(!kOfB, kOther, t, half, q); }
  static GETT_DEVICE int along(bool b, int lead, int t, int half, int q) {
    const int of_a = t & 1, of_b = t >> 1;
    return b ? lead / 2 * of_b + (q ^ of_a) : lead / 2 * of_a + (half ^ of_b);
  }
  static GETT_DEVICE uint32 swizzled(int x) { return HardwareSwizzle<kS>::apply(uint32(x)); }

  // The place of access `q` in row g + `rows`, a multiple of eight, of the eight k number `s`. What differs from the
  // first one is bits that the swizzle does not take: they are exchanged or added.
  GETT_DEVICE uint32 at(int rows, int s, int q) const {
    const uint32 place = place_[s & 1][q];
    if constexpr (kTwoLeads) {  // steps go along A's rows first
      const int a = (s >> 1) % (kLeadA / 4) * 2, b = (s >> 1) / (kLeadA / 4) * 2;
      return (place ^ uint32((kOfB ? b : a) * 8)) + (kOfB ? a : b) * kSlab + rows * kS;
    }
    if constexpr (kMajorK) return place + (s >> 1) * (128 / kS) * kSlab + rows * kS;
    return (place ^ uint32(rows * 8 % kS)) + rows * 8 / kS * kSlab + (s >> 1) * 16 * kS;
  }
  // The numbers of that row out of the tile at `tile`.
  GETT_DEVICE void load(uint32 tile, int rows, int s, double (&x)[2]) const {
    double read[2];
    if constexpr (kPairs) {
      ld_shared_f64x2(tile + at(rows, s, 0), read);
    } else {
      read[0] = ld_shared_f64(tile + at(rows, s, 0));
      read[1] = ld_shared_f64(tile + at(rows, s, 1));
    }
#pragma unroll
    for (int q = 0; q < 2; ++q) x[q] = exchanged_ ? read[1 - q] : read[q];
  }
};

}  // namespace gett
