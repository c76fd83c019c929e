// The main loop of wgmma with A from registers (RS), for operands whose contiguous modes are two contracted modes. A's
// rows run along k1, B's along k2. No matrix descriptor expresses that, so A comes from registers, where pairs of k2
// are packed (of TF32 nothing is). No tile is transposed in memory. Its producers are two warps, and two more where A
// is forwarded (loader/wgmma_rs.cuh).
//
// A k-tile is kDepth of k1 times the k2 of one instruction or two. A lies as [row][k2][k1], and its place is free for
// the next k-tile as soon as it is in registers. B lies as [n][k2] for one k1 at a time, one or two instructions deep,
// in a ring of kStages.
//
// kPerWarpgroupA: the rows of A are loaded and released by warpgroup, with mbarriers of each. The warpgroups then
// differ by up to the depth of the ring, and one multiplies while the other's rows arrive. A warpgroup may have fewer
// than 64 rows (kGroupValidRows); the rest of its 64 are padding.
//
// kForwardA: two blocks that are neighbours along N need the same A. Each loads its half of k2 from memory and forwards
// it to the other (WgmmaRSLoader::forward_a), so L2 has half as many requests for A. A multicast would be sent row by
// row, and a row of 32 bytes takes longer that way than two. Loads from the other's memory bring 7 bytes a clock, these
// stores 19.
//
// kMulticastB: two blocks that are neighbours along M need the same B. They take turns in loading a stage for both.
#pragma once
#include "gett/contract/loops.cuh"
#include "gett/core/fragment.cuh"
#include "gett/core/vec.cuh"
#include "gett/loader/wgmma_rs.cuh"
#include "gett/mainloop/tile_sums.cuh"
#include "gett/ptx/wgmma.cuh"

namespace gett {

template <class Traits, class Index, class Mma, class Store, class Scheduler, class Smem>
  GETT_REQUIRES(contract::WgmmaRS<Traits, Index, Smem>)
struct WgmmaRS {
  typedef WgmmaRSLoader<Traits, Index, Store, Scheduler, Smem> Loader;
  typedef typename Loader::Params Params;
  typedef typename Loader::Fragments Fragments;
  typedef typename Loader::KTiles KTiles;
  typedef typename Loader::Bars Bars;
  typedef typename Loader::Storage Storage;
  typedef TileSums<Traits, Store, Scheduler> Sums;
  static constexpr int kN = Loader::kN, kGroups = Loader::kGroups, kStages = Loader::kStages;
  static constexpr int kHalves = Loader::kHalves, kParts = Loader::kParts;
  static constexpr int kEmptyA = Loader::kEmptyA, kBarsA = Loader::kBarsA, kSharesA = Loader::kSharesA;
  static constexpr bool kForwardA = Loader::kForwardA;
  // The needs of the loaders: warps, before which no store warp stands, and registers of a thread.
  static constexpr int kProducerWarpgroups = 1, kConsumerWarpgroups = kGroups, kLoadWarps = 2;
  static constexpr int kProducerRegs = Traits::kProducerRegs, kConsumerRegs = Traits::kConsumerRegs;
  // Fragments are packed before the wait for B. Wide tiles that add C from vectors lack the registers.
  static constexpr bool kPackEarly = !Store::kVectorSource || kN <= 192;
  // The matrix descriptor of B: rows are as long as the swizzle's, and eight of them are an atom.
  static constexpr int kSwizzleBytesB = Loader::kSwizzleBytesB;
  static constexpr uint64 kDescriptor =
      (uint64(8 * kSwizzleBytesB / 16) << 32) | (uint64(kSwizzleBytesB == 32 ? 3 : 2) << 62);

  // The store warp of a staging buffer.
  template <class Epilogue> static GETT_DEVICE void store(const Params& p, const Storage& smem, int buffer, int lane) {
    Epilogue::store_loop(p, smem.staging(buffer), smem.free(buffer), buffer, lane);
  }
  static GETT_DEVICE void prefetch_tensormaps(const Params& p) { Index::prefetch_tensormaps(p); }

  // The warps of the producer warpgroup.
  static GETT_DEVICE void load(const Params& p, const Storage& smem, char*, int thread) {
    const Bars bars = smem.bars();
    if (thread < 32 && elect_one()) Loader::produce_b(p, smem.stages_b(), bars);
    if (thread >> 5 == 1 && elect_one()) Loader::produce_a(p, smem.start, bars);
    if constexpr (kForwardA) {
      if (thread >= 64) Loader::forward_a(p, smem.start, bars, thread - 64);
    }
  }

