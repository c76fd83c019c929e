// Where the loaders of multistage kernels find an element of an operand's tile: its row and column in the operand's own
// order, its place in shared memory, and what tells whether a k-tile has its k.
#pragma once
#include "gett/core/index.cuh"
#include "gett/core/swizzle.cuh"

namespace gett {

template <class Traits, class Index, bool kIsA> struct TilePlace {
  typedef typename Traits::Params Params;
  typedef typename LoaderTraitsOf<Traits, kIsA>::type LoaderTraits;
  typedef typename LoaderTraits::Element Element;
  static constexpr int kBlockMN = kIsA ? Traits::kBlockM : Traits::kBlockN;
  static constexpr int kBytes = (LoaderTraits::kMajorK ? kBlockMN : Traits::kBlockK) * LoaderTraits::Layout::kPitch;

  // M or N, and k, of element `i` in the order in which threads visit the operand.
  static GETT_DEVICE MN idx2crd(const Params& p, int i) {
    if constexpr (kIsA) return Index::idx2crd_a(p, i);
    else return Index::idx2crd_b(p, i);
  }
  // The byte of a stage at which an element lies.
  static GETT_DEVICE uint32 place_of(const MN& at) {
    const int row = LoaderTraits::kMajorK ? at.m : at.n, column = LoaderTraits::kMajorK ? at.n : at.m;
    const int bits = batch_bits<LoaderTraits::kSpread>(at.m / (kBlockMN / Traits::kBatch));
    return LoaderTraits::Layout::address(row, column * int(sizeof(Element)) ^ bits);
  }
  // k in the offset table, else its coordinate along K's ragged dimension.
  static GETT_DEVICE int k_of(const Params& p, const MN& at) {
    if constexpr (Traits::kKTable) return at.n; else return Index::k_coord(p, at.n);
  }
};

}  // namespace gett
