// The epilogue that stores vectors: accumulators go through shared memory, so that stores follow D's own order whatever
// the order of the fragments. C is added here, from global memory, and the plan's function applied to the sum.
//
// Where the parts of a tile are in D is computed once and kept in shared memory: its lines and their vectors, or its
// rows (m) and columns (n). A store then takes two look-ups instead of a division for each mode.
#pragma once
#include "gett/core/index.cuh"
#include "gett/core/vec.cuh"
#include "gett/epilogue/epilogue_op.cuh"
#include "gett/epilogue/linear_combination.cuh"

namespace gett {

// Where the tile's elements are in D. Of a tile that is stored line by line these are planes, lines and vectors. Else
// they are rows and columns, also in C where that is added here; `kNone` marks padding. Offsets of 32 bits take half of
// the look-ups' time.
template <class Traits> struct EpilogueOffsets {
  static constexpr bool kC = Traits::kSourceC == kSourceVector, kInLines = Traits::kLine > 0;
  static constexpr int kPerTensor = Traits::kBlockM + Traits::kBlockN;
  typedef typename Traits::Offset Offset;
  static constexpr Offset kNone = sizeof(Offset) == 4 ? kShortInvalid : Offset(kInvalid);
  static constexpr int kBytes = kPerTensor * 8 * (kC ? 2 : 1);
  // What a vector adds to a line, a line to a plane, and a plane: offset in D, place in the staged tile.
  struct alignas(8) Entry { int d, place; };
  static constexpr int kLine = kInLines ? Traits::kLine : 1, kLines = Traits::kLines;
  static constexpr int kPlanes = kInLines ? Traits::kBoxMN / Traits::kVecD / (kLine * kLines) : 0;
  static_assert(!kInLines || (sizeof(Offset) == 4 && kLine + kLines + kPlanes <= kPerTensor), "tables of lines");
  char* base_;

  GETT_DEVICE explicit EpilogueOffsets(char* base) : base_(base) {}
  GETT_DEVICE Offset* rows_d() const { return reinterpret_cast<Offset*>(base_); }
  GETT_DEVICE Offset* columns_d() const { return rows_d() + Traits::kBlockM; }
  GETT_DEVICE Offset* rows_c() const { return rows_d() + kPerTensor; }
  GETT_DEVICE Offset* columns_c() const { return rows_c() + Traits::kBlockM; }
  GETT_DEVICE Entry* vectors() const { return reinterpret_cast<Entry*>(base_); }
  GETT_DEVICE Entry* lines() const { return vectors() + kLine; }
  GETT_DEVICE Entry* planes() const { return lines() + kLines; }

  template <class Index, class Staged, class MTile, class NTile>
  GETT_DEVICE void fill(const typename Traits::Params& p, const MTile& mt, const NTile& nt, int thread,
                        int threads) const {
    if constexpr (kInLines) fill_lines<Index, Staged>(p, mt, nt, thread, threads);
    else fill_sides<Index>(p, mt, nt, thread, threads);
  }

 private:
  template <class Index, class Staged, class MTile, class NTile>
  GETT_DEVICE void fill_lines(const typename Traits::Params& p, const MTile& mt, const NTile& nt, int thread,
                              int threads) const {
    // Dimensions of several modes have an offset at their first element. It counts once, as does the tile's.
    const auto first = Index::m_d(p, mt, 0) + Index::n_d(p, nt, 0);
#pragma unroll 1
    for (int i = thread; i < kLine + kLines + kPlanes; i += threads) {
      const bool vector = i < kLine, line = i < kLine + kLines;
      const int at = vector ? i : line ? (i - kLine) * kLine : (i - kLine - kLines) * (kLine * kLines);
      const auto mn = Index::idx2crd_d(p, at * Traits::kVecD);
      const auto d = Index::m_d(p, mt, mn.m) + Index::n_d(p, nt, mn.n);
      const bool ok = Index::m_ok(p, mt, mn.m) && Index::n_ok(p, nt, mn.n);
      vectors()[i] = {ok ? int(line ? d - first : d + mt.d + nt.d) : kShortInvalid, Staged::place(mn)};
    }
  }
  template <class Index, class MTile, class NTile>
  GETT_DEVICE void fill_sides(const typename Traits::Params& p, const MTile& mt, const NTile& nt, int thread,
                              int threads) const {
    for (int m = thread; m < Traits::kBlockM; m += threads) {
      const bool ok = Index::m_ok(p, mt, m);
      rows_d()[m] = ok ? Offset(mt.d + Index::m_d(p, mt, m)) : kNone;
      if constexpr (kC) rows_c()[m] = ok ? Offset(mt.c + Index::m_c(p, mt, m)) : 0;
    }
    for (int n = thread; n < Traits::kBlockN; n += threads) {
      const bool ok = Index::n_ok(p, nt, n);
      columns_d()[n] = ok ? Offset(nt.d + Index::n_d(p, nt, n)) : kNone;
      if constexpr (kC) columns_c()[n] = ok ? Offset(nt.c + Index::n_c(p, nt, n)) : 0;
    }
  }
};

// The staged tile of the multistage kernels, in rows of N.
template <class Traits> struct PaddedTile {
  typedef LinearCombination<Traits> Op;
  typedef typename Op::Acc Acc;
  typedef typename Op::Staged Element;
  // 16 extra bytes a row keep the rows of a fragment in different banks.
  static constexpr int kPitch = (Traits::kBlockN * int(sizeof(Element)) + 15) / 16 * 16 + 16;
  static constexpr int kBytes = Traits::kBlockM * kPitch;
  static constexpr int kBatch = 4;
  char* base_;

  static GETT_DEVICE int place(const MN& mn) { return mn.m * kPitch + mn.n * int(sizeof(Element)); }
  // kV neighbours along N.
  template <int kV> GETT_DEVICE void store(int m, int n, const Vec<Acc, kV>& x) const {
    Element y[kV];
#pragma unroll
    for (int j = 0; j < kV; ++j) y[j] = Op::staged(x.x[j]);
    store_all(reinterpret_cast<Element*>(base_ + place({m, n})), y);
  }
  // kV elements from a place on, neighbours along D's fastest dimension.
  template <int kV> GETT_DEVICE void load(int place, Element (&x)[kV]) const {
    constexpr int kStep = Traits::kStepM * kPitch + Traits::kStepN * int(sizeof(Element));
    if constexpr (Traits::kStepN == 1 && kV * sizeof(Element) <= 16) {
      const auto v = Vec<Element, kV>::load(base_ + place);
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = v.x[j];
    } else {
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = *reinterpret_cast<const Element*>(base_ + place + j * kStep);
    }
  }
};

// How many of `count` are done at a time: at most `most`, in batches of equal size.
GETT_DEVICE constexpr int even_batch(int count, int most) {
  const int batches = (count + most - 1) / most;
  return (count + batches - 1) / batches;
}

// Stores the tile's vectors in D's order, from a staged tile of scaled products: kThreads threads take them in turn,
// and divide the place of each. Vectors of a thread go in batches of equal size. All look-ups of a batch come before
// its first load, and all loads before its first store, since each takes tens of clocks. `function` is applied where C
// is added here; else it has been.
template <class Traits, class Index, int kThreads, class Staged, class Function>
GETT_DEVICE void store_in_turn(const typename Traits::Params& p, const EpilogueOffsets<Traits>& at,
                               const Staged& staged, const Function& function, int thread) {
  constexpr int kV = Traits::kVecD, kCount = Traits::kBoxMN / kV, kEach = (kCount + kThreads - 1) / kThreads;
  constexpr int kBatch = even_batch(kEach, Staged::kBatch);
  constexpr bool kWhole = kCount % (kBatch * kThreads) == 0;
  const LinearCombination<Traits> op(p);
  for (int i = thread; i < kCount; i += kBatch * kThreads) {
    typename Traits::Offset to[kBatch];
    typename Staged::Element x[kBatch][kV];
    decltype(Index::idx2crd_d(p, 0)) mn[kBatch];
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      const int v = i + q * kThreads;
      // Behind the last vector that one is looked up again: a branch would part the look-ups.
      mn[q] = Index::idx2crd_d(p, (kWhole ? v : min(v, kCount - 1)) * kV);
      to[q] = at.rows_d()[mn[q].m] + at.columns_d()[mn[q].n];
    }
#pragma unroll
    for (int q = 0; q < kBatch; ++q)
      if (exists(to[q])) staged.load(Staged::place(mn[q]), x[q]);
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      if ((!kWhole && i + q * kThreads >= kCount) || !exists(to[q])) continue;
      Vec<typename Traits::ElementD, kV> out;
#pragma unroll
      for (int j = 0; j < kV; ++j) {
        if constexpr (Traits::kSourceC == kSourceVector) {
          // C has D's modes and strides of its own, so its offsets are looked up element by element.
          const int m = mn[q].m + j * Traits::kStepM, n = mn[q].n + j * Traits::kStepN;
          const auto here = at.rows_c()[m] + at.columns_c()[n];
          const typename Traits::Acc sum = op.reads_source() ? op.add_source(x[q][j], p.c[here]) : x[q][j];
          out.x[j] = op.result(function(m, n, sum));
        } else {
          out.x[j] = x[q][j];  // staged as D's elements
        }
      }
      out.store(p.d + to[q]);
    }
  }
}

