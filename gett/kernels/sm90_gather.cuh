// The general door of the Hopper family: operands whose strides no tensor map takes.
//
// A tensor map starts every copy at a multiple of 16 bytes, and so does cp.async; rows of odd extents start anywhere.
// The gathering warps therefore copy the aligned 16-byte chunks that cover a piece of a row, kRun elements, into a ring
// of their own (no registers wait for memory), shift them into place a few k-tiles later and write them as wgmma wants
// them. A warp shifts only what it copied itself: no barrier but its own is needed between the two steps.
//
// Knows pieces and chunks; what lies where is said by the generated Index, what is multiplied by sm90.cuh.
#pragma once
#include "gett/sm90_cluster.cuh"

namespace gett {

struct Chunk { uint32 w[4]; };

GETT_DEVICE Chunk load_chunk(uint32 at) {
  Chunk c;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.w[0]), "=r"(c.w[1]), "=r"(c.w[2]), "=r"(c.w[3]) : "r"(at) : "memory");
  return c;
}
GETT_DEVICE void store_chunk(uint32 at, const Chunk& c) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
               ::"r"(at), "r"(c.w[0]), "r"(c.w[1]), "r"(c.w[2]), "r"(c.w[3]) : "memory");
}
// Copies 16 bytes; of what lies behind `end` nothing is read, and zeros are written.
GETT_DEVICE void copy_chunk(uint32 to, const char* from, const char* end) {
  const long long left = end - from;
  const int bytes = left >= 16 ? 16 : left <= 0 ? 0 : int(left);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
GETT_DEVICE void copy_chunk(uint32 to, const char* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// The 16 bytes that begin `skip` (0 to 7) half-words into x, y.
GETT_DEVICE Chunk shifted(const Chunk& x, const Chunk& y, uint32 skip) {
  uint32 w[7] = {x.w[0], x.w[1], x.w[2], x.w[3], y.w[0], y.w[1], y.w[2]};
  const uint32 last = skip & 4 ? y.w[3] : y.w[1];
  const bool four = skip & 4, two = skip & 2;
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = four ? w[i + 2] : w[i];
  w[5] = last;
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = two ? w[i + 1] : w[i];
  const uint32 bits = (skip & 1) * 16;
  Chunk out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.w[i] = __funnelshift_r(w[i], w[i + 1], bits);
  return out;
}
// The first `count` half-words; zeros behind them.
GETT_DEVICE Chunk kept(Chunk c, int count) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = count - 2 * i;
    c.w[i] = n >= 2 ? c.w[i] : n == 1 ? c.w[i] & 0xffffu : 0u;
  }
  return c;
}

