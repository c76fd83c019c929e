// An operand's side of the generated index, for loaders that compute addresses: M and the offsets of A, or N and those
// of B. Offsets are elements.
#pragma once
#include "gett/core/types.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

template <class Traits, class Index, bool kIsA> struct OperandIndex {
  typedef typename Traits::Params Params;
  typedef typename LoaderTraitsOf<Traits, kIsA>::type LoaderTraits;
  static constexpr int kE = sizeof(typename Traits::Element);
  static constexpr int kBox = kIsA ? Traits::kBoxM : Traits::kBoxN;

  static GETT_DEVICE const char* base(const Params& p) {
    if constexpr (kIsA) return reinterpret_cast<const char*>(p.a); else return reinterpret_cast<const char*>(p.b);
  }
  static GETT_DEVICE const char* end(const Params& p) {
    if constexpr (kIsA) return base(p) + (long long)p.cosize_a * kE; else return base(p) + (long long)p.cosize_b * kE;
  }
  // Elements before K's end, from index `local` of a k-tile on.
  template <class KTile> static GETT_DEVICE int valid_k(const Params& p, const KTile& k, int local) {
    if constexpr (kIsA) return Index::valid_k_a(p, k, local); else return Index::valid_k_b(p, k, local);
  }
  static GETT_DEVICE auto mn_tile(const Params& p, const TileId& id) {
    if constexpr (kIsA) return Index::m_tile(p, id.m); else return Index::n_tile(p, id.n);
  }
  template <class MnTile> static GETT_DEVICE bool mn_ok(const Params& p, const MnTile& t, int mn) {
    if constexpr (kIsA) return Index::m_ok(p, t, mn); else return Index::n_ok(p, t, mn);
  }
  // Of rows and of k of a tile, from its origin.
  template <class MnTile> static GETT_DEVICE int offset_mn(const Params& p, const MnTile& t, int mn) {
    if constexpr (kIsA) return int(Index::m_a(p, t, mn)); else return int(Index::n_b(p, t, mn));
  }
  static GETT_DEVICE int offset_k(const Params& p, int k) {
    if constexpr (kIsA) return int(Index::k_a(p, k)); else return int(Index::k_b(p, k));
  }
  template <class MnTile> static GETT_DEVICE int offset(const Params& p, const MnTile& t, int mn, int k) {
    return offset_mn(p, t, mn) + offset_k(p, k);
  }
  // The origin of a batch, of a tile or of a k-tile.
  template <class At> static GETT_DEVICE long long origin(const At& at) {
    if constexpr (kIsA) return at.a; else return at.b;
  }
};

// What padding reads where the tensor lacks `at`: one of the first kPeriod, or where it lacks that, too, the first one.
// Neighbours read different places, since cp.async from one place to many takes a turn for each of them.
template <int kPeriod, class Has> GETT_DEVICE int padding_source(int at, const Has& has) {
  if (has(at)) return at;
  return has(at % kPeriod) ? at % kPeriod : 0;
}

}  // namespace gett
