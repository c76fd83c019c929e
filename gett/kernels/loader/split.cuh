// The transform that splits B: a warpgroup reads the stages of B as they are in memory and writes the planes that wgmma
// reads, in A's order of k. Reads and writes are free of bank conflicts: a quarter of a warp has the same chunk of eight
// rows along K, or the chunks of two rows along N. Where A's and B's rows run along two modes, sixteen k are eight of A's
// mode and two of B's: a thread reads halves of chunks, of which two are served together.
#pragma once
#include "gett/core/pipeline.cuh"
#include "gett/core/planes.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/mainloop/split_guard.cuh"
#include "gett/ptx/mbarrier.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/k_tiles.cuh"

namespace gett {

template <class Traits, class Scheduler, class Storage> struct SplitTransform {
  typedef typename Traits::Params Params;
  typedef typename Storage::TileB Tile;
  typedef typename Storage::PlaneB Plane;
  static constexpr int kThreads = 32 * Storage::kSplitters, kPlanes = Storage::kPlanes;
  static constexpr int kS = Tile::kSwizzleBytes, kP = Plane::kSwizzleBytes;
  static constexpr int kRows = Traits::LoaderTraitsB::kRows;
  static constexpr bool kMajorK = Tile::kMajorK, kPermuteK = Storage::kPermuteK;
  // What a thread does at a time: sixteen k of a row, or eight rows at one k.
  static constexpr int kUnits = kMajorK ? kRows * (Traits::kBlockK / 16) : Traits::kBlockK * (kRows / 8);
  static constexpr int kLeadA = Traits::kLeadA, kLeadB = Traits::kLeadB;
  static_assert(kLeadA == 1 || (kLeadA == 8 && kLeadB * 4 == kS && 8 * kLeadB == Traits::kBlockK), "rows of two modes");

  static GETT_DEVICE uint32 at(uint32 tile, int x) { return tile + HardwareSwizzle<kS>::apply(uint32(x)); }
  static GETT_DEVICE uint32 plane_at(uint32 tile, int x) { return tile + HardwareSwizzle<kP>::apply(uint32(x)); }
  static GETT_DEVICE void store(uint32 to, const float (&x)[8], Smallest& smallest) {
    uint32 word[4][kPlanes];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      split_planes(x[2 * i], x[2 * i + 1], word[i]);
      smallest.add(x[2 * i], x[2 * i + 1]);
    }
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) {
      const uint32 chunk[4] = {word[0][p], word[1][p], word[2][p], word[3][p]};
      st_shared(to + p * Plane::kBytes, chunk);
    }
  }
  // kCount neighbours, which are kStep apart in `x`.
  template <int kCount = 4, int kStep = 1> static GETT_DEVICE void load(uint32 from, float* x) {
    uint32 word[kCount];
    ld_shared(from, word);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i * kStep] = __uint_as_float(word[i]);
  }

  static GETT_DEVICE void unit(uint32 tile, uint32 planes, int u, Smallest& smallest) {
    if constexpr (kMajorK) {
      const int row = u % kRows, k = u / kRows * 16;
      float x[16];  // in A's order
      if constexpr (kLeadA > 1) {  // a slab of B has the rows at one k of A's mode
        const uint32 from = at(tile, row * kS + k / kLeadA * 4);
#pragma unroll
        for (int c = 0; c < kLeadA; ++c) load<2, kLeadA>(from + c * Tile::kSlab, x + c);
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int byte = k * 4 + c * 16;
          load(at(tile + byte / kS * Tile::kSlab, row * kS + byte % kS), x + c * 4);
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float y[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) y[i] = x[kPermuteK ? i / 2 * 4 + h * 2 + i % 2 : h * 8 + i];
        const int byte = k * 2 + h * 16;
        store(plane_at(planes + byte / kP * Plane::kSlab, row * kP + byte % kP), y, smallest);
      }
    } else {
      constexpr int kPer = kS / 32;  // eights of a row
      const int k = u / kPer % Traits::kBlockK, slab = u / kPer / Traits::kBlockK, n = u % kPer;
      float x[8];
      load(at(tile + slab * Tile::kSlab, k * kS + n * 32), x);
      load(at(tile + slab * Tile::kSlab, k * kS + n * 32 + 16), x + 4);
      const int place = kPermuteK ? (k & ~15) + (k >> 2 & 3) * 2 + (k & 1) + (k >> 1 & 1) * 8 : k;
      store(plane_at(planes + slab * Plane::kSlab, place * kP + n * 16), x, smallest);
    }
  }

  static GETT_DEVICE void run(const Params& p, const Storage& smem, int thread) {
    const typename Storage::Guard guard(p, smem.guard());
    PipelineState<Traits::kStages> stage(0);
    PipelineState<Storage::kPlaneStages> made(1);
    Smallest smallest;
    KTileIterator<Params, Scheduler> it;
    for (it.begin(p); it.more(p);) {
      mbarrier_wait(stage.bar(smem.full()), stage.phase);
      mbarrier_wait(made.bar(smem.planes_empty()), made.phase);
      const uint32 tile = smem.stage(stage.stage) + Storage::kStageA, planes = smem.planes(made.stage);
#pragma unroll 1
      for (int u = thread; u < kUnits; u += kThreads) unit(tile, planes, u, smallest);
      const int t = it.t;
      if (smallest.is_lost()) guard.found_in_b(t);
      fence_proxy_async();  // wgmma reads what was written
      __syncwarp();
      if ((thread & 31) == 0) {
        mbarrier_arrive(made.bar(smem.planes_full()));
        mbarrier_arrive(stage.bar(smem.empty()));
      }
      if (it.next(p)) smallest = Smallest();
      ++stage;
      ++made;
    }
    mbarrier_wait(smem.judged(), 0);
    if (!guard.any()) return;
    // Those who make tiles again read B as it is.
    int count = 0;
    for (int t = Scheduler::first(p); t < Scheduler::end(p); t += Scheduler::step(p), ++count) {
      if (!guard.is_marked(count)) continue;
      const KTileRange k_tiles = k_tile_range(p, Scheduler::kSplit ? Scheduler().locate(p, t).slice : 0);
      for (int kt = k_tiles.first; kt < k_tiles.last; ++kt) {
        mbarrier_wait(stage.bar(smem.full()), stage.phase);
        if ((thread & 31) == 0) mbarrier_arrive(stage.bar(smem.empty()));
        ++stage;
      }
    }
  }
};

}  // namespace gett
