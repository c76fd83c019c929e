// The loader that gathers: for operands whose strides no tensor map takes.
//
// A tensor map starts every copy at a multiple of 16 bytes, and so does cp.async; rows of odd extents start anywhere.
// Each gathering warp copies by cp.async the aligned chunks of 16 bytes that cover its pieces of a k-tile (kRunElements
// elements of a row each). They go into a ring of its own, so no registers wait for memory. Some k-tiles later it
// shifts them by the pieces' misalignment and stores them in wgmma's layout. A warp shifts only what it copied itself,
// so nothing but its own synchronisation is needed between the two steps.
//
// Knows pieces and chunks. The generated Index says what lies where.
#pragma once
#include "gett/core/pipeline.cuh"
#include "gett/loader/gather_transpose.cuh"
#include "gett/ptx/mbarrier.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/k_tiles.cuh"

namespace gett {

// An operand that a tensor map brings has no pieces.
struct NoPieces { static constexpr int kPer = 0, kRingBytes = 0; };
template <class Traits, class Index, bool kIsA, bool kGather, bool kTranspose> struct PiecesOf {
  typedef NoPieces type;
};
template <class Traits, class Index, bool kIsA> struct PiecesOf<Traits, Index, kIsA, true, false> {
  typedef GatherPieces<Traits, Index, kIsA> type;
};
template <class Traits, class Index, bool kIsA> struct PiecesOf<Traits, Index, kIsA, true, true> {
  typedef TransposedPieces<Traits, Index, kIsA> type;
};

template <class Traits, class Index, class Scheduler> struct GatherLoader {
  typedef typename Traits::Params Params;
  typedef typename Traits::LoaderTraitsA TraitsA;
  typedef typename Traits::LoaderTraitsB TraitsB;
  static constexpr bool kGatherA = TraitsA::kKind == kLoaderGather, kGatherB = TraitsB::kKind == kLoaderGather;
  typedef typename PiecesOf<Traits, Index, true, kGatherA, (TraitsA::kTransposeK > 0)>::type PiecesA;
  typedef typename PiecesOf<Traits, Index, false, kGatherB, (TraitsB::kTransposeK > 0)>::type PiecesB;
  typedef PipelineState<Traits::kStages> Stage;
  static constexpr int kWarps = 4 * Traits::kProducerWarpgroups, kDepth = Traits::kCpAsyncStages;
  static constexpr int kRingA = PiecesA::kRingBytes, kRingB = PiecesB::kRingBytes;
  static constexpr int kTable = PiecesA::kPer + PiecesB::kPer;
  static constexpr int kWarpBytes = kDepth * (kRingA + kRingB) + (2 * kTable * 4 + 15) / 16 * 16;
  static constexpr int kBytes = kWarps * kWarpBytes;
  static constexpr bool kOneByTma = !kGatherA || !kGatherB;
  static constexpr int kArrivals = kWarps + (kOneByTma ? 1 : 0);  // of a full stage

  static GETT_DEVICE void run(const Params& p, char* smem, uint32 stages, int stage_bytes, int bytes_a, uint32 full,
                              uint32 empty, int thread) {
    const int warp = thread >> 5, lane = thread & 31;
    int* const table = reinterpret_cast<int*>(smem + warp * kWarpBytes + kDepth * (kRingA + kRingB));
    const uint32 ring = smem_address(smem) + warp * kWarpBytes;
    PiecesA a;
    PiecesB b;
    long long load_origin_a = 0, load_origin_b = 0, store_origin_a = 0, store_origin_b = 0;
    KTileIterator<Params, Scheduler> load_at, store_at, tma_at;
    load_at.begin(p);
    store_at = tma_at = load_at;
    bool new_load_tile = true, new_store_tile = true;
    int slot = 0, tma_lead = 0;
    Stage stage(1), tma_stage(1);
    // The first kDepth rounds only load. Each round after them stores a k-tile, and loads the one kDepth later to its
    // place.
#pragma unroll 1
    for (int round = 0; store_at.more(p); ++round) {
      const uint32 at = ring + slot * (kRingA + kRingB);
      if (round >= kDepth) {
        if (new_store_tile) {
          store_at.locate(p);
          if constexpr (kGatherA) {
            store_origin_a = PiecesA::tabulate(p, store_at.id, table, warp, lane);
            a.plan_stores(table, lane);
          }
          if constexpr (kGatherB) {
            int* const to = table + PiecesA::kPer;
            store_origin_b = PiecesB::tabulate(p, store_at.id, to, warp, lane);
            b.plan_stores(to, lane);
          }
        }
        if constexpr (kOneByTma) {
          // The copies by tensor map run ahead of the shifting by as many stages as leave the consumers two.
          if (thread == 0) {
#pragma unroll 1
            for (; tma_lead < max(1, Traits::kStages - 1) && tma_at.more(p); ++tma_lead) {
              mbarrier_wait(tma_stage.bar(empty), tma_stage.phase);
              const uint32 bar = tma_stage.bar(full), to = stages + tma_stage.stage * stage_bytes;
              mbarrier_arrive_expect_tx(bar, (TraitsA::kTransactionBytes + TraitsB::kTransactionBytes));
              tma_at.locate(p);
              const auto coords = Index::tile_coords(p, tma_at.id.m, tma_at.id.n, tma_at.id.l);
              Index::load_stage(p, coords, tma_at.kt, to, to + bytes_a, bar, {0, 1}, {0, 1}, true);
              ++tma_stage;
              tma_at.next(p);
            }
            --tma_lead;
          }
        }
        cp_async_wait<kDepth - 1>();
        __syncwarp();  // the copies of all lanes have landed
        mbarrier_wait(stage.bar(empty), stage.phase);
        const auto k = Index::k_tile(p, store_at.kt);
        const bool whole = Index::k_whole(p, k);
        const uint32 to = stages + stage.stage * stage_bytes;
        if constexpr (kGatherA) {
          a.store(p, k, whole, PiecesA::base(p) + store_origin_a + k.a * PiecesA::kE, at, to, warp, lane);
        }
        if constexpr (kGatherB) {
          const char* const from = PiecesB::base(p) + store_origin_b + k.b * PiecesB::kE;
          b.store(p, k, whole, from, at + kRingA, to + bytes_a, warp, lane);
        }
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) mbarrier_arrive(stage.bar(full));
        ++stage;
        new_store_tile = store_at.next(p);
      }
      if (load_at.more(p)) {
        if (new_load_tile) {
          load_at.locate(p);
          int* const own = table + kTable;
          if constexpr (kGatherA) {
            load_origin_a = PiecesA::tabulate(p, load_at.id, own, warp, lane);
            a.plan_loads(own, lane);
          }
          if constexpr (kGatherB) {
            int* const to = own + PiecesA::kPer;
            load_origin_b = PiecesB::tabulate(p, load_at.id, to, warp, lane);
            b.plan_loads(to, lane);
          }
        }
        const auto k = Index::k_tile(p, load_at.kt);
        if constexpr (kGatherA) {
          a.load(PiecesA::base(p) + load_origin_a + k.a * PiecesA::kE, PiecesA::end(p), at, lane);
        }
        if constexpr (kGatherB) {
          b.load(PiecesB::base(p) + load_origin_b + k.b * PiecesB::kE, PiecesB::end(p), at + kRingA, lane);
        }
        new_load_tile = load_at.next(p);
      }
      cp_async_commit();
      slot = next_stage<kDepth>(slot);
    }
  }
};

// What the gathering loader takes of a kernel's shared memory, and the arrivals that make a stage full.
template <class Traits, class Index, class Scheduler, bool kGather> struct GatherNeeds {
  static constexpr int kBytes = GatherLoader<Traits, Index, Scheduler>::kBytes;
  static constexpr int kArrivals = GatherLoader<Traits, Index, Scheduler>::kArrivals;
};
template <class Traits, class Index, class Scheduler> struct GatherNeeds<Traits, Index, Scheduler, false> {
  static constexpr int kBytes = 0, kArrivals = 1;
};

}  // namespace gett
