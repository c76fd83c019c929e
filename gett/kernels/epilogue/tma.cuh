// The epilogue of wgmma kernels. The consumer warpgroups stage a tile of D in shared memory in D's own order. Where a
// tensor map can store it (kTmaStore), a warp of the producer warpgroup issues the store, which runs while the next
// tile is multiplied; that warp also brings C's tile to the same places before (kSourceTma). Else the consumers store
// vectors (epilogue/vector.cuh) or rows (epilogue/row.cuh) from a staged tile whose padding keeps fragments in
// different banks.
#pragma once
#include "gett/epilogue/dsmem_exchange.cuh"
#include "gett/epilogue/epilogue_op.cuh"
#include "gett/epilogue/r2s.cuh"
#include "gett/epilogue/row.cuh"
#include "gett/epilogue/vector.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/tma.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/prefetch.cuh"

namespace gett {

// The staged tile. The element of row m and column n is at Index::staging_m(m) + Index::staging_n(n).
template <class Traits> struct StagedTile {
  typedef typename LinearCombination<Traits>::Staged Element;
  // Behind the elements, 128 bytes take what stmatrix writes for padding.
  static constexpr int kUsed =
      Traits::kStagingElements * int(sizeof(Element)) + (Traits::kR2SCopy == kR2SScalar ? 0 : 128);
  static constexpr int kAlign = Traits::kSwizzleBytesD > 16 ? 1024 : 128;  // the period of the swizzle
  static constexpr int kBytes = (kUsed + kAlign - 1) / kAlign * kAlign;
  static constexpr int kBatch = Traits::kVecD * sizeof(Element) > 16 ? 2 : 4;
  const Element* base_;
  template <int kV> GETT_DEVICE void load(const MNAt& mn, Element (&x)[kV]) const {
    if constexpr (kV * sizeof(Element) <= 16) {
      const auto v = Vec<Element, kV>::load(base_ + mn.at);
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = v.x[j];
    } else {
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = base_[mn.at + j];
    }
  }
};

template <class Traits, class Index, class Scheduler> struct Epilogue {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef LinearCombination<Traits> Op;
  typedef StagedTile<Traits> Staged;
  typedef typename Staged::Element Element;
  typedef TileOp<Traits, Index> Function;
  static constexpr int kMmaM = Traits::kMmaM, kN = Traits::kBlockN;
  static constexpr int kThreads = 128 * (Traits::kPingPong ? 1 : Traits::kConsumerWarpgroups);  // that share a tile
  // Whether a warp of the producer warpgroup issues the stores. Where all of them gather, a consumer does.
  static constexpr bool kTmaStore = Traits::kTmaStore, kStoreWarp = Traits::kStoreWarp;
  static constexpr bool kStoresRows = Traits::kRowLengthD > 0, kVectorSource = Traits::kSourceC == kSourceVector;
  static constexpr bool kReuseMainloopSmem = Traits::kReuseMainloopSmem;
  static_assert(Traits::kSourceC != kSourceTma || (kStoreWarp && !Traits::kReuseMainloopSmem),
                "a store warp brings C to the staging buffer once it is free");
  typedef DsmemExchange<Traits, Scheduler, kThreads> Exchange;
  static constexpr int kStagedBarrier = 12;  // named barriers: the staged tile is written
  // The staged tile, and behind it the one that is put together from two blocks' halves.
  static constexpr int kExchangedOffset = (Staged::kBytes + 1023) / 1024 * 1024;
  static constexpr int kTileBytes = Exchange::kOn ? kExchangedOffset + Staged::kBytes : Staged::kBytes;
  // What a staging buffer takes of shared memory; slices are not staged. Their number: a ping-pong kernel has one for
  // each warpgroup.
  static constexpr int kBytes = Scheduler::kSplit ? 0 : kTileBytes + (kTmaStore ? 0 : EpilogueOffsets<Traits>::kBytes);
  static constexpr int kBuffers = Traits::kPingPong ? Traits::kConsumerWarpgroups : 1;

  char* base_;
  int thread_, barrier_;
  // The mbarrier of the staging buffer: it may be written, or C has arrived there.
  uint32 free_, phase_ = 0;
  EpilogueOffsets<Traits> offsets_;

  GETT_DEVICE Epilogue(char* base, uint32 free, int thread, int group)
      : base_(base), thread_(thread), barrier_(1 + (Traits::kPingPong ? group : 0)), free_(free),
        offsets_{reinterpret_cast<long long*>(base + Staged::kBytes)} {}

  GETT_DEVICE void sync() const { named_barrier_sync(barrier_, kThreads); }

  // Before the products of a tile: fills the offsets of its rows and columns where vectors or rows are stored.
  GETT_DEVICE void prepare(const Params& p, const TileId& id) {
    if constexpr (!Traits::kTmaStore && !Scheduler::kSplit) {
      sync();  // the stores of the tile before have read the table
      const int thread = GETT_RECOMPUTE(thread_);
      offsets_.template fill<Index>(p, Index::m_tile(p, id.m), Index::n_tile(p, id.n), thread, kThreads);
    }
  }

  // Stages and stores a tile; `acc` is overwritten. A store tile may consist of several MMA tiles: all are staged, and
  // the last one causes the store.
  GETT_DEVICE void store(const Params& p, const TileId& id, Acc (&acc)[kMmaM][kN / 2], int block, int lane,
                         int mma_tile = 0) {
    const Op op(p);
    scale(op, acc);
    const int rows = Traits::kMmaTilesPerStoreTile > 1 ? mma_tile * Traits::kBoxM : 0;  // of the MMA tiles before
    if constexpr (Traits::kSourceC == kSourceNone) finish_sums(p, id, acc, block, lane, rows);
    if constexpr (Traits::kTmaStore) {
      const int group = Traits::kPingPong ? barrier_ - 1 : 0;
      // Warpgroups wait for the buffer one by one: the first stages while another still multiplies.
      if constexpr (kStoreWarp) {
        if constexpr (Traits::kReuseMainloopSmem) {
          sync();  // all have read the stages, where the tile is staged
          if constexpr (Exchange::kOn) Exchange::arrive_ready(free_, thread_);
        } else if (mma_tile == 0) {
          mbarrier_wait(free_, phase_);
          phase_ ^= 1;
        }
      } else {
        if (thread_ == 0) tma_store_wait_read<0>();
        sync();
      }
      // All of C is read before D is written over it: else each load would wait behind a store.
      if constexpr (Traits::kSourceC == kSourceTma) {
        if (op.reads_source()) copy(p, acc, block, lane, rows, AddStagedSource<Traits>{op});
        finish_sums(p, id, acc, block, lane, rows);
      }
      copy(p, acc, block, lane, rows, StoreStaged<Traits>());
      if (Traits::kMmaTilesPerStoreTile > 1 && mma_tile + 1 < Traits::kMmaTilesPerStoreTile) return;
      if constexpr (Exchange::kOn) {
        sync();
        Exchange::send(free_, smem_address(base_), smem_address(base_) + kExchangedOffset, thread_);
      }
      fence_proxy_async();
      if constexpr (kStoreWarp) {
        named_barrier_arrive(kStagedBarrier + group, kThreads + 32);
      } else {
        sync();
        if (thread_ == 0) {
          Index::store_tile(p, Index::store_coords(p, id.m, id.n, id.l), smem_address(base_));
          tma_store_commit();
        }
      }
    } else {
      const R2SScalarCopy<Traits, Index> r2s{p, reinterpret_cast<Element*>(base_), GETT_RECOMPUTE(block), 0};
      r2s.visit(acc, GETT_RECOMPUTE(lane), StoreStaged<Traits>());
      sync();
      const auto lt = Index::l_tile(p, id.l);
      if constexpr (Traits::kRowLengthD > 0) {
        const int m = opaque(id.m), n = opaque(id.n);  // not kept through the main loop
        const int length = min(Traits::kRowLengthD, Index::d_remaining(p, m, n));
        store_rows<Traits, Index>(p, p.d + lt.d, offsets_, smem_address(base_), length, thread_, kThreads);
        return;
      }
      const typename Traits::ElementC* c = nullptr;
      if constexpr (Traits::kSourceC == kSourceVector) c = p.c + lt.c;
      const Staged staged{reinterpret_cast<const Element*>(base_)};
      store_vectors<Traits, Index>(p, p.d + lt.d, c, offsets_, staged, Function(p, id), GETT_RECOMPUTE(thread_),
                                   kThreads);
    }
  }

  GETT_DEVICE void finish() const {
    if constexpr (Traits::kTmaStore && !kStoreWarp) {
      if (thread_ == 0) tma_store_wait_read<0>();
    }
  }

  // The store warp of `group`: for each of its tiles it frees the staging buffer, or has C brought there, waits until
  // the tile is staged, and stores it. So consumers need not compute where a tile lies.
  static GETT_DEVICE void store_loop(const Params& p, uint32 staged, uint32 free, int group, int lane) {
    int count = 0;
    const Op op(p);
    WorkTilePrefetch<Scheduler, typename Index::StoreCoords> prefetch;
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p), ++count) {
      prefetch.next(p, t, count, lane, [&](const TileId& id) { return Index::store_coords(p, id.m, id.n, id.l); });
      if (Traits::kPingPong && count % Traits::kConsumerWarpgroups != group) continue;
      const auto coords = from_lane(prefetch.found_, count % 32);
      // A surplus block of a cluster stages a tile that does not exist.
      const bool exists = Scheduler::kSize == 1 || Scheduler::exists(p, from_lane(prefetch.id_, count % 32));
      if (elect_one()) {           // always the same thread, which waits for its own stores
        tma_store_wait_read<0>();  // the store of the tile before has read the buffer
        if constexpr (Traits::kSourceC == kSourceTma) {
          if (exists && op.reads_source()) {
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

  // Scales all accumulators at once, so that the code of the copies exists once and not for alpha = 1 and others.
  static GETT_DEVICE void scale(const Op& op, Acc (&acc)[kMmaM][kN / 2]) {
    if (!op.is_scaled()) return;
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) acc[i][j] = op.scale(acc[i][j]);
  }

  // Applies the plan's function to sums that are complete.
  static GETT_DEVICE void finish_sums(const Params& p, const TileId& id, Acc (&acc)[kMmaM][kN / 2], int block, int lane,
                                      int rows) {
    if constexpr (Function::kOn) {
      // A surplus block of a cluster has a tile that does not exist, and so do the tensors' elements.
      if (Function::kReads && Scheduler::kSize > 1 && !Scheduler::exists(p, id)) return;
      AccumulatorTile<Traits> tile{acc, opaque(block), opaque(lane), rows};
      Function(p, id).apply(tile, [](Acc x) { return x; });
    }
  }

  // Visits the accumulators with their places in the staged tile, `rows` rows further on. Padding is left out.
  template <class Visit>
  GETT_DEVICE void copy(const Params& p, Acc (&acc)[kMmaM][kN / 2], int block, int lane, int rows,
                        const Visit& visit) const {
    if constexpr (kSparing) {
      block = opaque(block);
      lane = opaque(lane);
    }
    if constexpr (Traits::kR2SCopy == kR2SScalar) {
      R2SScalarCopy<Traits, Index>{p, reinterpret_cast<Element*>(base_), block, rows}.visit(acc, lane, visit);
    } else {
      R2STiledCopy<Traits, Index>(p, smem_address(base_), block, lane, rows).visit(acc, visit);
    }
  }
};

}  // namespace gett