// The same line by line: kLanes neighbouring threads share a line. What a line and a vector add to places is looked up,
// and nothing is divided. A thread has several vectors at a time: of a line, whose parts then leave together, or the
// same one of several lines where a line has no more.
template <class Traits, int kThreads, class Staged>
GETT_DEVICE void store_lines(typename Traits::ElementD* d, const EpilogueOffsets<Traits>& at, const Staged& staged,
                             int thread) {
  typedef EpilogueOffsets<Traits> Offsets;
  typedef typename Offsets::Entry Entry;
  constexpr int kV = Traits::kVecD, kLanes = Traits::kLineLanes, kStep = kThreads / kLanes;
  constexpr int kVectors = even_batch((Offsets::kLine + kLanes - 1) / kLanes, Staged::kBatch);
  constexpr int kLines = even_batch((Offsets::kLines + kStep - 1) / kStep, Staged::kBatch / kVectors);
  const int lane = thread % kLanes;
  Entry vector[kVectors];
  const auto look_up = [&](int first) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int v = first + lane + j * kLanes;
      vector[j] = {kShortInvalid, 0};
      if (v < Offsets::kLine) vector[j] = at.vectors()[v];
    }
  };
  if constexpr (kVectors * kLanes >= Offsets::kLine) look_up(0);
