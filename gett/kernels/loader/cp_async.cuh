// The loader by cp.async: brings the tile of one operand and k-tile from global to shared memory, through any layout.
//
// Traits::LoaderTraits say how: kVec elements an access along the group of kVecK (K or the free one), which runs along
// a row in shared memory. What such copies cannot take goes through registers (loader/register.cuh).
//
// Threads visit a tile row by row, or in the operand's memory order (kWalked). L1 serves in one turn what lies in
// different banks, in memory and in shared memory. Lanes that read the same place of many lines take a turn each.
#pragma once
#include "gett/core/halfwords.cuh"
#include "gett/loader/tile_place.cuh"
#include "gett/ptx/cp_async.cuh"
#include "gett/ptx/opaque.cuh"

namespace gett {

template <class Traits, class Index, bool kIsA> struct CpAsyncLoader : TilePlace<Traits, Index, kIsA> {
  typedef TilePlace<Traits, Index, kIsA> Place;
  typedef typename Place::Params Params;
  typedef typename Place::LoaderTraits LoaderTraits;
  typedef typename Place::Element Element;
  using Place::k_of;
  using Place::kBlockMN;
  using Place::kBytes;
  using Place::place_of;
  static constexpr int kBlockK = Traits::kBlockK;
  static constexpr int kVec = LoaderTraits::kVec, kCopy = kVec * int(sizeof(Element));
  static constexpr int kAlong = (LoaderTraits::kVecK ? kBlockK : kBlockMN) / kVec;
  static constexpr int kAcross = LoaderTraits::kVecK ? kBlockMN : kBlockK;
  static constexpr bool kWalked = LoaderTraits::kWalked;
  static constexpr int kTotal = kWalked ? LoaderTraits::kTileElements / kVec : kAlong * kAcross;
  static constexpr int kPer = (kTotal + Traits::kThreads - 1) / Traits::kThreads;
  static constexpr bool kEven = kTotal % Traits::kThreads == 0;
  // Where the same elements are valid in every k-tile, padding is not copied. The operand's own order never visits it.
  // Along K it is zeroed once. In the free group it leads to rows of the result that are not stored.
  static constexpr bool kFixed = !Traits::kKTable && !Traits::kKRagged;
  static constexpr bool kZeroFill = (kFixed || kWalked) && LoaderTraits::kZeroFill;
  static_assert(kPer <= 32, "too many accesses a thread");
  // Where the place of a thread's first access tells the others: they are at one place in their rows.
  typedef typename LoaderTraits::Layout Layout;
  static constexpr int kRowStep = LoaderTraits::kRowStep;
  static constexpr bool kKeepsPlaces = kWalked && !kSparing, kKeepsK = kWalked && !kFixed;
  // Where all accesses of a thread have the same k, one look at a k-tile tells of all.
  static constexpr bool kOneK = !kFixed && !kWalked && LoaderTraits::kVecK && Traits::kThreads % kAlong == 0;
  static_assert(kBytes <= 4 << 16, "places are kept in 16 bits, as words");
  static_assert(kRowStep == 0 || kRowStep * kAlong == Traits::kThreads, "rows between a thread's accesses");

  const Element* base_;
  typename Traits::Offset offset_[kPer];  // bytes, in 32 bits where the extent of the operand allows
  uint32 valid_;
  uint32 first_;  // the place of the first access in a stage
  Halfwords<kKeepsPlaces ? kPer : 1> place_;  // of each access, in words, where the first one does not tell the others
  Halfwords<kKeepsK ? kPer : 1> k_;           // of each access k, or its coordinate along K's ragged dimension

  // Where access `v` of the tile begins.
  static GETT_DEVICE MN begin(const Params& p, int v) {
    if constexpr (kWalked) return Place::idx2crd(p, v * kVec);
    const int along = v % kAlong * kVec, across = v / kAlong;
    return LoaderTraits::kVecK ? MN{across, along} : MN{along, across};
  }

  template <class Tile> GETT_DEVICE void init(const Params& p, const Element* base, const Tile& tile, int thread) {
    base_ = base;
    valid_ = 0;
    if constexpr (kRowStep > 0) first_ = opaque(place_of(begin(p, thread)));
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int v = thread + i * Traits::kThreads;
      bool ok = kEven || v < kTotal;
      const MN crd = begin(p, kWalked && !ok ? 0 : v);
      const int mn = crd.m, k = crd.n;
      if constexpr (kKeepsPlaces) place_.set(i, place_of(crd) / 4);
      if constexpr (kKeepsK) k_.set(i, k_of(p, crd));
      long long at = 0;
      if constexpr (kIsA) {
        ok = ok && Index::m_ok(p, tile, mn);
        at = Index::m_a(p, tile, mn);
        if constexpr (!Traits::kKTable) at += Index::k_a(p, k);
      } else {
        ok = ok && Index::n_ok(p, tile, mn);
        at = Index::n_b(p, tile, mn);
        if constexpr (!Traits::kKTable) at += Index::k_b(p, k);
      }
      if constexpr (!Traits::kKTable) ok = ok && Index::k_ok(p, k);
      offset_[i] = opaque(typename Traits::Offset(ok ? at * int(sizeof(Element)) : 0));
      valid_ |= uint32(ok) << i;
    }
  }

