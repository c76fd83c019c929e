// The loader that fills the stages of a warp-specialised kernel by cp.async, for operands that no tensor map takes. A
// tensor map moves rows of whole 16 bytes of five dimensions at most. cp.async moves vectors of 4, 8 or 16 bytes from
// and to anywhere. The tile is laid out as a tensor map lays it out. An operand that a tensor map brings comes by TMA.
//
// A thread has one vector of every row and several rows. The address of its vector stays in registers. The offsets of
// the rows lie in a table in shared memory, which the warps write once a tile. No registers wait for memory: an
// mbarrier counts the copies of each thread when they have landed.
#pragma once
#include "gett/core/pipeline.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/loader/operand_index.cuh"
#include "gett/ptx/cp_async.cuh"
#include "gett/ptx/mbarrier.cuh"
#include "gett/ptx/opaque.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/persistent.cuh"

namespace gett {

// How many of `count` copies, of rows that are `step` apart, one turn of a loop makes. The swizzle repeats after them,
// so that places differ by constants.
GETT_DEVICE constexpr int copies_together(int count, int step) {
  for (int found = 8; found > 1; --found)
    if (count % found == 0 && (found == count || found * step % 8 == 0)) return found;
  return 1;
}

// One operand; `Tile` is its SmemOperand.
template <class Traits, class Index, class Tile, bool kIsA, bool = true>
struct CpAsyncTile : OperandIndex<Traits, Index, kIsA> {
  typedef OperandIndex<Traits, Index, kIsA> Operand;
  typedef typename Operand::Params Params;
  typedef typename Operand::LoaderTraits LoaderTraits;
  using Operand::kBox;
  using Operand::kE;
  static constexpr bool kCopies = true, kMajorK = LoaderTraits::kMajorK;
  static constexpr int kThreads = 128, kVector = LoaderTraits::kVector, kS = Tile::kSwizzleBytes;
  static constexpr int kDeep = Traits::kBlockK;
  static constexpr int kRows = kMajorK ? (kBox + 7) / 8 * 8 : kDeep;  // of the tile in shared memory
  static constexpr int kVectors = (kMajorK ? kDeep : (kBox + 7) / 8 * 8) / kVector;  // of a row
  // A power of two of neighbouring threads share a row, the others have the rows behind it.
  static constexpr int kLanes =
      kVectors <= 8 ? 8 : kVectors <= 16 ? 16 : kVectors <= 32 ? 32 : kVectors <= 64 ? 64 : kThreads;
  static constexpr int kAtOnce = kThreads / kLanes, kPer = (kRows + kAtOnce - 1) / kAtOnce;
  static constexpr bool kAllRows = kPer * kAtOnce == kRows;
  static constexpr int kTogether = copies_together(kPer, kAtOnce), kWords = kTogether % 4 ? 1 : 4;
  static constexpr int kStride = (kPer + 3) / 4 * 4;
  static constexpr int kEntries = kAtOnce * kStride + kLanes;
  static constexpr int kTableBytes = (kEntries + 3) / 4 * 16;
  static_assert(kVectors <= kThreads && kDeep <= 32, "a thread has one vector of a row; a bit for each k");

  const char* from_;   // the thread's first vector, at K's start
  uint32 table_, to_;  // the offsets of its rows; the place of its first vector

  static GETT_DEVICE int inner(int thread) { return thread % kLanes * kVector; }  // its first element of a row
  static GETT_DEVICE int row(int thread) { return thread / kLanes; }              // its first row
  static GETT_DEVICE bool has(int thread) { return kVectors == kLanes || thread % kLanes < kVectors; }

