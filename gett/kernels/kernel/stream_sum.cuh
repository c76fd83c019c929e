// The kernel of sums in which the largest operand is read once: reductions, dot and matrix-vector products, batched or
// not.
//
// A block owns a tile of outputs and one slice of K. Each thread sums its part of K in registers. The sums of lanes and
// warps are then added in a fixed order, so that every run gives the same bits. With several slices the sums of each go
// to the workspace, and `reduce`, a second kernel, adds them in a fixed order.
#pragma once
#include "gett/contract/streams.cuh"
#include "gett/core/shuffle.cuh"
#include "gett/core/workspace.cuh"
#include "gett/epilogue/epilogue_op.cuh"
#include "gett/epilogue/linear_combination.cuh"
#include "gett/loader/stream.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

template <class Traits, class Index>
  GETT_REQUIRES(contract::StreamSum<Traits, Index>)
struct StreamSum {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef typename Traits::ElementC ElementC;
  typedef RoleA<Traits, Index> A;
  typedef RoleB<Traits, Index> B;
  static constexpr int kV = Traits::kVec, kThreads = Traits::kThreads, kUnroll = Traits::kUnroll, kRows = Traits::kRows;
  static constexpr bool kAlongK = Traits::kAlongK;
  static constexpr int kLanesK = Traits::kLanesK, kOwners = kThreads / kLanesK;
  static constexpr int kVO = kAlongK ? 1 : kV, kVK = kAlongK ? kV : 1;  // a thread's vector in either group
  static constexpr int kOutputs = kOwners * kRows * kVO;
  static constexpr int kWarpLanes = !kAlongK ? 1 : kLanesK < 32 ? kLanesK : 32;  // lanes that shuffles add up
  static constexpr int kParts = kLanesK / kWarpLanes;                            // sums of an output in shared memory
  static constexpr int kReduceColumns = kOutputs < 32 ? kOutputs : 32;
  static constexpr int kReduceRows = kThreads / kReduceColumns;
  static_assert(kParts * kOutputs * int(sizeof(Acc)) <= Traits::kSmemBytes,
                "the schedule reserved too little shared memory");

  // A thread's part of one operand: what lies where, per row of outputs.
  template <class Role> struct Reader {
    typedef typename Role::LoaderTraits LoaderTraits;
    typedef typename Role::Element Element;
    static constexpr int kOwn = LoaderTraits::kSharedByRows ? 1 : kRows;
    const Element* row[kOwn];
    template <class OTile>
    GETT_DEVICE void init(const Params& p, const OTile& t, const bool (&ok)[kRows], const int (&local)[kRows]) {
      const Element* const from = Role::base(p) + Role::origin(t);
#pragma unroll
      for (int r = 0; r < kOwn; ++r)
        row[r] = from + (ok[r] ? Role::at_o(p, t, local[r]) : 0);
    }
    template <class KTile>
    GETT_DEVICE void load(const Params& p, const KTile& t, int k, bool ok_k, const bool (&ok)[kRows],
                          Vec<Element, kV> (&x)[kOwn]) const {
      const long long at = ok_k ? Role::origin(t) + Role::at_k(p, t, k) : 0;
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
#pragma unroll
        for (int j = 0; j < kV; ++j) x[r].x[j] = Element{};
        if (ok_k && (LoaderTraits::kSharedByRows || ok[r])) read<Role, kV>(p, row[r] + at, x[r]);
      }
    }
    static GETT_DEVICE int of(int r) { return LoaderTraits::kSharedByRows ? 0 : r; }
  };

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char smem[];
    griddepcontrol_wait();
    Acc* const parts = reinterpret_cast<Acc*>(smem);
    const int thread = threadIdx.x;
    const int slice = int(blockIdx.x) / p.tiles_o, tile = int(blockIdx.x) - slice * p.tiles_o;
    const int lane_k = kAlongK ? thread % kLanesK : thread / kOwners;
    const int owner = kAlongK ? thread / kLanesK : thread % kOwners;
    const auto ot = Index::o_tile(p, tile);

    int local[kRows];
    bool ok[kRows];
    Acc sum[kRows][kVO];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      local[r] = (owner + r * kOwners) * kVO;
      ok[r] = Index::o_ok(p, ot, local[r]);
#pragma unroll
      for (int j = 0; j < kVO; ++j) sum[r][j] = zero<Acc>();
    }
    Reader<A> a;
    a.init(p, ot, ok, local);
    Reader<B> b;
    if constexpr (Traits::kHasB) b.init(p, ot, ok, local);

    const KTileRange k_tiles = k_tile_range(p, slice);
