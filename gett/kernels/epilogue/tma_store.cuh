// The epilogue whose tensor map stores D's tile. The consumer warpgroups stage it. A warp of the producer warpgroup
// issues the store, which runs while the next tile is multiplied. That warp also brings C's tile to the same places
// before (kSourceTma).
#pragma once
#include "gett/contract/stores.cuh"
#include "gett/epilogue/dsmem_exchange.cuh"
#include "gett/epilogue/staged.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/tma.cuh"
#include "gett/scheduler/prefetch.cuh"

namespace gett {

// Where the store warp is told that a tile is not to be stored, and whether this thread tells it so.
template <bool kRepairs> struct SkippedTile {};
template <> struct SkippedTile<true> {
  uint32 skip_at_ = 0;
  bool skip_ = false;
};

// Traits of a part of the tile that is staged alone (CUTLASS: epilogue tile).
template <class Traits> struct Subtile : Traits {
  static constexpr int kBlockN = Traits::kBlockN / Traits::kSubtiles, kBoxN = Traits::kBoxN / Traits::kSubtiles;
};

template <class Traits, class Index, class Scheduler>
  GETT_REQUIRES(contract::TmaStore<Traits, Index>)
struct TmaStore : StagedEpilogue<Traits, Index, Scheduler>, SkippedTile<Traits::kRepairs> {
  typedef StagedEpilogue<Traits, Index, Scheduler> Base;
  typedef typename Base::Params Params;
  typedef typename Base::Acc Acc;
  typedef typename Base::Op Op;
  typedef typename Base::Staged Staged;
  using Base::base_;
  using Base::barrier_;
  using Base::kThreads;
  using Base::sync;
  using Base::thread_;
  // Whether a warp of the producer warpgroup issues the stores. Where all of them gather, a consumer does.
  static constexpr bool kTmaStore = true, kStoreWarp = Traits::kStoreWarp, kStoresRows = false;
  static constexpr bool kReuseMainloopSmem = Traits::kReuseMainloopSmem;
  static_assert(Traits::kSourceC != kSourceTma || (kStoreWarp && !kReuseMainloopSmem),
                "a store warp brings C to the staging buffer once it is free");
  typedef DsmemExchange<Traits, Scheduler, kThreads> Exchange;
  // The staged tile, and behind it the one that is put together from two blocks' halves.
  static constexpr int kExchangedOffset = (Staged::kBytes + 1023) / 1024 * 1024;
  static constexpr int kTileBytes = Exchange::kOn ? kExchangedOffset + Staged::kBytes : Staged::kBytes;
  // Parts of the tile, staged one after the other in so many buffers. Whole tiles take turns in two of them.
  static constexpr int kSubtiles = Traits::kSubtiles, kSubtileBuffers = Traits::kSubtileBuffers;
  static constexpr bool kTurns = kSubtiles == 1 && kSubtileBuffers == 2;
  static_assert(kTurns || kSubtiles % kSubtileBuffers == 0, "each tile begins with the first buffer");
  // What a staging buffer takes of shared memory; slices are not staged.
  static constexpr int kBytes = Scheduler::kSplit ? 0 : kTileBytes * kSubtileBuffers;

  // The mbarrier of the staging buffers: the next one may be written, or C has arrived there.
  uint32 free_, phase_ = 0;

  GETT_DEVICE TmaStore(char* base, uint32 free, int thread, int group) : Base(base, thread, group), free_(free) {}

  GETT_DEVICE void prepare(const Params&, const TileId&) {}

  // Stages and stores a tile; `acc` is overwritten. A store tile may consist of several MMA tiles: all are staged, and
  // the last one causes the store.
  GETT_DEVICE void store(const Params& p, const TileId& id, Acc (&acc)[Base::kMmaM][Base::kN / 2], int block, int lane,
                         int mma_tile = 0) {
    const Op op(p);
    Base::scale(op, acc);
    const int rows = Traits::kMmaTilesPerStoreTile > 1 ? mma_tile * Traits::kBoxM : 0;  // of the MMA tiles before
    if constexpr (Traits::kSourceC == kSourceNone) Base::finish_sums(p, id, acc, block, lane, rows);
    if constexpr (kSubtiles > 1) store_subtiles(p, acc, block, lane);
    else store_whole(p, id, op, acc, block, lane, rows, mma_tile);
  }

