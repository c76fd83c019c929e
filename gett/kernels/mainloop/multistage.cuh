// The multistage main loop: all warps fill the stages of a ring by cp.async or through registers, and multiply them.
// One block makes one tile of D, of one batch or of several (core/batched.cuh), or one slice of K of it.
//
// Mma is the policy of mainloop/mma_sync.cuh or mainloop/simt.cuh. Index says where everything lies, as
// core/batched.cuh sees it.
#pragma once
#include "gett/contract/multistage.cuh"
#include "gett/core/batched.cuh"
#include "gett/core/pipeline.cuh"
#include "gett/loader/cp_async.cuh"
#include "gett/loader/k_offset_table.cuh"
#include "gett/loader/register.cuh"
#include "gett/ptx/opaque.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

// The loader of an operand: by cp.async or through registers.
template <class Traits, class Index, bool kIsA, bool kCpAsync> struct LoaderOf {
  typedef CpAsyncLoader<Traits, Index, kIsA> type;
};
template <class Traits, class Index, bool kIsA> struct LoaderOf<Traits, Index, kIsA, false> {
  typedef RegisterLoader<Traits, Index, kIsA> type;
};

template <class Traits, class Index, class Mma, class Smem>
  GETT_REQUIRES(contract::Multistage<Traits, Index, Smem>)
struct Multistage {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  static constexpr int kThreads = Traits::kThreads, kStages = Traits::kStages;
  static constexpr int kBatch = Traits::kBatch, kWarps = Traits::kWarpsM * Traits::kWarpsN;
  static constexpr int kBatchesPerWarp = kBatch * kWarps * 32 / kThreads;
  typedef BatchedOperands<Traits> Operands;
  typedef KOffsetTable<Traits, Index> KTable;
  typedef typename LoaderOf<Operands, Index, true, Traits::LoaderTraitsA::kCpAsync>::type LoadA;
  typedef typename LoaderOf<Operands, Index, false, Traits::LoaderTraitsB::kCpAsync>::type LoadB;
  static constexpr int kStageBytes = LoadA::kBytes + LoadB::kBytes;
  static constexpr int kPipeBytes = kStages * kStageBytes;
  // Whether the stages hold all k-tiles, so that none is filled twice. Else the ring is filled behind the products.
  static constexpr bool kWhole = Traits::kKTiles > 0;
  static constexpr int kFilled = kWhole ? Traits::kKTiles : kStages;
  static_assert(Smem::kStages + kPipeBytes <= Smem::kKTable, "stages");
  static_assert(Smem::kKTable + KTable::kBytes <= Smem::kOffsets, "table of offsets along K");

  char* stages_;
  int thread_;  // hidden, as are offsets and places in the loaders: the compiler would compute them for each k-tile
  KTable table_;
  LoadA load_a_;
  LoadB load_b_;
  Mma mma_[kBatchesPerWarp];

  GETT_DEVICE Multistage(char* smem, int thread)
      : stages_(smem + Smem::kStages), thread_(opaque_below<kThreads>(thread)),
        table_{reinterpret_cast<OffsetPair*>(smem + Smem::kKTable)} {}

  template <class Loader> GETT_DEVICE void fetch(Loader& load, const Params& p, int kt, uint32 stage) const {
    if constexpr (Traits::kKTable) {
      load.fetch(p, table_.slot(kt), stage, thread_);
    } else {
      load.fetch(p, Index::k_tile(p, kt), stage, thread_);
    }
  }

  // Before the first k-tile: `rows` and `columns` are the tile's offsets.
  template <class Rows, class Columns>
  GETT_DEVICE void init(const Params& p, const Rows& rows, const Columns& columns) {
    // A padded box along K leaves parts of a tile unwritten, which must be zero.
    if constexpr (LoadA::kZeroFill || LoadB::kZeroFill) {
      for (int i = thread_ * 16; i < kPipeBytes; i += kThreads * 16) Vec<uint32, 4>{{0, 0, 0, 0}}.store(stages_ + i);
      __syncthreads();
    }
    load_a_.init(p, p.a + rows.a, rows, thread_);
    load_b_.init(p, p.b + columns.b, columns, thread_);
    const int warp = thread_ >> 5, lane = thread_ & 31;
#pragma unroll
    for (int q = 0; q < kBatchesPerWarp; ++q) {
      if constexpr (kBatch > 1) {
        mma_[q].init(warp % kWarps, lane, warp / kWarps * kBatchesPerWarp + q);
      } else {
        mma_[q].init(warp, lane);
      }
    }
  }

  // Begins to bring k-tile `kt` to a stage; what goes through registers is stored there later.
  GETT_DEVICE void fetch(const Params& p, int kt, uint32 stage) {
    fetch(load_a_, p, kt, stage);
    fetch(load_b_, p, kt, stage + LoadA::kBytes);
  }
  GETT_DEVICE void store(const Params& p, char* stage) const {
    load_a_.store(p, stage, thread_);
    load_b_.store(p, stage + LoadA::kBytes, thread_);
  }

