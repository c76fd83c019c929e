// The main loop that multiplies float64, or complex numbers of it, by mma.sync out of stages that TMA fills, whatever
// the operands' rows run along. A warp has 16 rows of each of its warpgroup's blocks of 64, and all columns. Sums then
// lie as wgmma's do, so epilogues are the same.
//
// Columns are taken in groups of eight. B's numbers are loaded ahead of the products that take them, over the ends of
// k-tiles too. Those of float64 are loaded two groups ahead. A load is issued behind the product at hand. What waits
// for a load would otherwise add its wait to the clocks that ptxas leaves between two products of a warp. A's numbers
// are loaded before the last groups of a step.
#pragma once
#include "gett/contract/loops.cuh"
#include "gett/core/pipeline.cuh"
#include "gett/loader/tma.cuh"
#include "gett/mainloop/dmma_complex_fragment.cuh"
#include "gett/mainloop/dmma_fragment.cuh"
#include "gett/mainloop/dmma_products.cuh"
#include "gett/mainloop/dmma_storage.cuh"
#include "gett/mainloop/tile_sums.cuh"
#include "gett/ptx/dmma.cuh"

namespace gett {

template <class Traits, class Index, class Mma, class Store, class Scheduler, class Smem>
  GETT_REQUIRES(contract::DmmaTma<Traits, Index, Smem>)
struct DmmaTma {
  typedef typename Traits::Params Params;
  typedef TileSums<Traits, Store, Scheduler> Sums;
  typedef typename Sums::Accumulators Accumulators;
  typedef DmmaStorage<Traits, Index, Store, Scheduler, Smem> Storage;
  typedef typename Traits::Element Element;
  static constexpr int kOrderBit = kDmmaOrderBit<Element, typename Storage::TileB, Traits::kLeadA>;
  typedef DmmaFragment<Element, typename Storage::TileA, Traits::kLeadA, Traits::kLeadB, false, kOrderBit> FragmentA;
  typedef DmmaFragment<Element, typename Storage::TileB, Traits::kLeadA, Traits::kLeadB, true, kOrderBit> FragmentB;
  typedef DmmaProducts<typename Traits::Acc, Mma, Traits::kConjA, Traits::kConjB> Products;
  typedef PipelineState<Traits::kStages> StageState;
  static constexpr int kParts = Parts<Element>::kCount;  // numbers of an element
  static constexpr int kMmaM = Traits::kMmaM, kColumns = Traits::kBlockN / 8;  // groups of eight
  static constexpr int kNumbers = Mma::kK / 8;  // a lane's of one row of A or column of B, by two
  static constexpr int kEights = kNumbers / kParts, kSteps = Traits::kBlockK / (8 * kEights);
  static constexpr int kGroups = kSteps * kColumns;  // of a k-tile
  // Groups of complex numbers have four times as many products.
  static constexpr int kAhead = kMmaM < 4 && kGroups > 2 && kParts == 1 ? 2 : 1;
  static constexpr int kAheadA = kAhead < kColumns ? kAhead : kColumns;
  static constexpr int kBuffersA = kMmaM < 4 && kSteps > 1 && kParts == 1 ? 2 : 1;  // steps of A but for the one loaded
  static constexpr int kProducerWarpgroups = Traits::kProducerWarpgroups;
  static constexpr int kConsumerWarpgroups = Traits::kConsumerWarpgroups, kLoadWarps = 1;
  static constexpr int kProducerRegs = Traits::kProducerRegs, kConsumerRegs = Traits::kConsumerRegs;
  static constexpr int kBlocksA = Storage::TileA::kBlocks;
  static constexpr bool kAllBlocks = kBlocksA >= kMmaM * kConsumerWarpgroups;
  static_assert(Traits::kBlockK % FragmentA::kDeep == 0, "k that lanes share out");

  // A thread's numbers of A for one step, as they are loaded and as they are multiplied, and of eight columns of B.
  typedef double StepA[kMmaM][4 * kNumbers];
  typedef typename Products::Rows OperandA[kMmaM];
  typedef double StepB[2 * kNumbers];

  // The place of a group's numbers of B. kAhead + 1 neighbours have different places, and so have the last groups of a
  // k-tile and the first ones of the next. A group has the same place in every k-tile. Groups go round kAhead + 1
  // places, and at first round one more until the rest is a multiple of these.
  static constexpr int kRest = kGroups % (kAhead + 1);
  static constexpr bool kApart = kGroups < (kAhead + 2) * kRest;  // too few for that: each has its own
  static constexpr int kBuffers = kGroups == 1 ? 2 : kApart ? kGroups : kRest ? kAhead + 2 : kAhead + 1;
  static constexpr GETT_DEVICE int buffer(int at) {
    if (kApart) return at;
    const int longer = (kAhead + 2) * kRest;
    return at < longer ? at % (kAhead + 2) : (at - longer) % (kAhead + 1);
  }