  GETT_DEVICE CpAsyncTile(uint32 table, int thread) {
    table_ = table + row(thread) * kStride * 4;
    const int byte = inner(thread) * kE;
    to_ = byte / kS * Tile::kSlab + HardwareSwizzle<kS>::apply(row(thread) * kS + byte % kS);
  }
  // Writes the offsets of a tile's rows, and of the vectors of a row behind them. For rows and columns that the tensor
  // lacks, others are read. So what lies in padding does not change from run to run.
  static GETT_DEVICE void tabulate(const Params& p, const TileId& id, uint32 table, int thread) {
    const auto t = Operand::mn_tile(p, id);
#pragma unroll 1
    for (int i = thread; i < kEntries; i += kThreads) {
      const bool is_row = i < kAtOnce * kStride;
      const int at = is_row ? i % kStride * kAtOnce + i / kStride : (i - kAtOnce * kStride) * kVector;
      int offset = 0;
      if (is_row == kMajorK) {
        const auto has = [&](int mn) { return mn < kBox && Operand::mn_ok(p, t, mn); };
        offset = Operand::offset_mn(p, t, padding_source<kMajorK ? 8 : 8 * kVector>(at, has));
      } else if (at < kDeep && Index::k_ok(p, at)) {
        offset = Operand::offset_k(p, at);
      }
      st_shared(table + i * 4, {uint32(offset)});
    }
  }
  // Moves to a tile whose table has been written.
  GETT_DEVICE void locate(const Params& p, const TileId& id, uint32 table, int thread) {
    const int offset = int(ld_shared_u32(table + (kAtOnce * kStride + thread % kLanes) * 4));
    const auto l = Index::l_tile(p, id.l);
    const auto t = Operand::mn_tile(p, id);
    from_ = Operand::base(p) + (Operand::origin(l) + Operand::origin(t) + offset) * kE;
  }
  // Whether k `local` of a k-tile that is not whole is part of K.
  template <class KTile> static GETT_DEVICE bool is_valid(const Params& p, const KTile& k, int local) {
    return local < kDeep && Index::k_ok(p, local) && Operand::valid_k(p, k, local) > 0;
  }
  // The thread's first vector of a k-tile.
  template <class KTile> GETT_DEVICE const char* source(const KTile& k) const {
    return from_ + Operand::origin(k) * kE;
  }
  // Copies a k-tile; `whole` is whether all of it is part of K. Where it is not, zeros are written.
  template <class KTile>
  GETT_DEVICE void load(const Params& p, const KTile& k, bool whole, uint32 tile, int thread) const {
    if (whole) {
      copy<true>(source(k), tile, ~0u, thread);
    } else {
      const bool is = is_valid(p, k, kMajorK ? inner(opaque(thread)) : opaque(thread) & 31);
      copy<false>(source(k), tile, kMajorK ? (is ? ~0u : 0) : __ballot_sync(~0u, is), thread);
    }
  }
  // `rows` has a bit for each row along K, or says of all whether the thread's vector of them is part of K.
  template <bool kWhole> GETT_DEVICE void copy(const char* from, uint32 tile, uint32 rows, int thread) const {
    if (!has(thread)) return;
    const uint64 base = opaque(reinterpret_cast<uint64>(from));  // one addition a copy
    uint32 to = tile + to_, own = kMajorK ? rows : rows >> row(thread), table = table_;
#pragma unroll 1
    for (int first = 0; first < kPer; first += kTogether) {
      uint32 offset[kTogether / kWords][kWords];
#pragma unroll
      for (int i = 0; i < kTogether / kWords; ++i) ld_shared(table + i * kWords * 4, offset[i]);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int down = i * kAtOnce;
        if (!kAllRows && row(thread) + first * kAtOnce + down >= kRows) continue;
        const uint32 at = (to ^ HardwareSwizzle<kS>::bits(down * kS)) + down * kS;
        const void* const source = reinterpret_cast<const void*>(base + uint64(offset[i / kWords][i % kWords]) * kE);
        if constexpr (kWhole) cp_async<kVector * kE>(at, source);
        else cp_async<kVector * kE>(at, source, own >> (kMajorK ? 0 : down) & 1);
      }
      table += kTogether * 4;
      to += kTogether * kAtOnce * kS;
      if constexpr (!kMajorK && kTogether * kAtOnce < 32) own >>= kTogether * kAtOnce;
    }
  }
};

// An operand that a tensor map brings.
template <class Traits, class Index, class Tile, bool kIsA> struct CpAsyncTile<Traits, Index, Tile, kIsA, false> {
  static constexpr bool kCopies = false;
  static constexpr int kThreads = 128, kTableBytes = 0;
  GETT_DEVICE CpAsyncTile(uint32, int) {}
};

