// The loader by cp.async: brings the tile of one operand and k-tile from global to shared memory, through any layout.
//
// Traits::LoaderTraits say how: kVec elements an access along the group of kVecK (K or the free one), which runs along
// a row in shared memory. What such copies cannot take goes through registers (loader/register.cuh).
#pragma once
#include "gett/core/index.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/ptx/cp_async.cuh"
#include "gett/ptx/opaque.cuh"

namespace gett {

template <class Traits, class Index, bool kIsA> struct CpAsyncLoader {
  typedef typename Traits::Params Params;
  static constexpr int kBlockMN = kIsA ? Traits::kBlockM : Traits::kBlockN;
  static constexpr int kBlockK = Traits::kBlockK;
  typedef typename LoaderTraitsOf<Traits, kIsA>::type LoaderTraits;
  typedef typename LoaderTraits::Element Element;
  static constexpr int kVec = LoaderTraits::kVec, kCopy = kVec * int(sizeof(Element));
  static constexpr int kAlong = (LoaderTraits::kVecK ? kBlockK : kBlockMN) / kVec;
  static constexpr int kAcross = LoaderTraits::kVecK ? kBlockMN : kBlockK;
  static constexpr int kTotal = kAlong * kAcross;
  static constexpr int kPer = (kTotal + Traits::kThreads - 1) / Traits::kThreads;
  static constexpr bool kEven = kTotal % Traits::kThreads == 0;
  static constexpr int kBytes = (LoaderTraits::kMajorK ? kBlockMN : kBlockK) * LoaderTraits::Layout::kPitch;
  // Where the same elements are valid in every k-tile, padding is not copied. Along K it is zeroed once. In the free
  // group it leads to rows of the result that are not stored.
  static constexpr bool kFixed = !Traits::kKTable && !Traits::kKRagged;
  static constexpr bool kZeroFill = kFixed && LoaderTraits::kZeroFill;
  static_assert(kPer <= 32, "too many accesses a thread");
  // Where the place of a thread's first access tells the others: they are at one place in their rows.
  typedef typename LoaderTraits::Layout Layout;
  static constexpr int kRowStep = LoaderTraits::kRowStep;
  static_assert(kRowStep == 0 || kRowStep * kAlong == Traits::kThreads, "rows between a thread's accesses");

  const Element* base_;
  typename Traits::Offset offset_[kPer];  // bytes, in 32 bits where the extent of the operand allows
  uint32 valid_;
  uint32 first_;  // the place of the first access in a stage

  // Lanes follow the operand in memory: so many along a row, in so many rows, then the next ones of these rows.
  static constexpr int kLanes = LoaderTraits::kLanesAlong, kRows = LoaderTraits::kLanesAcross;
  static_assert(kAlong % kLanes == 0 && kAcross % kRows == 0, "whole groups of lanes");
  static GETT_DEVICE int along(int v) {
    return (v % kLanes + v / (kLanes * kRows) % (kAlong / kLanes) * kLanes) * kVec;
  }
  static GETT_DEVICE int across(int v) { return v / kLanes % kRows + v / (kAlong * kRows) * kRows; }
  static GETT_DEVICE int mn_of(int v) { return LoaderTraits::kVecK ? across(v) : along(v); }
  static GETT_DEVICE int k_of(int v) { return LoaderTraits::kVecK ? along(v) : across(v); }

  template <class Tile> GETT_DEVICE void init(const Params& p, const Element* base, const Tile& tile, int thread) {
    base_ = base;
    valid_ = 0;
    if constexpr (kRowStep > 0) first_ = opaque(smem_at(mn_of(thread), k_of(thread)));
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int v = thread + i * Traits::kThreads;
      const int mn = mn_of(v), k = k_of(v);
      bool ok = kEven || v < kTotal;
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

  static GETT_DEVICE uint32 smem_at(int mn, int k) {
    const int row = LoaderTraits::kMajorK ? mn : k, column = LoaderTraits::kMajorK ? k : mn;
    return Layout::address(row, column * int(sizeof(Element)));
  }
  // The place of access `i`.
  GETT_DEVICE uint32 place(int i, int thread) const {
    if constexpr (kRowStep > 0) return Layout::moved(first_, i * kRowStep);
    const int v = thread + i * Traits::kThreads;
    return smem_at(mn_of(v), k_of(v));
  }

  // Issues the copies of one k-tile; `where` is the k-tile (boxed K) or its slot of the offset table (flattened K).
  template <class KTile> GETT_DEVICE void fetch(const Params& p, const KTile& where, uint32 stage, int thread) {
    const Element* base = base_;
    if constexpr (!Traits::kKTable) base += kIsA ? where.a : where.b;
    if constexpr (kSparing) {
      thread = opaque(thread);
      valid_ = opaque(valid_);
    }
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int v = thread + i * Traits::kThreads;
      if (!kEven && !kFixed && v >= kTotal) continue;
      bool ok = (valid_ >> i) & 1;
      const uint32 to = stage + place(i, thread);
      const char* from = reinterpret_cast<const char*>(base) + offset_[i];
      if constexpr (kFixed) {
        cp_async_if<kCopy, LoaderTraits::kCached>(ok, to, from);
      } else {
        const int k = k_of(v);
        if constexpr (Traits::kKTable) {
          const long long step = kIsA ? where[k].x : where[k].y;
          ok = ok && step != kInvalid;
          from += step * int(sizeof(Element));
        } else {
          ok = ok && Index::k_coord(p, k) < where.rem;
        }
        cp_async<kCopy, LoaderTraits::kCached>(to, from, ok);  // reads nothing at an address that is not valid
      }
    }
  }
  // The copies have stored to shared memory already.
  GETT_DEVICE void store(const Params&, char*, int) const {}
};

}  // namespace gett
