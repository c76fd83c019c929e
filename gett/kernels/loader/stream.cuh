// How the stream kernels read their operands: from which tensor, at which offsets, how many elements at once.
//
// Index (generated) gives the offsets of a tile's elements; LoaderTraits say how many are read at once and whether the
// tile goes through shared memory. Offsets are in elements; `o` is a tile of D's modes, `k` a tile of the summed ones.
#pragma once
#include "gett/core/index.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/core/vec.cuh"

namespace gett {

// The operands. Functions that an operand or a kernel lacks in Index are never instantiated.
template <class Traits, class Index> struct RoleA {
  typedef typename Traits::LoaderTraitsA LoaderTraits;
  typedef typename LoaderTraits::Element Element;
  typedef typename Traits::Params Params;
  static GETT_DEVICE const Element* base(const Params& p) { return p.a; }
  template <class Tile> static GETT_DEVICE long long origin(const Tile& t) { return t.a; }
  template <class Tile> static GETT_DEVICE long long at_o(const Params& p, const Tile& t, int i) {
    return Index::o_a(p, t, i);
  }
  template <class Tile> static GETT_DEVICE long long at_k(const Params& p, const Tile& t, int i) {
    return Index::k_a(p, t, i);
  }
  static GETT_DEVICE long long step(const Params& p) { return Index::step_a(p); }
  static GETT_DEVICE long long advance(const Params& p) { return Index::advance_a(p); }
  static GETT_DEVICE int tile_index(const Params& p, int i) { return Index::tile_index_a(p, i); }
  static GETT_DEVICE int image(const Params& p, int i) { return Index::image_a(p, i); }
};
template <class Traits, class Index> struct RoleB {
  typedef typename Traits::LoaderTraitsB LoaderTraits;
  typedef typename LoaderTraits::Element Element;
  typedef typename Traits::Params Params;
  static GETT_DEVICE const Element* base(const Params& p) { return p.b; }
  template <class Tile> static GETT_DEVICE long long origin(const Tile& t) { return t.b; }
  template <class Tile> static GETT_DEVICE long long at_o(const Params& p, const Tile& t, int i) {
    return Index::o_b(p, t, i);
  }
  template <class Tile> static GETT_DEVICE long long at_k(const Params& p, const Tile& t, int i) {
    return Index::k_b(p, t, i);
  }
  static GETT_DEVICE long long step(const Params& p) { return Index::step_b(p); }
  static GETT_DEVICE long long advance(const Params& p) { return Index::advance_b(p); }
  static GETT_DEVICE int tile_index(const Params& p, int i) { return Index::tile_index_b(p, i); }
  static GETT_DEVICE int image(const Params& p, int i) { return Index::image_b(p, i); }
};
template <class Traits, class Index> struct RoleC {
  typedef typename Traits::LoaderTraitsC LoaderTraits;
  typedef typename LoaderTraits::Element Element;
  typedef typename Traits::Params Params;
  static GETT_DEVICE const Element* base(const Params& p) { return p.c; }
  template <class Tile> static GETT_DEVICE long long origin(const Tile& t) { return t.c; }
  template <class Tile> static GETT_DEVICE long long at_o(const Params& p, const Tile& t, int i) {
    return Index::o_c(p, t, i);
  }
  static GETT_DEVICE long long step(const Params& p) { return Index::step_c(p); }
  static GETT_DEVICE long long advance(const Params& p) { return Index::advance_c(p); }
  static GETT_DEVICE int tile_index(const Params& p, int i) { return Index::tile_index_c(p, i); }
  static GETT_DEVICE int image(const Params& p, int i) { return Index::image_c(p, i); }
};

// The place of byte `x` of a dense tile in its swizzled image: the chunks of each 128-byte row are permuted.
template <class LoaderTraits> GETT_DEVICE uint32 swizzled_at(uint32 x) {
  return Swizzle<LoaderTraits::kMask, 7 + LoaderTraits::kShift>::apply(x);
}

// Reads kV consecutive elements of the index from global memory: one element repeated, one vector, or accesses of
// kWidth elements that lie one stride apart.
template <class Role, int kV>
GETT_DEVICE void read(const typename Role::Params& p, const typename Role::Element* from,
                      Vec<typename Role::Element, kV>& x) {
  typedef typename Role::Element Element;
  typedef typename Role::LoaderTraits LoaderTraits;
  if constexpr (kV == 1) {
    x = Vec<Element, 1>::load(from);
  } else if constexpr (LoaderTraits::kBroadcast) {
    const Element e = *from;
#pragma unroll
    for (int j = 0; j < kV; ++j) x.x[j] = e;
  } else if constexpr (LoaderTraits::kWidth == kV) {
    x = Vec<Element, kV>::load(from);
  } else {
    const long long step = Role::step(p);
#pragma unroll
    for (int j = 0; j < kV; j += LoaderTraits::kWidth) {
      const auto part = Vec<Element, LoaderTraits::kWidth>::load(from + j * step);
#pragma unroll
      for (int i = 0; i < LoaderTraits::kWidth; ++i) x.x[j + i] = part.x[i];
    }
  }
}

}  // namespace gett
