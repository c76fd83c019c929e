// The transform that transposes B. A warpgroup reads the stages of B, whose rows run along N. It writes the tiles that
// wgmma reads, with rows along K. A thread takes blocks of four k and four n: it reads four chunks along N, at
// neighbouring k, and writes four chunks along K. In between, registers change their names and nothing else.
//
// Eight lanes that are served together take a diagonal of eight by eight blocks. In both tiles they then have eight
// different chunks of rows of 128 bytes. Of shorter rows, two or four share the 128 bytes of all banks. Lanes then do
// not write the same row of their blocks at a time. Lanes that would meet take their rows in another order. In shorter
// rows that are read, two or four lanes meet.
#pragma once
#include "gett/core/pipeline.cuh"
#include "gett/core/swizzle.cuh"
#include "gett/ptx/mbarrier.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/k_tiles.cuh"

namespace gett {

template <class Traits, class Scheduler, class Storage> struct TransposeTransform {
  typedef typename Traits::Params Params;
  typedef typename Storage::TileB Tile;
  typedef typename Storage::TransposedB To;
  static constexpr int kThreads = 32 * Storage::kTransposers;
  static constexpr int kS = Tile::kSwizzleBytes, kT = To::kSwizzleBytes;
  static constexpr int kBlocksN = Traits::LoaderTraitsB::kRows / 4, kBlocksK = Traits::kBlockK / 4;
  static constexpr int kBlocks = kBlocksN * kBlocksK, kPasses = (kBlocks + kThreads - 1) / kThreads;
  static constexpr int kBits = kBlocksN | kBlocksK;
  static constexpr int kSide =  // of a square
      kBits % 8 == 0 && kS != 32 ? 8 : kBits % 4 == 0 ? 4 : kBits % 2 == 0 ? 2 : 1;
  static_assert(!Tile::kMajorK && Traits::LoaderTraitsB::kRows % 4 == 0, "rows of B along N, in whole chunks");

  // Rows of B transposed that share 128 bytes: a lane writes row `turn ^ i` of its block instead of row `i`.
  static constexpr int kTurns = 128 / kT;
  static GETT_DEVICE uint32 turn_of(int thread) {
    if (kTurns == 2) return thread >> 2 & 1;
    return kTurns == 4 ? (thread >> 1 & 2) | ((kSide > 1 ? thread : thread >> 1) & 1) : 0;
  }

  // Blocks along N from one pass of a thread to its next, where that is the same place of other rows of squares.
  static constexpr int kSquares = kThreads / (kSide * kSide), kSquaresK = kBlocksK / kSide;
  static constexpr int kStepN = kSquares / kSquaresK * kSide;
  static constexpr bool kRegular = kSquares % kSquaresK == 0 && kStepN * 16 % kS == 0 && kStepN * 4 % 8 == 0;
  static constexpr int kPlaces = kRegular ? 1 : kPasses;

  // Where a thread reads and writes its blocks, from the start of either tile.
  struct Places {
    uint32 read_[kPlaces], write_[kPlaces];
    uint32 turn;
    int passes;  // that the thread has
    GETT_DEVICE explicit Places(int thread) : turn(turn_of(thread)) {
      passes = (kBlocks - thread + kThreads - 1) / kThreads;
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        const int block = i * kThreads + thread, square = block / (kSide * kSide), on = block % kSide;
        const int n = square / kSquaresK * kSide + on;
        const int k = square % kSquaresK * kSide + (on ^ block / kSide % kSide);
        read_[i] = n * 16 / kS * Tile::kSlab + HardwareSwizzle<kS>::apply(k * 4 * kS + n * 16 % kS);
        write_[i] = k * 16 / kT * To::kSlab + HardwareSwizzle<kT>::apply((n * 4 + turn) * kT + k * 16 % kT);
      }
    }
    GETT_DEVICE uint32 read(int i) const {
      return kRegular ? read_[0] + i * (kStepN * 16 / kS * Tile::kSlab) : read_[i % kPlaces];
    }
    GETT_DEVICE uint32 write(int i) const { return kRegular ? write_[0] + i * (kStepN * 4 * kT) : write_[i % kPlaces]; }
    // Whether pass `i` is one of the thread's.
    GETT_DEVICE bool has(int i) const { return kBlocks % kThreads == 0 || i < passes; }
  };
  // The place of row `i` of four, of which the one that comes first is at `first`. Tiles start at multiples of 1024
  // bytes, so `first` may be an address. What is made of it in each k-tile takes no registers between them.
  template <int kBytes> static GETT_DEVICE uint32 row(uint32 first, int i) {
    const int byte = i * kBytes;
    return (first ^ (HardwareSwizzle<kBytes>::bits(byte) + byte % 128)) + byte / 128 * 128;
  }
  // Number `i ^ turn` of four.
  static GETT_DEVICE uint32 turned(const uint32 (&x)[4], int i, uint32 turn) {
    const uint32 even = turn & 1 ? x[i ^ 1] : x[i], odd = turn & 1 ? x[i ^ 3] : x[i ^ 2];
    return turn & 2 ? odd : even;
  }

  static GETT_DEVICE void load(uint32 tile, const Places& places, int pass, uint32 (&x)[4][4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) ld_shared(row<kS>(tile + places.read(pass), k), x[k]);
  }
  static GETT_DEVICE void store(uint32 to, const Places& places, int pass, const uint32 (&x)[4][4]) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      uint32 chunk[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) chunk[k] = turned(x[k], n, places.turn);
      st_shared(row<kT>(to + places.write(pass), n), chunk);
    }
  }
  // A k-tile. The blocks of a pass are loaded while those of the one before are stored.
  static GETT_DEVICE void transpose(uint32 tile, uint32 to, const Places& places) {
    uint32 x[2][4][4];
#pragma unroll
    for (int i = 0; i <= kPasses; ++i) {
      if (i < kPasses && places.has(i)) load(tile, places, i, x[i % 2]);
      if (i > 0 && places.has(i - 1)) store(to, places, i - 1, x[(i - 1) % 2]);
    }
  }

  static GETT_DEVICE void run(const Params& p, const Storage& smem, int thread) {
    const Places places(thread);
    PipelineState<Traits::kStages> stage(0);
    PipelineState<Storage::kTransposedStages> made(1);
    KTileIterator<Params, Scheduler> it;
    for (it.begin(p); it.more(p); it.next(p)) {
      mbarrier_wait(stage.bar(smem.full()), stage.phase);
      mbarrier_wait(made.bar(smem.transposed_empty()), made.phase);
      transpose(smem.stage(stage.stage) + Storage::kStageA, smem.transposed(made.stage), places);
      fence_proxy_async();  // wgmma reads what was written
      __syncwarp();
      if ((thread & 31) == 0) mbarrier_arrive(made.bar(smem.transposed_full()));
      Scheduler::release(stage.bar(smem.empty()), thread & 31);
      ++stage;
      ++made;
    }
  }
};

}  // namespace gett