  // The fragments of step `s`: all of them, or those of half `h` of k2.
  static GETT_DEVICE void pack(uint32 (&x)[kHalves][4], const Fragments& a, int s) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      pack(x, a, s, h);
#pragma unroll
      for (int q = 0; q < 4; ++q) x[h][q] = opaque(x[h][q]);
    }
  }
  static GETT_DEVICE void pack(uint32 (&x)[kHalves][4], const Fragments& a, int s, int h) {
#pragma unroll
    for (int q = 0; q < 4; ++q) x[h][q] = a.at(s, h, q);
  }

  // A warp has read the k-tile of A. It did so by ordinary loads, so each warp arrives by itself.
  static GETT_DEVICE void release_a(uint32 empty_a, int lane) {
    __syncwarp();
    if (kForwardA) Scheduler::release(empty_a, lane & 31);
    else if ((lane & 31) == 0) mbarrier_arrive(empty_a);
  }
  // A warpgroup has multiplied with a stage of B.
  static GETT_DEVICE void release_b(uint32 empty, int lane) {
    if (Loader::kMulticastB) Scheduler::release(empty, lane);
    else if (lane == 0) mbarrier_arrive(empty);
  }
  // Waits until a warpgroup's rows of A have arrived.
  static GETT_DEVICE void wait_a(uint32 share, uint32 phase) {
#pragma unroll
    for (int i = 0; i < Loader::kOwn; ++i) mbarrier_wait(share + i * 8, phase);
    if (kForwardA) mbarrier_wait(share + Loader::kForwardedA, phase);
  }

  // The consumer warpgroups; `base` is the generic address of `smem.start`.
  static GETT_DEVICE void consume(const Params& p, const Storage& smem, char* base, int thread) {
    const uint32 start = smem.start, stages_b = smem.stages_b();
    const Bars bars = smem.bars();
    const int group = thread >> 7, lane = thread & 127;
    // The shuffle tells the compiler that the threads of a warp wait for the same barrier; else it would serialise
    // wgmma.
    const uint32 share = bars.share + (kSharesA == 1 ? 0 : __shfl_sync(0xffffffffu, group, 0) * kBarsA);
    Fragments a(group, lane);
    Store epilogue(base, bars.free, thread, group);
    // The phases of B's stages (bit 0), of A (bit 1) and of the staging buffer (bit 2), in one register.
    uint32 phases = 0;
    int stage = 0;
    const int last = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < last; t += Scheduler::step(p)) {
      const KTiles k_tiles(p, t, Scheduler::kSplit ? Scheduler().locate(p, t).slice : 0);
      int left = k_tiles.count_;  // the last of which may be a part of one
      if (Scheduler::kParts > 0 && left == 0) continue;  // a share that ends with its first tile
      const int first = k_tiles.first(left - 1) / Fragments::kPart;
      const int end = first + k_tiles.steps(left - 1) / Fragments::kPart;
      typename Sums::Accumulators acc;
      Sums::zero(acc);
      wait_a(share, phases >> 1 & 1);
      a.load(start, kForwardA && left == 1 ? first / 2 : 0, true);
      int before = -1;  // the stage of B that is still being read
      for (; left > 0; --left) {
        // D is staged where the last k-tile was: the next tile's A waits for the store warp, or for the consumers'
        // stores.
        const bool again = Scheduler::kSplit || Store::kTmaStore || left > 1;
        const bool cut = kForwardA && left == 1;
        bool held = true;  // the k-tile's rows of A
        const int parts = cut ? end : kParts;
        int part = cut ? first : 0;
        bool ends;
#pragma unroll 1
        do {
          ends = part + 1 == parts;
          if constexpr (kForwardA) {
            a.select(part % 2);
            if (part % 2 && !ends) a.load(start, (part + 1) / 2, true);
          }
#pragma unroll
          for (int s = 0; s < Fragments::kPart; ++s) {
            // Packed before the wait and opaque, so that the instructions of a stage form one group. Else the compiler
            // packs between them and waits for each.
            uint32 x[kHalves][4];
            if constexpr (kPackEarly) pack(x, a, s);
            // ptxas may let an arrival pass the loads before it: its address depends on them. Nothing is added, since
            // phases are never negative.
            const bool read = !kForwardA && s == 0 && part == kParts - kHalves && again;
            const uint32 empty = share + kEmptyA + (a.loaded() & phases >> 31);
            if (kPackEarly && read) release_a(empty, lane);
            mbarrier_wait(bars.full + stage * 8, phases & 1);
            const uint64 b = kDescriptor | uint64(((stages_b + stage * Loader::kStageB) & 0x3ffff) >> 4);
            wgmma_fence();
#pragma unroll
            for (int h = 0; h < kHalves; ++h) {
              if constexpr (!kPackEarly) pack(x, a, s, h);
              Mma::mma(acc[0], x[h][0], x[h][1], x[h][2], x[h][3], b + 2 * h);
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (before >= 0) release_b(bars.empty + before * 8, lane);
            before = stage;
            if (++stage == kStages) { stage = 0; phases ^= 1; }
            if (!kPackEarly && read) release_a(empty, lane);
            if (kForwardA && s == 1 && held && part >= kParts - 3) {
              // The address depends on a register of the last batch, so the arrival comes after its loads.
              release_a(share + kEmptyA + (a.last() & phases >> 31), lane);
              held = false;
            }
          }
          if (!kForwardA && part % 2 == 0) a.advance();
          if (kForwardA ? ends : part % 2) {
            if (ends && left > 1) wait_a(share, ~phases >> 1 & 1);
            const int next = !ends ? (part + 1) / 2 : kForwardA && left == 2 ? first / 2 : 0;
            a.load(start, next, !ends || left > 1);
          }
          ++part;
        } while (!ends);
        if (kForwardA && held) release_a(share + kEmptyA, lane);
        phases ^= 2;
      }
      wgmma_wait<0>();
      wgmma_fence_operand(acc[0]);
      if (before >= 0) release_b(bars.empty + before * 8, lane);
      const TileId id = Scheduler().locate(p, opaque(t));  // located again, not kept through the main loop
      if constexpr (Scheduler::kSplit) {
        if (Scheduler::exists(p, id)) Sums::leave_part(p, Scheduler(), id, t, acc, group, lane);
      } else if (Sums::leave_part(p, Scheduler(), id, t, acc, group, lane)) {
        if (!Store::kTmaStore) release_a(share + kEmptyA, lane);
      } else {
        epilogue.prepare(p, id);
        if constexpr (Store::kTmaStore) {
          epilogue.sync();  // both warpgroups have read A
          epilogue.phase_ = phases >> 2;
        }
        phases ^= 4;
        epilogue.store(p, id, acc, group, opaque(lane));  // places are computed here, not kept through the main loop
        if constexpr (!Store::kTmaStore) {
          fence_proxy_async();
          epilogue.sync();
          release_a(share + kEmptyA, lane);
        }
      }
    }
  }
};

}  // namespace gett
