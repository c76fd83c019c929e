// The main loop of wgmma with both operands in shared memory (SS). One warp of the producer warpgroup keeps kStages
// stages full by TMA (loader/tma.cuh), or two producer warpgroups gather (loader/gather.cuh). The consumer warpgroups
// multiply full stages and call the epilogue.
//
// A small operand may be stationary (loader/stationary.cuh): it stays in shared memory behind the stages, which then
// hold the other operand alone. A store tile may consist of kMmaTilesPerStoreTile MMA tiles, neighbours along the last
// dimension of M's box. They are staged one after the other and stored at once, in rows longer than the accumulators
// would allow.
//
// Cooperative: the warpgroups share a tile, each has kMmaM blocks of 64 rows. Ping-pong: each has tiles of its own, so
// that one stores while the other multiplies.
#pragma once
#include "gett/contract/loops.cuh"
#include "gett/core/pipeline.cuh"
#include "gett/loader/k_residue.cuh"
#include "gett/loader/tma.cuh"
#include "gett/mainloop/shared_storage.cuh"
#include "gett/mainloop/tile_sums.cuh"
#include "gett/ptx/wgmma.cuh"

namespace gett {

template <class Traits, class Index, class Mma, class Store, class Scheduler, class Smem>
  GETT_REQUIRES(contract::WgmmaSS<Traits, Index, Smem>)
struct WgmmaSS {
  typedef typename Traits::Params Params;
  typedef TileSums<Traits, Store, Scheduler> Sums;
  typedef SharedStorage<Traits, Index, Store, Scheduler, Smem> Storage;
  typedef typename Storage::TileA TileA;
  typedef typename Storage::TileB TileB;
  static constexpr int kE = Storage::kE, kMmaM = Traits::kMmaM, kN = Traits::kBlockN;
  static constexpr int kThreads = 128 * Traits::kConsumerWarpgroups;
  static constexpr int kSteps = Traits::kBlockK / TileA::kStep;
  // The needs of the loaders: warps, before which no store warp stands, and registers of a thread.
  static constexpr int kProducerWarpgroups = Traits::kProducerWarpgroups, kConsumerWarpgroups = kThreads / 128;
  static constexpr int kLoadWarps = Storage::kGather ? 4 * kProducerWarpgroups : 1;
  static constexpr int kProducerRegs = Traits::kProducerRegs, kConsumerRegs = Traits::kConsumerRegs;
  typedef KResidue<TileA, Traits::LoaderTraitsA::kRows, Traits::LoaderTraitsA::kValidK, Traits::kBlockK, kE> ResidueA;
  typedef KResidue<TileB, Traits::LoaderTraitsB::kRows, Traits::LoaderTraitsB::kValidK, Traits::kBlockK, kE> ResidueB;

  // The store warp of a staging buffer.
  template <class Epilogue> static GETT_DEVICE void store(const Params& p, const Storage& smem, int buffer, int lane) {
    Epilogue::store_loop(p, smem.staging(buffer), smem.free(buffer), buffer, lane);
  }
  static GETT_DEVICE void prefetch_tensormaps(const Params& p) { Index::prefetch_tensormaps(p); }

  // The warps of the producer warpgroups; `base` is the generic address of `smem.start`.
  static GETT_DEVICE void load(const Params& p, const Storage& smem, char* base, int thread) {
    if constexpr (Storage::kGather) {
      GatherLoader<Traits, Index, Scheduler>::run(p, base + Smem::kGather, smem.stage(0), Storage::kStageBytes,
                                                  TileA::kBytes, smem.full(), smem.empty(), thread);
    } else if (thread < 32) {
      TmaLoader<Traits, Index, Scheduler, Storage>::run(p, smem, thread);
    }
  }

  static GETT_DEVICE void zero_residues(const Storage& smem, int thread) {
    const TileBuffers stationary = {smem.stationary(), Storage::Stationary::kTiles, Storage::kStationaryPitch};
    const TileBuffers a = {smem.stage(0), Traits::kStages, Storage::kStageBytes};
    const TileBuffers b = {smem.stage(0) + Storage::kStageA, Traits::kStages, Storage::kStageBytes};
    zero_k_residues<ResidueA, ResidueB, kThreads>(Storage::kStationaryA ? stationary : a,
                                                  Storage::kStationaryB ? stationary : b, thread);
  }

