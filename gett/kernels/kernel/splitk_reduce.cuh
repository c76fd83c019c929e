// The second kernel of split-K and of stream-K: adds partial tiles in a fixed order and stores the sums in D's order.
//
// Few outputs of many slices are bound by latency, not by bytes. So kRows threads share a vector of outputs. Each adds
// every kRows-th slice with several loads in flight. Their sums are added in shared memory, half of them to the other
// half.
//
// Threads take outputs in D's order. Where its neighbours lie apart in the workspace and are stored one by one, threads
// take them in the workspace's order: all slices are read, and D is written once.
#pragma once
#include "gett/contract/stores.cuh"
#include "gett/core/index.cuh"
#include "gett/core/workspace.cuh"
#include "gett/epilogue/epilogue_op.cuh"
#include "gett/epilogue/linear_combination.cuh"
#include "gett/ptx/opaque.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/parts_of_tile.cuh"

namespace gett {

// Row and column of vector `i` of a tile's box, which has kBoxM rows.
template <class Traits, class Index, class Scheduler, int kBoxM, bool kInPlace>
GETT_DEVICE MN vector_of_box(const typename Traits::Params& p, int i) {
  if constexpr (kInPlace) {
    constexpr int kRow = Scheduler::kPartialsAlongM ? kBoxM : Traits::kBoxMN / kBoxM;
    return Scheduler::kPartialsAlongM ? MN{i % kRow, i / kRow} : MN{i / kRow, i % kRow};
  } else {
    const auto at = Index::idx2crd_d(p, i * Traits::kVecD);
    return {at.m, at.n};
  }
}

template <class Traits, class Index, class Scheduler, int kThreads, int kRows, int kBoxM>
  GETT_REQUIRES(contract::SliceSums<Traits, Index>)
GETT_DEVICE void reduce_slices(const typename Traits::Params& p) {
  typedef typename Traits::Acc Acc;
  constexpr int kV = Traits::kVecD, kCount = Traits::kBoxMN / kV, kColumns = kThreads / kRows;
  // Elements of one load: neighbours in D are neighbours in the workspace if D runs along the first mode of the tile.
  constexpr int kStep = partial_place<Scheduler, Traits::kBlockM, Traits::kBlockN>(Traits::kStepM, Traits::kStepN);
  constexpr int kMost = 16 / int(sizeof(Acc)) > 0 ? 16 / int(sizeof(Acc)) : 1;
  constexpr int kW = kStep != 1 ? 1 : kV < kMost ? kV : kMost;
  const LinearCombination<Traits> op(p);
  __shared__ Acc parts[kRows > 1 ? kRows : 1][kV][kRows > 1 ? kColumns : 1];

  const int column = threadIdx.x % kColumns, row = threadIdx.x / kColumns;
  const PartsOfTile<Traits, Scheduler> parts_of_tile(p, blockIdx.x);
  const TileId& id = parts_of_tile.id;
  const int count = parts_of_tile.count(p);
  const auto lt = Index::l_tile(p, id.l);
  const auto mt = Index::m_tile(p, id.m);
  const auto nt = Index::n_tile(p, id.n);
  const int i = int(blockIdx.y) * kColumns + column;
  const MN at = vector_of_box<Traits, Index, Scheduler, kBoxM, kV == 1 && kStep != 1>(p, i < kCount ? i : 0);
  const bool ok = i < kCount && count > 0 && Index::m_ok(p, mt, at.m) && Index::n_ok(p, nt, at.n);

  griddepcontrol_wait();

  Acc x[kV];
#pragma unroll
  for (int j = 0; j < kV; ++j) x[j] = zero<Acc>();
  if (ok) {
    const int from = partial_place<Scheduler, Traits::kBlockM, Traits::kBlockN>(at.m, at.n);
    add_slices(x, row, kRows, count, [&](int s, Acc (&part)[kV]) {
      const Acc* const slice = parts_of_tile.at(p, s) + from;
#pragma unroll
      for (int j = 0; j < kV; j += kW) {
        const auto v = Vec<Acc, kW>::load(slice + j * kStep);
#pragma unroll
        for (int q = 0; q < kW; ++q) part[j + q] = v.x[q];
      }
    });
  }
  if constexpr (kRows > 1) {
#pragma unroll
    for (int j = 0; j < kV; ++j) parts[row][j][column] = x[j];
#pragma unroll 1
    for (int half = kRows / 2; half > 0; half /= 2) {
      __syncthreads();
      if (row < half) {
#pragma unroll
        for (int j = 0; j < kV; ++j) {
          x[j] = add(x[j], parts[row + half][j][column]);
          parts[row][j][column] = x[j];
        }
      }
    }
  }
  if (row != 0 || !ok) return;
  const TileOp<Traits, Index> function(p, id);
  Vec<typename Traits::ElementD, kV> out;
#pragma unroll
  for (int j = 0; j < kV; ++j) {
    const int m = at.m + j * Traits::kStepM, n = at.n + j * Traits::kStepN;
    const typename Traits::ElementC* c = nullptr;
    if constexpr (Traits::kSourceC != kSourceNone) {
      c = p.c + lt.c + mt.c + nt.c + Index::m_c(p, mt, m) + Index::n_c(p, nt, n);
    }
    out.x[j] = op(x[j], c, [&](Acc sum) { return function(m, n, sum); });
  }
  // Hidden, so that the vector is stored as one (core/workspace.cuh).
  out.store(p.d + opaque(lt.d + mt.d + nt.d + Index::m_d(p, mt, at.m) + Index::n_d(p, nt, at.n)));
}

}  // namespace gett
