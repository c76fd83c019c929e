// The transform that splits B: a warpgroup reads the stages of B as they are in memory and writes the planes that wgmma
// reads, in A's order of k. Reads and writes are free of bank conflicts: a quarter of a warp has the same chunk of
// eight rows along K, or the chunks of two rows along N. Where A's and B's rows run along two modes, sixteen k are
// eight of A's mode and two of B's: a thread reads halves of chunks, of which two are served together.
//
// Where planes are scaled, a warp has columns of its own and all of their k (ScaleColumns), so that it finds their
// scale by itself. Along N eight lanes then have the same chunk of eight k whose bits 1 and 3 are equal: their lowest
// three bits differ in either order of k, and so do the banks.
#pragma once
#include "gett/core/pipeline.cuh"
#include "gett/core/planes.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/mainloop/split_guard.cuh"
#include "gett/ptx/half2.cuh"
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
  static constexpr int kE = Storage::kE, kParts = Storage::kParts;
  // What a thread does in a pass: sixteen floats of a row, or eight rows at one k. kQuarters threads share a row, and
  // passes go along K; or passes go from slab to slab.
  static constexpr int kRowsOfPass = kRows > 64 ? 128 : kRows > 32 ? 64 : 32;
  static constexpr int kQuarters = kThreads / kRowsOfPass;
  static constexpr int kPer = kMajorK ? 1 : kS / (8 * kE), kSlabsOfPass = kThreads / (kPer * Traits::kBlockK);
  static constexpr int kUnits = Traits::kBlockK * (kRows / 8);
  static constexpr int kDeep = 16 / kParts, kParcels = Traits::kBlockK / kDeep;  // k of a pass, such parts of a row
  static constexpr bool kScaled = Storage::kScaled;
  static constexpr int kScaleColumns = Storage::kScaleColumns, kLanes = 32 / Traits::kBlockK;
  static constexpr int kPasses = kMajorK   ? (kParcels + kQuarters - 1) / kQuarters
                                 : kScaled ? kScaleColumns / (8 * kLanes)
                                           : (kUnits + kThreads - 1) / kThreads;
  static constexpr int kNumbers = kMajorK ? 16 : 8 * kParts;             // floats of a pass
  static constexpr int kStores = kNumbers / (8 * kParts);                // accesses to each plane
  static constexpr int kLeadA = Traits::kLeadA, kLeadB = Traits::kLeadB;
  static constexpr bool kTwoLeads = kLeadA > 1;
  static constexpr int kLoaded = kTwoLeads ? 16 / kLeadA : 4, kLoads = kNumbers / kLoaded;  // neighbours of an access
  static_assert(!kTwoLeads || (kLeadA == 8 && kLeadB * kE == kS && 8 * kLeadB == Traits::kBlockK), "rows of two modes");
  static constexpr bool kAllThreads = kMajorK   ? kRows == kRowsOfPass && kQuarters <= kParcels
                                      : kScaled ? kRows == kScaleColumns * Storage::kSplitters
                                                : kUnits % kThreads == 0;
  static_assert(kMajorK || kScaled || kPer * Traits::kBlockK * kSlabsOfPass == kThreads, "a pass has whole slabs");
  typedef typename SmallNumbers<kScaled>::type Small;

  // Where a thread reads and writes in its first pass, from the start of the tile and of a plane. The bits that later
  // passes and other chunks change are not among those that the swizzle takes, so they are exchanged or added.
  struct Places {
    uint32 read, write;
    int passes;  // that the thread has
    GETT_DEVICE explicit Places(int thread) {
      const int warp = thread / 32, lane = thread % 32;
      if constexpr (kMajorK) {
        const int row = kScaled ? warp * kScaleColumns + lane % kScaleColumns : thread % kRowsOfPass;
        const int q = kScaled ? lane / kScaleColumns : thread / kRowsOfPass;
        read = kTwoLeads ? HardwareSwizzle<kS>::apply(row * kS + q * kLoaded * 4) : at<kS, Tile::kSlab>(row, q * 64);
        write = at<kP, Plane::kSlab>(row, q * kDeep * 2);
        passes = row < kRows && q < kParcels ? kPasses : 0;
      } else {
        const int group = warp * (kScaleColumns / 8) + lane / Traits::kBlockK, chosen = lane % Traits::kBlockK;
        const int n = kScaled ? group % kPer : thread % kPer;
        const int k = kScaled ? chosen ^ (chosen >> 1 & 1) << 3 : thread / kPer % Traits::kBlockK;
        const int slab = kScaled ? group / kPer : thread / kPer / Traits::kBlockK;
        const int place = kPermuteK ? (k & ~15) + (k >> 2 & 3) * 2 + (k & 1) + (k >> 1 & 1) * 8 : k;
        read = slab * Tile::kSlab + HardwareSwizzle<kS>::apply(k * kS + n * 8 * kE);
        write = slab * Plane::kSlab + HardwareSwizzle<kP>::apply(place * kP + n * 16);
        passes = kScaled ? (kRows / 8 - group + kLanes - 1) / kLanes : (kUnits - thread + kThreads - 1) / kThreads;
      }
    }
    template <int kBytes, int kSlab> static GETT_DEVICE uint32 at(int row, int byte) {
      return byte / kBytes * kSlab + HardwareSwizzle<kBytes>::apply(row * kBytes + byte % kBytes);
    }
    template <int kBytes, int kSlab> static GETT_DEVICE uint32 moved(uint32 first, int byte) {
      return (first ^ byte % kBytes) + byte / kBytes * kSlab;
    }
    // Access `c` of pass `i`. With two leads a slab of B has the rows at one k of A's mode.
    GETT_DEVICE uint32 read_at(int i, int c) const {
      if constexpr (kTwoLeads) return (read ^ i * kQuarters * kLoaded * 4) + c * Tile::kSlab;
      if constexpr (kMajorK) return moved<kS, Tile::kSlab>(read, i * kQuarters * 64 + c * 16);
      if constexpr (kScaled) return (read ^ (i * kLanes % kPer * 8 * kE + c * 16)) + i * kLanes / kPer * Tile::kSlab;
      return (read ^ c * 16) + i * kSlabsOfPass * Tile::kSlab;
    }
    GETT_DEVICE uint32 write_at(int i, int c) const {
      if constexpr (kMajorK) return moved<kP, Plane::kSlab>(write, i * kQuarters * kDeep * 2 + c * 16);
      if constexpr (kScaled) return (write ^ i * kLanes % kPer * 16) + i * kLanes / kPer * Plane::kSlab;
      return write + i * kSlabsOfPass * Plane::kSlab;
    }
    // Whether pass `i` is one of the thread's.
    GETT_DEVICE bool has(int i) const { return kAllThreads || i < passes; }
  };

  struct Scaled {
    float times;
    uint32 least = LowNumbers::kNone;  // halves that tell whether there may be low numbers
  };
  static GETT_DEVICE void split(float x, float y, uint32 (&planes)[kPlanes], Smallest& smallest) {
    split_planes<typename Traits::Plane>(x, y, planes);
    smallest.add(x, y);
  }
  static GETT_DEVICE void split(float x, float y, uint32 (&planes)[kPlanes], Scaled& scaled) {
    split_planes<typename Traits::Plane>(x * scaled.times, y * scaled.times, planes);
    scaled.least = min_abs_f16x2(scaled.least, planes[0]);
  }
  template <class Small> static GETT_DEVICE void store(uint32 to, const float (&x)[8], Small& small) {
    uint32 word[4][kPlanes];
#pragma unroll
    for (int i = 0; i < 4; ++i) split(x[2 * i], x[2 * i + 1], word[i], small);
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) {
      const uint32 chunk[4] = {word[0][p], word[1][p], word[2][p], word[3][p]};
      st_shared(to + p * Plane::kBytes, chunk);
    }
  }
  // kCount neighbours, which are kStep apart in `x`.
  template <int kCount, int kStep = 1> static GETT_DEVICE void load(uint32 from, float* x) {
    uint32 word[kCount];
    ld_shared(from, word);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i * kStep] = __uint_as_float(word[i]);
  }

  static GETT_DEVICE void load_pass(uint32 tile, const Places& places, int i, float (&x)[kNumbers]) {
#pragma unroll
    for (int c = 0; c < kLoads; ++c) {
      const uint32 from = tile + places.read_at(i, c);
      if constexpr (kTwoLeads && kParts == 1) load<kLoaded, kLeadA>(from, x + c);  // in A's order
      else load<kLoaded>(from, x + c * kLoaded);
    }
  }
  template <class Small>
  static GETT_DEVICE void split_pass(uint32 planes, const Places& places, int i, const float (&x)[kNumbers],
                                     Small& small) {
#pragma unroll
    for (int h = 0; h < kStores; ++h)
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        float y[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int natural = h * 8 + j, at = kMajorK && kPermuteK ? j / 2 * 4 + h * 2 + j % 2 : natural;
          y[j] = x[at * kParts + part];
        }
        store(planes + part * kPlanes * Plane::kBytes + places.write_at(i, h), y, small);
      }
  }
  // The planes of a k-tile. Short passes are loaded while the ones before are split; long ones have loads enough.
  static GETT_DEVICE void split_tile(uint32 tile, uint32 planes, const Places& places, Smallest& smallest) {
    constexpr int kAhead = kNumbers < 16;
    float x[1 + kAhead][kNumbers];
#pragma unroll
    for (int i = 0; i < kPasses + kAhead; ++i) {
      if (i < kPasses && places.has(i)) load_pass(tile, places, i, x[i % (1 + kAhead)]);
      if (i >= kAhead && places.has(i - kAhead))
        split_pass(planes, places, i - kAhead, x[(i - kAhead) % (1 + kAhead)], smallest);
    }
  }

  // A thread's numbers of a k-tile; places that it does not have hold anything.
  typedef float Numbers[kPasses][kNumbers];
  // Reads them. Returns the largest magnitude.
  static GETT_DEVICE float read(uint32 tile, const Places& places, Numbers& x) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < kPasses; ++i)
      if (places.has(i)) load_pass(tile, places, i, x[i]);
