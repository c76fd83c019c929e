// Crossed units: A's rows run along one contracted mode (k1), B's along another (k2). No descriptor says that, so A
// goes through registers, where pairs of k2 are joined; nothing is turned round in memory.
//
// A k-tile is kDepth of k1 times 16 or 32 of k2. A lies as [row][k2][k1] and makes room for the next k-tile as soon as
// it is in registers; B lies in slabs of one k1 each, [n][k2], one or two instructions deep, in a ring of kStages.
//
// kPerWarpgroupA: rows of A come and go by warpgroup, each with barriers of its own. The warpgroups then run apart by up to
// the ring's depth, and one multiplies while the other's rows arrive. A warpgroup's share may be below 64 rows
// (kGroupValidRows); the last of its 64 are then nobody's.
//
// kForwardA: two blocks, neighbours along N, need the same A. Each fetches its half of k2 from memory, and warps of its own
// store that to the other, too: L2 sees half as many requests for A. (A box for both would be sent row by row, and a row
// of 32 bytes takes longer that way than two; loads out of the other's memory bring 7 bytes a clock, these stores 19.)
//
// kMulticastB: two blocks, neighbours along M, need the same B, and take turns at fetching a slab for both.
#pragma once
#include "gett/loader/wgmma_rs.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/wgmma.cuh"

namespace gett {

template <class Traits, class Index, class Mma> struct WgmmaRSGemm {
  typedef WgmmaRSLoader<Traits, Index> Loads;
  typedef typename Loads::Params Params;
  typedef typename Loads::Scheduler Scheduler;
  typedef typename Loads::Batch Batch;
  typedef typename Loads::Units Units;
  typedef typename Loads::Bars Bars;
  typedef typename Traits::Acc Acc;
  static constexpr int kN = Loads::kN, kGroups = Loads::kGroups, kSlots = Loads::kSlots, kSlab = Loads::kSlab;
  static constexpr int kHalves = Loads::kHalves, kParts = Loads::kParts, kRows = Loads::kRows;
  static constexpr int kSwizzleBytesB = Loads::kSwizzleBytesB, kEmptyA = Loads::kEmptyA, kBarsA = Loads::kBarsA, kSharesA = Loads::kSharesA;
  static constexpr bool kForwardA = Loads::kForwardA, kMulticastB = Loads::kMulticastB;
  static constexpr bool kJoined = Traits::kSourceC != kSourceVector || kN <= 192;  // wide tiles that add C are short of registers
  // Rows of a slab are as long as the swizzle's span; eight of them are a unit.
  static constexpr uint64 kFixed = (uint64(8 * kSwizzleBytesB / 16) << 32) | (uint64(kSwizzleBytesB == 32 ? 3 : 2) << 62);

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char raw[];
    const uint32 start = (smem_address(raw) + 1023) & ~1023u, slabs = start + Loads::kBytesA;
    const int thread = threadIdx.x;
    if (thread == 0) Index::prefetch_tensormaps(p);
    const Bars bars = Loads::init(start, thread);
    Scheduler::sync();
    if (thread < 128) {
      setmaxnreg_dec<Traits::kProducerRegs>();
      if (thread < 32 && elect_one()) Loads::produce_b(p, slabs, bars);
      if (thread >> 5 == 1 && elect_one()) Loads::produce_a(p, start, bars);
      if constexpr (Traits::kTmaStore) {
        if (thread >> 5 == 2) Epilogue<Traits, Index>::store_loop(p, start, bars.free, 0, thread & 31);
      }
      if constexpr (kForwardA) {
        if (thread >= 64) Loads::forward_a(p, start, bars, thread - 64);
      }
    } else {
      static_assert(setmaxnreg_fits(1, Traits::kProducerRegs, kGroups, Traits::kConsumerRegs), "of a block");
      setmaxnreg_inc<Traits::kConsumerRegs>();
      consume(p, raw + (start - smem_address(raw)), start, slabs, bars, thread - 128);
    }
    Scheduler::finish();  // the other block may still arrive here
  }

