// The main loop that multiplies floats, or complex numbers of floats, as sums of planes of 16 bits. TMA or cp.async
// brings both operands as they are in memory (loader/tma.cuh, loader/cp_async_tile.cuh). A warpgroup splits B into
// planes in shared memory (loader/split.cuh). The consumer warpgroups split their rows of A on the way to registers
// (mainloop/split_fragment.cuh). They multiply pairs of planes by wgmma, those of least value first.
//
// The tensor core truncates its sums, so they must be short. The products of 16 or 32 k are summed in registers of
// their own. These are then added to the tile's by ordinary additions, rounded to nearest
// (mainloop/split_products.cuh). Planes of float16 are those of scaled numbers, and the additions scale the sums back
// (core/planes.cuh).
#pragma once
#include "gett/contract/loops.cuh"
#include "gett/core/pipeline.cuh"
#include "gett/loader/split.cuh"
#include "gett/loader/split_stages.cuh"
#include "gett/mainloop/split_fragment.cuh"
#include "gett/mainloop/split_products.cuh"
#include "gett/mainloop/split_repair.cuh"
#include "gett/mainloop/split_storage.cuh"
#include "gett/mainloop/tile_sums.cuh"
#include "gett/ptx/opaque.cuh"

namespace gett {

template <class Traits, class Index, class Mma, class Store, class Scheduler, class Smem>
  GETT_REQUIRES(contract::WgmmaSplit<Traits, Index, Smem>)
struct WgmmaSplit {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef TileSums<Traits, Store, Scheduler> Sums;
  typedef SplitStorage<Traits, Index, Store, Scheduler, Smem> Storage;
  typedef typename Storage::Guard Guard;
  typedef SplitProducts<Traits, Mma, Storage> Products;
  typedef typename Products::Scales Scales;
  typedef PipelineState<Storage::kPlaneStages> PlaneState;
  typedef PipelineState<Traits::kStages> StageState;
  static constexpr int kPlanes = Storage::kPlanes, kN = Traits::kBlockN;
  static constexpr bool kScaled = Storage::kScaled;
  static constexpr int kSums = Traits::kBlockK / (16 * Traits::kSumSteps);  // of a k-tile
  static constexpr int kUnroll = 2 / kSums;  // k-tiles without a pause; more would need more registers
  static constexpr bool kTwo = Products::kSets == 2;
  typedef SplitFragment<typename Storage::TileA, Traits> FragmentA;
  typedef typename FragmentA::Share Share;
  typedef typename FragmentA::Small Small;
  static constexpr int kProducerWarpgroups = Traits::kProducerWarpgroups;
  static constexpr int kConsumerWarpgroups = Traits::kConsumerWarpgroups;
  static constexpr int kLoadWarps = Storage::Copies::kWarps;
  static constexpr int kProducerRegs = Traits::kProducerRegs, kConsumerRegs = Traits::kConsumerRegs;
  // With fewer the coordinates of copies would spill. A warpgroup that copies by cp.async gives none up. ptxas is told
  // the same number again, for it spills where one is set for both warpgroups together.
  static constexpr int kLoadRegs = Storage::kCopies ? kProducerRegs : 32, kSplitRegs = 2 * kProducerRegs - kLoadRegs;

  // The store warp: all tiles but those that are not to be stored, then those that are made again.
  template <class Epilogue> static GETT_DEVICE void store(const Params& p, const Storage& smem, int buffer, int lane) {
    const Guard guard(p, smem.guard());
    uint32 turn = 0;
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
      if (pass == 0 || guard.any())
        Epilogue::store_loop(p, smem.staging(buffer), smem.free(buffer), buffer, lane,
                             TilesOfPass<Guard>{guard, pass > 0}, turn);
      if (pass == 0 && elect_one()) mbarrier_arrive(smem.judged());
      __syncwarp();
    }
  }
  static GETT_DEVICE void prefetch_tensormaps(const Params& p) { Index::prefetch_tensormaps(p); }

  // The warpgroups that do not multiply: warps of the first load, the second one splits. That takes more registers,
  // which the first one leaves to it.
  static GETT_DEVICE void load(const Params& p, const Storage& smem, char*, int thread) {
    if (thread < 128) {
      named_barrier_sync(NamedBarrier::kGive, 128);  // between two changes of registers (PTX ISA)
      setmaxnreg_dec<kLoadRegs>();
      if (thread < 32 * kLoadWarps) SplitLoader<Traits, Index, Scheduler, Storage>::run(p, smem, thread);
    } else {
      named_barrier_sync(NamedBarrier::kTake, 128);
      setmaxnreg_inc<kSplitRegs>();
      SplitTransform<Traits, Scheduler, Storage>::run(p, smem, thread - 128);
    }
  }

