// Crossed units: A's rows run along one contracted mode (k1), B's along another (k2). No descriptor says that, so A
// goes through registers, where pairs of k2 are joined; nothing is turned round in memory.
//
// A k-tile is kDepth of k1 times 16 or 32 of k2. A lies as [row][k2][kDepth of k1] and stays until all of it is in
// registers; B lies in slabs of one k1 each, [n][k2], one or two instructions deep, in a ring of kStages.
// The kRanks blocks of a cluster stand below each other in M and share B: they take turns at sending a slab to all.
#pragma once
#include "gett/sm90_epilogue.cuh"

namespace gett {

typedef unsigned short uint16;

// What a cluster needs beyond a block's barriers.
template <int kRanks> struct Cluster {
  static GETT_DEVICE int rank() {
    uint32 r = 0;
    if constexpr (kRanks > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return int(r);
  }
  static GETT_DEVICE void sync() {
    if constexpr (kRanks > 1) {
      asm volatile("barrier.cluster.arrive.release;" ::: "memory");
      asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    } else {
      __syncthreads();
    }
  }
  // Arrives at the same barrier of block `rank`.
  static GETT_DEVICE void arrive(uint32 bar, int rank) {
    if constexpr (kRanks > 1) {
      asm volatile(
          "{\n.reg .b32 there;\n"
          "mapa.shared::cluster.u32 there, %0, %1;\n"
          "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
          "}\n" ::"r"(bar), "r"(rank) : "memory");
    } else {
      barrier_arrive(bar);
    }
  }
};

// A box that arrives at the same place and barrier in every block of the mask.
GETT_DEVICE void send_box(uint32 to, const TensorMap* map, uint32 bar, uint16 blocks, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to), "l"(map), "r"(bar), "h"(blocks), "r"(c0), "r"(c1) : "memory");
}
GETT_DEVICE void send_box(uint32 to, const TensorMap* map, uint32 bar, uint16 blocks, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(to), "l"(map), "r"(bar), "h"(blocks), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
GETT_DEVICE void send_box(uint32 to, const TensorMap* map, uint32 bar, uint16 blocks, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(to), "l"(map), "r"(bar), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
GETT_DEVICE void send_box(uint32 to, const TensorMap* map, uint32 bar, uint16 blocks, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(to), "l"(map), "r"(bar), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}

GETT_DEVICE void shared_load(uint32 from, uint32 (&x)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
}

// Fragments of A for eight k1 and kHalves times 16 of k2. Lane 4g + t needs (k2 = 2t, 2t + 1) and (2t + 8, 2t + 9) of
// rows g and g + 8: vectors along k1 of two neighbouring k2, whose halves are joined. Odd g read the odd k2 first, so
// that eight lanes meet eight different banks under the copy's swizzle.
template <int kSpan, int kHalves> struct CrossedA {
  static constexpr int kRowBytes = 16 * kHalves * kSpan;
  uint32 even_, odd_, low_, high_;

  GETT_DEVICE CrossedA(int group, int lane) {
    const int g = (lane & 31) >> 2, t = lane & 3, turned = g & 1;
    const uint32 row = (group * 64 + (lane >> 5) * 16 + g) * kRowBytes;
    even_ = swizzled(row + (2 * t + turned) * kSpan);
    odd_ = swizzled(row + (2 * t + (turned ^ 1)) * kSpan);
    low_ = turned ? 0x1054 : 0x5410;
    high_ = turned ? 0x3276 : 0x7632;
  }
  static GETT_DEVICE uint32 swizzled(uint32 at) { return at ^ ((at >> 3) & ((kSpan / 16 - 1) * 16)); }

  // The raw vectors of k1 = 8c to 8c + 7 in one half.
  GETT_DEVICE void fetch(uint32 tile, int c, int half, uint32 (&x)[8][4]) const {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const uint32 at = tile + (q & 1) * 8 * kRowBytes + ((q >> 1) * 8 + half * 16) * kSpan;
      shared_load(at + (even_ ^ (c * 16)), x[2 * q]);
      shared_load(at + (odd_ ^ (c * 16)), x[2 * q + 1]);
    }
  }
  // In place: x[2q] and x[2q + 1], word w, become register q of k1 = 2w and 2w + 1.
  GETT_DEVICE void join(uint32 (&x)[8][4]) const {
#pragma unroll
    for (int q = 0; q < 4; ++q)
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const uint32 u = x[2 * q][w], v = x[2 * q + 1][w];
        x[2 * q][w] = __byte_perm(u, v, low_);
        x[2 * q + 1][w] = __byte_perm(u, v, high_);
      }
  }
};