  GETT_DEVICE int group() const { return Traits::kPingPong ? barrier_ - NamedBarrier::kTile : 0; }

  // Waits until the next buffer is free.
  GETT_DEVICE void wait_free() {
    mbarrier_wait(free_, phase_);
    phase_ ^= 1;
  }

  // The same of scaled sums.
  GETT_DEVICE void store_whole(const Params& p, const TileId& id, const Op& op, Acc (&acc)[Base::kMmaM][Base::kN / 2],
                               int block, int lane, int rows, int mma_tile) {
    // Warpgroups wait for the buffer one by one: the first stages while another still multiplies.
    if constexpr (kStoreWarp) {
      if constexpr (kReuseMainloopSmem) {
        sync();  // all have read the stages, where the tile is staged
        if constexpr (Exchange::kOn) Exchange::arrive_ready(free_, thread_);
      } else if (mma_tile == 0) {
        wait_free();
      }
    } else {
      if (thread_ == 0) tma_store_wait_read<0>();
      sync();
    }
    if constexpr (kStoreWarp && Traits::kRepairs) {
      if (this->skip_) st_shared(this->skip_at_, {1u});
    }
    char* const base = kTurns ? base_ + (phase_ ^ 1) * kTileBytes : base_;
    // All of C is read before D is written over it: else each load would wait behind a store.
    if constexpr (Traits::kSourceC == kSourceTma) {
      if (op.reads_source())
        this->template copy<Traits>(p, acc, base, block, lane, rows, AddStagedSource<Traits>{op});
      Base::finish_sums(p, id, acc, block, lane, rows);
    }
    this->template copy<Traits>(p, acc, base, block, lane, rows, StoreStaged<Traits>());
    if (Traits::kMmaTilesPerStoreTile > 1 && mma_tile + 1 < Traits::kMmaTilesPerStoreTile) return;
    if constexpr (Exchange::kOn) {
      sync();
      Exchange::send(free_, smem_address(base_), smem_address(base_) + kExchangedOffset, thread_);
    }
    fence_proxy_async();
    if constexpr (kStoreWarp) {
      named_barrier_arrive(NamedBarrier::kStaged + group(), kThreads + 32);
    } else {
      sync();
      if (thread_ == 0) {
        Index::store_tile(p, Index::store_coords(p, id.m, id.n, id.l), smem_address(base_));
        tma_store_commit();
      }
    }
  }

  // Stages a tile's parts, each once its buffer is free.
  GETT_DEVICE void store_subtiles(const Params& p, Acc (&acc)[Base::kMmaM][Base::kN / 2], int block, int lane) {
    typedef Subtile<Traits> Part;
    constexpr int kSums = Part::kBlockN / 2;
#pragma unroll
    for (int q = 0; q < kSubtiles; ++q) {
      Acc part[Base::kMmaM][kSums];
#pragma unroll
      for (int i = 0; i < Base::kMmaM; ++i)
#pragma unroll
        for (int j = 0; j < kSums; ++j) part[i][j] = acc[i][q * kSums + j];
      wait_free();
      if constexpr (Traits::kRepairs) {
        if (q == 0 && this->skip_) st_shared(this->skip_at_, {1u});
      }
      char* const base = base_ + q % kSubtileBuffers * kTileBytes;
      this->template copy<Part>(p, part, base, block, lane, 0, StoreStaged<Part>());
      fence_proxy_async();
      named_barrier_arrive(NamedBarrier::kStaged + group(), kThreads + 32);
    }
  }

  GETT_DEVICE void finish() const {
    if constexpr (!kStoreWarp) {
      if (thread_ == 0) tma_store_wait_read<0>();
    }
  }

