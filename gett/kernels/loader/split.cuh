// The transform that splits B: a warpgroup reads the stages of B as they are in memory. It writes the planes that wgmma
// reads, in A's order of k. Reads and writes are free of bank conflicts. A quarter of a warp has the same chunk of
// eight rows along K, or the chunks of two rows along N. Where A's and B's rows run along two modes, sixteen k are
// eight of A's mode and two of B's. A thread then reads halves of chunks, of which two are served together.
//
// Where planes are scaled, a warp has columns of its own and all of their k (ScaleColumns), so that it finds their
// scale by itself. Along N eight lanes then have the same chunk of eight k that are apart (mainloop/split_order.cuh).
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
  static constexpr bool kMajorK = Tile::kMajorK;
  typedef typename Storage::Order Order;
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
  static_assert(Traits::kStages > 1, "a k-tile is loaded before the planes of the one before are given");
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
        read = kTwoLeads ? HardwareSwizzle<kS>::apply(row * kS + q * kLoaded * 4)
                         : at<kS, Tile::kSlab>(row, Order::parcel(q));
        write = at<kP, Plane::kSlab>(row, q * kDeep * 2);
        passes = row < kRows && q < kParcels ? kPasses : 0;
      } else {
        const int group = warp * (kScaleColumns / 8) + lane / Traits::kBlockK;
        const int n = kScaled ? group % kPer : thread % kPer;
        const int chosen = (kScaled ? lane : thread / kPer) % Traits::kBlockK;
        const int k = Order::template apart<kScaled ? 8 : 8 / kPer>(chosen);
        const int slab = kScaled ? group / kPer : thread / kPer / Traits::kBlockK;
        read = slab * Tile::kSlab + HardwareSwizzle<kS>::apply(k * kS + n * 8 * kE);
        write = slab * Plane::kSlab + HardwareSwizzle<kP>::apply(Order::place(k) * kP + n * 16);
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
      if constexpr (kMajorK) return moved<kS, Tile::kSlab>(read, Order::parcel(i * kQuarters) + c * Order::kChunk);
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
  static GETT_DEVICE void split_pass(const Places& places, int i, const float (&x)[kNumbers], Small& small) {
#pragma unroll
    for (int h = 0; h < kStores; ++h)
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        float y[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int natural = h * 8 + j, at = kStores == 2 && Order::kPermute ? j / 2 * 4 + h * 2 + j % 2 : natural;
          y[j] = x[at * kParts + part];
        }
        store(part * kPlanes * Plane::kBytes + places.write_at(i, h), y, small);
      }
  }
  // A thread's numbers of a k-tile; places that it does not have hold anything.
  typedef float Numbers[kPasses][kNumbers];
  // Reads them.
  static GETT_DEVICE void read(uint32 tile, const Places& places, Numbers& x) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i)
      if (places.has(i)) load_pass(tile, places, i, x[i]);
  }
  // The largest magnitude. Maxima of two magnitudes are not negative, so their words compare like them, and those of
  // three words are one instruction.
  static GETT_DEVICE float largest(const Places& places, const Numbers& x) {
    uint32 most[kPasses] = {}, of_all = 0;  // apart, so that none waits for the other
#pragma unroll
    for (int i = 0; i < kPasses; ++i)
      if (places.has(i))
#pragma unroll
        for (int j = 0; j < kNumbers; j += 2)
          most[i] = max(most[i], __float_as_uint(fmaxf(fabsf(x[i][j]), fabsf(x[i][j + 1]))));
#pragma unroll
    for (int i = 0; i < kPasses; ++i) of_all = max(of_all, most[i]);
    return __uint_as_float(of_all);
  }
  // Writes their planes, those of one pass after the other. behind(i) is called once pass `i` is written.
  template <class Small, class Behind>
  static GETT_DEVICE void split_passes(const Places& places, const Numbers& x, Small& small, Behind&& behind) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (places.has(i)) split_pass(places, i, x[i], small);
      behind(i);
    }
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

  typedef PipelineState<Traits::kStages> StageState;
  static GETT_DEVICE uint32 tile_of(const Storage& smem, const StageState& stage) {
    return smem.stage(stage.stage) + Storage::kStageA;
  }
  // A warp reads ahead: behind each pass that it writes it loads that pass of the next k-tile into the same registers.
  // So it does not wait for what it loads, and stores run while the next pass is split. Where planes are scaled, there
  // are fewer registers, and all is loaded behind the last pass. Behind the last k-tile a warp reads that one again.
  static GETT_DEVICE void run(const Params& p, const Storage& smem, int thread) {
    const typename Storage::Guard guard(p, smem.guard());
    const Places places(thread);
    StageState stage(0);
    PipelineState<Storage::kPlaneStages> made(1);
    Small small;
    Numbers x;
    KTileIterator<Params, Scheduler> it;
    it.begin(p);
    bool more = it.more(p);
    if (more) {
      mbarrier_wait(stage.bar(smem.full()), stage.phase);
      read(tile_of(smem, stage), places, x);
    }
    while (more) {
      const int t = it.t;
      it.next(p);
      more = it.more(p);
      StageState ahead = stage;
      if (more) ++ahead;
      // Tiles and planes start at multiples of what bits may be exchanged in. Addresses are worked out for each k-tile:
      // those of all accesses would take registers, and numbers would wait until stores have read theirs.
      Places here = places;
      here.read += tile_of(smem, ahead);
      here.write += smem.planes(made.stage);
      if constexpr (!kScaled) {
        mbarrier_wait(made.bar(smem.planes_empty()), made.phase);
        split_passes(here, x, small, [&](int i) {
          if (i == 0) mbarrier_wait(ahead.bar(smem.full()), ahead.phase);
          if (here.has(i)) load_pass(0, here, i, x[i]);
        });
      } else {
        const uint32 most = __reduce_max_sync(0xffffffffu, __float_as_uint(largest(here, x)));
        const PlaneScale scale(__uint_as_float(most));
        mbarrier_wait(made.bar(smem.planes_empty()), made.phase);
        if ((thread & 31) == 0) st_shared(smem.scales(made.stage) + thread / 32 * 4, {__float_as_uint(scale.inverse)});
        Scaled scaled{scale.times};
        split_passes(here, x, scaled, [](int) { __syncwarp(); });  // the compiler would mix passes
        mbarrier_wait(ahead.bar(smem.full()), ahead.phase);
        read(0, here, x);
        if (__any_sync(0xffffffffu, LowNumbers::is_low(scaled.least)))
          small.add(count_low(tile_of(smem, stage), places, scale.times));
      }
      if (small.is_lost()) guard.found_in_b(t);
      fence_proxy_async();  // wgmma reads what was written
      __syncwarp();
      if ((thread & 31) == 0) {
        mbarrier_arrive(made.bar(smem.planes_full()));
        mbarrier_arrive(stage.bar(smem.empty()));
      }
      if (it.t != t) small = Small();
      ++stage;
      ++made;
    }
    mbarrier_wait(smem.judged(), 0);
    if (!guard.any()) return;
    // The warpgroups that make tiles again read B as it is.
    int count = 0;
    for (int t = Scheduler::first(p); t < Scheduler::end(p); t += Scheduler::step(p), ++count) {
      if (!guard.is_marked(count)) continue;
      const KTileRange k_tiles = Scheduler::k_tiles(p, t, Scheduler::kSplit ? Scheduler().locate(p, t).slice : 0);
      for (int kt = k_tiles.first; kt < k_tiles.last; ++kt) {
        mbarrier_wait(stage.bar(smem.full()), stage.phase);
        if ((thread & 31) == 0) mbarrier_arrive(stage.bar(smem.empty()));
        ++stage;
      }
    }
  }
};

}  // namespace gett
