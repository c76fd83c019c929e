// The Hopper family: tensor-map copies into the tiles that wgmma reads, warp-specialised and persistent.
//
// One producer thread walks the block's tiles and keeps kStages stages full; kConsumerWarpgroups warpgroups multiply. Operand
// tiles lie in slabs: K-major, [slab][row][span bytes of k]; MN-major, [chunk of span bytes][k]. Which box lands
// where is said by the generated Index: `load_a` and `load_b` issue the copies of a stage.
//
// Cooperative: the warpgroups share a tile, each kMmaM blocks of 64 rows. Ping-pong: each has tiles of its own, so that
// one stores while the other multiplies.
//
// An operand that is small and the same for every tile may stay (kStationaryKTiles): it is fetched once, whole, behind the
// stages, which then hold the other operand alone. Or its rows of one line of tiles stay (kEachPanel): a block makes
// neighbouring tiles and fetches the next line's rows while it multiplies with this one's (sm90_keep.cuh).
//
// A tile of D may be made in kMmaTilesPerStoreTile parts, neighbours along the last dimension of M's box: the accumulators of one are
// staged, then those of the next, and the whole leaves at once, in rows longer than the accumulators would allow.
//
// A block that makes one tile (kReuseMainloopSmem) stages it where the stages were: more of them are under way.
#pragma once
#include "gett/epilogue/tma.cuh"
#include "gett/loader/gather.cuh"
#include "gett/loader/k_residue.cuh"
#include "gett/loader/stationary.cuh"
#include "gett/mainloop/smem_descriptor.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/wgmma.cuh"
#include "gett/scheduler/persistent.cuh"
#include "gett/scheduler/prefetch.cuh"