  // Fills the stages. What goes through registers into the last one of the ring is stored at the first turn.
  GETT_DEVICE void fill(const Params& p, const KTileRange& k_tiles) {
    const int first = k_tiles.first, last = k_tiles.last;
    if constexpr (Traits::kKTable) {
      for (int s = 0; s < kFilled + !kWhole; ++s) table_.write(p, first + s, thread_);
      __syncthreads();
    }
    const uint32 base = smem_address(stages_);
#pragma unroll
    for (int s = 0; s < kFilled; ++s) {
      if (first + s < last) {
        fetch(p, first + s, base + s * kStageBytes);
        if (s + 1 < kStages) store(p, stages_ + s * kStageBytes);
      }
      cp_async_commit();
    }
  }

  // The ring of stages: which one is multiplied, and which one was filled last.
  struct Ring {
    uint32 base;
    int read = 0, write = kFilled - 1;
    GETT_DEVICE uint32 at(int stage) const { return base + stage * kStageBytes; }
  };
  // Stands between the products of k-tile `kt` and of the next one: that has landed, and the stage of `kt` is filled
  // with a later one.
  GETT_DEVICE void turn(const Params& p, Ring& ring, int kt, int last) {
    if (kt + kStages - 1 < last) store(p, smem_pointer(ring.at(ring.write)));
    cp_async_wait<(kFilled > 2 ? kFilled - 2 : 0)>();
    __syncthreads();  // the copies of all threads have landed, and all have read this k-tile
    ring.write = ring.read;
    ring.read = next_stage<kStages>(ring.read);
    if (!kWhole && kt + kStages < last) {
      fetch(p, kt + kStages, ring.at(ring.write));
      if constexpr (Traits::kKTable) table_.write(p, kt + kStages + 1, thread_);
    }
    cp_async_commit();
  }

  GETT_DEVICE void multiply(const Params& p, const KTileRange& k_tiles) {
    // Hidden from the compiler, which would compute it anew from special registers in every k-tile.
    Ring ring{opaque(smem_address(stages_))};
    const int last = k_tiles.last;
    cp_async_wait<kFilled - 1>();
    __syncthreads();
    if constexpr (Traits::kAhead && !kSparing) {
      // Fragments of the next step are loaded during the products of the present one, also those of the next k-tile.
      // Behind the last one they are numbers that nobody multiplies. It takes registers, so sparing kernels do not.
      constexpr int kSteps = Mma::kSteps, kAll = kSteps * kBatchesPerWarp;
      typename Mma::Fragments f[2];
      mma_[0].load(f[0], ring.base, ring.base + LoadA::kBytes, 0);
      GETT_MAIN_LOOP
      for (int kt = k_tiles.first; kt < last; ++kt) {
#pragma unroll
        for (int s = 0; s < kAll; ++s) {
          const int next = (s + 1) % kAll;
          if (next == 0) turn(p, ring, kt, last);
          const uint32 stage = ring.at(ring.read);
          mma_[next / kSteps].load(f[(s + 1) & 1], stage, stage + LoadA::kBytes, next % kSteps);
          mma_[s / kSteps].add_products(f[s & 1]);
        }
        if constexpr (kAll % 2) f[0] = f[1];
      }
    } else {
      GETT_MAIN_LOOP
      for (int kt = k_tiles.first; kt < last; ++kt) {
        const uint32 stage = ring.at(ring.read);
#pragma unroll
        for (int q = 0; q < kBatchesPerWarp; ++q) {
          if constexpr (Traits::kTensorCores) mma_[q].multiply(stage, stage + LoadA::kBytes);
          else mma_[q].multiply(smem_pointer(stage), smem_pointer(stage) + LoadA::kBytes);
        }
        // Without a barrier behind them, multiply-adds would be mixed with the store, for a third more registers.
        if constexpr (kFilled > 1 || !Traits::kTensorCores) turn(p, ring, kt, last);
      }
    }
    cp_async_wait<0>();
    __syncthreads();
  }

  // Calls f(m, n, x) for all accumulators of the thread; `x` are neighbours along N.
  template <class F> GETT_DEVICE void visit(const F& f) const {
#pragma unroll
    for (int q = 0; q < kBatchesPerWarp; ++q) mma_[q].visit(f);
  }
  // Calls f(mma) for the accumulators of each batch of the thread.
  template <class F> GETT_DEVICE void for_each_fragment(const F& f) {
#pragma unroll
    for (int q = 0; q < kBatchesPerWarp; ++q) f(mma_[q]);
  }
};

}  // namespace gett