template <class Traits, class Index, class Scheduler, class Storage> struct CpAsyncTileLoader {
  typedef typename Traits::Params Params;
  typedef PipelineState<Traits::kStages> Stage;
  static constexpr bool kCopiesA = Traits::LoaderTraitsA::kKind == kLoaderCpAsyncTile;
  static constexpr bool kCopiesB = Traits::LoaderTraitsB::kKind == kLoaderCpAsyncTile;
  typedef CpAsyncTile<Traits, Index, typename Storage::TileA, true, kCopiesA> A;
  typedef CpAsyncTile<Traits, Index, typename Storage::TileB, false, kCopiesB> B;
  static constexpr int kThreads = A::kThreads;
  static constexpr bool kOneByTma = !A::kCopies || !B::kCopies;

  // Loads the tiles that `tiles` takes, from stage `stage` on; returns the stage behind the last.
  template <class Tiles>
  static GETT_DEVICE Stage run(const Params& p, const Storage& smem, int thread, Stage stage, const Tiles& tiles) {
    const Scheduler scheduler;
    const uint32 table_a = smem.row_tables(), table_b = table_a + A::kTableBytes;
    A a(table_a, thread);
    B b(table_b, thread);
    int count = 0;
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p), ++count) {
      if (!tiles.takes(count)) continue;
      const Params& q = hidden(p);  // strides of many modes would fill the registers
      const TileId id = scheduler.locate(p, t);
      named_barrier_sync(NamedBarrier::kRowTables, kThreads);  // all have read the tables of the tile before
      if constexpr (A::kCopies) A::tabulate(q, id, table_a, thread);
      if constexpr (B::kCopies) B::tabulate(q, id, table_b, thread);
      named_barrier_sync(NamedBarrier::kRowTables, kThreads);
      if constexpr (A::kCopies) a.locate(q, id, table_a, thread);
      if constexpr (B::kCopies) b.locate(q, id, table_b, thread);
      const KTileRange k_tiles = Scheduler::k_tiles(p, t, Scheduler::kSplit ? id.slice : 0);
#pragma unroll 1
      for (int kt = k_tiles.first; kt < k_tiles.last; ++kt) {
        const auto k = Index::k_tile(hidden(p), kt);  // strides of many modes would fill the registers
        const bool whole = Index::k_whole(p, k);
        mbarrier_wait(stage.bar(smem.empty()), stage.phase);
        const uint32 bar = stage.bar(smem.full()), to = smem.stage(stage.stage);
        if constexpr (kOneByTma) {
          if (thread == 0) {
            mbarrier_arrive_expect_tx(bar, Storage::kTransactionBytes);
            const auto coords = Index::tile_coords(p, id.m, id.n, id.l);
            Index::load_stage(p, coords, kt, to, to + Storage::kStageA, bar, {0, 1}, {0, 1}, true);
          }
          __syncwarp();
        }
        if constexpr (A::kCopies) a.load(p, k, whole, to, thread);
        if constexpr (B::kCopies) b.load(p, k, whole, to + Storage::kStageA, thread);
        cp_async_mbarrier_arrive(bar);
        ++stage;
      }
    }
    return stage;
  }
};

// What the copies of a stage need: warps, arrivals that make it full, tables.
template <class Traits, class Index, class Scheduler, class Storage, bool kCopies> struct CpAsyncTileNeeds {
  typedef CpAsyncTileLoader<Traits, Index, Scheduler, Storage> Loader;
  static constexpr int kWarps = Loader::kThreads / 32, kArrivals = Loader::kThreads + (Loader::kOneByTma ? 1 : 0);
  static constexpr int kTableBytes = Loader::A::kTableBytes + Loader::B::kTableBytes;
};
template <class Traits, class Index, class Scheduler, class Storage>
struct CpAsyncTileNeeds<Traits, Index, Scheduler, Storage, false> {
  static constexpr int kWarps = 1, kArrivals = 1, kTableBytes = 0;
};

}  // namespace gett
