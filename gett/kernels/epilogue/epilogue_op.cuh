// The function that an epilogue applies to alpha * X + beta * C before the one store of D, and the tensors x0, x1, ...
// that it reads. The function itself is generated: Index::op. Index::op_row and Index::op_column give what all elements
// of a row or of a column of the tile have in common. It is applied to accumulators in registers before they are
// staged; where vectors of C are added later, there.
#pragma once
#include "gett/core/numeric.cuh"
#include "gett/ptx/opaque.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

// Element `at` of a tensor; where D has no such element, 0, and nothing is read.
template <class Element> GETT_DEVICE Element load_extra(const Element* x, long long at, bool ok) {
  return ok ? x[at] : Element();
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
  typedef typename Index::OpElement Element;
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
  GETT_DEVICE Element element(const Row& row, const Column& column) const {
    return Index::op_element(p_, row, column);
  }
  GETT_DEVICE Acc operator()(int m, int n, Acc x) const {
    const Row r = row(m);
    const Column c = column(n);
    return Index::op(r, c, element(r, c), x);
  }

  // Applies it to the accumulators of a thread, each of which `scale` gives its factor before; `fragment` knows which
  // rows and columns they stand for. Accumulators leave few registers, so a few rows are taken at a time. All elements
  // of a batch of columns are loaded before the first is used. The reasons are that a load takes long, and a sector has
  // 16 or more bytes of neighbouring columns.
  template <class Fragment, class Scale> GETT_DEVICE void apply(Fragment& fragment, const Scale& scale) const {
    constexpr int kRowCount = Fragment::kRows, kColumnCount = Fragment::kColumns;
    constexpr int kRows = kRowCount < 4 ? kRowCount : 4;
    constexpr int kWords = (int(sizeof(Element)) + 3) / 4;  // elements of less than a word take one each
    constexpr int kRegisters = kRows * (kWords > Index::kElementReads ? kWords : Index::kElementReads);
    constexpr int kMost = Index::kElementReads == 0 || kSparing || kRegisters > kInFlight ? 1 : kInFlight / kRegisters;
    constexpr int kColumns = kMost < kColumnCount ? kMost : kColumnCount;
#pragma unroll
    for (int first = 0; first < kRowCount; first += kRows) {
      Row rows[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (first + i < kRowCount) rows[i] = row(fragment.row(first + i));
#pragma unroll
      for (int j = 0; j < kColumnCount; j += kColumns) {
        Column columns[kColumns];
        Element elements[kColumns][kRows];
#pragma unroll
        for (int q = 0; q < kColumns; ++q) {
          if (j + q >= kColumnCount) break;
          columns[q] = column(fragment.column(j + q));
#pragma unroll
          for (int i = 0; i < kRows; ++i)
            if (first + i < kRowCount) elements[q][i] = element(rows[i], columns[q]);
        }
#pragma unroll
        for (int q = 0; q < kColumns; ++q)
#pragma unroll
          for (int i = 0; i < kRows; ++i)
            if (j + q < kColumnCount && first + i < kRowCount) {
              const Acc x = scale(fragment.get(first + i, j + q));
              fragment.set(first + i, j + q, finished(Index::op(rows[i], columns[q], elements[q][i], x)));
            }
      }
    }
  }

 private:
  static constexpr int kInFlight = 32;  // registers that loads under way may take

  // A result where each element reads tensors of its own. The compiler would defer all arithmetic to where results are
  // used, so that loaded values need as many registers as accumulators. It does not defer what goes through `opaque`.
  static GETT_DEVICE Acc finished(Acc x) {
    if constexpr (Index::kElementReads > 0) return opaque(x);
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
