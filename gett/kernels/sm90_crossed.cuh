// Crossed units: A's rows run along one contracted mode (k1), B's along another (k2). No descriptor says that, so A
// goes through registers, where pairs of k2 are joined; nothing is turned round in memory.
//
// A k-tile is kDepth of k1 times 16 or 32 of k2. A lies as [row][k2][k1] and makes room for the next k-tile as soon as
// it is in registers; B lies in slabs of one k1 each, [n][k2], one or two instructions deep, in a ring of kStages.
//
// kApart: rows of A come and go by warpgroup, each with barriers of its own. The warpgroups then run apart by up to
// the ring's depth, and one multiplies while the other's rows arrive.
//
// kEarly: the second batch of a k-tile of A is fetched as soon as half of the first has been used, into registers of
// which a batch and a half must be had, so that A's room is empty for most of the k-tile. kWindow: so many pieces of A
// are under way at a time, for the copy engine serves who came first, and slabs would wait behind a whole tile of A.
//
// Rows are parts of L2's lines, whose other parts neighbouring k-tiles need. Slices of a split K therefore take k-tiles
// in turn: those under way at a time are neighbours, and lines do not leave L2 half used.
#pragma once
#include "gett/sm90_epilogue.cuh"

namespace gett {

GETT_DEVICE void shared_load(uint32 from, uint32 (&x)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
}

// Fragments of a batch of A: 8 k1 times 32 k2, or 16 times 16. Lane 4g + t needs (k2 = 2t, 2t + 1) and (2t + 8, 2t + 9)
// of rows g and g + 8: it reads vectors of eight k1 at two neighbouring k2 and joins their halves. Odd g read the odd
// k2 first, so that eight lanes meet eight different banks under the copy's swizzle.
template <int kSpan, int kHalves> struct CrossedBatch {
  static constexpr int kRowBytes = 16 * kHalves * kSpan, kSteps = 16 / kHalves;  // k1 of a batch
  uint32 even_, odd_, low_, high_;
  uint32 rest_[4][2][4];  // fragments of steps 4 to 7, where they have been joined
  uint32 x_[2][4][2][4];  // [half of k2, or eight of k1][quarter of the fragment][k2 even, odd][pair of k1]

  GETT_DEVICE CrossedBatch(int group, int lane) {
    const int g = (lane & 31) >> 2, t = lane & 3, turned = g & 1;
    const uint32 row = (group * 64 + (lane >> 5) * 16 + g) * kRowBytes;
    even_ = swizzled(row + (2 * t + turned) * kSpan);
    odd_ = swizzled(row + (2 * t + (turned ^ 1)) * kSpan);
    low_ = turned ? 0x1054 : 0x5410;
    high_ = turned ? 0x3276 : 0x7632;
  }
  static GETT_DEVICE uint32 swizzled(uint32 at) { return at ^ ((at >> 3) & ((kSpan / 16 - 1) * 16)); }

  GETT_DEVICE void fetch(uint32 tile, int batch) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32 chunk = (kHalves == 2 ? batch : 2 * batch + i) * 16;
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const uint32 at = tile + (q & 1) * 8 * kRowBytes + ((q >> 1) * 8 + (kHalves == 2 ? i * 16 : 0)) * kSpan;
        shared_load(at + (even_ ^ chunk), x_[i][q][0]);
        shared_load(at + (odd_ ^ chunk), x_[i][q][1]);
      }
    }
  }
  // Quarter `q` of the fragment of step `s` (k1) and half `h` of k2.
  GETT_DEVICE uint32 at(int s, int h, int q) const {
    const int i = kHalves == 2 ? h : s >> 3, w = (s & 7) >> 1;
    return __byte_perm(x_[i][q][0][w], x_[i][q][1][w], s & 1 ? high_ : low_);
  }

  // Joins the second half of eight k1, so that the next batch may be fetched.
  GETT_DEVICE void join_rest() {
#pragma unroll
    for (int s = 0; s < 4; ++s)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int q = 0; q < 4; ++q) rest_[s][h][q] = at(4 + s, h, q);
  }
};

