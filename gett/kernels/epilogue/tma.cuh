// From wgmma's accumulators to D. The tile is staged in shared memory in D's own order. Where the box's rows are long
// enough and no bank is in the way, it leaves by one tensor-map copy, which runs while the next tile is multiplied;
// else as vectors through the offset tables of epilogue.cuh, from rows padded so that fragments meet no conflicts.
//
// Where such a copy can bring C too (kLoadC), it brings C's tile to where D's is staged, while the products run.
#pragma once
#include "gett/epilogue/dsmem_exchange.cuh"
#include "gett/epilogue/r2s.cuh"
#include "gett/epilogue/row.cuh"
#include "gett/epilogue/vector.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/tma.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/prefetch.cuh"

namespace gett {

// The staged tile: position = Index::staging_m(m) + Index::staging_n(n), in elements.
template <class Traits> struct StagedTile {
  typedef typename PaddedTile<Traits>::Element Element;
  static constexpr int kBytes = Traits::kStagingElements * int(sizeof(Element)) + (Traits::kR2SCopy == kR2SScalar ? 0 : 128);
  static constexpr int kAlign = Traits::kSwizzleBytesD > 16 ? 1024 : 128;  // the swizzle's period
  static constexpr int kBatch = Traits::kVecD * sizeof(Element) > 16 ? 2 : 4;
  const Element* base_;
  template <int kV> GETT_DEVICE void get(const MNAt& at, Element (&x)[kV]) const {
    if constexpr (kV * sizeof(Element) <= 16) {
      const auto v = Vec<Element, kV>::load(base_ + at.at);
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = v.x[j];
    } else {
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = base_[at.at + j];
    }
  }
};

template <class Traits, class Index> struct Epilogue {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef typename StagedTile<Traits>::Element Element;
  static constexpr int kMmaM = Traits::kMmaM, kN = Traits::kBlockN;
  static constexpr int kThreads = 128 * (Traits::kPingPong ? 1 : Traits::kConsumerWarpgroups);
  // A warp of the producer's group sends staged tiles off, unless all of them gather.
  static constexpr bool kSender = Traits::kTmaStore && !Traits::kGather;
  static_assert(Traits::kSourceC != kSourceTma || (kSender && !Traits::kReuseMainloopSmem && Traits::kSourceC != kSourceVector), "C comes where D is staged, once it is free");
  typedef DsmemExchange<Traits, kThreads> Exchange;
  static constexpr int kStagedBarrier = 12;  // named barriers: the staging buffer is written
  static constexpr int kStaging = (StagedTile<Traits>::kBytes + StagedTile<Traits>::kAlign - 1) / StagedTile<Traits>::kAlign * StagedTile<Traits>::kAlign;

  // Where what is traded lies, and all of it.
  static constexpr int kExchangedOffset = (kStaging + 1023) / 1024 * 1024, kBytes = Exchange::kOn ? kExchangedOffset + kStaging : kStaging;

  char* base_;
  int thread_, barrier_;
  // The barrier by which the sender says that the staging buffer may be written, or that C has arrived there.
  uint32 free_, phase_ = 0;
  EpilogueOffsets<Traits> offsets_;

  GETT_DEVICE Epilogue(char* base, uint32 free, int thread, int group)
      : base_(base), thread_(thread), barrier_(1 + (Traits::kPingPong ? group : 0)), free_(free),
        offsets_{reinterpret_cast<long long*>(base + kStaging)} {}

  GETT_DEVICE void sync() const { named_barrier_sync(barrier_, kThreads); }

  // Before the tile's products: the offsets of its rows and columns, where stores need them.
  GETT_DEVICE void prepare(const Params& p, const TileId& id) {
    if constexpr (!Traits::kTmaStore && !Traits::kSplit) {
      sync();  // the previous tile's stores have read the table
      offsets_.template fill<Index>(p, Index::m_tile(p, id.m), Index::n_tile(p, id.n), GETT_ANEW(thread_), kThreads);
    }
  }

  // Of a tile that is made in parts, `part` says which; the last one sends it off. Products are scaled in place.
  GETT_DEVICE void store(
      const Params& p, const TileId& id, Acc (&acc)[kMmaM][kN / 2], int block, int lane, int mma_tile = 0) {
    scale(p, acc);
    if constexpr (Traits::kTmaStore) {
      const int group = Traits::kPingPong ? barrier_ - 1 : 0;
      const int rows = Traits::kMmaTilesPerStoreTile > 1 ? mma_tile * Traits::kBoxM : 0;  // before those of this part
      // Each warpgroup for itself: one that is ahead stores while another still multiplies.
      if constexpr (kSender) {
        if constexpr (Traits::kReuseMainloopSmem) {
          sync();  // the stages, which the staged tile replaces, have been read by all
          if constexpr (Exchange::kOn) Exchange::arrive_ready(free_, thread_);
        } else if (mma_tile == 0) {
          mbarrier_wait(free_, phase_);
          phase_ ^= 1;
        }
      } else {
        if (thread_ == 0) tma_store_wait_read<0>();
        sync();
      }
      if constexpr (Traits::kSourceC == kSourceTma) {
        if (adds(p)) visit_fragments(p, acc, block, lane, rows, AddSource<Acc, Element>{p.beta});
      }
      visit_fragments(p, acc, block, lane, rows, StoreD<Acc, Element>());
      if (Traits::kMmaTilesPerStoreTile > 1 && mma_tile + 1 < Traits::kMmaTilesPerStoreTile) return;
      if constexpr (Exchange::kOn) {
        sync();
        Exchange::send(free_, smem_address(base_), smem_address(base_) + kExchangedOffset, thread_);
      }
      fence_proxy_async();
      if constexpr (kSender) {
        named_barrier_arrive(kStagedBarrier + group, kThreads + 32);
      } else {
        sync();
        if (thread_ == 0) {
          Index::store_tile(p, Index::store_coords(p, id.m, id.n, id.l), smem_address(base_));
          tma_store_commit();
        }
      }
    } else {
      visit_elements(p, acc, GETT_ANEW(block), GETT_ANEW(lane), 0, StoreD<Acc, Element>());
      sync();
      const auto lt = Index::l_tile(p, id.l);
      if constexpr (Traits::kRowLengthD > 0) {
        int m = id.m, n = id.n;  // opaque: found anew, not kept through the main loop
        asm volatile("" : "+r"(m), "+r"(n));
        const int length = min(Traits::kRowLengthD, Index::d_remaining(p, m, n));
        store_rows<Traits, Index>(p, p.d + lt.d, offsets_, smem_address(base_), length, thread_, kThreads);
        return;
      }
      const typename Traits::ElementC* c = nullptr;
      if constexpr (Traits::kSourceC == kSourceVector) c = p.c + lt.c;
      const StagedTile<Traits> staged{reinterpret_cast<const Element*>(base_)};
      store_tile<Traits, Index>(p, p.d + lt.d, c, offsets_, staged, GETT_ANEW(thread_), kThreads);
    }
  }

  GETT_DEVICE void finish() const {
    if constexpr (Traits::kTmaStore && !kSender) {
      if (thread_ == 0) tma_store_wait_read<0>();
    }
  }

  // A warp of the producer's group: sends off the staged tiles of `group`, one after the other, and fetches C's before.
  // Consumers only write them, and never work out where a tile lies.
  static GETT_DEVICE void store_loop(const Params& p, uint32 staged, uint32 free, int group, int lane) {
    int tile_count = 0;
    WorkTilePrefetch<Traits, typename Index::StoreCoords> prefetch;
    const int end = PersistentScheduler<Traits>::end(p);
    for (int t = PersistentScheduler<Traits>::first(p); t < end; t += PersistentScheduler<Traits>::step(p), ++tile_count) {
      prefetch.next(p, t, tile_count, lane, [&](const TileId& id) { return Index::store_coords(p, id.m, id.n, id.l); });
      if (Traits::kPingPong && tile_count % Traits::kConsumerWarpgroups != group) continue;
      const auto coords = from_lane(prefetch.found_, tile_count % 32);
      // A surplus block of a cluster stages what is no tile, and nobody takes it away.
      const bool exists = PersistentScheduler<Traits>::kSize == 1 || PersistentScheduler<Traits>::exists(p, from_lane(prefetch.id_, tile_count % 32));
      if (elect_one()) {  // always the same thread, so that it waits for its own stores
        tma_store_wait_read<0>();  // the previous tile has left
        if constexpr (Traits::kSourceC == kSourceTma) {
          if (exists && adds(p)) {
            mbarrier_arrive_expect_tx(free, Traits::kTransactionBytesC);
            Index::load_c(p, coords, staged, free);
          } else {
            mbarrier_arrive(free);
          }
        } else {
          mbarrier_arrive(free);
        }
      }
      __syncwarp();
      named_barrier_sync(kStagedBarrier + group, kThreads + 32);
      if constexpr (Exchange::kOn) Exchange::wait(free);
      if (exists && elect_one()) {
        if constexpr (Exchange::kOn) Index::store_tile(p, coords, staged + kExchangedOffset, cluster_ctarank());
        else Index::store_tile(p, coords, staged);
        tma_store_commit();
      }
    }
    if (elect_one()) tma_store_wait_read<0>();
  }

  // beta = 0 means that C is not read at all, as in BLAS: it may hold anything.
  static GETT_DEVICE bool adds(const Params& p) { return !is_zero(p.beta); }

  // Once for all ways to store, none of which needs a copy of its code for alpha = 1 then, by which nothing is multiplied.
  static GETT_DEVICE void scale(const Params& p, Acc (&acc)[kMmaM][kN / 2]) {
    if (is_one(p.alpha)) return;
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) acc[i][j] = multiply(p.alpha, acc[i][j]);
  }