// The pieces of one gathered operand that one warp brings in for a k-tile.
template <class Traits, class Index, bool kIsA> struct Pieces {
  typedef typename Traits::Params Params;
  typedef typename Traits::Element Element;
  typedef typename Traits::template Way<kIsA> Way;
  static constexpr int kE = sizeof(Element), kRun = Way::kRun;
  static constexpr int kWarps = 4 * Traits::kProducers;
  static constexpr int kBox = kIsA ? Traits::kBoxM : Traits::kBoxN;
  static constexpr int kRows = Way::kMajorK ? kBox : Traits::kBlockK;
  static constexpr int kInner = Way::kMajorK ? Traits::kBlockK : kBox;
  static constexpr int kSegments = kInner / kRun, kPieces = kRows * kSegments;
  static constexpr int kPer = (kPieces + kWarps - 1) / kWarps;  // pieces of a warp
  static constexpr int kOut = kRun * kE / 16, kIn = kOut + 1;   // chunks of a piece, where they go and where they are
  static constexpr int kLoads = (kPer * kIn + 31) / 32, kStores = (kPer * kOut + 31) / 32;
  static constexpr int kRingBytes = kPer * kIn * 16;            // of a warp and k-tile
  static constexpr int kSlab = (kRows + 7) / 8 * 8 * Way::kSpan;
  static constexpr int kFar = 1 << 30;                          // an offset beyond every tensor's end
  static_assert(kE == 2 && kRun % 8 == 0 && kInner % kRun == 0, "pieces are whole chunks of 16-bit elements");

  int offset_[kLoads];              // elements from the tile's origin to the chunk
  int top_;                         // the largest offset of a piece
  uint32 skip_[(kStores + 7) / 8];  // by chunk stored: its piece's offset modulo 8, four bits each

  static GETT_DEVICE const char* base(const Params& p) {
    if constexpr (kIsA) return reinterpret_cast<const char*>(p.a); else return reinterpret_cast<const char*>(p.b);
  }
  static GETT_DEVICE const char* end(const Params& p) {
    if constexpr (kIsA) return base(p) + (long long)p.reach_a * kE; else return base(p) + (long long)p.reach_b * kE;
  }
  template <class KTile> static GETT_DEVICE int room(const Params& p, const KTile& k, int local) {
    if constexpr (kIsA) return Index::room_a(p, k, local); else return Index::room_b(p, k, local);
  }
  // Pieces of a row follow each other, so that a warp's copies touch as few lines as they can.
  static GETT_DEVICE int row(int piece) { return uint32(piece) / kSegments; }
  static GETT_DEVICE int inner(int piece) { return uint32(piece) % kSegments * kRun; }
  static GETT_DEVICE int mn_of(int piece) { return Way::kMajorK ? row(piece) : inner(piece); }
  static GETT_DEVICE int k_of(int piece) { return Way::kMajorK ? inner(piece) : row(piece); }

  // Writes the offsets of the warp's pieces in a tile into its table; returns the tile's origin in bytes.
  static GETT_DEVICE long long tabulate(const Params& p, const TileId& id, int* table, int warp, int lane) {
    const auto l = Index::l_tile(p, id.l);
    long long origin;
    __syncwarp();
    if constexpr (kIsA) {
      const auto t = Index::m_tile(p, id.m);
      origin = (l.a + t.a) * kE;
#pragma unroll 1
      for (int q = lane; q < kPer; q += 32) {
        const int piece = warp * kPer + q, mn = mn_of(piece);
        const bool ok = piece < kPieces && Index::m_ok(p, t, mn);
        table[q] = ok ? int(Index::m_a(p, t, mn) + Index::k_a(p, k_of(piece))) : kFar;
      }
    } else {
      const auto t = Index::n_tile(p, id.n);
      origin = (l.b + t.b) * kE;
#pragma unroll 1
      for (int q = lane; q < kPer; q += 32) {
        const int piece = warp * kPer + q, mn = mn_of(piece);
        const bool ok = piece < kPieces && Index::n_ok(p, t, mn);
        table[q] = ok ? int(Index::n_b(p, t, mn) + Index::k_b(p, k_of(piece))) : kFar;
      }
    }
    __syncwarp();
    return origin;
  }

  GETT_DEVICE void plan_loads(const int* table, int lane) {
    int top = 0;
#pragma unroll 1
    for (int q = lane; q < kPer; q += 32) top = max(top, table[q]);
    top_ = __reduce_max_sync(~0u, top);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint32 at = lane + 32 * i;
      offset_[i] = at < kPer * kIn ? table[at / kIn] + int(at % kIn) * 8 : kFar;
    }
  }
  // Copies the chunks of one k-tile; `from` is the origin of tile and k-tile. Past the tensor nothing is read.
  GETT_DEVICE void load(const char* from, const char* end, uint32 ring, int lane) const {
    if (from + (long long)(top_ + kIn * 8) * kE <= end) {
      copy<false>(from, end, ring, lane);
    } else {
      copy<true>(from, end, ring, lane);
    }
  }
  template <bool kEnds> GETT_DEVICE void copy(const char* from, const char* end, uint32 ring, int lane) const {
    if constexpr (kEnds) asm volatile("" : "+r"(lane));
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint32 at = lane + 32 * i;
      if (kPer * kIn % 32 && i == kLoads - 1 && at >= kPer * kIn) continue;
      const char* chunk = reinterpret_cast<const char*>(uint64(from + (long long)offset_[i] * kE) & ~15ull);
      if (kEnds) copy_chunk(ring + at * 16, chunk, end); else copy_chunk(ring + at * 16, chunk);
    }
  }

  GETT_DEVICE void plan_stores(const int* table, int lane) {
#pragma unroll
    for (int i = 0; i < (kStores + 7) / 8; ++i) skip_[i] = 0;
#pragma unroll
    for (int i = 0; i < kStores; ++i) {
      const uint32 at = lane + 32 * i;
      if (at < kPer * kOut) skip_[i / 8] |= uint32(table[at / kOut] & 7) << i % 8 * 4;
    }
  }
  // Shifts the chunks of one k-tile into the operand's tile. Beyond K's end both operands are zeros.
  template <class KTile>
  GETT_DEVICE void store(const Params& p, const KTile& k, bool whole, const char* from, uint32 ring, uint32 tile,
                         int warp, int lane) const {
    const uint32 skip = uint32(uint64(from)) / kE;
    if (whole) {
      shift<true>(p, k, skip, ring, tile, warp, lane);
    } else {
      shift<false>(p, k, skip, ring, tile, warp, lane);
    }
  }
  template <bool kWhole, class KTile>
  GETT_DEVICE void shift(const Params& p, const KTile& k, uint32 skip, uint32 ring, uint32 tile, int warp,
                         int lane) const {
    // Where registers are scarcer than clocks, places are worked out again for each k-tile.
    if constexpr (!kWhole || Traits::kProducerRegs < 120) asm volatile("" : "+r"(lane));
    constexpr int kBatch = kWhole ? 2 : 1;  // chunks on their way through a lane's registers
#pragma unroll
    for (int first = 0; first < kStores; first += kBatch) {
      Chunk x[kBatch], y[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const uint32 at = lane + 32 * (first + j), in = ring + (at / kOut * kIn + at % kOut) * 16;
        if (first + j >= kStores || (kPer * kOut % 32 && at >= kPer * kOut)) continue;
        x[j] = load_chunk(in);
        y[j] = load_chunk(in + 16);
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const uint32 i = first + j, at = lane + 32 * i, chunk = at % kOut;
        const int piece = warp * kPer + int(at / kOut);
        if (i >= kStores || (kPer * kOut % 32 && at >= kPer * kOut)) continue;
        if (kPer * kWarps != kPieces && piece >= kPieces) continue;
        Chunk c = shifted(x[j], y[j], (skip + (skip_[i / 8] >> i % 8 * 4)) & 7);
        if (!kWhole) c = kept(c, room(p, k, k_of(piece)) - int(chunk) * 8);
        const uint32 byte = inner(piece) * kE + chunk * 16, line = row(piece);
        const uint32 turn = ((line * Way::kSpan) >> 7 & (Way::kSpan / 16 - 1)) << 4;  // the hardware's swizzle
        store_chunk(tile + byte / Way::kSpan * kSlab + line * Way::kSpan + ((byte % Way::kSpan) ^ turn), c);
      }
    }
  }
};