namespace gett {

template <class Traits, class Index, class Mma> struct WarpSpecializedGemm {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef PersistentScheduler<Traits> Scheduler;
  typedef Epilogue<Traits, Index> Out;
  static constexpr int kE = sizeof(typename Traits::Element);
  static constexpr int kMmaM = Traits::kMmaM, kN = Traits::kBlockN;
  static constexpr int kRows = Traits::kBlockM;  // of one tile
  typedef SmemOperand<typename Traits::LoaderTraitsA, Traits::kRowsA, 64, Traits::kBlockK, kE, (Traits::kInterleaveRows < 64 ? kMmaM : 1)> TileA;
  typedef SmemOperand<typename Traits::LoaderTraitsB, Traits::kRowsB, 8, Traits::kBlockK, kE> TileB;
  static constexpr int kStationaryKTiles = Traits::kStationaryKTiles;  // k-tiles of the operand that stays; 0: none does
  static constexpr bool kStationaryA = kStationaryKTiles > 0 && Traits::kStationaryA, kStationaryB = kStationaryKTiles > 0 && !Traits::kStationaryA;
  static constexpr int kStageA = kStationaryA ? 0 : TileA::kBytes;
  static constexpr int kStageBytes = kStageA + (kStationaryB ? 0 : TileB::kBytes);
  static constexpr int kStationaryOffset = Traits::kStages * kStageBytes;  // where it lies
  static constexpr int kStationaryPitch = kStationaryA ? TileA::kPitch : TileB::kPitch;
  typedef StationaryOperand<Traits, kStationaryPitch> Stationary;
  static constexpr int kStationaryBytes =
      kStationaryKTiles == 0 ? 0 : (Stationary::kTiles - 1) * kStationaryPitch + (kStationaryA ? TileA::kBytes : TileB::kBytes);
  static constexpr int kLoaded = kStationaryOffset + kStationaryBytes;
  static constexpr int kStore = Traits::kReuseMainloopSmem ? 0 : kLoaded;  // where staging buffers begin
  typedef KResidue<TileA, Traits::kRowsA, Traits::kValidKA, Traits::kBlockK, kE> TailA;
  typedef KResidue<TileB, Traits::kRowsB, Traits::kValidKB, Traits::kBlockK, kE> TailB;
  static constexpr int kSteps = Traits::kBlockK / (32 / kE);
  static constexpr int kPingPongBarrier = 4;  // named barriers of the warpgroups' turns
  static constexpr int kStorers = Traits::kPingPong ? Traits::kConsumerWarpgroups : 1;
  static constexpr int kConsumersPerTile = Traits::kPingPong ? 1 : Traits::kConsumerWarpgroups;
  static constexpr int kOffsets = Traits::kSplit || Traits::kTmaStore ? 0 : EpilogueOffsets<Traits>::kBytes;
  static constexpr int kStaging = Traits::kSplit ? 0 : Out::kBytes;
  static constexpr int kStoreBytes = kStorers * (kStaging + (kOffsets + 127) / 128 * 128);
  // Of stages, of two staging buffers and a trade, of the operand that stays.
  static constexpr int kOthers = 2 + Out::Exchange::kBarriers;
  static constexpr int kBarrierBytes = (2 * Traits::kStages + kOthers) * 8 + Stationary::kBarrierBytes;
  // Where barriers begin.
  static constexpr int kBarriers = Traits::kReuseMainloopSmem && kLoaded > kStoreBytes ? kLoaded : kStore + kStoreBytes;
  typedef GatherNeeds<Traits, Index, Traits::kGather> Needs;
  static constexpr int kSmemBytes = 1024 + kBarriers + kBarrierBytes + Needs::kBytes;
  static constexpr bool kOneMmaTile = Traits::kMmaTilesPerStoreTile == 1;
  static_assert(!Traits::kReuseMainloopSmem || (Out::kSender && kOneMmaTile && !Traits::kPingPong), "the tile's stages are behind it");
  static_assert(kOneMmaTile || (Out::kSender && !Traits::kPingPong && !Traits::kSplit), "parts are staged together");
  static_assert(kSmemBytes <= Traits::kSmemBytes, "the schedule reserved too little shared memory");

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char raw[];
    const uint32 start = (smem_address(raw) + 1023) & ~1023u;
    char* const smem = raw + (start - smem_address(raw));
    const uint32 full = start + kBarriers, empty = full + Traits::kStages * 8;
    const uint32 free = empty + Traits::kStages * 8;  // staging buffers
    const int thread = threadIdx.x;
    if (thread == 0) {
      Index::prefetch_tensormaps(p);
      for (int s = 0; s < Traits::kStages; ++s) {
        mbarrier_init(full + s * 8, Needs::kArrivals);
        mbarrier_init(empty + s * 8, kConsumersPerTile * Scheduler::kSize);
      }
      for (int g = 0; g < kStorers; ++g) mbarrier_init(free + g * 8, 1);
      Out::Exchange::init(free);
      Stationary::init(stationary_barrier(empty));
      fence_mbarrier_init();
    }
    Scheduler::sync();
    constexpr int kProducerWarpgroups = 128 * Traits::kProducerWarpgroups;
    if (thread < kProducerWarpgroups) {
      setmaxnreg_dec<Traits::kProducerRegs>();
      if constexpr (Traits::kGather) {
        char* const ring = smem + kBarriers + kBarrierBytes;
        GatherLoader<Traits, Index>::run(p, ring, start, kStageBytes, TileA::kBytes, full, empty, thread);
      } else if (thread < 32) {
        produce(p, start, full, empty, thread);
      }
      if constexpr (Out::kSender) {  // one more warp for each tile that is staged at a time
        const int warp = thread >> 5;
        if (warp >= 1 && warp <= kStorers) {
          const uint32 staged = start + kStore + (warp - 1) * (kStoreBytes / kStorers);
          Out::store_loop(p, staged, free + (warp - 1) * 8, warp - 1, thread & 31);
        }
      }
    } else {
      static_assert(setmaxnreg_fits(Traits::kProducerWarpgroups, Traits::kProducerRegs, Traits::kConsumerWarpgroups, Traits::kConsumerRegs), "of a block");
      setmaxnreg_inc<Traits::kConsumerRegs>();
      consume(p, smem, start, full, empty, thread - kProducerWarpgroups);
    }
    Scheduler::finish();  // the others may still write here
  }

  static GETT_DEVICE int slice_end(const Params& p, int slice) {
    return min((slice + 1) * p.k_tiles_per_slice, p.k_tiles);
  }