  // Takes this thread's share of sum `s` of A out of a stage; gives the stage back after the last one.
  static GETT_DEVICE void take(const Params& p, const Storage& smem, StageState& stage, int s,
                               const FragmentA& fragment, int lane, Share& a, Small& small) {
    if (s == 0) mbarrier_wait(stage.bar(smem.full()), stage.phase);
    const uint32 loaded = fragment.load(smem.stage(stage.stage), s, a, small);
    if (s == kSums - 1) give_back(p, smem, stage, loaded, lane);
  }
  // Gives the stage back once this warp has loaded `word`, which stands for all that it reads of it. The address of the
  // mbarrier depends on the word, so the arrival comes after the loads. Nothing is added, a count is never negative.
  static GETT_DEVICE void give_back(const Params& p, const Storage& smem, StageState& stage,
                                    uint32 word, int lane) {
    const uint32 bar = behind(p, stage.bar(smem.empty()), word);
    __syncwarp();
    if ((lane & 31) == 0) mbarrier_arrive(bar);
    ++stage;
  }
  static GETT_DEVICE uint32 behind(const Params& p, uint32 bar, uint32 word) {
    return bar + (word & uint32(p.k_tiles) >> 31);
  }

  // The products of kTiles k-tiles. While those of one set of sums run, the one before is added, and fragments of A are
  // made. None run in the end: ptxas would serialise products that run from one turn of a loop to the next.
  template <int kTiles>
  static GETT_DEVICE void multiply(const Params& p, const Storage& smem, bool more, StageState& stage,
                                   PlaneState& made, const FragmentA& fragment, int lane, Share (&a)[2],
                                   Acc (&acc)[kN / 2], Small& small) {
    constexpr int kCount = kTiles * kSums;
    typename Products::template Sums<0> sums0;
    typename Products::template Sums<1> sums1;
    Scales scales[2];
#pragma unroll
    for (int sum = 0; sum < kCount; ++sum) {
      const int s = sum % kSums, now = sum % 2;
      if (s == 0) mbarrier_wait(made.bar(smem.planes_full()), made.phase);
      const uint32 b = (smem.planes(0) & 0x3ffff) + made.stage * Storage::kPlaneStageBytes;
      if (kTwo || now == 0) sums0.multiply(a[now].planes, b, s);
      else sums1.multiply(a[now].planes, b, s);
      if (sum > 0) {
        wgmma_wait<1>();
        if (kTwo || now == 0) sums1.add_to(acc, scales[now ^ 1]);
        else sums0.add_to(acc, scales[now ^ 1]);
        keep(a[now ^ 1].planes);
        if (s == 0) give_planes_back(p, smem, made, scales[now ^ 1], lane);
      }
      set(scales[now], smem, made, a[now]);
      if (s == kSums - 1) ++made;
      if (sum + 1 < kCount || (kCount % 2 == 0 && more))
        take(p, smem, stage, (s + 1) % kSums, fragment, lane, a[now ^ 1], small);
      if constexpr (kTwo) {
        sums1.multiply(a[now].planes, b, s);
        wgmma_wait<1>();
        sums0.add_to(acc, scales[now]);
      }
    }
    wgmma_wait<0>();
    const Scales& last = scales[(kCount - 1) % 2];
    if (kTwo || kCount % 2 == 0) sums1.add_to(acc, last);
    else sums0.add_to(acc, last);
    keep(a[(kCount - 1) % 2].planes);
    give_planes_back(p, smem, made, last, lane);
    if (kCount % 2 && more) take(p, smem, stage, 0, fragment, lane, a[0], small);
  }
  // The products of a tile.
  static GETT_DEVICE void multiply(const Params& p, const Storage& smem, const KTileRange& k_tiles,
                                   StageState& stage, PlaneState& made, const FragmentA& fragment,
                                   int lane, Acc (&acc)[kN / 2], Small& small) {
    Share a[2];
    int kt = k_tiles.first;
    if (kt < k_tiles.last) take(p, smem, stage, 0, fragment, lane, a[0], small);
#pragma unroll 1
    for (; kt + kUnroll <= k_tiles.last; kt += kUnroll)
      multiply<kUnroll>(p, smem, kt + kUnroll < k_tiles.last, stage, made, fragment, lane, a, acc, small);
    if constexpr (kUnroll > 1) {
#pragma unroll 1
      for (; kt < k_tiles.last; ++kt)
        multiply<1>(p, smem, kt + 1 < k_tiles.last, stage, made, fragment, lane, a, acc, small);
    }
  }

  // Reads what the sums of a k-tile are to be multiplied by.
  static GETT_DEVICE void set(Scales& scales, const Storage& smem, const PlaneState& made, const Share& a) {
    if constexpr (kScaled) {
      uint32 columns[4];
      ld_shared(smem.scales(made.stage), columns);
      scales.set(a.inverse, columns);
    }
  }
  // The products of the k-tile before `made` are complete, and its scales have been read.
  static GETT_DEVICE void give_planes_back(const Params& p, const Storage& smem, const PlaneState& made,
                                           const Scales& scales, int lane) {
    const int before = (made.stage == 0 ? Storage::kPlaneStages : made.stage) - 1;
    const uint32 bar = smem.planes_empty() + before * 8;
    if constexpr (!kScaled) {
      if (lane == 0) mbarrier_arrive(bar);
    } else if ((lane & 31) == 0) {
      mbarrier_arrive(behind(p, bar, scales.word));
    }
  }