#pragma unroll 1
  for (int k = 0; k < Offsets::kPlanes; ++k) {
    const Entry plane = at.planes()[k];
    if (!exists(plane.d)) continue;
#pragma unroll 1
    for (int i = thread / kLanes; i < Offsets::kLines; i += kLines * kStep) {
      Entry line[kLines];
#pragma unroll
      for (int q = 0; q < kLines; ++q) {
        line[q] = {kShortInvalid, 0};
        if (i + q * kStep < Offsets::kLines) line[q] = at.lines()[i + q * kStep];
        line[q].place += plane.place;
        if (exists(line[q].d)) line[q].d += plane.d;
      }
#pragma unroll 1
      for (int first = 0; first < Offsets::kLine; first += kVectors * kLanes) {
        if constexpr (kVectors * kLanes < Offsets::kLine) look_up(first);
        typename Staged::Element x[kLines][kVectors][kV];
#pragma unroll
        for (int q = 0; q < kLines; ++q)
#pragma unroll
          for (int j = 0; j < kVectors; ++j)
            if (exists(line[q].d + vector[j].d)) staged.load(line[q].place + vector[j].place, x[q][j]);
#pragma unroll
        for (int q = 0; q < kLines; ++q)
#pragma unroll
          for (int j = 0; j < kVectors; ++j) {
            if (!exists(line[q].d + vector[j].d)) continue;
            Vec<typename Traits::ElementD, kV> out;
#pragma unroll
            for (int n = 0; n < kV; ++n) out.x[n] = x[q][j][n];
            out.store(d + (line[q].d + vector[j].d));
          }
      }
    }
  }
}

template <class Traits, class Index, int kThreads, class Staged, class Function>
GETT_DEVICE void store_vectors(const typename Traits::Params& p, const EpilogueOffsets<Traits>& at,
                               const Staged& staged, const Function& function, int thread) {
  if constexpr (Traits::kLine > 0) store_lines<Traits, kThreads>(p.d, at, staged, thread);
  else store_in_turn<Traits, Index, kThreads>(p, at, staged, function, thread);
}

}  // namespace gett
