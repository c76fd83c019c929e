// The general door of the Hopper family: operands whose strides no tensor map takes.
//
// A tensor map starts every copy at a multiple of 16 bytes, and so does cp.async; rows of odd extents start anywhere.
// The gathering warps therefore copy the aligned 16-byte chunks that cover a piece of a row, kRunElements elements, into a ring
// of their own (no registers wait for memory), shift them into place a few k-tiles later and write them as wgmma wants
// them. A warp shifts only what it copied itself: no barrier but its own is needed between the two steps.
//
// Knows pieces and chunks; what lies where is said by the generated Index, what is multiplied by sm90.cuh.
#pragma once
#include "gett/loader/gather_transpose.cuh"
#include "gett/ptx/mbarrier.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/k_tiles.cuh"

namespace gett {

// An operand that a tensor map moves has no pieces.
struct NoPieces { static constexpr int kPer = 0, kRingBytes = 0; };
template <class Traits, class Index, bool kIsA, bool kGather, bool kTurned> struct PiecesOf { typedef NoPieces type; };
template <class Traits, class Index, bool kIsA> struct PiecesOf<Traits, Index, kIsA, true, false> {
  typedef GatherPieces<Traits, Index, kIsA> type;
};
template <class Traits, class Index, bool kIsA> struct PiecesOf<Traits, Index, kIsA, true, true> {
  typedef TransposedPieces<Traits, Index, kIsA> type;
};

template <class Traits, class Index> struct GatherLoader {
  typedef typename Traits::Params Params;
  typedef typename Traits::template LoaderTraits<true> LoaderTraitsA;
  typedef typename Traits::template LoaderTraits<false> LoaderTraitsB;
  typedef typename PiecesOf<Traits, Index, true, LoaderTraitsA::kGather, (LoaderTraitsA::kTransposeK > 0)>::type PiecesA;
  typedef typename PiecesOf<Traits, Index, false, LoaderTraitsB::kGather, (LoaderTraitsB::kTransposeK > 0)>::type PiecesB;
  static constexpr int kWarps = 4 * Traits::kProducerWarpgroups, kDepth = Traits::kCpAsyncStages;
  static constexpr int kRingA = PiecesA::kRingBytes, kRingB = PiecesB::kRingBytes;
  static constexpr int kTable = PiecesA::kPer + PiecesB::kPer;
  static constexpr int kWarpBytes = kDepth * (kRingA + kRingB) + (2 * kTable * 4 + 15) / 16 * 16;
  static constexpr int kBytes = kWarps * kWarpBytes;
  static constexpr bool kOneByTma = !LoaderTraitsA::kGather || !LoaderTraitsB::kGather;  // a tensor map brings the other operand
  static constexpr int kArrivals = kWarps + (kOneByTma ? 1 : 0);

  static GETT_DEVICE void run(const Params& p, char* smem, uint32 stages, int stage_bytes, int bytes_a, uint32 full,
                              uint32 empty, int thread) {
    const int warp = thread >> 5, lane = thread & 31;
    int* const table = reinterpret_cast<int*>(smem + warp * kWarpBytes + kDepth * (kRingA + kRingB));
    const uint32 ring = smem_address(smem) + warp * kWarpBytes;
    PiecesA a;
    PiecesB b;
    long long load_origin_a = 0, load_origin_b = 0, store_origin_a = 0, store_origin_b = 0;
    KTileIterator<Params> load_at, store_at, tma_at;
    load_at.open(p, blockIdx.x);
    store_at = tma_at = load_at;
    bool new_load_tile = true, new_store_tile = true;
    int slot = 0, stage = 0, tma_stage = 0, tma_lead = 0;
    uint32 phase = 1, tma_phase = 1;
    // The first kDepth rounds only load; then each round stores a k-tile and loads the one kDepth later in its place.
#pragma unroll 1
    for (int round = 0; store_at.more(p); ++round) {
      const uint32 at = ring + slot * (kRingA + kRingB);
      if (round >= kDepth) {
        if (new_store_tile) {
          store_at.locate(p);
          if constexpr (LoaderTraitsA::kGather) {
            store_origin_a = PiecesA::tabulate(p, store_at.id, table, warp, lane);
            a.plan_stores(table, lane);
          }
          if constexpr (LoaderTraitsB::kGather) {
            int* const to = table + PiecesA::kPer;
            store_origin_b = PiecesB::tabulate(p, store_at.id, to, warp, lane);
            b.plan_stores(to, lane);
          }
        }
        if constexpr (kOneByTma) {
          // Copies by tensor map run ahead of the shifting, by as many stages as leave the consumers two.
          if (thread == 0) {
#pragma unroll 1
            for (; tma_lead < max(1, Traits::kStages - 1) && tma_at.more(p); ++tma_lead) {
              mbarrier_wait(empty + tma_stage * 8, tma_phase);
              const uint32 bar = full + tma_stage * 8, to = stages + tma_stage * stage_bytes;
              mbarrier_arrive_expect_tx(bar, Traits::kTransactionBytes);
              tma_at.locate(p);
              const auto tile_coords = Index::tile_coords(p, tma_at.id.m, tma_at.id.n, tma_at.id.l);
              Index::load_stage(p, tile_coords, tma_at.kt, to, to + bytes_a, bar, {0, 1}, {0, 1});
              if (++tma_stage == Traits::kStages) { tma_stage = 0; tma_phase ^= 1; }
              tma_at.step(p);
            }
            --tma_lead;
          }
        }
        cp_async_wait<kDepth - 1>();
        __syncwarp();  // every lane's copies have landed
        mbarrier_wait(empty + stage * 8, phase);
        const auto k = Index::k_tile(p, store_at.kt);
        const bool whole = Index::k_whole(p, k);
        const uint32 to = stages + stage * stage_bytes;
        if constexpr (LoaderTraitsA::kGather) {
          a.store(p, k, whole, PiecesA::base(p) + store_origin_a + k.a * PiecesA::kE, at, to, warp, lane);
        }
        if constexpr (LoaderTraitsB::kGather) {
          b.store(p, k, whole, PiecesB::base(p) + store_origin_b + k.b * PiecesB::kE, at + kRingA, to + bytes_a, warp, lane);
        }
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) mbarrier_arrive(full + stage * 8);
        if (++stage == Traits::kStages) { stage = 0; phase ^= 1; }
        new_store_tile = store_at.step(p);
      }
      if (load_at.more(p)) {
        if (new_load_tile) {
          load_at.locate(p);
          int* const own = table + kTable;
          if constexpr (LoaderTraitsA::kGather) {
            load_origin_a = PiecesA::tabulate(p, load_at.id, own, warp, lane);
            a.plan_loads(own, lane);
          }
          if constexpr (LoaderTraitsB::kGather) {
            int* const to = own + PiecesA::kPer;
            load_origin_b = PiecesB::tabulate(p, load_at.id, to, warp, lane);
            b.plan_loads(to, lane);
          }
        }
        const auto k = Index::k_tile(p, load_at.kt);
        if constexpr (LoaderTraitsA::kGather) {
          a.load(PiecesA::base(p) + load_origin_a + k.a * PiecesA::kE, PiecesA::end(p), at, lane);
        }
        if constexpr (LoaderTraitsB::kGather) {
          b.load(PiecesB::base(p) + load_origin_b + k.b * PiecesB::kE, PiecesB::end(p), at + kRingA, lane);
        }
        new_load_tile = load_at.step(p);
      }
      cp_async_commit();
      if (++slot == kDepth) slot = 0;
    }
  }
};

// What the general door takes of a kernel's shared memory and adds to the arrivals of a full stage.
template <class Traits, class Index, bool kGather> struct GatherNeeds {
  static constexpr int kBytes = GatherLoader<Traits, Index>::kBytes;
  static constexpr int kArrivals = GatherLoader<Traits, Index>::kArrivals;
};
template <class Traits, class Index> struct GatherNeeds<Traits, Index, false> {
  static constexpr int kBytes = 0, kArrivals = 1;
};

}  // namespace gett
