// From global to shared memory: one operand's tile for one k-tile, through any layout.
//
// Traits::A and Traits::B describe the way: kVec elements an access along kVecK's group (K or the free one); kMajorK
// says which group runs along a shared-memory row; kAsync copies with cp.async, else the vector waits in registers
// while the tensor cores work and is stored element by element, which transposes it.
#pragma once
#include "gett/common.cuh"

namespace gett {

template <class Traits, class Index, bool kIsA> struct Loader {
  typedef typename Traits::Element Element;
  typedef typename Traits::Params Params;
  static constexpr int kBlockMN = kIsA ? Traits::kBlockM : Traits::kBlockN;
  static constexpr int kBlockK = Traits::kBlockK;
  typedef typename Traits::template Way<kIsA> Way;
  static constexpr int kVec = Way::kVec;
  // Where other dimensions of the box come before the unit-stride one (kPrefix > 1), vectors cover the box alone.
  static constexpr int kAlong = (Way::kPrefix > 1 ? Way::kBoxAlong : Way::kVecK ? kBlockK : kBlockMN) / kVec;
  static constexpr int kAcross = Way::kVecK ? kBlockMN : kBlockK;
  static constexpr int kTotal = kAlong * kAcross;
  static constexpr int kPer = (kTotal + Traits::kThreads - 1) / Traits::kThreads;
  static constexpr bool kEven = kTotal % Traits::kThreads == 0;
  static constexpr int kBytes = (Way::kMajorK ? kBlockMN : kBlockK) * Way::Layout::kPitch;
  static constexpr bool kHoles = Way::kPrefix > 1 && Way::kVecK && Way::kBoxAlong < kBlockK;
  static_assert(kPer <= 32, "too many accesses a thread");

  const Element* base_;
  typename Traits::Offset offset_[kPer];  // 32 bits where the operand's span allows, to spare registers
  uint32 valid_;
  Vec<Element, Way::kAsync ? 1 : kVec> held_[Way::kAsync ? 1 : kPer];

  // Lanes follow the unit-stride mode first, so that a warp's accesses join into long runs.
  static GETT_DEVICE int along(int v) {
    const int a = v % kAlong;
    if constexpr (Way::kPrefix == 1) return a * kVec;
    constexpr int kUnits = Way::kUnitBox / kVec;
    const int unit = a % kUnits, rest = a / kUnits;
    return rest % Way::kPrefix + Way::kPrefix * (unit * kVec + Way::kUnitBox * (rest / Way::kPrefix));
  }
  static GETT_DEVICE int mn_of(int v) { return Way::kVecK ? v / kAlong : along(v); }
  static GETT_DEVICE int k_of(int v) { return Way::kVecK ? along(v) : v / kAlong; }

  template <class Tile> GETT_DEVICE void init(const Params& p, const Element* base, const Tile& tile, int thread) {
    base_ = base;
    valid_ = 0;
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
      offset_[i] = typename Traits::Offset(ok ? at : 0);
      valid_ |= uint32(ok) << i;
    }
  }

  // `where` is the k-tile (boxed K) or its slot of the offset table (flattened K).
  template <class KTile> GETT_DEVICE const Element* locate(const Params& p, const KTile& where, int i, int thread, bool& ok) {
    const int k = k_of(thread + i * Traits::kThreads);
    ok = (valid_ >> i) & 1;
    long long at = offset_[i];
    if constexpr (Traits::kKTable) {
      const long long step = kIsA ? where[k].x : where[k].y;
      ok = ok && step != kInvalid;
      at += ok ? step : 0;
    } else {
      if constexpr (Traits::kKRagged) ok = ok && Index::k_coord(p, k) < where.rem;
      at += kIsA ? where.a : where.b;
    }
    return base_ + (ok ? at : 0);
  }

  static GETT_DEVICE uint32 smem_at(int mn, int k) {
    const int row = Way::kMajorK ? mn : k, column = Way::kMajorK ? k : mn;
    return Way::Layout::address(row, column * int(sizeof(Element)));
  }

  // Issues the copies of one k-tile (asynchronous way), or its loads into registers.
  template <class KTile> GETT_DEVICE void fetch(const Params& p, const KTile& where, uint32 stage, int thread) {
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int v = thread + i * Traits::kThreads;
      if (!kEven && v >= kTotal) continue;
      bool ok;
      const Element* from = locate(p, where, i, thread, ok);
      if constexpr (Way::kAsync) {
        copy_async<kVec * int(sizeof(Element))>(stage + smem_at(mn_of(v), k_of(v)), from, ok);
      } else {
#pragma unroll
        for (int j = 0; j < kVec; ++j) held_[i].x[j] = zero_element();
        if (ok) held_[i] = Vec<Element, kVec>::load(from);
      }
    }
  }

  // Second half of the register way: stores what `fetch` left in registers.
  GETT_DEVICE void put(char* stage, int thread) {
    if constexpr (!Way::kAsync) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        const int v = thread + i * Traits::kThreads;
        if (!kEven && v >= kTotal) continue;
        const int mn = mn_of(v), k = k_of(v);
#pragma unroll
        for (int j = 0; j < kVec; ++j) {
          const int step = j * Way::kPrefix;
          const uint32 at = Way::kVecK ? smem_at(mn, k + step) : smem_at(mn + step, k);
          *reinterpret_cast<Element*>(stage + at) = held_[i].x[j];
        }
      }
    }
  }

  static GETT_DEVICE Element zero_element() {
    Element e;
    memset_zero(e);
    return e;
  }
  template <class E> static GETT_DEVICE void memset_zero(E& e) { e = E{}; }
};

}  // namespace gett