  // Visits the fragments' places in the staged tile, `rows` rows further on; padding stays out.
  template <class Visit>
  GETT_DEVICE void visit_fragments(const Params& p, Acc (&acc)[kMmaM][kN / 2], int block, int lane, int rows, const Visit& visit) const {
    if constexpr (kSparing) {
      block = anew(block);
      lane = anew(lane);
    }
    if constexpr (Traits::kR2SCopy == kR2SScalar) {
      visit_elements(p, acc, block, lane, rows, visit);
    } else {
      R2STiledCopy<Traits, Index>(p, smem_address(base_), block, lane, rows).visit(acc, visit);
    }
  }

  template <class Visit>
  GETT_DEVICE void visit_elements(
      const Params& p, Acc (&acc)[kMmaM][kN / 2], int block, int lane, int rows, const Visit& visit) const {
    Element* const to = reinterpret_cast<Element*>(base_);
    // Beside gathering threads registers are scarce: places are worked out here, not kept through the main loop.
    if constexpr (Traits::kGather && !Traits::kColumnsBy8) asm volatile("" : "+r"(lane));
    const int row = (lane >> 5) * 16 + ((lane & 31) >> 2), column = (lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int m = FragmentRows<Traits>::at(block, i, row + r * 8);
        if (m >= Traits::kBoxM) continue;
        Element* const line = to + Index::staging_m(p, m + rows);
#pragma unroll
        for (int j = 0; j < kN / 8; ++j) {
          Acc &x = acc[i][j * 4 + r * 2], &y = acc[i][j * 4 + r * 2 + 1];
          int n0, n1;
          if constexpr (Traits::kColumnsBy8) {  // eight neighbours lie in one dimension: no decode per element
            n0 = Index::staging_n(p, j * 8) + column * Traits::kStagingStepN;
            n1 = n0 + Traits::kStagingStepN;
          } else {
            n0 = Index::staging_n(p, j * 8 + column);
            n1 = Index::staging_n(p, j * 8 + column + 1);
          }
          if constexpr (Traits::kColumnsBy8 && Traits::kStagingStepN == 1) {
            visit.pair(line + n0, x, y);
          } else {
            if (j * 8 + column < Traits::kBoxN) visit.one(line + n0, x);
            if (j * 8 + column + 1 < Traits::kBoxN) visit.one(line + n1, y);
          }
        }
      }
  }
};

}  // namespace gett
