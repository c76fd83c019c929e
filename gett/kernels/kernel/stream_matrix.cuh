// The kernel of a large operand times a small matrix: gates of quantum circuits, Kraus operators, changes of basis. The
// large one, A, is read once and D is written once, both in A's order. B, K x N of a few elements, lies in shared
// memory. Each batch has matrices of its own.
//
// A thread has all of K and of N for kVec neighbours along M. The unit-stride modes of A and D may instead be
// contracted and free modes of B. A thread then has one element of M, and its accesses are vectors along K and along N.
// Where D continues a vector along N, kLanesN neighbouring lanes share it: each stores other columns, and all of them
// whole sectors.
#pragma once
#include "gett/contract/streams.cuh"
#include "gett/core/index.cuh"
#include "gett/epilogue/epilogue_op.cuh"
#include "gett/epilogue/linear_combination.cuh"
#include "gett/ptx/warpgroup.cuh"

namespace gett {

template <class Traits, class Index>
  GETT_REQUIRES(contract::StreamMatrix<Traits, Index>)
struct StreamMatrix {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef typename Traits::ElementA ElementA;
  typedef typename Traits::ElementC ElementC;
  typedef typename Traits::ElementD ElementD;
  typedef typename FactorOf<Acc, typename Traits::ElementB>::type FactorB;
  static constexpr int kV = Traits::kVec, kVK = Traits::kVecK, kVN = Traits::kVecN;
  static constexpr int kK = Traits::kK, kN = Traits::kN, kThreads = Traits::kThreads, kUnroll = Traits::kUnroll;
  static constexpr int kLanesN = Traits::kLanesN, kStep = kLanesN * kVN;  // columns of one store of all lanes
  static constexpr int kHeld = kV * kVK, kOut = kV * kVN;  // elements of an access of A and of D
  static constexpr int kTotal = Traits::kBox / kV * kLanesN;  // vectors of a tile, for each lane that shares one
  // Stores whose sums the compiler may interleave: few, of a larger matrix one, or registers run out.
  static constexpr int kStores = kK * kN > 32 ? 1 : kN / kStep < 4 ? kN / kStep : 4;
  static_assert(kV == 1 || (kVK == 1 && kVN == 1), "vectors lie along one mode");
  static_assert(kK % kVK == 0 && kN % kStep == 0 && Traits::kBox % kV == 0, "whole vectors");
  static_assert(kK * kN * int(sizeof(FactorB)) <= Traits::kSmemBytes, "the small matrix");

  // A tile of M in a batch: what `Index` knows of it, and the origins of the tensors.
  struct Place {
    decltype(Index::m_tile(*static_cast<const Params*>(nullptr), 0)) m;
    long long a, b, c, d;
    TileOp<Traits, Index> function;
    GETT_DEVICE Place(const Params& p, int block)
        : m(Index::m_tile(p, block % p.tiles_m)), c(0), function(p, {block % p.tiles_m, 0, block / p.tiles_m, 0}) {
      const auto l = Index::l_tile(p, block / p.tiles_m);
      const auto n = Index::n_tile(p, 0);
      const auto k = Index::k_tile(p, 0);
      a = l.a + m.a + k.a;
      b = l.b + n.b + k.b;
      d = l.d + m.d + n.d;
      if constexpr (Traits::kSourceC == kSourceVector) c = l.c + m.c + n.c;
    }
  };

  // The small matrix, [k][n].
  static GETT_DEVICE void load_b(const Params& p, const Place& at, FactorB* b, int thread) {
    const auto k = Index::k_tile(p, 0);
    const auto n = Index::n_tile(p, 0);
#pragma unroll 1
    for (int i = thread; i < kK * kN; i += kThreads)
      b[i] = as_factor<Acc>(p.b[at.b + Index::k_b(p, k, i / kN) + Index::n_b(p, n, i % kN)]);
  }
  // All of K of vector `v` of the tile.
  static GETT_DEVICE void load_a(const Params& p, const Place& at, int v, Vec<ElementA, kHeld> (&a)[kK / kVK]) {
    const auto k = Index::k_tile(p, 0);
    const ElementA* const from = p.a + at.a + Index::m_a(p, at.m, v * kV);
#pragma unroll
    for (int i = 0; i < kK / kVK; ++i) a[i] = Vec<ElementA, kHeld>::load(from + Index::k_a(p, k, i * kVK));
  }
  // Multiplies it, and stores every kLanesN-th column from `lane` on.
  static GETT_DEVICE void multiply(const Params& p, const Place& at, int v, int lane,
                                   const Vec<ElementA, kHeld> (&a)[kK / kVK], const FactorB* b) {
    const LinearCombination<Traits> op(p);
    const auto n = Index::n_tile(p, 0);
    const long long at_d = at.d + Index::m_d(p, at.m, v * kV);
    long long at_c = at.c;
    if constexpr (Traits::kSourceC == kSourceVector) at_c += Index::m_c(p, at.m, v * kV);
#pragma unroll kStores
    for (int first = 0; first < kN; first += kStep) {
      const int i = first + lane * kVN;
      Acc sum[kOut];
#pragma unroll
      for (int j = 0; j < kOut; ++j) sum[j] = zero<Acc>();
#pragma unroll
      for (int k = 0; k < kK; ++k)
#pragma unroll
        for (int j = 0; j < kOut; ++j)
          mul_add(sum[j], as_factor<Acc>(a[k / kVK].x[kV > 1 ? j : k % kVK]), b[k * kN + i + (kVN > 1 ? j : 0)]);
      Vec<ElementC, kOut> c;
      if constexpr (Traits::kSourceC == kSourceVector) {
        if (op.reads_source()) c = Vec<ElementC, kOut>::load(p.c + at_c + Index::n_c(p, n, i));
      }
      Vec<ElementD, kOut> out;
#pragma unroll
      for (int j = 0; j < kOut; ++j) {
        const int row = v * kV + (kV > 1 ? j : 0), column = i + (kVN > 1 ? j : 0);
        out.x[j] = op(sum[j], &c.x[j], [&](Acc x) { return at.function(row, column, x); });
      }
      out.store_global(p.d + at_d + Index::n_d(p, n, i));
    }
  }
  // The vectors of a thread in a tile; several are loaded before they are multiplied.
  static GETT_DEVICE void make(const Params& p, const Place& at, const FactorB* b, int thread) {
#pragma unroll 1
    for (int first = thread; first < kTotal; first += kUnroll * kThreads) {
      Vec<ElementA, kHeld> a[kUnroll][kK / kVK];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int v = first + u * kThreads;
        if (is_in(p, at, v)) load_a(p, at, v / kLanesN, a[u]);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int v = first + u * kThreads;
        if (is_in(p, at, v)) multiply(p, at, v / kLanesN, v % kLanesN, a[u], b);
      }
    }
  }
  static GETT_DEVICE bool is_in(const Params& p, const Place& at, int v) {
    return (kTotal % (kUnroll * kThreads) == 0 || v < kTotal) && Index::m_ok(p, at.m, v / kLanesN * kV);
  }

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char smem[];
    FactorB* const b = reinterpret_cast<FactorB*>(smem);
    const Place at(p, blockIdx.x);
    griddepcontrol_wait();
    load_b(p, at, b, threadIdx.x);
    __syncthreads();
    make(p, at, b, threadIdx.x);
  }
};

}  // namespace gett