  static GETT_DEVICE void consume(const Params& p, const Storage& smem, char* base, int thread) {
    const int group = thread >> 7, lane = thread & 127;
    Store epilogue(base + Smem::kStaging, smem.free(0), thread, group);
    const Guard guard(p, smem.guard());
    if constexpr (Store::kStoreWarp) epilogue.skip_at_ = guard.skip_at();
    int count = 0;
    const Scheduler scheduler;
    const FragmentA fragment(group, lane);
    StageState stage(0);
    PlaneState made(0);
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p), ++count) {
      typename Sums::Accumulators acc;
      const Tile tile = start(p, scheduler, epilogue, t, acc);
      Small small;
      multiply(p, smem, tile.k_tiles, stage, made, fragment, lane, acc[0], small);
      const bool lost = small.is_lost() || guard.is_found_in_b(t) || !are_finite(acc[0], group, lane);
      if (Scheduler::kSplit || Scheduler::is_part(p, t)) {
        if (lost) guard.mark(count);  // the sums of a tile's parts are not added yet
      } else if constexpr (Store::kStoreWarp) {
        epilogue.skip_ = lost;  // the store warp marks the tile
      } else if (named_barrier_or(NamedBarrier::kVote, 128 * kConsumerWarpgroups, lost)) {
        if (thread == 0) guard.mark(count);
        continue;
      }
      leave(p, scheduler, epilogue, tile.id, t, acc, group, lane);
    }
    if constexpr (Store::kStoreWarp) {
      mbarrier_wait(smem.judged(), 0);
      epilogue.skip_ = false;
    } else {
      named_barrier_sync(NamedBarrier::kVote, 128 * kConsumerWarpgroups);
      if (thread == 0) mbarrier_arrive(smem.judged());
    }
    if (guard.any()) {
      count = 0;
      for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p), ++count) {
        if (!guard.is_marked(count)) continue;
        typename Sums::Accumulators acc;
        const Tile tile = start(p, scheduler, epilogue, t, acc);
#pragma unroll 1
        for (int kt = tile.k_tiles.first; kt < tile.k_tiles.last; ++kt) {
          mbarrier_wait(stage.bar(smem.full()), stage.phase);
          const uint32 at = smem.stage(stage.stage);
          const uint32 word =
              fma_k_tile<Traits, typename Storage::TileA, typename Storage::TileB>(
                  at, at + Storage::kStageA, group, lane, acc[0]);
          give_back(p, smem, stage, word, lane);
        }
        leave(p, scheduler, epilogue, tile.id, t, acc, group, lane);
      }
    }
    if constexpr (!Scheduler::kSplit) epilogue.finish();
  }

 private:
  struct Tile {
    TileId id;
    KTileRange k_tiles;
  };
  // The store warp, where there is one, locates the tile.
  static GETT_DEVICE Tile start(const Params& p, const Scheduler& scheduler, Store& epilogue, int t,
                                typename Sums::Accumulators& acc) {
    const TileId id = Store::kStoreWarp ? TileId{0, 0, 0, 0} : scheduler.locate(p, t);
    const KTileRange k_tiles = Scheduler::k_tiles(p, t, Scheduler::kSplit ? scheduler.locate(p, t).slice : 0);
    Sums::zero(acc);
    epilogue.prepare(p, id);
    return {id, k_tiles};
  }
  // A tile's sums leave: to D, or to the workspace.
  static GETT_DEVICE void leave(const Params& p, const Scheduler& scheduler, Store& epilogue, const TileId& id, int t,
                                typename Sums::Accumulators& acc, int group, int lane) {
    const Params& own = kSparing && !Scheduler::kSplit ? hidden(p) : p;
    Sums::leave(own, scheduler, epilogue, Scheduler::kSplit ? scheduler.locate(p, t) : id, t, acc,
                GETT_RECOMPUTE(group), GETT_RECOMPUTE(lane));
  }
  // Whether all sums of the tile are; rows and columns of padding hold anything.
  static GETT_DEVICE bool are_finite(const Acc (&acc)[kN / 2], int group, int lane) {
    bool all = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      bool row = true;
#pragma unroll
      for (int j = 0; j < kN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool padding = Traits::kBoxN < kN && j * 8 + Fragment::column(lane) + e >= Traits::kBoxN;
          const Acc x = acc[j * 4 + r * 2 + e];
#pragma unroll
          for (int part = 0; part < Storage::kParts; ++part)
            row &= padding | (fabsf(Parts<Acc>::at(x, part)) <= 3.402823466e38f);  // false for NaN
        }
      all &= row | (FragmentRows<Traits>::at(group, 0, Fragment::row(lane) + r * 8) >= Traits::kBoxM);
    }
    return all;
  }
  // Registers that products read keep what they hold until here.
  static GETT_DEVICE void keep(const typename FragmentA::Planes& planes) {
#pragma unroll
    for (const auto& step : planes)
#pragma unroll
      for (const auto& a : step)
#pragma unroll
        for (int p = 0; p < kPlanes; ++p) asm volatile("" ::"r"(a[p][0]), "r"(a[p][1]), "r"(a[p][2]), "r"(a[p][3]));
  }
};

}  // namespace gett