  // The store warp of `group`: for each of its tiles it frees the staging buffer, or has C brought there. It waits
  // until the tile is staged, and stores it. So consumers need not compute where a tile lies.
  static GETT_DEVICE void store_loop(const Params& p, uint32 staged, uint32 free, int group, int lane) {
    uint32 turn = 0;
    store_loop(p, staged, free, group, lane, AllTiles(), turn);
  }
  // Of the tiles that `tiles` takes. `turn` is the buffer that comes next where there are two.
  template <class Tiles>
  static GETT_DEVICE void store_loop(const Params& p, uint32 staged, uint32 free, int group, int lane,
                                     const Tiles& tiles, uint32& turn) {
    int count = Scheduler::kParts;  // parts of tiles leave by the consumers
    const Op op(p);
    WorkTilePrefetch<Scheduler, typename Index::StoreCoords> prefetch;
    const int first = Scheduler::first(p) + count * Scheduler::step(p), end = Scheduler::end(p);
    for (int t = first; t < end; t += Scheduler::step(p), ++count) {
      const int own = count - Scheduler::kParts;
      prefetch.next(p, t, own, lane, [&](const TileId& id) { return Index::store_coords(p, id.m, id.n, id.l); });
      if (Traits::kPingPong && count % Traits::kConsumerWarpgroups != group) continue;
      if (!tiles.takes(count)) continue;
      const auto coords = from_lane(prefetch.found_, own % 32);
      // A surplus block of a cluster stages a tile that does not exist.
      const bool exists = Scheduler::kSize == 1 || Scheduler::exists(p, from_lane(prefetch.id_, own % 32));
      store_tile(p, op, coords, staged, free, group, exists, [&] { return tiles.stores(count); }, turn);
    }
    if (elect_one()) tma_store_wait_read<0>();
  }

  // What it does for one tile, part by part. Where nothing of several parts or buffers is stored, an empty group counts
  // as the store of each.
  template <class Stores>
  static GETT_DEVICE void store_tile(const Params& p, const Op& op, const typename Index::StoreCoords& coords,
                                     uint32 staged, uint32 free, int group, bool exists, const Stores& stores,
                                     uint32& turn) {
#pragma unroll 1
    for (int q = 0; q < kSubtiles; ++q) {
      const uint32 buffer = staged + (kTurns ? turn : q % kSubtileBuffers) * kTileBytes;
      if constexpr (kTurns) turn ^= 1;
      if (elect_one()) {                              // always the same thread, which waits for its own stores
        tma_store_wait_read<kSubtileBuffers - 1>();  // the store that used the buffer last has read it
        if constexpr (Traits::kSourceC == kSourceTma) {
          if (exists && op.reads_source()) {
            mbarrier_arrive_expect_tx(free, Traits::kTransactionBytesC);
            Index::load_c(p, coords, buffer, free);
          } else {
            mbarrier_arrive(free);
          }
        } else {
          mbarrier_arrive(free);
        }
      }
      __syncwarp();
      named_barrier_sync(NamedBarrier::kStaged + group, kThreads + 32);
      if constexpr (Exchange::kOn) Exchange::wait(free);
      if constexpr (kSubtiles > 1 || kTurns) {
        if (q == 0) exists = exists && stores();
        if (elect_one()) {
          if (exists) store_part(p, coords, buffer, q);
          tma_store_commit();
        }
      } else if (exists && stores() && elect_one()) {
        if constexpr (Exchange::kOn) Index::store_tile(p, coords, staged + kExchangedOffset, cluster_ctarank());
        else Index::store_tile(p, coords, staged);
        tma_store_commit();
      }
    }
  }
  static GETT_DEVICE void store_part(const Params& p, const typename Index::StoreCoords& coords, uint32 buffer, int q) {
    if constexpr (kSubtiles > 1) Index::store_tile(p, coords, buffer, q);
    else Index::store_tile(p, coords, buffer);
  }
};

}  // namespace gett
