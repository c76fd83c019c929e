// Stores of a tile whose runs in D start anywhere: whole aligned vectors of D's memory, put together from single
// elements of the staged tile, so that only the ends of runs cut a sector. What cuts a vector is stored one by one.
#pragma once
#include "gett/common.cuh"

namespace gett {

// `source.one(place, e)` is element `e` of the run that starts at `place`. kRunD elements of the tile, one after the
// other in its order of D, lie together in D; where one of them is no padding, those before it are none either.
template <class Traits, class Index, class Table, class Source>
GETT_DEVICE void store_runs(const typename Traits::Params& p, typename Traits::ElementD* d, const typename Traits::ElementC* c,
                            const Table& at, const Source& source, int first, int step) {
  typedef typename Traits::ElementD Out;
  typedef typename Traits::Acc Acc;
  constexpr int kW = 16 / int(sizeof(Out)), kRun = Traits::kRunD;
  constexpr int kSlots = (kRun + 2 * kW - 2) / kW, kCount = Traits::kBoxMN / kRun * kSlots;
  int i = first;
  asm volatile("" : "+r"(i));  // else the first vector's place is worked out before the products, and held
  for (; i < kCount; i += step) {
    const int run = i / kSlots, slot = i - run * kSlots;
    const auto start = Index::d_unpack(p, run * kRun);
    const long long row = at.rows_d()[start.m], column = at.columns_d()[start.n];
    if (row == kInvalid || column == kInvalid) continue;
    Out* const to = d + (row + column);
    const int begin = slot * kW - int(reinterpret_cast<uint64>(to) / sizeof(Out) % kW);
    if (begin >= kRun) continue;
    const auto exists = [&](int e) {
      const auto mn = Index::d_unpack(p, run * kRun + e);
      return at.rows_d()[mn.m] != kInvalid && at.columns_d()[mn.n] != kInvalid;
    };
    const bool whole = begin >= 0 && begin + kW <= kRun && exists(begin + kW - 1);
    Vec<Out, kW> out;
#pragma unroll
    for (int j = 0; j < kW; ++j) {
      const int e = min(max(begin + j, 0), kRun - 1);
      const auto x = source.one(start, e);
      if constexpr (Traits::kHasC) {
        // C has its own strides. beta = 0 means that it is not read at all.
        Acc sum = x;
        if (!is_zero(p.beta) && (whole || exists(e))) {
          const auto mn = Index::d_unpack(p, run * kRun + e);
          sum = add(x, multiply(p.beta, convert<Acc>(c[at.rows_c()[mn.m] + at.columns_c()[mn.n]])));
        }
        out.x[j] = convert<Out>(sum);
      } else {
        out.x[j] = convert<Out>(x);
      }
    }
    if (whole) {
      out.store(to + begin);
    } else {
#pragma unroll
      for (int j = 0; j < kW; ++j) {
        const int e = begin + j;
        if (e >= 0 && e < kRun && exists(e)) to[e] = out.x[j];
      }
    }
  }
}

}  // namespace gett
