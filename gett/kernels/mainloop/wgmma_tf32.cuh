// The main loop that multiplies floats as TF32 with A in registers, whatever the rows of the operands run along. TMA
// brings both operands and rounds them to the nearest TF32, ties to even (loader/tma.cuh). The consumer warpgroups load
// their fragments of A (mainloop/tf32_fragment.cuh). wgmma reads B where it is if its rows run along K; else a
// warpgroup transposes it first (loader/transpose.cuh).
//
// A k-tile is multiplied in two parts: while the products of one run, the fragments of the next are loaded.
#pragma once
#include "gett/contract/loops.cuh"
#include "gett/core/pipeline.cuh"
#include "gett/loader/tma.cuh"
#include "gett/loader/transpose.cuh"
#include "gett/mainloop/tf32_fragment.cuh"
#include "gett/mainloop/tf32_storage.cuh"
#include "gett/mainloop/tile_sums.cuh"
#include "gett/ptx/wgmma.cuh"

namespace gett {

// The tile of B that wgmma reads.
template <class Storage, bool kTransposes> struct Tf32TileB { typedef typename Storage::TileB type; };
template <class Storage> struct Tf32TileB<Storage, true> { typedef typename Storage::TransposedB type; };

template <class Traits, class Index, class Mma, class Store, class Scheduler, class Smem>
  GETT_REQUIRES(contract::WgmmaTf32<Traits, Index, Smem>)
struct WgmmaTf32 {
  typedef typename Traits::Params Params;
  typedef TileSums<Traits, Store, Scheduler> Sums;
  typedef typename Sums::Accumulators Accumulators;
  typedef Tf32Storage<Traits, Index, Store, Scheduler, Smem> Storage;
  static constexpr bool kTransposes = Storage::kTransposes;
  typedef typename Tf32TileB<Storage, kTransposes>::type TileB;
  static constexpr int kMmaM = Traits::kMmaM, kSteps = Traits::kBlockK / 8;
  typedef Tf32Fragment<typename Storage::TileA, kMmaM, Traits::kConsumerWarpgroups> FragmentA;
  typedef PipelineState<Traits::kStages> StageState;
  typedef PipelineState<kTransposes ? Storage::kTransposedStages : Traits::kStages> ReadState;  // of what wgmma reads
  static constexpr int kProducerWarpgroups = Traits::kProducerWarpgroups;
  static constexpr int kConsumerWarpgroups = Traits::kConsumerWarpgroups, kLoadWarps = 1;
  static constexpr int kProducerRegs = Traits::kProducerRegs, kConsumerRegs = Traits::kConsumerRegs;
  static_assert(kSteps >= 2, "a k-tile has two parts");

  // The store warp of a staging buffer.
  template <class Epilogue> static GETT_DEVICE void store(const Params& p, const Storage& smem, int buffer, int lane) {
    Epilogue::store_loop(p, smem.staging(buffer), smem.free(buffer), buffer, lane);
  }
  static GETT_DEVICE void prefetch_tensormaps(const Params& p) { Index::prefetch_tensormaps(p); }

  // The warpgroups that do not multiply: one warp of the first loads, the second one transposes.
  static GETT_DEVICE void load(const Params& p, const Storage& smem, char*, int thread) {
    if (thread < 32) TmaLoader<Traits, Index, Scheduler, Storage>::run(p, smem, thread);
    if constexpr (kTransposes) {
      if (thread >= 128) TransposeTransform<Traits, Scheduler, Storage>::run(p, smem, thread - 128);
    }
  }

  // One part of a k-tile: its steps, and a thread's fragments of A for them.
  template <int kPart> struct Part {
    static constexpr int kFirst = kPart == 0 ? 0 : (kSteps + 1) / 2, kEnd = kPart == 0 ? (kSteps + 1) / 2 : kSteps;
    uint32 a[kEnd - kFirst][kMmaM][4];

    GETT_DEVICE void load(const FragmentA& fragment, uint32 tile) {
#pragma unroll
      for (int s = kFirst; s < kEnd; ++s) fragment.load(tile, s, a[s - kFirst]);
    }
    // Issues its products with the tile of B at `b`.
    GETT_DEVICE void multiply(Accumulators& acc, uint32 b) const {
      wgmma_fence();
#pragma unroll
      for (int s = kFirst; s < kEnd; ++s)
#pragma unroll
        for (int i = 0; i < kMmaM; ++i)
          Mma::mma(acc[i], a[s - kFirst][i], TileB::descriptor(b, 0, s), true);
      wgmma_commit();
    }
    // The registers keep what they hold until here.
    GETT_DEVICE void keep() const {
#pragma unroll
      for (int s = 0; s < kEnd - kFirst; ++s)
#pragma unroll
        for (int i = 0; i < kMmaM; ++i)
          asm volatile("" ::"r"(a[s][i][0]), "r"(a[s][i][1]), "r"(a[s][i][2]), "r"(a[s][i][3]));
    }
  };