  // The consumer warpgroups.
  static GETT_DEVICE void consume(const Params& p, const Storage& smem, char* base, int thread) {
    const int group = thread >> 7, lane = thread & 127;
    const int block = Traits::kPingPong ? 0 : group * kMmaM;
    const int buffer = Traits::kPingPong ? group : 0;
    Store epilogue(base + Smem::kStaging + buffer * Smem::kStagingPitch, smem.free(buffer),
                   Traits::kPingPong ? lane : thread, group);
    const Scheduler scheduler;
    if constexpr (ResidueA::kCount + ResidueB::kCount > 0) zero_residues(smem, thread);
    // For descriptors: in a cluster, addresses have the block's rank above.
    const uint32 tiles = smem.stage(0) & 0x3ffff;
    PipelineState<Traits::kStages> stage(0);
    typename Storage::Stationary stationary(p, smem.stationary_bars());
    // Ping-pong: the main loops of the warpgroups alternate (CUTLASS: OrderedSequenceBarrier). It is also necessary,
    // since parity distinguishes neighbouring phases only. A warpgroup must not wait for a stage before the other one
    // has seen all stages that come first.
    if constexpr (Traits::kPingPong) {
      static_assert(Traits::kConsumerWarpgroups == 2, "two warpgroups alternate");
      if (group == 1) named_barrier_arrive(NamedBarrier::kOrder, 256);
    }
    int count = 0;
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p), ++count) {
      // Consumers need not locate the tile if a store warp does.
      const TileId id = Store::kStoreWarp ? TileId{0, 0, 0, 0} : scheduler.locate(p, t);
      const KTileRange k_tiles = Scheduler::k_tiles(p, t, id.slice);
      const int first = k_tiles.first, last = k_tiles.last;
      stationary.advance(t, lane);
      if (Traits::kPingPong && count % Traits::kConsumerWarpgroups != group) {
        stage.advance(last - first);  // the other warpgroup's stages
        continue;
      }
      stationary.wait();
#pragma unroll 1
      for (int mma_tile = 0; mma_tile < Traits::kMmaTilesPerStoreTile; ++mma_tile) {
        typename Sums::Accumulators acc;
        // Where a tile may be empty the accumulators start as zeros; else the first product overwrites them. Zeros
        // also end the life of the tile before, whose registers an epilogue that stores rows needs.
        if constexpr (Scheduler::kEmptyTiles || Store::kStoresRows || kSparing) Sums::zero(acc);
        if (mma_tile == 0) epilogue.prepare(p, id);
        if constexpr (Traits::kPingPong) named_barrier_sync(NamedBarrier::kOrder + group, 256);
        int released = -1;
        GETT_MAIN_LOOP
        for (int kt = first; kt < last; ++kt) {
          mbarrier_wait(stage.bar(smem.full()), stage.phase);
          const uint32 at = tiles + stage.stage * Storage::kStageBytes;
          const uint32 k_tile = stationary.slot() * Storage::Stationary::kPer + kt;
          const uint32 kept = tiles + (Smem::kStationary - Smem::kStages) + k_tile * Storage::kStationaryPitch;
          const uint32 a = Storage::kStationaryA ? kept : at, b = Storage::kStationaryB ? kept : at + Storage::kStageA;
          wgmma_fence();
#pragma unroll
          for (int s = 0; s < kSteps; ++s)
#pragma unroll
            for (int i = 0; i < kMmaM; ++i)
              Mma::mma(acc[i], TileA::descriptor(a, block + i, s), TileB::descriptor(b, 0, s),
                       Scheduler::kSplit || s > 0 || kt > first);
          wgmma_commit();
          // A stage is released when the products of the next one have been issued; a single stage at once.
          constexpr int kInFlight = Traits::kStages > 1 ? 1 : 0;
          wgmma_wait<kInFlight>();
          if (!kInFlight) released = stage.stage;
          if (released >= 0) Scheduler::release(smem.empty() + released * 8, lane);
          released = kInFlight ? stage.stage : -1;
          ++stage;
        }
        if constexpr (Traits::kPingPong) named_barrier_arrive(NamedBarrier::kOrder + (group ^ 1), 256);
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < kMmaM; ++i) wgmma_fence_operand(acc[i]);
        if (released >= 0) Scheduler::release(smem.empty() + released * 8, lane);
        if (!Store::kStoreWarp && !Scheduler::exists(p, id)) continue;
        Sums::leave(p, scheduler, epilogue, id, t, acc, block, lane, mma_tile);
      }
    }
    if constexpr (!Scheduler::kSplit) epilogue.finish();
  }
};

}  // namespace gett
