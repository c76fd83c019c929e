// Crossed units: A's rows run along one contracted mode (k1), B's along another (k2). No descriptor says that, so A
// goes through registers, where pairs of k2 are joined; nothing is turned round in memory.
//
// A k-tile is kDepth of k1 times 16 or 32 of k2. A lies as [row][k2][k1] and makes room for the next k-tile as soon as
// it is in registers; B lies in slabs of one k1 each, [n][k2], one or two instructions deep, in a ring of kStages.
//
// kApart: rows of A come and go by warpgroup, each with barriers of its own. The warpgroups then run apart by up to
// the ring's depth, and one multiplies while the other's rows arrive. A warpgroup's share may be below 64 rows
// (kPadRun); the last of its 64 are then nobody's.
//
// kShared: two blocks, neighbours along N, need the same A. Each fetches its half of k2 from memory, and a warp of its own
// stores that to the other, too: L2 sees half as many requests for A. (A box for both would be sent row by row, and a row
// of 32 bytes takes longer that way than two; loads out of the other's memory bring 7 bytes a clock, these stores 19.)
//
// kSpread: two blocks, neighbours along M, need the same B, and take turns at fetching a slab for both.
//
// Rows are parts of L2's lines, whose other parts neighbouring k-tiles need. Slices of a split K therefore take k-tiles
// in turn: those under way at a time are neighbours, and lines do not leave L2 half used.
#pragma once
#include "gett/sm90_crossed_batch.cuh"
#include "gett/sm90_epilogue.cuh"

namespace gett {

template <class Traits, class Index, class Mma> struct Crossed {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  static constexpr int kSlots = Traits::kStages, kGroups = Traits::kConsumers;
  static constexpr int kN = Traits::kBlockN, kRows = Traits::kBlockM;
  static constexpr int kSpanA = Traits::WayA::kSpan, kSpanB = Traits::WayB::kSpan;
  static constexpr int kDepth = kSpanA / 2, kHalves = kSpanB / 32;  // k1 of a k-tile, instructions of a slab
  typedef Cluster<Traits> Team;
  static constexpr bool kShared = Team::kN == 2, kSpread = Team::kM == 2;
  typedef CrossedBatch<kSpanA, kHalves, kShared> Batch;
  static constexpr int kBatches = kDepth / Batch::kSteps;
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
  static constexpr bool kJoined = !Traits::kHasC || kN <= 192;  // wide tiles that add C are short of registers
  static constexpr int kSmemBytes = 1024 + kBytesA + kSlots * kSlab + 16 * kSlots + kShares * kBarsA + 8;
  static_assert(kSmemBytes <= Traits::kSmemBytes, "the schedule reserved too little shared memory");
  static_assert(kBatches > 0 && kRows == 64 * kGroups && Traits::kMi == 1, "tiles of crossed units");
  static_assert(Traits::kPieces % kShares == 0, "a copy of A is one warpgroup's");
  static_assert(kSpanB == 32 || kSpanB == 64, "k2 in runs of 16 or 32");
  static_assert(Team::kSize <= 2, "of two operands, one is shared by two blocks");
  static_assert(!kShared || (kHalves == 2 && Traits::kApart), "two blocks have a half of k2 each");
  static_assert(!kShared || Traits::kSplit, "nothing is staged where A was, for its other half may be on its way");
  // Rows of a slab are as long as the swizzle's span; eight of them are a unit.
  static constexpr uint64 kFixed = (uint64(8 * kSpanB / 16) << 32) | (uint64(kSpanB == 32 ? 3 : 2) << 62);

  // `share`: those of the first share; `free`: the staging buffer may be written, or, being A's place too, loaded.
  struct Bars { uint32 full, empty, share, free; };

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char raw[];
    const uint32 start = (smem_address(raw) + 1023) & ~1023u, slabs = start + kBytesA;
    const uint32 full = slabs + kSlots * kSlab, share = full + 16 * kSlots;
    const Bars bars = {full, full + 8 * kSlots, share, share + kShares * kBarsA};
    const int thread = threadIdx.x;
    if (thread == 0) {
      Index::prefetch(p);
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
    }
    Team::sync();
    if (thread < 128) {
      registers_down<Traits::kProducerRegs>();
      if (thread < 32 && elected()) produce_b(p, slabs, bars);
      if (thread >> 5 == 1 && elected()) produce_a(p, start, bars);
      if constexpr (Traits::kStoreBox) {
        if (thread >> 5 == 2) Epilogue<Traits, Index>::send(p, start, bars.free, 0, thread & 31);
      }
      if constexpr (kShared) {
        if (thread >= 64) send_a(p, start, bars, thread - 64);
      }
    } else {
      static_assert(registers_suffice(1, Traits::kProducerRegs, kGroups, Traits::kConsumerRegs), "of a block");
      registers_up<Traits::kConsumerRegs>();
      consume(p, raw + (start - smem_address(raw)), start, slabs, bars, thread - 128);
    }
    Team::finish();  // the other block may still arrive here
  }