// An operand that a tensor map moves has no pieces.
struct NoPieces { static constexpr int kPer = 0, kRingBytes = 0; };
template <bool kGather, class P> struct PiecesOf { typedef P type; };
template <class P> struct PiecesOf<false, P> { typedef NoPieces type; };

// Walks the k-tiles of a block's tiles.
template <class Params> struct Walk {
  int t, kt, last;
  TileId id;
  GETT_DEVICE void open(const Params& p, int tile) {
    for (t = tile; t < p.tiles; t += gridDim.x) {
      id = locate_tile(p, t);
      kt = id.slice * p.k_tiles_per_slice;
      last = min(kt + p.k_tiles_per_slice, p.k_tiles);
      if (kt < last) return;
    }
  }
  GETT_DEVICE bool more(const Params& p) const { return t < p.tiles; }
  // On to the next k-tile; true where it belongs to another tile.
  GETT_DEVICE bool step(const Params& p) {
    if (++kt < last) return false;
    open(p, t + gridDim.x);
    return true;
  }
};

template <class Traits, class Index> struct GatherProducer {
  typedef typename Traits::Params Params;
  typedef typename Traits::template Way<true> WayA;
  typedef typename Traits::template Way<false> WayB;
  typedef typename PiecesOf<WayA::kGather, Pieces<Traits, Index, true>>::type PiecesA;
  typedef typename PiecesOf<WayB::kGather, Pieces<Traits, Index, false>>::type PiecesB;
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