  // Tiles of an operand: one a stage, or those that stay.
  static GETT_DEVICE TileBuffers staged_at(uint32 start, int at) { return {start + at, Traits::kStages, kStageBytes}; }
  static GETT_DEVICE TileBuffers stationary_at(uint32 start) { return {start + kStationaryOffset, Stationary::kTiles, kStationaryPitch}; }

  static GETT_DEVICE uint32 stationary_barrier(uint32 empty) { return empty + (Traits::kStages + kOthers) * 8; }

  static GETT_DEVICE void produce(const Params& p, uint32 start, uint32 full, uint32 empty, int lane) {
    int stage = 0, tile_count = 0;
    const Scheduler group;
    uint32 phase = 1;  // a fresh barrier lets the wait for its previous phase through
    Stationary kept(p, stationary_barrier(empty));
    WorkTilePrefetch<Traits, typename Index::TileCoords> prefetch;
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p), ++tile_count) {
      prefetch.next(p, t, tile_count, lane, [&](const TileId& id) { return Index::tile_coords(p, id.m, id.n, id.l); });
      auto at = from_lane(prefetch.found_, tile_count % 32);
      kept.template fetch<Index>(p, t, at, start + kStationaryOffset);
      const int slice = Traits::kSplit ? __shfl_sync(0xffffffffu, prefetch.id_.slice, tile_count % 32) : 0;
#pragma unroll 1
      for (int mma_tile = 0; mma_tile < Traits::kMmaTilesPerStoreTile; ++mma_tile) {
        if constexpr (Traits::kMmaTilesPerStoreTile > 1) {
          if (mma_tile > 0) Index::next_mma_tile(at);
        }
        for (int kt = slice * p.k_tiles_per_slice; kt < slice_end(p, slice); ++kt) {
          mbarrier_wait(empty + stage * 8, phase);
          const uint32 bar = full + stage * 8, to = start + stage * kStageBytes;
          if (elect_one()) {
            mbarrier_arrive_expect_tx(bar, Traits::kTransactionBytes);
            Index::load_stage(p, at, kt, to, to + kStageA, bar, group.multicast_a(), group.multicast_b());
          }
          __syncwarp();
          if (++stage == Traits::kStages) { stage = 0; phase ^= 1; }
        }
      }
    }
  }

  static GETT_DEVICE void consume(const Params& p, char* smem, uint32 start, uint32 full, uint32 empty, int thread) {
    const int group = thread >> 7, lane = thread & 127;
    const int block = Traits::kPingPong ? 0 : group * kMmaM;
    char* const store = smem + kStore + (Traits::kPingPong ? group : 0) * (kStoreBytes / kStorers);
    Out epilogue(store, empty + (Traits::kStages + (Traits::kPingPong ? group : 0)) * 8,
                 Traits::kPingPong ? lane : thread, group);
    const Scheduler blocks;
    if constexpr (TailA::kCount + TailB::kCount > 0)
      zero_k_residues<TailA, TailB, 128 * Traits::kConsumerWarpgroups>(kStationaryA ? stationary_at(start) : staged_at(start, 0),
                                                          kStationaryB ? stationary_at(start) : staged_at(start, kStageA), thread);
    const uint32 tiles = start & 0x3ffff;  // for descriptors: in a cluster, addresses have the block's rank above
    int stage = 0, tile_count = 0;
    uint32 phase = 0;
    // Ping-pong: main loops take turns. It is more than courtesy: a barrier's parity tells neighbouring phases apart
    // only, so a warpgroup may not wait for a stage before the other has seen all stages that come first.
    Stationary here(p, stationary_barrier(empty));
    if constexpr (Traits::kPingPong) {
      static_assert(Traits::kConsumerWarpgroups == 2, "two warpgroups take turns");
      if (group == 1) named_barrier_arrive(kPingPongBarrier, 256);
    }
    const int end = Scheduler::end(p);
    for (int t = Scheduler::first(p); t < end; t += Scheduler::step(p), ++tile_count) {
      // Where the tile lies is nobody's concern here if a warp of its own sends it off.
      const TileId id = Out::kSender ? TileId{0, 0, 0, 0} : blocks.locate(p, t);
      const int first = id.slice * p.k_tiles_per_slice, last = slice_end(p, id.slice);
      here.pass(t, lane);
      if (Traits::kPingPong && tile_count % Traits::kConsumerWarpgroups != group) {  // the others' stages
        const int prefetch = stage + (last - first);
        phase ^= (prefetch / Traits::kStages) & 1;
        stage = prefetch % Traits::kStages;
        continue;
      }
      here.wait();
#pragma unroll 1
      for (int mma_tile = 0; mma_tile < Traits::kMmaTilesPerStoreTile; ++mma_tile) {
        Acc acc[kMmaM][kN / 2];
        // A slice may be empty; else the first product overwrites. Zeros also end the life of the tile before, whose
        // registers an epilogue that stores rows needs.
        if constexpr (Traits::kSplit || Traits::kRowLengthD > 0 || kSparing) {
#pragma unroll
          for (int i = 0; i < kMmaM; ++i)
#pragma unroll
            for (int j = 0; j < kN / 2; ++j) acc[i][j] = Acc(0);
        }
        if (mma_tile == 0) epilogue.prepare(p, id);
        if constexpr (Traits::kPingPong) named_barrier_sync(kPingPongBarrier + group, 256);
        int released = -1;
        GETT_MAIN_LOOP
        for (int kt = first; kt < last; ++kt) {
          mbarrier_wait(full + stage * 8, phase);
          const uint32 at = tiles + stage * kStageBytes, kept = tiles + kStationaryOffset + (here.slot() * kStationaryKTiles + kt) * kStationaryPitch;
          const uint32 a = kStationaryA ? kept : at, b = kStationaryB ? kept : at + kStageA;
          wgmma_fence();
#pragma unroll
          for (int s = 0; s < kSteps; ++s)
#pragma unroll
            for (int i = 0; i < kMmaM; ++i)
              Mma::mma(acc[i], TileA::descriptor(a, block + i, s), TileB::descriptor(b, 0, s),
                       Traits::kSplit || s > 0 || kt > first);
          wgmma_commit();
          // A stage is given back when the next one's products are under way; a single one at once.
          constexpr int kUnderWay = Traits::kStages > 1 ? 1 : 0;
          wgmma_wait<kUnderWay>();
          if (!kUnderWay) released = stage;
          if (released >= 0) Scheduler::release(empty + released * 8, lane);
          released = kUnderWay ? stage : -1;
          if (++stage == Traits::kStages) { stage = 0; phase ^= 1; }
        }
        if constexpr (Traits::kPingPong) named_barrier_arrive(kPingPongBarrier + (group ^ 1), 256);
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < kMmaM; ++i) wgmma_fence_operand(acc[i]);
        if (released >= 0) Scheduler::release(empty + released * 8, lane);
        if (!Out::kSender && !Scheduler::exists(p, id)) continue;
        if constexpr (Traits::kSplit) {
          const long long tiles = (long long)p.tiles_m * p.tiles_n;
          const long long slot = ((long long)id.l * p.split_k + id.slice) * tiles + (long long)id.m * p.tiles_n + id.n;
          Acc* const to = p.workspace + slot * (kRows * kN);
          visit(acc, GETT_ANEW(block), GETT_ANEW(lane), [&](int m, int n, Acc x, Acc y) { Vec<Acc, 2>{{x, y}}.store(to + m * kN + n); });
        } else {
          epilogue.store(p, id, acc, block, lane, mma_tile);
        }
      }
    }
    if constexpr (!Traits::kSplit) epilogue.finish();
  }

  // Accumulators of a warpgroup: lane 4g + t of warp w holds rows 16w + g and 16w + g + 8, columns 8j + 2t and + 1.
  template <class F> static GETT_DEVICE void visit(const Acc (&acc)[kMmaM][kN / 2], int block, int lane, F&& f) {
    const int row = (lane >> 5) * 16 + ((lane & 31) >> 2), column = (lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < kMmaM; ++i)
#pragma unroll
      for (int j = 0; j < kN / 8; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          f(FragmentRows<Traits>::at(block, i, row + r * 8), j * 8 + column, acc[i][j * 4 + r * 2], acc[i][j * 4 + r * 2 + 1]);
  }
};

}  // namespace gett