  // The place of access `i`.
  GETT_DEVICE uint32 place(const Params& p, int i, int thread) const {
    if constexpr (kRowStep > 0) return Layout::moved(first_, i * kRowStep);
    if constexpr (kKeepsPlaces) return place_[i] * 4;
    return place_of(begin(p, thread + i * Traits::kThreads));
  }
  // What tells whether a k-tile has the k of access `i`, which is `v` of the tile.
  GETT_DEVICE int k_of(const Params& p, int i, int v) const {
    if constexpr (kKeepsK) return k_[i]; else return k_of(p, begin(p, v));
  }
  // Whether a k-tile has `k`. Where a table has its offset, `from` is moved by it.
  template <class KTile> static GETT_DEVICE bool reach(const KTile& where, int k, const char*& from) {
    if constexpr (Traits::kKTable) {
      const long long step = kIsA ? where[k].x : where[k].y;
      from += step * int(sizeof(Element));
      return step != kInvalid;
    } else {
      return k < where.rem;
    }
  }

  // Issues the copies of one k-tile; `where` is the k-tile (boxed K) or its slot of the offset table (flattened K).
  template <class KTile> GETT_DEVICE void fetch(const Params& p, const KTile& where, uint32 stage, int thread) {
    const Element* base = base_;
    if constexpr (!Traits::kKTable) base += kIsA ? where.a : where.b;
    if constexpr (kSparing) thread = opaque(thread);
    if constexpr (kKeepPacked) {
      valid_ = opaque(valid_);
      if constexpr (kKeepsPlaces) place_.hide();
      if constexpr (kKeepsK) k_.hide();
    }
    const char* begins = reinterpret_cast<const char*>(base);
    uint32 valid = valid_;
    if constexpr (kOneK) valid = reach(where, k_of(p, begin(p, thread)), begins) ? valid : 0;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int v = thread + i * Traits::kThreads;
      if (!kEven && !kFixed && v >= kTotal) continue;
      const uint32 to = stage + place(p, i, thread);
      const char* from = begins + offset_[i];
      const BitTest ok = {valid, 1u << i};
      if constexpr (kFixed) {
        cp_async_if<kCopy, LoaderTraits::kCached>(ok, to, from);
      } else if constexpr (kOneK) {
        cp_async<kCopy, LoaderTraits::kCached>(to, from, ok);  // reads nothing at an address that is not valid
      } else {
        const bool has = reach(where, k_of(p, i, v), from);
        cp_async<kCopy, LoaderTraits::kCached>(to, from, has && ok);
      }
    }
  }
  // The copies have stored to shared memory already.
  GETT_DEVICE void store(const Params&, char*, int) const {}
};

}  // namespace gett
