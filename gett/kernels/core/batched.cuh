// Views of Index and Traits for a block that makes several batches. Such a block is for tensors whose neighbours in
// memory belong to different batches. With one batch a block would use two bytes of every sector.
//
// A row of A or D is batch * kBlockM + m, a row of B is batch * kBlockN + n. Loaders, offsets and stores see one tile
// of that height; only the product multiplies each batch's part by itself.
#pragma once
#include "gett/contract/multistage.cuh"
#include "gett/core/types.cuh"

namespace gett {

// The operands' tiles.
template <class Base> struct BatchedOperands : Base {
  static constexpr int kBlockM = Base::kBlockM * Base::kBatch, kBlockN = Base::kBlockN * Base::kBatch;
};
// The tile of D.
template <class Base> struct BatchedResult : Base {
  static constexpr int kBlockM = Base::kBlockM * Base::kBatch;
};

template <class Traits, class Index, bool kMany>
  GETT_REQUIRES(contract::BatchedIndex<Traits, Index>)
struct BatchedIndex : Index {
  typedef typename Traits::Params Params;
  typedef typename Index::LTile LTile;
  typedef typename Index::MTile MTile;
  typedef typename Index::NTile NTile;
  using Index::n_ok;
  struct Rows { LTile l; MTile m; long long a, d, c; };
  struct Columns { LTile l; NTile n; long long b; };
  static GETT_DEVICE Rows rows(const LTile& l, const MTile& m) {
    Rows t{l, m, l.a + m.a, l.d + m.d, 0};
    if constexpr (Traits::kSourceC == kSourceVector) t.c = l.c + m.c;
    return t;
  }
  static GETT_DEVICE Columns columns(const LTile& l, const NTile& n) { return {l, n, l.b + n.b}; }

  static GETT_DEVICE bool m_ok(const Params& p, const Rows& t, int r) {
    return Index::l_ok(p, t.l, r / Traits::kBlockM) && Index::m_ok(p, t.m, r % Traits::kBlockM);
  }
  static GETT_DEVICE long long m_a(const Params& p, const Rows& t, int r) {
    return Index::l_a(p, t.l, r / Traits::kBlockM) + Index::m_a(p, t.m, r % Traits::kBlockM);
  }
  static GETT_DEVICE long long m_d(const Params& p, const Rows& t, int r) {
    return Index::l_d(p, t.l, r / Traits::kBlockM) + Index::m_d(p, t.m, r % Traits::kBlockM);
  }
  static GETT_DEVICE long long m_c(const Params& p, const Rows& t, int r) {
    return Index::l_c(p, t.l, r / Traits::kBlockM) + Index::m_c(p, t.m, r % Traits::kBlockM);
  }
  static GETT_DEVICE bool n_ok(const Params& p, const Columns& t, int r) {
    return Index::l_ok(p, t.l, r / Traits::kBlockN) && Index::n_ok(p, t.n, r % Traits::kBlockN);
  }
  static GETT_DEVICE long long n_b(const Params& p, const Columns& t, int r) {
    return Index::l_b(p, t.l, r / Traits::kBlockN) + Index::n_b(p, t.n, r % Traits::kBlockN);
  }
};

// One batch a block: its offsets are added to those of the tiles.
template <class Traits, class Index>
  GETT_REQUIRES(contract::BatchedIndex<Traits, Index>)
struct BatchedIndex<Traits, Index, false> : Index {
  typedef typename Index::LTile LTile;
  typedef typename Index::MTile Rows;
  typedef typename Index::NTile Columns;
  static GETT_DEVICE Rows rows(const LTile& l, Rows t) {
    t.a += l.a;
    t.d += l.d;
    if constexpr (Traits::kSourceC == kSourceVector) t.c += l.c;
    return t;
  }
  static GETT_DEVICE Columns columns(const LTile& l, Columns t) {
    t.b += l.b;
    return t;
  }
};

}  // namespace gett