template <class Traits, class Index, class Mma> struct Crossed {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef Cluster<Traits::kCluster> Team;
  static constexpr int kRanks = Traits::kCluster, kSlots = Traits::kStages;
  static constexpr int kN = Traits::kBlockN, kRows = Traits::kBlockM;
  static constexpr int kSpanA = Traits::WayA::kSpan, kDepth = kSpanA / 2, kBatches = kDepth / 8;
  static constexpr int kGroups = Traits::kConsumers;
  static constexpr int kSpanB = Traits::WayB::kSpan, kHalves = kSpanB / 32;  // instructions of a slab
  typedef CrossedA<kSpanA, kHalves> Fragments;
  static constexpr int kSlab = kN * kSpanB;
  static constexpr int kOffsets = Traits::kSplit ? 0 : Offsets<Traits>::kBytes;
  static constexpr int kStaging = Traits::kSplit ? 0 : (Staging<Traits>::kBytes + 127) / 128 * 128 + kOffsets;
  // D is staged where A was: the next tile's A has to wait for the stores, its B does not.
  static constexpr int kLoaded = kRows * Fragments::kRowBytes;
  static constexpr int kBytesA = ((kLoaded > kStaging ? kLoaded : kStaging) + 1023) / 1024 * 1024;
  static constexpr int kSmemBytes = 1024 + kBytesA + kSlots * kSlab + 16 * (kSlots + 1);
  static_assert(kSmemBytes <= Traits::kSmemBytes, "the schedule reserved too little shared memory");
  static_assert(kBatches % 2 == 0 && kRows == 64 * kGroups && Traits::kMi == 1, "tiles of crossed units");
  static_assert(kSpanB == 32 || kSpanB == 64, "k2 in runs of 16 or 32");
  // Rows of a slab are as long as the swizzle's span; eight of them are a unit.
  static constexpr uint64 kFixed = (uint64(8 * kSpanB / 16) << 32) | (uint64(kSpanB == 32 ? 3 : 2) << 62);

  struct Counts { int tiles_m, tiles_n, group_m, split_k; };

  // Tile `t` of this block; a cluster's blocks may hang over the end of M.
  static GETT_DEVICE TileId locate(const Params& p, int t, int rank) {
    const Counts of = {(p.tiles_m + kRanks - 1) / kRanks, p.tiles_n, p.group_m, p.split_k};
    TileId id = locate_tile(of, t);
    id.m = id.m * kRanks + rank;
    return id;
  }
  static GETT_DEVICE int slice_end(const Params& p, int slice) {
    return min((slice + 1) * p.k_tiles_per_slice, p.k_tiles);
  }

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char raw[];
    const uint32 start = (smem_address(raw) + 1023) & ~1023u;
    const uint32 slabs = start + kBytesA, bars = slabs + kSlots * kSlab;
    const uint32 full = bars, empty = bars + 8 * kSlots, full_a = bars + 16 * kSlots, empty_a = full_a + 8;
    const int thread = threadIdx.x, rank = Team::rank();
    if (thread == 0) {
      Index::prefetch(p);
      for (int s = 0; s < kSlots; ++s) {
        barrier_init(full + s * 8, 1);
        barrier_init(empty + s * 8, kRanks * kGroups);
      }
      barrier_init(full_a, 1);
      barrier_init(empty_a, kGroups * 4);
      barrier_fence();
      for (int s = 0; s < kSlots; ++s) barrier_expect(full + s * 8, Traits::kSlabBytes);
    }
    Team::sync();
    if (thread < 128) {
      registers_down<Traits::kProducerRegs>();
      if (thread == 0) produce_b(p, slabs, full, empty, rank);
      if (thread == 32) produce_a(p, start, full_a, empty_a, rank);
    } else {
      registers_up<Traits::kConsumerRegs>();
      consume(p, raw + (start - smem_address(raw)), start, slabs, full, empty, full_a, empty_a, rank, thread - 128);
    }
    if constexpr (kRanks > 1) Team::sync();  // nobody leaves while others still arrive at its barriers
  }

  static GETT_DEVICE void produce_a(const Params& p, uint32 start, uint32 full_a, uint32 empty_a, int rank) {
    uint32 phase = 1;
    for (int t = blockIdx.x / kRanks; t < p.tiles; t += gridDim.x / kRanks) {
      const TileId id = locate(p, t, rank);
      const auto at = Index::boxes_a(p, min(id.m, p.tiles_m - 1), id.n, id.l);
      for (int kt = id.slice * p.k_tiles_per_slice; kt < slice_end(p, id.slice); ++kt, phase ^= 1) {
        const auto k = Index::k_boxes_a(p, kt);
        barrier_wait(empty_a, phase);
        barrier_expect(full_a, Traits::kBytesOfA);
        for (int i = 0; i < Traits::kPieces; ++i)
          Index::load_a(p, at, k, i, start + i * (Traits::kBytesOfA / Traits::kPieces), full_a);
      }
    }
  }

  static GETT_DEVICE void produce_b(const Params& p, uint32 slabs, uint32 full, uint32 empty, int rank) {
    int slot = 0, turn = 0, fresh = kSlots;
    uint32 phases = 0;  // one bit a slot: how often it was this block's turn to fill it
    for (int t = blockIdx.x / kRanks; t < p.tiles; t += gridDim.x / kRanks) {
      const TileId id = locate(p, t, 0);
      const auto at = Index::boxes_b(p, id.m, id.n, id.l);
      for (int kt = id.slice * p.k_tiles_per_slice; kt < slice_end(p, id.slice); ++kt) {
        const auto k = Index::k_boxes_b(p, kt);
        for (int s = 0; s < kDepth; ++s) {
          if (turn == rank) {
            if (fresh <= 0) {
              barrier_wait(empty + slot * 8, (phases >> slot) & 1);
              phases ^= 1u << slot;
            }
            Index::load_b(p, at, k, s, slabs + slot * kSlab, full + slot * 8);
          }
          --fresh;
          if (++turn == kRanks) turn = 0;
          if (++slot == kSlots) slot = 0;
        }
      }
    }
  }

  // A warp needs the k-tile of A no more: loads are ordinary ones, so each warp speaks for itself.
  static GETT_DEVICE void leave(uint32 empty_a, int lane) {
    __syncwarp();
    if ((lane & 31) == 0) barrier_arrive(empty_a);
  }

  static GETT_DEVICE void consume(const Params& p, char* smem, uint32 start, uint32 slabs, uint32 full, uint32 empty,
                                  uint32 full_a, uint32 empty_a, int rank, int thread) {
    const int group = thread >> 7, lane = thread & 127;
    const Fragments fragments(group, lane);
    Epilogue<Traits, Index> epilogue(smem, thread, group);
    uint32 phase = 0, phase_a = 0;
    int slot = 0, before = -1;       // the slab at hand and the one before, not yet given back
    int next = kSlots % kRanks;      // who fills the slot of the slab before again
    if (next == 0) next = kRanks;
    --next;
    for (int t = blockIdx.x / kRanks; t < p.tiles; t += gridDim.x / kRanks) {
      const TileId id = locate(p, t, rank);
      const int first = id.slice * p.k_tiles_per_slice, last = slice_end(p, id.slice);
      Acc acc[1][kN / 2];
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) acc[0][j] = Acc(0);
      uint32 x[2][8][4];  // two batches, or the two halves of one
      if constexpr (kHalves == 1) {
        barrier_wait(full_a, phase_a);
        fragments.fetch(start, 0, 0, x[0]);
        fragments.join(x[0]);
      }
      for (int kt = first; kt < last; ++kt) {
#pragma unroll
        for (int c = 0; c < kBatches; ++c) {
          const bool again = Traits::kSplit || kt + 1 < last;  // the last k-tile's place is D's staging buffer first
          if constexpr (kHalves == 2) {
            wgmma_wait<0>();
            if (c == 0) barrier_wait(full_a, phase_a);
#pragma unroll
            for (int h = 0; h < 2; ++h) fragments.fetch(start, c, h, x[h]);
#pragma unroll
            for (int h = 0; h < 2; ++h) fragments.join(x[h]);
          }
          wgmma_fence();
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            barrier_wait(full + slot * 8, phase);
            if (thread == 0) barrier_expect(full + slot * 8, Traits::kSlabBytes);  // for the slab after this one
            const uint64 b = kFixed | uint64(((slabs + slot * kSlab) & 0x3ffff) >> 4);
            const int w = j >> 1, o = j & 1;
#pragma unroll
            for (int h = 0; h < kHalves; ++h) {
              uint32 (&now)[8][4] = x[kHalves == 2 ? h : c & 1];
              Mma::mma(acc[0], now[o][w], now[2 + o][w], now[4 + o][w], now[6 + o][w], b + 2 * h);
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (before >= 0 && lane == 0) Team::arrive(empty + before * 8, next);
            if (++next == kRanks) next = 0;
            before = slot;
            if (++slot == kSlots) { slot = 0; phase ^= 1; }
            // The first product has waited for every load of its batch.
            if (kHalves == 2 && j == 0 && c == kBatches - 1 && again) leave(empty_a, lane);
            if constexpr (kHalves == 1) {
              uint32 (&then)[8][4] = x[(c & 1) ^ 1];
              if (j == 0) {  // the registers of the batch before are free
                if (c + 1 < kBatches) {
                  fragments.fetch(start, c + 1, 0, then);
                } else if (kt + 1 < last) {
                  barrier_wait(full_a, phase_a ^ 1);
                  fragments.fetch(start, 0, 0, then);
                }
              }
              if (j == 3) {
                fragments.join(then);
                if (c == kBatches - 2 && again) leave(empty_a, lane);
              }
            }
          }
        }
        phase_a ^= 1;
      }
      wgmma_wait<0>();
      wgmma_keep(acc[0]);
      if (lane == 0) Team::arrive(empty + before * 8, next);
      before = -1;
      if constexpr (Traits::kSplit) {
        if (id.m < p.tiles_m) {
          const long long tiles = (long long)p.tiles_m * p.tiles_n;
          const long long at = ((long long)id.l * p.split_k + id.slice) * tiles + (long long)id.m * p.tiles_n + id.n;
          Acc* const to = p.workspace + at * (kRows * kN);
          const int row = group * 64 + (lane >> 5) * 16 + ((lane & 31) >> 2), column = (lane & 3) * 2;
#pragma unroll
          for (int j = 0; j < kN / 8; ++j)
#pragma unroll
            for (int r = 0; r < 2; ++r)
              Vec<Acc, 2>{{acc[0][j * 4 + r * 2], acc[0][j * 4 + r * 2 + 1]}}.store(to + (row + r * 8) * kN + j * 8 + column);
        }
      } else {
        if (id.m < p.tiles_m) {
          epilogue.prepare(p, id);
          epilogue.store(p, id, acc, group, lane);
          if constexpr (Traits::kStoreBox) {
            if (thread == 0) store_wait_read<0>();
          }
        }
        async_fence();
        epilogue.sync();
        leave(empty_a, lane);
      }
    }
    if constexpr (!Traits::kSplit) epilogue.finish();
  }
};

}  // namespace gett
