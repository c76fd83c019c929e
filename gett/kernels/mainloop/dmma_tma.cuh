// The main loop that multiplies float64, or complex numbers of it, by mma.sync out of stages that TMA fills, whatever
// the operands' rows run along. A warp has 16 rows of each of its warpgroup's blocks of 64, and all columns: sums lie as wgmma's do, so
// epilogues are the same.
//
// Columns are taken eight at a time. While the products of eight run, the numbers of B for the next eight are loaded,
// and with the first eight A's for the next step, over the ends of k-tiles too.
#pragma once
#include "gett/core/pipeline.cuh"
#include "gett/loader/tma.cuh"
#include "gett/mainloop/dmma_complex_fragment.cuh"
#include "gett/mainloop/dmma_fragment.cuh"
#include "gett/mainloop/dmma_products.cuh"
#include "gett/mainloop/dmma_storage.cuh"
#include "gett/mainloop/tile_sums.cuh"
#include "gett/ptx/dmma.cuh"

namespace gett {

template <class Traits, class Index, class Mma, class Store, class Scheduler, class Smem> struct DmmaTma {
  typedef typename Traits::Params Params;
  typedef TileSums<Traits, Store, Scheduler> Sums;
  typedef typename Sums::Accumulators Accumulators;
  typedef DmmaStorage<Traits, Index, Store, Scheduler, Smem> Storage;
  typedef typename Traits::Element Element;
  typedef DmmaFragment<Element, typename Storage::TileA> FragmentA;
  typedef DmmaFragment<Element, typename Storage::TileB> FragmentB;
  typedef DmmaProducts<typename Traits::Acc, Mma, Traits::kConjA, Traits::kConjB> Products;
  typedef PipelineState<Traits::kStages> StageState;
  static constexpr int kParts = Parts<Element>::kCount;  // numbers of an element
  static constexpr int kMmaM = Traits::kMmaM, kColumns = Traits::kBlockN / 8;  // groups of eight
  static constexpr int kEights = Mma::kK / 8, kSteps = Traits::kBlockK / Mma::kK;
  static constexpr int kProducerWarpgroups = Traits::kProducerWarpgroups;
  static constexpr int kConsumerWarpgroups = Traits::kConsumerWarpgroups, kLoadWarps = 1;
  static constexpr int kProducerRegs = Traits::kProducerRegs, kConsumerRegs = Traits::kConsumerRegs;
  static constexpr int kBlocksA = Storage::TileA::kBlocks;
  static constexpr bool kAllBlocks = kBlocksA >= kMmaM * kConsumerWarpgroups;
  static_assert(Traits::kBlockK % FragmentA::kDeep == 0, "k that lanes share out");

  // A thread's numbers of A for one step, and of eight columns of B.
  typedef double StepA[kMmaM][kParts][4 * kEights];
  typedef double StepB[kParts][2 * kEights];

  // The store warp of a staging buffer.
  template <class Epilogue> static GETT_DEVICE void store(const Params& p, const Storage& smem, int buffer, int lane) {
    Epilogue::store_loop(p, smem.staging(buffer), smem.free(buffer), buffer, lane, AllTiles());
  }
  static GETT_DEVICE void prefetch_tensormaps(const Params& p) { Index::prefetch_tensormaps(p); }
  static GETT_DEVICE void load(const Params& p, const Storage& smem, char*, int thread) {
    if (thread < 32) TmaLoader<Traits, Index, Scheduler, Storage>::run(p, smem, thread);
  }

  // What a warp reads of the stages: its rows of A, all columns of B.
  struct Fragments {
    FragmentA a;
    FragmentB b;
    uint32 block[kMmaM];  // where its blocks of 64 rows begin, from the first one on

    // The warpgroup's first block is `first`. Blocks without rows repeat the last one.
    GETT_DEVICE Fragments(int first, int lane) : a(held(first) * 64 + lane / 32 * 16, lane & 31), b(0, lane & 31) {
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
        const int blocks = kAllBlocks ? i : held(first + i) - held(first);
        block[i] = blocks * (FragmentA::kMajorK ? 64 * FragmentA::kS
                                                : 64 * int(sizeof(Element)) / FragmentA::kS * FragmentA::kSlab);
      }
    }
    static GETT_DEVICE int held(int block) { return kAllBlocks ? block : min(block, kBlocksA - 1); }

    // Numbers of the stage at `stage` for step `s`, in the order of the instruction.
    GETT_DEVICE void load_a(uint32 stage, int s, StepA& x) const {
#pragma unroll
      for (int i = 0; i < kMmaM; ++i)
#pragma unroll
        for (int e = 0; e < kEights; ++e)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            Element two[2];
            a.load(stage + block[i], r * 8, s * kEights + e, two);
#pragma unroll
            for (int part = 0; part < kParts; ++part) {
              x[i][part][e * 4 + r] = Parts<Element>::at(two[0], part);
              x[i][part][e * 4 + 2 + r] = Parts<Element>::at(two[1], part);
            }
          }
    }
    GETT_DEVICE void load_b(uint32 stage, int s, int column, StepB& x) const {
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        Element two[2];
        b.load(stage + Storage::kStageA, column * 8, s * kEights + e, two);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          x[part][e * 2] = Parts<Element>::at(two[0], part);
          x[part][e * 2 + 1] = Parts<Element>::at(two[1], part);
        }
      }
    }
  };

  // A word that depends on numbers: what uses it comes after their loads. One of each load will do.
  template <int kCount> static GETT_DEVICE uint32 word_of(const double (&x)[kCount]) {
    uint32 word = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) word |= uint32(__double2loint(x[i]));
    return word;
  }

  // The products of a tile.
  static GETT_DEVICE void multiply(const Storage& smem, const KTileRange& k_tiles, StageState& stage,
                                   const Fragments& fragments, int lane, Accumulators& acc) {
    StepA a[2];
    StepB b[2];
    if (k_tiles.first < k_tiles.last) {
      mbarrier_wait(stage.bar(smem.full()), stage.phase);
      fragments.load_a(smem.stage(stage.stage), 0, a[0]);
      fragments.load_b(smem.stage(stage.stage), 0, 0, b[0]);
    }
#pragma unroll 1
    for (int kt = k_tiles.first; kt < k_tiles.last; ++kt) {
      const uint32 tile = smem.stage(stage.stage), empty = stage.bar(smem.empty());
      const bool more = kt + 1 < k_tiles.last;
      // A word of all numbers that products have taken, and one that is zero since phases are never negative, which the
      // compiler does not know. What is loaded next waits for the numbers before it: ptxas would load all of B at once,
      // for which there are no registers. It may also let the arrival pass the loads, so that waits for all of them.
      uint32 read = 0;
      const uint32 zero = stage.phase >> 31;
      ++stage;
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const int at = s * kColumns + j;
          const bool last = s + 1 == kSteps;
          if (j == 0 && !last) fragments.load_a(tile, s + 1, a[(s + 1) & 1]);
          if (j == 0 && last && more) {
            mbarrier_wait(stage.bar(smem.full()), stage.phase);
            fragments.load_a(smem.stage(stage.stage), 0, a[(s + 1) & 1]);
          }
          if (j + 1 < kColumns) fragments.load_b(tile + (read & zero), s, j + 1, b[(at + 1) & 1]);
          else if (!last) fragments.load_b(tile + (read & zero), s + 1, 0, b[(at + 1) & 1]);
          else if (more) fragments.load_b(smem.stage(stage.stage), 0, 0, b[(at + 1) & 1]);
          Products::add(acc, j, a[s & 1], b[at & 1]);
#pragma unroll
          for (int i = 0; i < (j == 0 ? kMmaM : 0); ++i) read |= word_of(a[s & 1][i][0]);
          read |= word_of(b[at & 1][0]);
        }
      Scheduler::release(empty + (read & zero), lane & 31);
      // The next k-tile begins with the first places again.
      if constexpr (kSteps % 2 == 1) move(a[0], a[1]);
      if constexpr (kSteps * kColumns % 2 == 1) move(b[0], b[1]);
    }
  }
  static GETT_DEVICE void move(StepA& to, const StepA& from) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int r = 0; r < 4 * kEights; ++r) to[i][part][r] = from[i][part][r];
  }
  static GETT_DEVICE void move(StepB& to, const StepB& from) {
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int r = 0; r < 2 * kEights; ++r) to[part][r] = from[part][r];
  }

  static GETT_DEVICE void consume(const Params& p, const Storage& smem, char* base, int thread) {
    const int group = thread >> 7, lane = thread & 127, block = group * kMmaM;
    Store epilogue(base + Smem::kStaging, smem.free(0), thread, group);
    const Scheduler scheduler;
    const Fragments fragments(block, lane);
    StageState stage(0);
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p)) {
      // Consumers need not locate the tile if a store warp does.
      const TileId id = Store::kStoreWarp ? TileId{0, 0, 0, 0} : scheduler.locate(p, t);
      Accumulators acc;
      Sums::zero(acc);
      epilogue.prepare(p, id);
      multiply(smem, k_tile_range(p, id.slice), stage, fragments, lane, acc);
      if (!Store::kStoreWarp && !Scheduler::exists(p, id)) continue;
      if constexpr (Scheduler::kSplit) {
        Sums::store_partial(p, id, acc, block, lane);
      } else {
        epilogue.store(p, Sums::located(scheduler, p, id, t), acc, block, lane);
      }
    }
    if constexpr (!Scheduler::kSplit) epilogue.finish();
  }
};

}  // namespace gett
