// The GEMM kernel of grouped launches: one launch multiplies the matrices of many problems, whose extents, strides and
// addresses stand in device memory. A block makes a tile of D of one problem, and adds up all pairs of that problem in
// their order, so that every run gives the same bits.
//
// Offsets of rows, columns and k are worked out by single threads and kept in tables in shared memory. So modes of any
// number and order cost the copies nothing. The k-tiles of all pairs are one sequence, and a pair's first copies run
// while the products of the pair before it do.
#pragma once
#include "gett/contract/grouped.cuh"
#include "gett/core/numeric.cuh"
#include "gett/core/pipeline.cuh"
#include "gett/core/vec.cuh"
#include "gett/loader/grouped.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/problems.cuh"

namespace gett {

template <class Traits, class Mma, class Problems>
  GETT_REQUIRES(contract::GroupedGemm<Traits>)
struct GroupedGemm {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef typename Traits::ElementD ElementD;
  typedef GroupedLoader<Traits, true> LoadA;
  typedef GroupedLoader<Traits, false> LoadB;
  static constexpr int kThreads = Traits::kThreads, kStages = Traits::kStages;
  static constexpr int kBlockM = Traits::kBlockM, kBlockN = Traits::kBlockN, kBlockK = Traits::kBlockK;
  static constexpr int kStageBytes = LoadA::kBytes + LoadB::kBytes;
  static_assert(Traits::kWarpsM * Traits::kWarpsN * 32 == kThreads, "all warps multiply");

  // Offsets of a pair's rows in A and columns in B, and of a k-tile's k; each twice, since the next ones are written
  // while the present ones are read.
  struct Tables {
    long long m[2][kBlockM], n[2][kBlockN], k_a[2][kBlockK], k_b[2][kBlockK];
  };
  static constexpr int kSmemBytes = kStages * kStageBytes + int(sizeof(Tables));

  // A k-tile in the sequence of all pairs', whose offsets stand in the tables.
  struct Place {
    const char *a, *b;
    int pair, tile;  // the pair's number in the output, and the tile's among all
  };

  const Params& p_;
  Tables& tables_;
  ProblemTile tile_;
  Place place_;
  int layout_, k_, k_tiles_;  // of the next k-tile's pair; its number in the pair, and how many the pair has
  bool one_k_;                // whether the pair sums over one mode
  ProblemOffsets k_step_;     // along the first such mode

  GETT_DEVICE GroupedGemm(const Params& p, char* smem)
      : p_(p), tables_(*reinterpret_cast<Tables*>(smem + kStages * kStageBytes)) {}

  GETT_DEVICE void enter(int pair) {
    const ProblemPair found = Problems::pair(p_, tile_, tile_.first_pair + pair);
    place_ = {found.a + tile_.origin.a, found.b + tile_.origin.b, pair, place_.tile};
    layout_ = found.layout;
    k_tiles_ = found.k_tiles;
    k_ = 0;
    const ProblemLayout& layout = p_.layouts[layout_];
    one_k_ = layout.count[kGroupK] <= 1;
    k_step_ = layout.count[kGroupK] ? p_.modes[layout.first[kGroupK]].step : ProblemOffsets{0, 0, 0};
  }
  GETT_DEVICE ProblemOffsets find(const ProblemLayout& layout, ModeGroup group, int x) const {
    return offsets_in_group(p_.modes, layout, group, x, tile_.other);
  }
  GETT_DEVICE int extent(const ProblemLayout& layout, ModeGroup group) const {
    return Problems::extent(p_, tile_, layout, group);
  }

  // Calls f(row, ok, offsets) and g(column, ok, offsets) for the rows and columns of the tile.
  template <class F, class G> GETT_DEVICE void each(const ProblemLayout& layout, int thread, F&& f, G&& g) const {
    const ProblemOffsets batch = find(layout, kGroupL, tile_.id.l);
#pragma unroll 1
    for (int i = thread; i < kBlockM + kBlockN; i += kThreads) {
      const bool column = i >= kBlockM;
      const int local = column ? i - kBlockM : i;
      const int x = local + (column ? tile_.id.n * kBlockN : tile_.id.m * kBlockM);
      const ModeGroup group = column ? kGroupN : kGroupM;
      const bool ok = x < extent(layout, group);
      const ProblemOffsets at = ok ? find(layout, group, x) + (column ? ProblemOffsets{0, batch.b, 0} : batch)
                                   : ProblemOffsets{0, 0, 0};
      if (column) g(local, ok, at); else f(local, ok, at);
    }
  }

