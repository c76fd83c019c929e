// The general door of the Hopper family: operands whose strides no tensor map takes.
//
// A tensor map starts every copy at a multiple of 16 bytes, and so does cp.async; rows of odd extents start anywhere.
// The gathering warps therefore copy the aligned 16-byte chunks that cover a piece of a row, kRun elements, into a ring
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
  typedef Pieces<Traits, Index, kIsA> type;
};
template <class Traits, class Index, bool kIsA> struct PiecesOf<Traits, Index, kIsA, true, true> {
  typedef TurnedPieces<Traits, Index, kIsA> type;
};

template <class Traits, class Index> struct GatherProducer {
  typedef typename Traits::Params Params;
  typedef typename Traits::template Way<true> WayA;
  typedef typename Traits::template Way<false> WayB;
  typedef typename PiecesOf<Traits, Index, true, WayA::kGather, (WayA::kWide > 0)>::type PiecesA;
  typedef typename PiecesOf<Traits, Index, false, WayB::kGather, (WayB::kWide > 0)>::type PiecesB;
  static constexpr int kWarps = 4 * Traits::kProducers, kDepth = Traits::kRing;
  static constexpr int kRingA = PiecesA::kRingBytes, kRingB = PiecesB::kRingBytes;
  static constexpr int kTable = PiecesA::kPer + PiecesB::kPer;
  static constexpr int kWarpBytes = kDepth * (kRingA + kRingB) + (2 * kTable * 4 + 15) / 16 * 16;
  static constexpr int kBytes = kWarps * kWarpBytes;
  static constexpr bool kMixed = !WayA::kGather || !WayB::kGather;  // a tensor map brings the other operand
  static constexpr int kArrivals = kWarps + (kMixed ? 1 : 0);

  static GETT_DEVICE void run(const Params& p, char* smem, uint32 stages, int stage_bytes, int bytes_a, uint32 full,
                              uint32 empty, int thread) {
    const int warp = thread >> 5, lane = thread & 31;
    int* const table = reinterpret_cast<int*>(smem + warp * kWarpBytes + kDepth * (kRingA + kRingB));
    const uint32 ring = smem_address(smem) + warp * kWarpBytes;
    PiecesA a;
    PiecesB b;
    long long ahead_a = 0, ahead_b = 0, here_a = 0, here_b = 0;
    Walk<Params> ahead, here, bulk;
    ahead.open(p, blockIdx.x);
    here = bulk = ahead;
    bool new_ahead = true, new_here = true;
    int slot = 0, stage = 0, bulk_stage = 0, bulk_lead = 0;
    uint32 phase = 1, bulk_phase = 1;
    // The first kDepth rounds only load; then each round stores a k-tile and loads the one kDepth later in its place.
#pragma unroll 1
    for (int round = 0; here.more(p); ++round) {
      const uint32 at = ring + slot * (kRingA + kRingB);
      if (round >= kDepth) {
        if (new_here) {
          here.locate(p);
          if constexpr (WayA::kGather) {
            here_a = PiecesA::tabulate(p, here.id, table, warp, lane);
            a.plan_stores(table, lane);
          }
          if constexpr (WayB::kGather) {
            int* const to = table + PiecesA::kPer;
            here_b = PiecesB::tabulate(p, here.id, to, warp, lane);
            b.plan_stores(to, lane);
          }
        }
        if constexpr (kMixed) {
          // Copies by tensor map run ahead of the shifting, by as many stages as leave the consumers two.
          if (thread == 0) {
#pragma unroll 1
            for (; bulk_lead < max(1, Traits::kStages - 1) && bulk.more(p); ++bulk_lead) {
              barrier_wait(empty + bulk_stage * 8, bulk_phase);
              const uint32 bar = full + bulk_stage * 8, to = stages + bulk_stage * stage_bytes;
              barrier_expect(bar, Traits::kTransactionBytes);
              bulk.locate(p);
              const auto boxes = Index::boxes(p, bulk.id.m, bulk.id.n, bulk.id.l);
              Index::load(p, boxes, bulk.kt, to, to + bytes_a, bar, {0, 1}, {0, 1});
              if (++bulk_stage == Traits::kStages) { bulk_stage = 0; bulk_phase ^= 1; }
              bulk.step(p);
            }
            --bulk_lead;
          }
        }
        wait_copies<kDepth - 1>();
        __syncwarp();  // every lane's copies have landed
        barrier_wait(empty + stage * 8, phase);
        const auto k = Index::k_tile(p, here.kt);
        const bool whole = Index::k_whole(p, k);
        const uint32 to = stages + stage * stage_bytes;
        if constexpr (WayA::kGather) {
          a.store(p, k, whole, PiecesA::base(p) + here_a + k.a * PiecesA::kE, at, to, warp, lane);
        }
        if constexpr (WayB::kGather) {
          b.store(p, k, whole, PiecesB::base(p) + here_b + k.b * PiecesB::kE, at + kRingA, to + bytes_a, warp, lane);
        }
        async_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(full + stage * 8);
        if (++stage == Traits::kStages) { stage = 0; phase ^= 1; }
        new_here = here.step(p);
      }
      if (ahead.more(p)) {
        if (new_ahead) {
          ahead.locate(p);
          int* const own = table + kTable;
          if constexpr (WayA::kGather) {
            ahead_a = PiecesA::tabulate(p, ahead.id, own, warp, lane);
            a.plan_loads(own, lane);
          }
          if constexpr (WayB::kGather) {
            int* const to = own + PiecesA::kPer;
            ahead_b = PiecesB::tabulate(p, ahead.id, to, warp, lane);
            b.plan_loads(to, lane);
          }
        }
        const auto k = Index::k_tile(p, ahead.kt);
        if constexpr (WayA::kGather) {
          a.load(PiecesA::base(p) + ahead_a + k.a * PiecesA::kE, PiecesA::end(p), at, lane);
        }
        if constexpr (WayB::kGather) {
          b.load(PiecesB::base(p) + ahead_b + k.b * PiecesB::kE, PiecesB::end(p), at + kRingA, lane);
        }
        new_ahead = ahead.step(p);
      }
      commit_copies();
      if (++slot == kDepth) slot = 0;
    }
  }
};

// What the general door takes of a kernel's shared memory and adds to the arrivals of a full stage.
template <class Traits, class Index, bool kGather> struct GatherNeeds {
  static constexpr int kBytes = GatherProducer<Traits, Index>::kBytes;
  static constexpr int kArrivals = GatherProducer<Traits, Index>::kArrivals;
};
template <class Traits, class Index> struct GatherNeeds<Traits, Index, false> {
  static constexpr int kBytes = 0, kArrivals = 1;
};

}  // namespace gett