#pragma unroll
    for (int i = 0; i < kPasses; ++i)
      if (places.has(i))
#pragma unroll
        for (int j = 0; j < kNumbers; ++j) most = fmaxf(most, fabsf(x[i][j]));
    return most;
  }
  // Writes their planes, those of one pass after the other: the compiler would mix them, for which there are no
  // registers. Returns halves that tell whether there may be low numbers.
  static GETT_DEVICE uint32 split_scaled(uint32 planes, const Places& places, const Numbers& x, float times) {
    Scaled scaled{times};
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (places.has(i)) split_pass(planes, places, i, x[i], scaled);
      __syncwarp();
    }
    return scaled.least;
  }
  // How many of them are low. They are read again: there are no registers to keep them.
  static GETT_DEVICE int count_low(uint32 tile, const Places& places, float times) {
    int count = 0;
#pragma unroll 1
    for (int i = 0; i < kPasses; ++i)
      if (places.has(i)) {
        float x[kNumbers];
        load_pass(tile, places, i, x);
#pragma unroll
        for (int j = 0; j < kNumbers; ++j) count += LowNumbers::count(x[j], times);
      }
    return count;
  }
  // The planes of the warp's share of a k-tile, and the inverse of their scale. Places are those of the tile and of the
  // planes: both start at multiples of what bits may be exchanged in.
  static GETT_DEVICE LowNumbers split_share(uint32 tile, uint32 planes, uint32 scales, Places places, int thread) {
    places.read += tile;
    places.write += planes;
    Numbers x;
    const float most = read(0, places, x);
    const PlaneScale scale(__uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most))));
    if ((thread & 31) == 0) st_shared(scales + thread / 32 * 4, {__float_as_uint(scale.inverse)});
    const uint32 least = split_scaled(0, places, x, scale.times);
    LowNumbers low;
    if (__any_sync(0xffffffffu, LowNumbers::is_low(least))) low.add(count_low(0, places, scale.times));
    return low;
  }

  static GETT_DEVICE void run(const Params& p, const Storage& smem, int thread) {
    const typename Storage::Guard guard(p, smem.guard());
    const Places places(thread);
    PipelineState<Traits::kStages> stage(0);
    PipelineState<Storage::kPlaneStages> made(1);
    Small small;
    KTileIterator<Params, Scheduler> it;
    for (it.begin(p); it.more(p);) {
      mbarrier_wait(stage.bar(smem.full()), stage.phase);
      mbarrier_wait(made.bar(smem.planes_empty()), made.phase);
      const uint32 tile = smem.stage(stage.stage) + Storage::kStageA, planes = smem.planes(made.stage);
      if constexpr (kScaled) small = split_share(tile, planes, smem.scales(made.stage), places, thread);
      else split_tile(tile, planes, places, small);
      const int t = it.t;
      if (small.is_lost()) guard.found_in_b(t);
      fence_proxy_async();  // wgmma reads what was written
      __syncwarp();
      if ((thread & 31) == 0) {
        mbarrier_arrive(made.bar(smem.planes_full()));
        mbarrier_arrive(stage.bar(smem.empty()));
      }
      if (it.next(p)) small = Small();
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