  // Writes the offsets of the next k-tile, and of its pair's rows where that is new; then its place is `place_`.
  GETT_DEVICE void describe(int thread) {
    if (k_ == k_tiles_) enter(place_.pair + 1);
    const ProblemLayout& layout = p_.layouts[layout_];
    const int own = place_.pair & 1, slot = ++place_.tile & 1;
    if (k_ == 0) {
      each(layout, thread, [&](int m, bool ok, const ProblemOffsets& at) { tables_.m[own][m] = ok ? at.a : kInvalid; },
           [&](int n, bool ok, const ProblemOffsets& at) { tables_.n[own][n] = ok ? at.b : kInvalid; });
    }
#pragma unroll 1
    for (int i = thread; i < kBlockK; i += kThreads) {
      const int k = k_ * kBlockK + i;
      const bool ok = k < extent(layout, kGroupK);
      ProblemOffsets at = {kInvalid, kInvalid, 0};
      if (ok) at = one_k_ ? k * k_step_ : find(layout, kGroupK, k);
      tables_.k_a[slot][i] = at.a;
      tables_.k_b[slot][i] = at.b;
    }
    ++k_;
  }

  GETT_DEVICE void load(const Place& from, char* stage, int thread) const {
    const int own = from.pair & 1, slot = from.tile & 1;
    LoadA::load(from.a, tables_.m[own], tables_.k_a[slot], stage, thread);
    LoadB::load(from.b, tables_.n[own], tables_.k_b[slot], stage + LoadA::kBytes, thread);
  }

  // Sums the products of all pairs.
  GETT_DEVICE void multiply(char* stages, Mma& mma, int thread) {
    const int count = tile_.k_tiles;
    place_.tile = -1;
    enter(0);
    describe(thread);
    __syncthreads();
#pragma unroll 1
    for (int s = 0; s < kStages - 1; ++s) {
      const Place from = place_;
      if (s < count) load(from, stages + s * kStageBytes, thread);
      cp_async_commit();
      if (s + 1 < count) describe(thread);
      __syncthreads();
    }
    int read = 0, write = kStages - 1;
    GETT_MAIN_LOOP
    for (int t = 0; t < count; ++t) {
      cp_async_wait<kStages - 2>();
      __syncthreads();  // the copies of all threads have landed, and all have read the stage that is written next
      if (t + kStages - 1 < count) load(place_, stages + write * kStageBytes, thread);
      cp_async_commit();
      if (t + kStages < count) describe(thread);
      char* const a = stages + read * kStageBytes;
      if constexpr (Traits::kTensorCores) {
        mma.multiply(smem_address(a), smem_address(a + LoadA::kBytes));
      } else {
        mma.multiply(a, a + LoadA::kBytes);
      }
      read = next_stage<kStages>(read);
      write = next_stage<kStages>(write);
    }
    cp_async_wait<0>();
    __syncthreads();
  }

  // Stores the sums. The first pair says where D lies, and all others say the same.
  GETT_DEVICE void store(const Mma& mma, int thread) {
    const ProblemLayout& layout = p_.layouts[Problems::pair(p_, tile_, tile_.first_pair).layout];
    long long* const rows = tables_.m[0];
    long long* const columns = tables_.n[0];
    each(layout, thread, [&](int m, bool ok, const ProblemOffsets& at) { rows[m] = ok ? at.d : kInvalid; },
         [&](int n, bool ok, const ProblemOffsets& at) { columns[n] = ok ? at.d : kInvalid; });
    __syncthreads();
    char* const d = tile_.d + tile_.origin.d;
    const auto put = [&](int m, int n, Acc x) {
      if (!exists(rows[m] + columns[n])) return;
      *reinterpret_cast<ElementD*>(d + rows[m] + columns[n]) = convert<ElementD>(x);
    };
    if constexpr (Traits::kTensorCores) {
      mma.visit([&](int m, int n, const Vec<Acc, 2>& x) {
        char* const to = d + rows[m] + columns[n];
        const bool both = exists(rows[m] + columns[n + 1]) && columns[n + 1] - columns[n] == int(sizeof(ElementD));
        if (both && reinterpret_cast<uint64>(to) % (2 * sizeof(ElementD)) == 0) {
          store_two(reinterpret_cast<ElementD*>(to), convert<ElementD>(x.x[0]), convert<ElementD>(x.x[1]));
        } else {
          put(m, n, x.x[0]);
          put(m, n + 1, x.x[1]);
        }
      });
    } else {
      mma.visit([&](int m, int n, const Vec<Acc, Mma::kVn>& x) {
#pragma unroll
        for (int j = 0; j < Mma::kVn; ++j) put(m, n + j, x.x[j]);
      });
    }
  }

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char smem[];
    const int thread = threadIdx.x;
    GroupedGemm kernel(p, smem);
    griddepcontrol_wait();
    if (!Problems::locate(p, kernel.tile_)) return;
    Mma mma;
    mma.init(thread >> 5, thread & 31);
    if (kernel.tile_.k_tiles > 0) kernel.multiply(smem, mma, thread);
    kernel.store(mma, thread);
  }
};

}  // namespace gett
