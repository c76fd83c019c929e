// The function that an epilogue applies to alpha * X + beta * C before the one store of D, and the tensors x0, x1, ...
// that it reads. The function itself is generated: Index::op, and Index::op_row and Index::op_column, which give what
// all elements of a row or of a column of the tile have in common. It is applied to accumulators in registers before
// they are staged; where vectors of C are added later, there.
#pragma once
#include "gett/core/numeric.cuh"
#include "gett/ptx/opaque.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

// Element `at` of a tensor in the type in which it takes part; where D has no such element, 0, and nothing is read.
template <class T, class Element> GETT_DEVICE T load_extra(const Element* x, long long at, bool ok) {
  return ok ? convert<T>(x[at]) : T();
}

// The function at a tile of D.
template <class Traits, class Index, bool kHas = Traits::kEpilogueOp> struct TileOp {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  static constexpr bool kOn = false, kReads = false;
  GETT_DEVICE TileOp(const Params&, const TileId&) {}
  GETT_DEVICE Acc operator()(int, int, Acc x) const { return x; }
};

template <class Traits, class Index> struct TileOp<Traits, Index, true> {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef typename Index::OpRow Row;
  typedef typename Index::OpColumn Column;
  static constexpr bool kOn = true, kReads = Traits::kExtras > 0;
  const Params& p_;
  typename Index::LTile l_;
  typename Index::MTile m_;
  typename Index::NTile n_;

  // Where the tile lies is found here, not kept through the main loop.
  GETT_DEVICE TileOp(const Params& p, const TileId& id)
      : p_(p), l_(Index::l_tile(p, opaque(id.l))), m_(Index::m_tile(p, opaque(id.m))),
        n_(Index::n_tile(p, opaque(id.n))) {}

  // Of a row of the tile, negative for padding, and of a column.
  GETT_DEVICE Row row(int m) const { return Index::op_row(p_, l_, m_, m); }
  GETT_DEVICE Column column(int n) const { return Index::op_column(p_, l_, n_, n); }
  GETT_DEVICE Acc operator()(const Row& row, const Column& column, Acc x) const {
    return Index::op(p_, row, column, x);
  }
  GETT_DEVICE Acc operator()(int m, int n, Acc x) const { return (*this)(row(m), column(n), x); }

  // Applies it to the accumulators of a thread, each of which `scale` gives its factor before; `fragment` knows which
  // rows and columns they stand for. Registers are scarce beside the accumulators, so a few rows are taken at a time.
  template <class Fragment, class Scale> GETT_DEVICE void apply(Fragment& fragment, const Scale& scale) const {
    constexpr int kCount = Fragment::kRows, kRows = kCount < 4 ? kCount : 4;
#pragma unroll
    for (int first = 0; first < kCount; first += kRows) {
      Row rows[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (first + i < kCount) rows[i] = row(fragment.row(first + i));
#pragma unroll
      for (int j = 0; j < Fragment::kColumns; ++j) {
        const Column here = column(fragment.column(j));
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          if (first + i < kCount)
            fragment.set(first + i, j, finished((*this)(rows[i], here, scale(fragment.get(first + i, j)))));
      }
    }
  }

 private:
  // A result where each element reads tensors of its own. The compiler would defer all arithmetic to where results are
  // used, so that loaded values need as many registers as accumulators; it does not defer what goes through `opaque`.
  static GETT_DEVICE Acc finished(Acc x) {
    if constexpr (Index::kReadsElements) return opaque(x);
    return x;
  }
};

// The function at a tile of the outputs of a kernel without a GEMM.
template <class Traits, class Index, class OTile, bool kHas = Traits::kEpilogueOp> struct OutputOp {
  typedef typename Traits::Acc Acc;
  const typename Traits::Params& p_;
  const OTile& t_;
  GETT_DEVICE Acc operator()(int o, Acc x) const {
    if constexpr (kHas) return Index::op(p_, t_, o, x);
    return x;
  }
};

}  // namespace gett