  // A warp has loaded A from a stage, and its products have read B.
  static GETT_DEVICE void release(const Storage& smem, int stage, int lane) {
    Scheduler::release(smem.empty() + stage * 8, lane & 31);
  }
  // The products of the k-tile that is `before` in the ring of what wgmma reads are complete.
  static GETT_DEVICE void read(const Storage& smem, int before, int lane) {
    if constexpr (!kTransposes) release(smem, before, lane);
    else if ((lane & 31) == 0) mbarrier_arrive(smem.transposed_empty() + before * 8);
  }

  // The products of a tile.
  static GETT_DEVICE void multiply(const Storage& smem, const KTileRange& k_tiles, StageState& stage, ReadState& made,
                                   const FragmentA& fragment, int lane, Accumulators& acc) {
    const uint32 tiles = (kTransposes ? smem.transposed(0) : smem.stage(0) + Storage::kStageA) & 0x3ffff;
    constexpr int kPitch = kTransposes ? Storage::TransposedB::kBytes : Storage::kStageBytes;
    Part<0> first;
    Part<1> second;
    int before = -1;
    if (k_tiles.first < k_tiles.last) {
      mbarrier_wait(stage.bar(smem.full()), stage.phase);
      first.load(fragment, smem.stage(stage.stage));
    }
#pragma unroll 1
    for (int kt = k_tiles.first; kt < k_tiles.last; ++kt) {
      if constexpr (kTransposes) mbarrier_wait(made.bar(smem.transposed_full()), made.phase);
      const uint32 b = tiles + made.stage * kPitch;
      first.multiply(acc, b);
      wgmma_wait<1>();
      second.keep();
      if (before >= 0) read(smem, before, lane);
      before = made.stage;
      second.load(fragment, smem.stage(stage.stage));
      second.multiply(acc, b);
      // All fragments are in registers, and wgmma reads B elsewhere: the stage comes again half a k-tile earlier than
      // behind the wait.
      if constexpr (kTransposes) release(smem, stage.stage, lane);
      wgmma_wait<1>();
      first.keep();
      ++stage;
      ++made;
      if (kt + 1 < k_tiles.last) {
        mbarrier_wait(stage.bar(smem.full()), stage.phase);
        first.load(fragment, smem.stage(stage.stage));
      }
    }
    wgmma_wait<0>();
    second.keep();
    if (before >= 0) read(smem, before, lane);
  }

  static GETT_DEVICE void consume(const Params& p, const Storage& smem, char* base, int thread) {
    const int group = thread >> 7, lane = thread & 127, block = group * kMmaM;
    Store epilogue(base + Smem::kStaging, smem.free(0), thread, group);
    const Scheduler scheduler;
    const FragmentA fragment(block, lane);
    StageState stage(0);
    ReadState made(0);
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p)) {
      // Consumers need not locate the tile if a store warp does.
      const TileId id = Store::kStoreWarp ? TileId{0, 0, 0, 0} : scheduler.locate(p, t);
      Accumulators acc;
      Sums::zero(acc);  // as in a slice without k-tiles; it also ends the life of the sums of the tile before
      epilogue.prepare(p, id);
      multiply(smem, Scheduler::k_tiles(p, t, id.slice), stage, made, fragment, lane, acc);
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) wgmma_fence_operand(acc[i]);
      if (!Store::kStoreWarp && !Scheduler::exists(p, id)) continue;
      Sums::leave(p, scheduler, epilogue, id, t, acc, block, lane);
    }
    if constexpr (!Scheduler::kSplit) epilogue.finish();
  }
};

}  // namespace gett
