// The loader through registers: for operands that asynchronous copies cannot take, since their vectors run along
// another mode than the rows in shared memory. It transposes on the way.
//
// A tile is read in the operand's own memory order, so that the lanes of a warp share L2 lines. Index::idx2crd_a (or
// _b) gives the coordinates (mn, k) of a position in that order. The place of each element in shared memory is computed
// once a block. Vectors are kept in registers while the tensor cores work on the tile before, then stored element by
// element.
#pragma once
#include "gett/core/halfwords.cuh"
#include "gett/core/vec.cuh"
#include "gett/loader/tile_place.cuh"
#include "gett/ptx/opaque.cuh"

namespace gett {

template <class Traits, class Index, bool kIsA> struct RegisterLoader : TilePlace<Traits, Index, kIsA> {
  typedef TilePlace<Traits, Index, kIsA> Place;
  typedef typename Place::Params Params;
  typedef typename Place::LoaderTraits LoaderTraits;
  typedef typename Place::Element Element;
  using Place::idx2crd;
  using Place::k_of;
  using Place::kBytes;
  using Place::place_of;
  static constexpr int kVec = LoaderTraits::kVec, kE = sizeof(Element);
  static constexpr int kTotal = LoaderTraits::kTileElements / kVec;
  static constexpr int kPer = (kTotal + Traits::kThreads - 1) / Traits::kThreads;
  static constexpr bool kEven = kTotal % Traits::kThreads == 0;
  static constexpr bool kZeroFill = LoaderTraits::kZeroFill;
  // Whether the validity of an access depends on the k-tile.
  static constexpr bool kNeedK = Traits::kKTable || Traits::kKRagged;
  // A vector whose elements stay neighbours in a row is stored as one. The place of the first one tells those of others
  // that lie kRowStep rows apart, or kByteStep bytes of a row; else each element has a place of its own.
  static constexpr int kRowStep = LoaderTraits::kRowStep, kByteStep = LoaderTraits::kByteStep;
  static constexpr bool kSteps = kRowStep + kByteStep > 0;
  static constexpr int kPlacesPerVector = LoaderTraits::kRowVectors || kSteps ? 1 : kVec;
  static constexpr int kPlaces = kSparing ? 1 : kPer * kPlacesPerVector;
  static_assert(kPer <= 32, "too many accesses a thread");
  static_assert(kBytes / kE <= 65536, "places are kept in 16 bits");

  const Element* base_;
  typename Traits::Offset offset_[kPer];  // bytes
  uint32 valid_;
  Halfwords<kPlaces> place_;        // element numbers in the stage; unused where sparing
  Halfwords<kNeedK ? kPer : 1> k_;  // k, or its coordinate along K's ragged dimension
  enum : bool { kWords = kE < 4 && kVec * kE >= 4 };
  template <bool W, int = 0> struct Pick { typedef Vec<Element, kVec> type; };
  template <int I> struct Pick<true, I> { typedef Words<Element, kVec> type; };
  typedef typename Pick<kWords>::type Held;
  Held held_[kPer];

  // The place of element `j` of this thread's access `i`.
  GETT_DEVICE uint32 place(const Params& p, int i, int j, int thread) const {
    if constexpr (kSparing) return place_of(idx2crd(p, (thread + i * Traits::kThreads) * kVec + j)) / kE;
    return place_[i * kPlacesPerVector + j];
  }

  template <class Tile> GETT_DEVICE void init(const Params& p, const Element* base, const Tile& tile, int thread) {
    base_ = base;
    valid_ = 0;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if constexpr (kWords) {
        held_[i] = Held::zeros();
      } else {
#pragma unroll
        for (int j = 0; j < kVec; ++j) held_[i].x[j] = Element{};
      }
      const int v = thread + i * Traits::kThreads;
      const bool in = kEven || v < kTotal;
#pragma unroll
      for (int j = 0; j < kPlacesPerVector; ++j) {
        const MN at = idx2crd(p, (in ? v : 0) * kVec + j);
        if constexpr (!kSparing) place_.set(i * kPlacesPerVector + j, place_of(at) / kE);
        if (j) continue;
        bool ok = in;
        long long from = 0;
        if constexpr (kIsA) {
          ok = ok && Index::m_ok(p, tile, at.m);
          from = Index::m_a(p, tile, at.m);
          if constexpr (!Traits::kKTable) from += Index::k_a(p, at.n);
        } else {
          ok = ok && Index::n_ok(p, tile, at.m);
          from = Index::n_b(p, tile, at.m);
          if constexpr (!Traits::kKTable) from += Index::k_b(p, at.n);
        }
        if constexpr (kNeedK) k_.set(i, k_of(p, at));
        offset_[i] = opaque(typename Traits::Offset(ok ? from * kE : 0));
        valid_ |= uint32(ok) << i;
      }
    }
  }

  // Loads one k-tile into registers; `where` is the k-tile (boxed K) or its slot of the offset table (flattened K).
  template <class KTile> GETT_DEVICE void fetch(const Params& p, const KTile& where, uint32, int) {
    const Element* base = base_;
    if constexpr (!Traits::kKTable) base += kIsA ? where.a : where.b;
    if constexpr (kKeepPacked) {
      valid_ = opaque(valid_);
      if constexpr (kNeedK) k_.hide();
      if constexpr (!kSparing) place_.hide();
    }
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      bool ok = (valid_ >> i) & 1;
      const char* from = reinterpret_cast<const char*>(base) + offset_[i];
      if constexpr (Traits::kKTable) {
        const long long step = kIsA ? where[k_[i]].x : where[k_[i]].y;
        ok = ok && step != kInvalid;
        from += ok ? step * kE : 0;
      } else if constexpr (Traits::kKRagged) {
        ok = ok && k_[i] < where.rem;
      }
      if constexpr (kNeedK && kWords) {
        held_[i] = Held::zeros();
      } else if constexpr (kNeedK) {  // else padding stays zero
#pragma unroll
        for (int j = 0; j < kVec; ++j) held_[i].x[j] = Element{};
      }
      if (ok) held_[i] = Held::load(from);
    }
  }

  // Stores what `fetch` left in registers.
  GETT_DEVICE void store(const Params& p, char* stage, int thread) const {
    Element* const to = reinterpret_cast<Element*>(stage);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if constexpr (kSparing) thread = opaque(thread);  // one access after the other
      if (!kEven && thread + i * Traits::kThreads >= kTotal) continue;
      if constexpr (LoaderTraits::kRowVectors) {
        held_[i].store(to + place(p, i, 0, thread));
      } else if constexpr (kSteps) {
        const uint32 first = place(p, i, 0, thread) * kE;
#pragma unroll
        for (int j = 0; j < kVec; ++j) {
          const uint32 at = LoaderTraits::Layout::moved(first, j * kRowStep) + j * kByteStep;
          *reinterpret_cast<Element*>(stage + at) = held_[i].x[j];
        }
      } else {
#pragma unroll
        for (int j = 0; j < kVec; ++j) to[place(p, i, j, thread)] = held_[i].x[j];
      }
    }
  }
};

}  // namespace gett