  // The fragments of step `s`: all, or those of half `h` of k2.
  static GETT_DEVICE void pack(uint32 (&x)[kHalves][4], const Batch& batch, int s) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      pack(x, batch, s, h);
#pragma unroll
      for (int q = 0; q < 4; ++q) asm volatile("" : "+r"(x[h][q]));
    }
  }
  static GETT_DEVICE void pack(uint32 (&x)[kHalves][4], const Batch& batch, int s, int h) {
#pragma unroll
    for (int q = 0; q < 4; ++q) x[h][q] = batch.at(s, h, q);
  }

  // A warp needs the k-tile of A no more. Its loads are ordinary ones, so each warp speaks for itself.
  static GETT_DEVICE void release_a(uint32 empty_a, int lane) {
    __syncwarp();
    if (kForwardA) Scheduler::release(empty_a, lane & 31);
    else if ((lane & 31) == 0) mbarrier_arrive(empty_a);
  }
  // A warpgroup needs a slab of B no more.
  static GETT_DEVICE void release_b(uint32 empty, int lane) {
    if (kMulticastB) Scheduler::release(empty, lane);
    else if (lane == 0) mbarrier_arrive(empty);
  }

  // Waits until a warpgroup's rows of A are here.
  static GETT_DEVICE void wait_a(uint32 share, uint32 phase) {
#pragma unroll
    for (int i = 0; i < Loads::kOwn; ++i) mbarrier_wait(share + i * 8, phase);
    if (kForwardA) mbarrier_wait(share + Loads::kForwardedA, phase);
  }

  static GETT_DEVICE void consume(const Params& p, char* smem, uint32 start, uint32 slabs, const Bars& bars,
                                  int thread) {
    const int group = thread >> 7, lane = thread & 127;
    // By a shuffle, so that the compiler knows that a warp's threads wait together, and serializes no products.
    const uint32 share = bars.share + (kSharesA == 1 ? 0 : __shfl_sync(0xffffffffu, group, 0) * kBarsA);
    Batch batch(group, lane);
    Epilogue<Traits, Index> epilogue(smem, bars.free, thread, group);
    uint32 phases = 0;  // bit 0: of slabs, bit 1: of A, bit 2: of the staging buffer (registers are short)
    int slot = 0;
    for (int t = Scheduler::first(p); t < p.tiles; t += Scheduler::step(p)) {
      // K-tiles to come, the last of which may be a part of one.
      const Units units(p, Traits::kSplit ? Scheduler().locate(p, t).slice : 0);
      int left = units.count_;
      const int first = units.first(left - 1) / Batch::kPart, end = first + units.steps(left - 1) / Batch::kPart;
      Acc acc[1][kN / 2];
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) acc[0][j] = Acc(0);
      wait_a(share, phases >> 1 & 1);
      batch.load(start, kForwardA && left == 1 ? first / 2 : 0, true);
      int before = -1;  // a slab that is still being read
      for (; left > 0; --left) {
        // D is staged where the last k-tile was: the next tile's A waits for the sender, or for those who store.
        const bool again = Traits::kSplit || Traits::kTmaStore || left > 1;
        const bool cut = kForwardA && left == 1;
        bool held = true;  // the k-tile's rows of A
        const int parts = cut ? end : kParts;
        int part = cut ? first : 0;
        bool ends;
#pragma unroll 1
        do {
          ends = part + 1 == parts;
          if constexpr (kForwardA) {
            batch.select(part % 2);
            if (part % 2 && !ends) batch.load(start, (part + 1) / 2, true);
          }
#pragma unroll
          for (int s = 0; s < Batch::kPart; ++s) {
            // Joined before the wait and opaque, so that the instructions of a slab make one group: else the compiler
            // joins between them and waits for each.
            uint32 x[kHalves][4];
            if constexpr (kJoined) pack(x, batch, s);
            // By now the first pairs of all of a batch's vectors have been joined, so all of them have arrived.
            const bool read = !kForwardA && s == 0 && part == kParts - kHalves && again;
            if (kJoined && read) release_a(share + kEmptyA, lane);
            mbarrier_wait(bars.full + slot * 8, phases & 1);
            const uint64 at = kFixed | uint64(((slabs + slot * kSlab) & 0x3ffff) >> 4);
            wgmma_fence();
#pragma unroll
            for (int h = 0; h < kHalves; ++h) {
              if constexpr (!kJoined) pack(x, batch, s, h);
              Mma::mma(acc[0], x[h][0], x[h][1], x[h][2], x[h][3], at + 2 * h);
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (before >= 0) release_b(bars.empty + before * 8, lane);
            before = slot;
            if (++slot == kSlots) { slot = 0; phases ^= 1; }
            if (!kJoined && read) release_a(share + kEmptyA, lane);
            if (kForwardA && s == 1 && held && part >= kParts - 3) {  // the last batch has been fetched: see that it is here
              release_a(share + kEmptyA + (batch.last() & phases >> 31), lane);
              held = false;
            }
          }
          if (!kForwardA && part % 2 == 0) batch.advance();
          if (kForwardA ? ends : part % 2) {
            if (ends && left > 1) wait_a(share, ~phases >> 1 & 1);
            const int next = !ends ? (part + 1) / 2 : kForwardA && left == 2 ? first / 2 : 0;
            batch.load(start, next, !ends || left > 1);
          }
          ++part;
        } while (!ends);
        if (kForwardA && held) release_a(share + kEmptyA, lane);
        phases ^= 2;
      }
      wgmma_wait<0>();
      wgmma_fence_operand(acc[0]);
      if (before >= 0) release_b(bars.empty + before * 8, lane);
      int tile = t;  // opaque: found again, not kept through the main loop
      asm volatile("" : "+r"(tile));
      const TileId id = Scheduler().locate(p, tile);
      if constexpr (Traits::kSplit) {
        if (!Scheduler::exists(p, id)) continue;
        const long long tiles = (long long)p.tiles_m * p.tiles_n;
        const long long place = ((long long)id.l * p.split_k + id.slice) * tiles + (long long)id.m * p.tiles_n + id.n;
        Acc* const to = p.workspace + place * (kRows * kN);
        const int row = group * 64 + (lane >> 5) * 16 + ((lane & 31) >> 2), column = (lane & 3) * 2;
#pragma unroll
        for (int j = 0; j < kN / 2; j += 2)
          Vec<Acc, 2>{{acc[0][j], acc[0][j + 1]}}.store(to + (row + (j & 2) * 4) * kN + j / 4 * 8 + column);
      } else {
        epilogue.prepare(p, id);
        if constexpr (Traits::kTmaStore) epilogue.sync();  // both warpgroups have read A
        int place = lane;  // opaque: where elements go is worked out here, not kept through the main loop
        asm volatile("" : "+r"(place));
        epilogue.phase_ = phases >> 2;
        phases ^= 4;
        epilogue.store(p, id, acc, group, place);
        if constexpr (!Traits::kTmaStore) {
          fence_proxy_async();
          epilogue.sync();
          release_a(share + kEmptyA, lane);
        }
      }
    }
  }
};

}  // namespace gett