  // The store warp of a staging buffer.
  template <class Epilogue> static GETT_DEVICE void store(const Params& p, const Storage& smem, int buffer, int lane) {
    Epilogue::store_loop(p, smem.staging(buffer), smem.free(buffer), buffer, lane);
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
            for (int q = 0; q < 2 * kParts; ++q)
              x[i][(e * kParts * 2 + q) * 2 + r] = Parts<Element>::at(two[q / kParts], q % kParts);
          }
    }
    GETT_DEVICE void load_b(uint32 stage, int group, StepB& x) const {
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        Element two[2];
        b.load(stage + Storage::kStageA, group % kColumns * 8, group / kColumns * kEights + e, two);
#pragma unroll
        for (int q = 0; q < 2 * kParts; ++q)
          x[e * kParts * 2 + q] = Parts<Element>::at(two[q / kParts], q % kParts);
      }
    }
  };

  // The products of a tile.
  static GETT_DEVICE void multiply(const Storage& smem, const KTileRange& k_tiles, StageState& stage,
                                   const Fragments& fragments, int lane, Accumulators& acc) {
    OperandA a[kBuffersA];
    StepA loaded;
    StepB b[kBuffers];
    if (k_tiles.first < k_tiles.last) {
      mbarrier_wait(stage.bar(smem.full()), stage.phase);
      fragments.load_a(smem.stage(stage.stage), 0, loaded);
#pragma unroll
      for (int at = 0; at < kAhead; ++at) fragments.load_b(smem.stage(stage.stage), at, b[buffer(at)]);
      settle(a[0], loaded, stage.phase >> 31);
    }
#pragma unroll 1
    for (int kt = k_tiles.first; kt < k_tiles.last; ++kt) {
      const uint32 tile = smem.stage(stage.stage), empty = stage.bar(smem.empty());
      const bool more = kt + 1 < k_tiles.last;
      const uint32 zero = stage.phase >> 31;  // phases are never negative, which the compiler does not know
      uint32 read = 0;
      ++stage;
#pragma unroll
      for (int at = 0; at < kGroups; ++at) {
        const int s = at / kColumns, j = at % kColumns, next = at + kAhead - kGroups, step = (at + kAheadA) / kColumns;
        if (next == 0 && more) mbarrier_wait(stage.bar(smem.full()), stage.phase);
        if (next < 0) fragments.load_b(tile, at + kAhead, b[buffer(at + kAhead)]);
        else if (more) fragments.load_b(smem.stage(stage.stage), next, b[kGroups > 1 ? buffer(next) : 1]);
        if (j + kAheadA == kColumns) {
          if (step < kSteps) fragments.load_a(tile, step, loaded);
          else if (more) fragments.load_a(smem.stage(stage.stage), 0, loaded);
        }
        __syncwarp();  // ptxas moves no load past it
#pragma unroll
        for (int i = 0; i < kMmaM; ++i) {
          Products::add(acc[i], j, a[s % kBuffersA][i], b[buffer(at)]);
          if (j == 0 && s + 1 == kSteps) read |= Products::word_of(a[s % kBuffersA][i]);
        }
        if (next >= 0) read |= word_of(b[buffer(at)]);
        if (j + 1 == kColumns) settle(a[(s + 1) % kSteps % kBuffersA], loaded, zero);
      }
      // The arrival waits for the numbers that were loaded last: ptxas lets it pass loads, which end in order.
      Scheduler::release(empty + (read & zero), lane & 31);
      if constexpr (kGroups == 1) {
#pragma unroll
        for (int r = 0; r < 2 * kNumbers; ++r) b[0][r] = b[1][r];
      }
    }
  }
  // A step's numbers of A where products take them.
  static GETT_DEVICE void settle(OperandA& to, const StepA& from, uint32 zero) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) Products::template prepare<FragmentA::kPairs>(to[i], from[i], zero);
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
      multiply(smem, Scheduler::k_tiles(p, t, id.slice), stage, fragments, lane, acc);
      if (!Store::kStoreWarp && !Scheduler::exists(p, id)) continue;
      Sums::leave(p, scheduler, epilogue, id, t, acc, block, lane);
    }
    if constexpr (!Scheduler::kSplit) epilogue.finish();
  }
};

}  // namespace gett