template <class Traits, class Index, class Mma> struct Crossed {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  static constexpr int kSlots = Traits::kStages, kGroups = Traits::kConsumers;
  static constexpr int kN = Traits::kBlockN, kRows = Traits::kBlockM;
  static constexpr int kSpanA = Traits::WayA::kSpan, kSpanB = Traits::WayB::kSpan;
  static constexpr int kDepth = kSpanA / 2, kHalves = kSpanB / 32;  // k1 of a k-tile, instructions of a slab
  typedef CrossedBatch<kSpanA, kHalves> Batch;
  static constexpr bool kJoined = !Traits::kHasC || kN <= 192;  // wide tiles that add C are short of registers
  static constexpr int kBatches = kDepth / Batch::kSteps;
  static constexpr int kSlab = kN * kSpanB;
  // D is staged where A was: the next tile's A has to wait for the stores, its B does not.
  static constexpr int kOffsets = Traits::kStoreBox ? 0 : Offsets<Traits>::kBytes;
  static constexpr int kStaging = Traits::kSplit ? 0 : Epilogue<Traits, Index>::kStaging + kOffsets;
  static constexpr int kLoaded = kRows * Batch::kRowBytes;
  static constexpr int kBytesA = ((kLoaded > kStaging ? kLoaded : kStaging) + 1023) / 1024 * 1024;
  static constexpr int kShares = Traits::kApart ? kGroups : 1, kShare = kLoaded / kShares;  // of A, with own barriers
  static constexpr int kWindow = Traits::kWindow;
  static constexpr int kFull = kWindow > 0 ? Traits::kPieces : kShares;  // barriers by which A's arrival is known
  static constexpr int kBarriers = 2 * kSlots + kFull + kShares + 1;
  static constexpr int kSmemBytes = 1024 + kBytesA + kSlots * kSlab + 8 * kBarriers;
  static_assert(kSmemBytes <= Traits::kSmemBytes, "the schedule reserved too little shared memory");
  static_assert(kBatches > 0 && kRows == 64 * kGroups && Traits::kMi == 1, "tiles of crossed units");
  static_assert(Traits::kPieces % kShares == 0, "a copy of A is one warpgroup's");
  static_assert(!Traits::kEarly || (kHalves == 2 && kBatches == 2 && Traits::kSplit), "batches of eight k1");
  static_assert(kSpanB == 32 || kSpanB == 64, "k2 in runs of 16 or 32");
  // Rows of a slab are as long as the swizzle's span; eight of them are a unit.
  static constexpr uint64 kFixed = (uint64(8 * kSpanB / 16) << 32) | (uint64(kSpanB == 32 ? 3 : 2) << 62);

  // `free`: the staging buffer may be written, or, being A's place too, loaded.
  struct Bars { uint32 full, empty, full_a, empty_a, free; };

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char raw[];
    const uint32 start = (smem_address(raw) + 1023) & ~1023u, slabs = start + kBytesA;
    const uint32 full = slabs + kSlots * kSlab, full_a = full + 16 * kSlots;
    const Bars bars = {full, full + 8 * kSlots, full_a, full_a + 8 * kFull, full_a + 8 * (kFull + kShares)};
    const int thread = threadIdx.x;
    if (thread == 0) {
      Index::prefetch(p);
      for (int s = 0; s < kSlots; ++s) {
        barrier_init(bars.full + s * 8, 1);
        barrier_init(bars.empty + s * 8, kGroups);
      }
      for (int s = 0; s < kFull; ++s) barrier_init(bars.full_a + s * 8, 1);
      for (int s = 0; s < kShares; ++s) barrier_init(bars.empty_a + s * 8, kGroups / kShares * 4);
      barrier_init(bars.free, 1);
      barrier_fence();
    }
    __syncthreads();
    if (thread < 128) {
      registers_down<Traits::kProducerRegs>();
      if (thread < 32 && elected()) produce_b(p, slabs, bars);
      if (thread >> 5 == 1 && elected()) produce_a(p, start, bars);
      if constexpr (Traits::kStoreBox) {
        if (thread >> 5 == 2) Epilogue<Traits, Index>::send(p, start, bars.free, 0, thread & 31);
      }
    } else {
      registers_up<Traits::kConsumerRegs>();
      consume(p, raw + (start - smem_address(raw)), start, slabs, bars, thread - 128);
    }
  }

  // Slices take k-tiles in turn. Without slices the compiler knows that all are one block's.
  static GETT_DEVICE int first_tile(int slice) { return Traits::kSplit ? slice : 0; }
  static GETT_DEVICE int tile_step(const Params& p) { return Traits::kSplit ? p.split_k : 1; }

  static GETT_DEVICE void produce_a(const Params& p, uint32 start, const Bars& bars) {
    constexpr int kPer = Traits::kPieces / kShares, kUnroll = Traits::kEarly ? 1 : 8;  // registers are short
    uint32 phase = 1, phase_free = 0;
    for (int t = blockIdx.x; t < p.tiles; t += gridDim.x, phase_free ^= 1) {
      const TileId id = locate_tile(p, t);
      const auto at = Index::boxes_a(p, id.m, id.n, id.l);
      for (int kt = first_tile(id.slice); kt < p.k_tiles; kt += tile_step(p), phase ^= 1) {
        const auto k = Index::k_boxes_a(p, kt);
        // The last share first: D may be staged before it, and it need not wait until D has left. That the tile before
        // has left is waited for with every k-tile, for the barrier cannot move on before this tile is staged.
#pragma unroll kUnroll
        for (int s = kShares - 1; s >= 0; --s) {
          if (Traits::kStoreBox && s * kShare < kStaging) barrier_wait(bars.free, phase_free);
          barrier_wait(bars.empty_a + s * 8, phase);
          if constexpr (kWindow == 0) barrier_expect(bars.full_a + s * 8, Traits::kPieceBytes * kPer);
          // In pieces, so that slabs of B get their turn.
#pragma unroll kUnroll
          for (int i = s * kPer; i < (s + 1) * kPer; ++i) {
            if constexpr (kWindow > 0) {
              barrier_expect(bars.full_a + i * 8, Traits::kPieceBytes);
              const int turn = (kShares - 1 - s) * kPer + i - s * kPer - kWindow;  // of the piece to wait for
              const int other = (kShares - 1 - turn / kPer) * kPer + turn % kPer;
              if (turn >= 0) barrier_wait(bars.full_a + other * 8, phase ^ 1);
            }
            Index::load_a(p, at, k, i, start + i * Traits::kPieceBytes, bars.full_a + (kWindow > 0 ? i : s) * 8);
          }
        }
      }
    }
  }

  static GETT_DEVICE void produce_b(const Params& p, uint32 slabs, const Bars& bars) {
    int slot = 0;
    uint32 phase = 1;
    for (int t = blockIdx.x; t < p.tiles; t += gridDim.x) {
      const TileId id = locate_tile(p, t);
      const auto at = Index::boxes_b(p, id.m, id.n, id.l);
      for (int kt = first_tile(id.slice); kt < p.k_tiles; kt += tile_step(p)) {
        const auto k = Index::k_boxes_b(p, kt);
        for (int s = 0; s < kDepth; ++s) {
          barrier_wait(bars.empty + slot * 8, phase);
          barrier_expect(bars.full + slot * 8, Traits::kSlabBytes);
          Index::load_b(p, at, k, s, slabs + slot * kSlab, bars.full + slot * 8);
          if (++slot == kSlots) { slot = 0; phase ^= 1; }
        }
      }
    }
  }

  // The fragments of step `s`.
  static GETT_DEVICE void join(uint32 (&x)[kHalves][4], const Batch& batch, bool aside, int s) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        x[h][q] = aside ? batch.rest_[s & 3][h][q] : batch.at(s, h, q);
        asm volatile("" : "+r"(x[h][q]));
      }
  }

  // For a warpgroup's rows of A.
  static GETT_DEVICE void wait_a(uint32 full_a, uint32 phase) {
#pragma unroll
    for (int i = 0; i < kFull / kShares; ++i) barrier_wait(full_a + i * 8, phase);
  }

  // A warp needs the k-tile of A no more. Its loads are ordinary ones, so each warp speaks for itself.
  static GETT_DEVICE void leave(uint32 empty_a, int lane) {
    __syncwarp();
    if ((lane & 31) == 0) barrier_arrive(empty_a);
  }

  static GETT_DEVICE void consume(const Params& p, char* smem, uint32 start, uint32 slabs, const Bars& bars,
                                  int thread) {
    const int group = thread >> 7, lane = thread & 127;
    // By a shuffle, so that the compiler knows that a warp's threads wait together, and serializes no products.
    const uint32 share = kShares == 1 ? 0 : __shfl_sync(0xffffffffu, group, 0) * 8;
    const uint32 full_a = bars.full_a + share * (kFull / kShares), empty_a = bars.empty_a + share;
    Batch batch(group, lane);
    Epilogue<Traits, Index> epilogue(smem, bars.free, thread, group);
    uint32 phase = 0, phase_a = 0;
    int slot = 0;
    for (int t = blockIdx.x; t < p.tiles; t += gridDim.x) {
      const TileId id = locate_tile(p, t);
      const int count = Traits::kSplit ? (p.k_tiles - id.slice + p.split_k - 1) / p.split_k : p.k_tiles;
      Acc acc[1][kN / 2];
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) acc[0][j] = Acc(0);
      wait_a(full_a, phase_a);
      batch.fetch(start, 0);
      int before = -1;  // a slab that is still being read
      for (int i = 0; i < count; ++i) {
        // D is staged where the last k-tile was: the next tile's A waits for the sender, or for those who store.
        const bool again = Traits::kSplit || Traits::kStoreBox || i + 1 < count;
#pragma unroll
        for (int b = 0; b < kBatches; ++b) {
#pragma unroll
          for (int s = 0; s < Batch::kSteps; ++s) {
            const bool aside = Traits::kEarly && b == 0 && s >= 4;
            if (Traits::kEarly && b == 0 && s == 4) {
              batch.join_rest();
              batch.fetch(start, 1);
            }
            // Joined before the wait and opaque, so that the instructions of a slab make one group: else the compiler
            // joins between them and waits for each.
            uint32 x[kHalves][4];
            if constexpr (kJoined) join(x, batch, aside, s);
            barrier_wait(bars.full + slot * 8, phase);
            const uint64 at = kFixed | uint64(((slabs + slot * kSlab) & 0x3ffff) >> 4);
            wgmma_fence();
#pragma unroll
            for (int h = 0; h < kHalves; ++h)
              if constexpr (kJoined)
                Mma::mma(acc[0], x[h][0], x[h][1], x[h][2], x[h][3], at + 2 * h);
              else
                Mma::mma(acc[0], batch.at(s, h, 0), batch.at(s, h, 1), batch.at(s, h, 2), batch.at(s, h, 3),
                         at + 2 * h);
            wgmma_commit();
            wgmma_wait<1>();
            if (before >= 0 && lane == 0) barrier_arrive(bars.empty + before * 8);
            before = slot;
            if (++slot == kSlots) { slot = 0; phase ^= 1; }
            // By now the products of a whole batch's vectors have begun, so all of them have arrived.
            if (b == kBatches - 1 && s == (kHalves == 2 ? 0 : 8) && again && !Traits::kEarly) leave(empty_a, lane);
            // Else they have had a step's time to, and no earlier load passes the arrival, which is a release.
            if (Traits::kEarly && b == 0 && s == 5) leave(empty_a, lane);
          }
          if (b + 1 < kBatches) {
            if (!Traits::kEarly) batch.fetch(start, b + 1);
          } else if (i + 1 < count) {
            wait_a(full_a, phase_a ^ 1);
            batch.fetch(start, 0);
          }
        }
        phase_a ^= 1;
      }
      wgmma_wait<0>();
      wgmma_keep(acc[0]);
      if (before >= 0 && lane == 0) barrier_arrive(bars.empty + before * 8);
      if constexpr (Traits::kSplit) {
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
        epilogue.store(p, id, acc, group, place);
        if constexpr (!Traits::kStoreBox) {
          async_fence();
          epilogue.sync();
          leave(empty_a, lane);
        }
      }
    }
  }
};

}  // namespace gett