  // Slices take k-tiles in turn. Without slices the compiler knows that all are one block's.
  static GETT_DEVICE int first_tile(int slice) { return Traits::kSplit ? slice : 0; }
  static GETT_DEVICE int tile_step(const Params& p) { return Traits::kSplit ? p.split_k : 1; }

  static GETT_DEVICE void produce_a(const Params& p, uint32 start, const Bars& bars) {
    uint32 phase = 1, phase_free = 0;
    const Team team;
    for (int t = Team::first(p); t < p.tiles; t += Team::step(), phase_free ^= 1) {
      const TileId id = team.locate(p, t);
      const auto at = Index::boxes_a(p, id.m, id.n, id.l);
      for (int kt = first_tile(id.slice); kt < p.k_tiles; kt += tile_step(p), phase ^= 1) {
        const auto k = Index::k_boxes_a(p, kt);
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
    for (int t = Team::first(p); t < p.tiles; t += Team::step()) {
      const TileId id = team.locate(p, t);
      for (int kt = first_tile(id.slice); kt < p.k_tiles; kt += tile_step(p), phase ^= 1) {
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
    for (int t = Team::first(p); t < p.tiles; t += Team::step()) {
      const TileId id = team.locate(p, t);
      const auto at = Index::boxes_b(p, id.m, id.n, id.l);
      for (int kt = first_tile(id.slice); kt < p.k_tiles; kt += tile_step(p)) {
        const auto k = Index::k_boxes_b(p, kt);
#pragma unroll 1
        for (int s = 0; s < kDepth; ++s) {
          barrier_wait(bars.empty + slot * 8, phase);
          barrier_expect(bars.full + slot * 8, Traits::kSlabBytes);
          if (!kSpread || s % 2 == team.m_) Index::load_b(p, at, k, s, slabs + slot * kSlab, bars.full + slot * 8);
          if (++slot == kSlots) { slot = 0; phase ^= 1; }
        }
      }
    }
  }

  // The fragments of step `s`: all, or those of half `h` of k2.
  static GETT_DEVICE void join(uint32 (&x)[kHalves][4], const Batch& batch, int s) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      join(x, batch, s, h);
#pragma unroll
      for (int q = 0; q < 4; ++q) asm volatile("" : "+r"(x[h][q]));
    }
  }
  static GETT_DEVICE void join(uint32 (&x)[kHalves][4], const Batch& batch, int s, int h) {
#pragma unroll
    for (int q = 0; q < 4; ++q) x[h][q] = batch.at(s, h, q);
  }

  // A warp needs the k-tile of A no more. Its loads are ordinary ones, so each warp speaks for itself.
  static GETT_DEVICE void leave(uint32 empty_a, int lane) {
    __syncwarp();
    if (kShared) Team::release(empty_a, lane & 31);
    else if ((lane & 31) == 0) barrier_arrive(empty_a);
  }
  // A warpgroup needs a slab of B no more.
  static GETT_DEVICE void leave_slab(uint32 empty, int lane) {
    if (kSpread) Team::release(empty, lane);
    else if (lane == 0) barrier_arrive(empty);
  }

  // Waits until a warpgroup's rows of A are here.
  static GETT_DEVICE void arrived(uint32 share, uint32 phase) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) barrier_wait(share + i * 8, phase);
    if (kShared) barrier_wait(share + kOther, phase);
  }

