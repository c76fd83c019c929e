// Crossed units, the fetching half: a block's shared memory, its barriers, and the warps that fill it. What A and B are and
// how they are shared is told in sm90_crossed.cuh.
#pragma once
#include "gett/epilogue/tma.cuh"
#include "gett/mainloop/wgmma_rs_fragment.cuh"
#include "gett/scheduler/k_tiles.cuh"

namespace gett {

template <class Traits, class Index> struct CrossedLoads {
  typedef typename Traits::Params Params;
  static constexpr int kSlots = Traits::kStages, kGroups = Traits::kConsumers;
  static constexpr int kN = Traits::kBlockN, kRows = Traits::kBlockM;
  static constexpr int kSpanA = Traits::WayA::kSpan, kSpanB = Traits::WayB::kSpan;
  static constexpr int kDepth = kSpanA / 2, kHalves = kSpanB / 32;  // k1 of a k-tile, instructions of a slab
  typedef Cluster<Traits> Team;
  static constexpr bool kShared = Team::kN == 2, kSpread = Team::kM == 2;
  typedef CrossedBatch<kSpanA, kHalves, kShared> Batch;
  static constexpr int kBatches = kDepth / Batch::kSteps, kParts = 2 * kBatches;
  typedef CrossedUnits<Traits, kDepth, kShared> Units;
  static constexpr int kSlab = kN * kSpanB;
  // D is staged where A was: the next tile's A has to wait for the stores, its B does not.
  static constexpr int kOffsets = Traits::kStoreBox ? 0 : Offsets<Traits>::kBytes;
  static constexpr int kStaging = Traits::kSplit ? 0 : Epilogue<Traits, Index>::kStaging + kOffsets;
  static constexpr int kLoaded = kGroups * Batch::kGroupBytes;
  static constexpr int kBytesA = ((kLoaded > kStaging ? kLoaded : kStaging) + 1023) / 1024 * 1024;
  static constexpr int kShares = Traits::kApart ? kGroups : 1, kShare = kLoaded / kShares;  // of A, with own barriers
  // Copies of a share, which is filled whole or, where blocks share A, to half; those that have barriers of their own.
  static constexpr int kPer = Traits::kPieces / kShares, kOwn = kShared ? kPer : 1;
  // Barriers of a share, by bytes from the first: copies that have arrived; the warpgroup's rows are read (by all blocks
  // that need them); the other block's half has arrived.
  static constexpr int kEmptyA = 8 * kOwn, kOther = kEmptyA + 8, kBarsA = kShared ? kOther + 8 : kOther;
  static constexpr int kSmemBytes = 1024 + kBytesA + kSlots * kSlab + 16 * kSlots + kShares * kBarsA + 8;
  static_assert(kSmemBytes <= Traits::kSmemBytes, "the schedule reserved too little shared memory");
  static_assert(kBatches > 0 && kRows == 64 * kGroups && Traits::kMi == 1, "tiles of crossed units");
  static_assert(Traits::kPieces % kShares == 0, "a copy of A is one warpgroup's");
  static_assert(kSpanB == 32 || kSpanB == 64, "k2 in runs of 16 or 32");
  static_assert(Team::kSize <= 2, "of two operands, one is shared by two blocks");
  static_assert(!kShared || (kHalves == 2 && Traits::kApart), "two blocks have a half of k2 each");
  static_assert(!kShared || Traits::kSplit, "nothing is staged where A was, for its other half may be on its way");
  // `share`: those of the first share; `free`: the staging buffer may be written, or, being A's place too, loaded.
  struct Bars { uint32 full, empty, share, free; };

  static GETT_DEVICE Bars init(uint32 start, int thread) {
    const uint32 full = start + kBytesA + kSlots * kSlab, share = full + 16 * kSlots;
    const Bars bars = {full, full + 8 * kSlots, share, share + kShares * kBarsA};
    if (thread != 0) return bars;
    for (int s = 0; s < kSlots; ++s) {
      barrier_init(bars.full + s * 8, 1);
      barrier_init(bars.empty + s * 8, kGroups * Team::kM);
    }
    for (int s = 0; s < kShares; ++s) {
      const uint32 bar = bars.share + s * kBarsA;
      for (int i = 0; i < kOwn; ++i) barrier_init(bar + i * 8, 1);
      barrier_init(bar + kEmptyA, kGroups / kShares * 4 * Team::kN);
      if (kShared) barrier_init(bar + kOther, 1);
    }
    barrier_init(bars.free, 1);
    barrier_fence();
    return bars;
  }

  static GETT_DEVICE void produce_a(const Params& p, uint32 start, const Bars& bars) {
    uint32 phase = 1, phase_free = 0;
    const Team team;
    for (int t = Team::first(p); t < p.tiles; t += Team::step(p), phase_free ^= 1) {
      const TileId id = team.locate(p, t);
      const auto at = Index::boxes_a(p, id.m, id.n, id.l);
      const Units units(p, id.slice);
      for (int at_k = 0; at_k < units.count_; ++at_k, phase ^= 1) {
        const auto k = Index::k_boxes_a(p, units.tile(p, at_k));
        // The last share first: D may be staged before it, and it need not wait until D has left. That the tile before
        // has left is waited for with every k-tile, for the barrier cannot move on before this tile is staged.
#pragma unroll
        for (int s = kShares - 1; s >= 0; --s) {
          const uint32 bar = bars.share + s * kBarsA;
          if (Traits::kStoreBox && s * kShare < kStaging) barrier_wait(bars.free, phase_free);
          barrier_wait(bar + kEmptyA, phase);
          const uint32 to = start + s * kShare + (kShared ? team.n_ * (kShare / 2) : 0);
          if (kShared) barrier_expect(bar + kOther, Traits::kPieceBytes * kPer);
          else barrier_expect(bar, Traits::kPieceBytes * kPer);
          // In pieces, so that slabs of B get their turn.
#pragma unroll 1
          for (int i = 0; i < kPer; ++i) {
            if (kShared) barrier_expect(bar + i * 8, Traits::kPieceBytes);
            Index::load_a(p, at, k, team.n_, s * kPer + i, to + i * Traits::kPieceBytes, bar + (kShared ? i * 8 : 0));
          }
        }
      }
    }
  }

  // Sends this block's half of A to where the other block has room for it. It has: its warps, too, have said that they
  // need the k-tile before no more, else this half would not have been fetched.
  // By ordinary loads and stores: the copy engine is what limits these kernels. Two warps do it, else it is this that
  // the other block waits for.
  static GETT_DEVICE void send_a(const Params& p, uint32 start, const Bars& bars, int lane) {
    const Team team;
    const uint32 there = address_at(start, team.n_ ^ 1) - start;
    uint32 phase = 0;
    for (int t = Team::first(p); t < p.tiles; t += Team::step(p)) {
      const int count = Units(p, team.locate(p, t).slice).count_;
      for (int at_k = 0; at_k < count; ++at_k, phase ^= 1) {
#pragma unroll 1
        for (int s = kShares - 1; s >= 0; --s) {
          uint32 from = start + s * kShare + team.n_ * (kShare / 2) + lane * 16;
          const uint32 bar = bars.share + s * kBarsA;
#pragma unroll 1
          for (int i = 0; i < kPer; ++i) {
            barrier_wait(bar + i * 8, phase);
#pragma unroll 1
            for (int row = 0; row < kPieceRows; row += kVectors, from += kVectors * kRowSent)
              send_rows(there + from, from, there + bar + kOther);
          }
        }
      }
    }
  }

  static constexpr int kSenders = 64, kRowSent = kSenders * 16, kPieceRows = Traits::kPieceBytes / kRowSent;
  static constexpr int kVectors = kPieceRows % 4 == 0 ? 4 : kPieceRows % 3 == 0 ? 3 : 1;  // of a lane at a time
  static_assert(!kShared || Traits::kPieceBytes % kRowSent == 0, "whole vectors of all senders");
  static GETT_DEVICE void send_rows(uint32 to, uint32 from, uint32 bar) {
    uint32 x[kVectors][4];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) shared_load(from + j * kRowSent, x[j], true);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) send_vector(to + j * kRowSent, x[j], bar);
  }

  static GETT_DEVICE void produce_b(const Params& p, uint32 slabs, const Bars& bars) {
    int slot = 0;
    uint32 phase = 1;
    const Team team;
    for (int t = Team::first(p); t < p.tiles; t += Team::step(p)) {
      const TileId id = team.locate(p, t);
      const auto at = Index::boxes_b(p, id.m, id.n, id.l);
      const Units units(p, id.slice);
      for (int at_k = 0; at_k < units.count_; ++at_k) {
        const auto k = Index::k_boxes_b(p, units.tile(p, at_k));
        const int first = units.first(at_k), end = first + units.steps(at_k);
#pragma unroll 1
        for (int s = first; s < end; ++s) {
          barrier_wait(bars.empty + slot * 8, phase);
          barrier_expect(bars.full + slot * 8, Traits::kSlabBytes);
          if (!kSpread || s % 2 == team.m_) Index::load_b(p, at, k, s, slabs + slot * kSlab, bars.full + slot * 8);
          if (++slot == kSlots) { slot = 0; phase ^= 1; }
        }
      }
    }
  }
};

}  // namespace gett
