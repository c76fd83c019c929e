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

// The staged tile: position = Index::stage_m(m) + Index::stage_n(n), in elements.
template <class Traits> struct Staging {
  typedef typename Stage<Traits>::Element Element;
  static constexpr int kBytes = Traits::kStageElements * int(sizeof(Element)) + (Traits::kPut == kPutElements ? 0 : 128);
  static constexpr int kAlign = Traits::kSpanD > 16 ? 1024 : 128;  // the swizzle's period
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
  typedef typename Staging<Traits>::Element Element;
  static constexpr int kMi = Traits::kMi, kN = Traits::kBlockN;
  static constexpr int kThreads = 128 * (Traits::kPingPong ? 1 : Traits::kConsumers);
  // A warp of the producer's group sends staged tiles off, unless all of them gather.
  static constexpr bool kSender = Traits::kStoreBox && !Traits::kGather;
  static_assert(!Traits::kLoadC || (kSender && !Traits::kAlone && !Traits::kHasC), "C comes where D is staged, once it is free");
  typedef Trade<Traits, kThreads> Halves;
  static constexpr int kReady = 12;  // named barriers: the staging buffer is written
  static constexpr int kStaging = (Staging<Traits>::kBytes + Staging<Traits>::kAlign - 1) / Staging<Traits>::kAlign * Staging<Traits>::kAlign;

  // Where what is traded lies, and all of it.
  static constexpr int kTraded = (kStaging + 1023) / 1024 * 1024, kBytes = Halves::kOn ? kTraded + kStaging : kStaging;

  char* base_;
  int thread_, barrier_;
  // The barrier by which the sender says that the staging buffer may be written, or that C has arrived there.
  uint32 free_, phase_ = 0;
  Offsets<Traits> offsets_;

  GETT_DEVICE Epilogue(char* base, uint32 free, int thread, int group)
      : base_(base), thread_(thread), barrier_(1 + (Traits::kPingPong ? group : 0)), free_(free),
        offsets_{reinterpret_cast<long long*>(base + kStaging)} {}

  GETT_DEVICE void sync() const { named_barrier(barrier_, kThreads); }

  // Before the tile's products: the offsets of its rows and columns, where stores need them.
  GETT_DEVICE void prepare(const Params& p, const TileId& id) {
    if constexpr (!Traits::kStoreBox && !Traits::kSplit) {
      sync();  // the previous tile's stores have read the table
      offsets_.template fill<Index>(p, Index::m_tile(p, id.m), Index::n_tile(p, id.n), GETT_ANEW(thread_), kThreads);
    }
  }

  // Of a tile that is made in parts, `part` says which; the last one sends it off. Products are scaled in place.
  GETT_DEVICE void store(
      const Params& p, const TileId& id, Acc (&acc)[kMi][kN / 2], int block, int lane, int part = 0) {
    scale(p, acc);
    if constexpr (Traits::kStoreBox) {
      const int group = Traits::kPingPong ? barrier_ - 1 : 0;
      const int rows = Traits::kParts > 1 ? part * Traits::kBoxM : 0;  // before those of this part
      // Each warpgroup for itself: one that is ahead stores while another still multiplies.
      if constexpr (kSender) {
        if constexpr (Traits::kAlone) {
          sync();  // the stages, which the staged tile replaces, have been read by all
          if constexpr (Halves::kOn) Halves::offer(free_, thread_);
        } else if (part == 0) {
          barrier_wait(free_, phase_);
          phase_ ^= 1;
        }
      } else {
        if (thread_ == 0) store_wait_read<0>();
        sync();
      }
      if constexpr (Traits::kLoadC) {
        if (adds(p)) walk(p, acc, block, lane, rows, AddC<Acc, Element>{p.beta});
      }
      walk(p, acc, block, lane, rows, WriteD<Acc, Element>());
      if (Traits::kParts > 1 && part + 1 < Traits::kParts) return;
      if constexpr (Halves::kOn) {
        sync();
        Halves::give(free_, smem_address(base_), smem_address(base_) + kTraded, thread_);
      }
      async_fence();
      if constexpr (kSender) {
        named_arrive(kReady + group, kThreads + 32);
      } else {
        sync();
        if (thread_ == 0) {
          Index::store(p, Index::place(p, id.m, id.n, id.l), smem_address(base_));
          store_commit();
        }
      }
    } else {
      elements(p, acc, GETT_ANEW(block), GETT_ANEW(lane), 0, WriteD<Acc, Element>());
      sync();
      const auto lt = Index::l_tile(p, id.l);
      if constexpr (Traits::kRowD > 0) {
        int m = id.m, n = id.n;  // opaque: found anew, not kept through the main loop
        asm volatile("" : "+r"(m), "+r"(n));
        const int length = min(Traits::kRowD, Index::d_left(p, m, n));
        store_rows<Traits, Index>(p, p.d + lt.d, offsets_, smem_address(base_), length, thread_, kThreads);
        return;
      }
      const typename Traits::ElementC* c = nullptr;
      if constexpr (Traits::kHasC) c = p.c + lt.c;
      const Staging<Traits> staged{reinterpret_cast<const Element*>(base_)};
      store_tile<Traits, Index>(p, p.d + lt.d, c, offsets_, staged, GETT_ANEW(thread_), kThreads);
    }
  }

  GETT_DEVICE void finish() const {
    if constexpr (Traits::kStoreBox && !kSender) {
      if (thread_ == 0) store_wait();
    }
  }

  // A warp of the producer's group: sends off the staged tiles of `group`, one after the other, and fetches C's before.
  // Consumers only write them, and never work out where a tile lies.
  static GETT_DEVICE void send(const Params& p, uint32 staged, uint32 free, int group, int lane) {
    int turn = 0;
    Ahead<Traits, typename Index::Place> ahead;
    const int end = Cluster<Traits>::end(p);
    for (int t = Cluster<Traits>::first(p); t < end; t += Cluster<Traits>::step(p), ++turn) {
      ahead.next(p, t, turn, lane, [&](const TileId& id) { return Index::place(p, id.m, id.n, id.l); });
      if (Traits::kPingPong && turn % Traits::kConsumers != group) continue;
      const auto place = from_lane(ahead.found_, turn % 32);
      // A surplus block of a cluster stages what is no tile, and nobody takes it away.
      const bool exists = Cluster<Traits>::kSize == 1 || Cluster<Traits>::exists(p, from_lane(ahead.id_, turn % 32));
      if (elected()) {  // always the same thread, so that it waits for its own stores
        store_wait_read<0>();  // the previous tile has left
        if constexpr (Traits::kLoadC) {
          if (exists && adds(p)) {
            barrier_expect(free, Traits::kTransactionC);
            Index::load_c(p, place, staged, free);
          } else {
            barrier_arrive(free);
          }
        } else {
          barrier_arrive(free);
        }
      }
      __syncwarp();
      named_barrier(kReady + group, kThreads + 32);
      if constexpr (Halves::kOn) Halves::came(free);
      if (exists && elected()) {
        if constexpr (Halves::kOn) Index::store(p, place, staged + kTraded, cluster_rank());
        else Index::store(p, place, staged);
        store_commit();
      }
    }
    if (elected()) store_wait();
  }

  // beta = 0 means that C is not read at all, as in BLAS: it may hold anything.
  static GETT_DEVICE bool adds(const Params& p) { return !is_zero(p.beta); }

  // Once for all ways to store, none of which needs a copy of its code for alpha = 1 then, by which nothing is multiplied.
  static GETT_DEVICE void scale(const Params& p, Acc (&acc)[kMi][kN / 2]) {
    if (is_one(p.alpha)) return;
#pragma unroll
    for (int i = 0; i < kMi; ++i)
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) acc[i][j] = multiply(p.alpha, acc[i][j]);
  }

  // Visits the fragments' places in the staged tile, `rows` rows further on; padding stays out.
  template <class Visit>
  GETT_DEVICE void walk(const Params& p, Acc (&acc)[kMi][kN / 2], int block, int lane, int rows, const Visit& visit) const {
    if constexpr (kSparing) {
      block = anew(block);
      lane = anew(lane);
    }
    if constexpr (Traits::kPut == kPutElements) {
      elements(p, acc, block, lane, rows, visit);
    } else {
      Fragments<Traits, Index>(p, smem_address(base_), block, lane, rows).walk(acc, visit);
    }
  }

  template <class Visit>
  GETT_DEVICE void elements(
      const Params& p, Acc (&acc)[kMi][kN / 2], int block, int lane, int rows, const Visit& visit) const {
    Element* const to = reinterpret_cast<Element*>(base_);
    // Beside gathering threads registers are scarce: places are worked out here, not kept through the main loop.
    if constexpr (Traits::kGather && !Traits::kColumnsBy8) asm volatile("" : "+r"(lane));
    const int row = (lane >> 5) * 16 + ((lane & 31) >> 2), column = (lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < kMi; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int m = BoxRows<Traits>::at(block, i, row + r * 8);
        if (m >= Traits::kBoxM) continue;
        Element* const line = to + Index::stage_m(p, m + rows);
#pragma unroll
        for (int j = 0; j < kN / 8; ++j) {
          Acc &x = acc[i][j * 4 + r * 2], &y = acc[i][j * 4 + r * 2 + 1];
          int n0, n1;
          if constexpr (Traits::kColumnsBy8) {  // eight neighbours lie in one dimension: no decode per element
            n0 = Index::stage_n(p, j * 8) + column * Traits::kStageStepN;
            n1 = n0 + Traits::kStageStepN;
          } else {
            n0 = Index::stage_n(p, j * 8 + column);
            n1 = Index::stage_n(p, j * 8 + column + 1);
          }
          if constexpr (Traits::kColumnsBy8 && Traits::kStageStepN == 1) {
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