  static GETT_DEVICE void consume(const Params& p, char* smem, uint32 start, uint32 slabs, const Bars& bars,
                                  int thread) {
    const int group = thread >> 7, lane = thread & 127;
    // By a shuffle, so that the compiler knows that a warp's threads wait together, and serializes no products.
    const uint32 share = bars.share + (kShares == 1 ? 0 : __shfl_sync(0xffffffffu, group, 0) * kBarsA);
    Batch batch(group, lane);
    Epilogue<Traits, Index> epilogue(smem, bars.free, thread, group);
    uint32 phases = 0;  // bit 0: of slabs, bit 1: of A, bit 2: of the staging buffer (registers are short)
    int slot = 0;
    for (int t = Team::first(p); t < p.tiles; t += Team::step()) {
      // K-tiles to come.
      int left = p.k_tiles;
      if constexpr (Traits::kSplit) left = (p.k_tiles - Team().locate(p, t).slice + p.split_k - 1) / p.split_k;
      Acc acc[1][kN / 2];
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) acc[0][j] = Acc(0);
      arrived(share, phases >> 1 & 1);
      batch.fetch(start, 0, true);
      int before = -1;  // a slab that is still being read
      for (; left > 0; --left) {
        // D is staged where the last k-tile was: the next tile's A waits for the sender, or for those who store.
        const bool again = Traits::kSplit || Traits::kStoreBox || left > 1;
#pragma unroll 1
        for (int part = 0; part < 2 * kBatches; ++part) {
#pragma unroll
          for (int s = 0; s < Batch::kPart; ++s) {
            // Joined before the wait and opaque, so that the instructions of a slab make one group: else the compiler
            // joins between them and waits for each.
            uint32 x[kHalves][4];
            if constexpr (kJoined) join(x, batch, s);
            // By now the first pairs of all of a batch's vectors have been joined, so all of them have arrived.
            if (kJoined && s == 0 && part == 2 * kBatches - kHalves && again) leave(share + kEmptyA, lane);
            barrier_wait(bars.full + slot * 8, phases & 1);
            const uint64 at = kFixed | uint64(((slabs + slot * kSlab) & 0x3ffff) >> 4);
            wgmma_fence();
#pragma unroll
            for (int h = 0; h < kHalves; ++h) {
              if constexpr (!kJoined) join(x, batch, s, h);
              Mma::mma(acc[0], x[h][0], x[h][1], x[h][2], x[h][3], at + 2 * h);
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (before >= 0) leave_slab(bars.empty + before * 8, lane);
            before = slot;
            if (++slot == kSlots) { slot = 0; phases ^= 1; }
            if (!kJoined && s == 0 && part == 2 * kBatches - kHalves && again) leave(share + kEmptyA, lane);
          }
          if (part % 2 == 0) {
            batch.advance();
            continue;
          }
          const bool ends = part + 1 == 2 * kBatches;
          if (ends && left > 1) arrived(share, ~phases >> 1 & 1);
          batch.fetch(start, ends ? 0 : (part + 1) / 2, !ends || left > 1);
        }
        phases ^= 2;
      }
      wgmma_wait<0>();
      wgmma_keep(acc[0]);
      if (before >= 0) leave_slab(bars.empty + before * 8, lane);
      int tile = t;  // opaque: found again, not kept through the main loop
      asm volatile("" : "+r"(tile));
      const TileId id = Team().locate(p, tile);
      if constexpr (Traits::kSplit) {
        if (!Team::exists(p, id)) continue;
        const long long tiles = (long long)p.tiles_m * p.tiles_n;
        const long long place = ((long long)id.l * p.split_k + id.slice) * tiles + (long long)id.m * p.tiles_n + id.n;
        Acc* const to = p.workspace + place * (kRows * kN);
        const int row = group * 64 + (lane >> 5) * 16 + ((lane & 31) >> 2), column = (lane & 3) * 2;
#pragma unroll
        for (int j = 0; j < kN / 2; j += 2)
          Vec<Acc, 2>{{acc[0][j], acc[0][j + 1]}}.store(to + (row + (j & 2) * 4) * kN + j / 4 * 8 + column);
      } else {
        epilogue.prepare(p, id);
        if constexpr (Traits::kStoreBox) epilogue.sync();  // both warpgroups have read A
        int place = lane;  // opaque: where elements go is worked out here, not kept through the main loop
        asm volatile("" : "+r"(place));
        epilogue.phase_ = phases >> 2;
        phases ^= 4;
        epilogue.store(p, id, acc, group, place);
        if constexpr (!Traits::kStoreBox) {
          async_fence();
          epilogue.sync();
          leave(share + kEmptyA, lane);
        }
      }
    }
  }
};

}  // namespace gett