#pragma unroll 1
    for (int kt = k_tiles.first; kt < k_tiles.last; ++kt) {
      const auto t = Index::k_tile(p, kt);
      Vec<typename A::Element, kV> xa[kUnroll][Reader<A>::kOwn];
      Vec<typename B::Element, kV> xb[Traits::kHasB ? kUnroll : 1][Reader<B>::kOwn];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int k = (lane_k + u * kLanesK) * kVK;
        const bool ok_k = Index::k_ok(p, t, k);
        a.load(p, t, k, ok_k, ok, xa[u]);
        if constexpr (Traits::kHasB) b.load(p, t, k, ok_k, ok, xb[u]);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int j = 0; j < kV; ++j) {
            Acc& s = sum[r][kAlongK ? 0 : j];
            const auto x = xa[u][Reader<A>::of(r)].x[j];
            if constexpr (Traits::kHasB) {
              mul_add(s, as_factor<Acc>(x), as_factor<Acc>(xb[u][Reader<B>::of(r)].x[j]));
            } else {
              s = add(s, convert<Acc>(x));
            }
          }
        }
      }
    }

#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < kVO; ++j) {
#pragma unroll
        for (int lanes = kWarpLanes / 2; lanes > 0; lanes /= 2)
          sum[r][j] = add(sum[r][j], shuffle_xor(sum[r][j], lanes));
        if (lane_k % kWarpLanes == 0) parts[lane_k / kWarpLanes * kOutputs + local[r] + j] = sum[r][j];
      }
    }
    add_parts<kParts, kOutputs>(parts, thread);

    const ElementC* c = nullptr;
    if constexpr (Traits::kSourceC == kSourceVector) c = p.c + ot.c;
    for (int i = thread; i < Traits::kBox; i += kThreads) {
      const int o = Index::tile_index_d(p, i);
      if (!Index::o_ok(p, ot, o)) continue;
      if constexpr (Traits::kSplit) {
        partial_outputs<kOutputs>(p, slice, tile)[o] = parts[o];
      } else {
        store(p, ot, o, parts[o], c);
      }
    }
  }

  // Sums kCount rows of kWidth numbers into the first, by halves.
  template <int kCount, int kWidth> static GETT_DEVICE void add_parts(Acc* parts, int thread) {
    __syncthreads();
#pragma unroll 1
    for (int half = kCount / 2; half > 0; half /= 2) {
      for (int i = thread; i < half * kWidth; i += kThreads) parts[i] = add(parts[i], parts[i + half * kWidth]);
      __syncthreads();
    }
  }

  template <class OTile>
  static GETT_DEVICE void store(const Params& p, const OTile& t, int o, Acc x, const ElementC* c) {
    if constexpr (Traits::kSourceC == kSourceVector) c += Index::o_c(p, t, o);
    const OutputOp<Traits, Index, OTile> function{p, t};
    p.d[t.d + Index::o_d(p, t, o)] = LinearCombination<Traits>(p)(x, c, [&](Acc sum) { return function(o, sum); });
  }

  // Second kernel of a split K: a block adds the slices of some outputs of one tile.
  static GETT_DEVICE void reduce(const Params& p) {
    __shared__ __align__(16) char memory[kThreads * sizeof(Acc)];
    griddepcontrol_wait();
    Acc* const parts = reinterpret_cast<Acc*>(memory);
    const int thread = threadIdx.x, column = thread % kReduceColumns, row = thread / kReduceColumns;
    const int tile = blockIdx.x, o = int(blockIdx.y) * kReduceColumns + column;
    const auto ot = Index::o_tile(p, tile);
    const bool ok = Index::o_ok(p, ot, o);
    Acc x[1] = {zero<Acc>()};
    if (ok) {
      const Acc* const from = partial_outputs<kOutputs>(p, 0, tile) + o;
      const long long stride = (long long)p.tiles_o * kOutputs;
      add_slices(x, row, kReduceRows, p.split_k, [&](int s, Acc (&part)[1]) { part[0] = from[s * stride]; });
    }
    parts[thread] = x[0];
    add_parts<kReduceRows, kReduceColumns>(parts, thread);
    if (row == 0 && ok) {
      const ElementC* c = nullptr;
      if constexpr (Traits::kSourceC == kSourceVector) c = p.c + ot.c;
      store(p, ot, o, parts[column], c);
    }
  }
};

}  // namespace gett
