// The tiled contraction: a multistage pipeline of shared-memory tiles, warp products, staged stores.
//
// Traits say the tile, the way of each operand and the types; Index (generated) says where everything lies; Mma is a
// policy of mma_sm80.cuh or mma_simt.cuh. One block makes one tile of D, of one batch or of several (batch.cuh), or one
// slice of K of it.
#pragma once
#include "gett/core/batched.cuh"
#include "gett/epilogue/vector.cuh"
#include "gett/loader/cp_async.cuh"
#include "gett/loader/register.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

struct alignas(16) OffsetPair { long long x, y; };

template <class Traits, class Index> struct KOffsetTable {
  // Slot ring of the offset table: written two k-tiles ahead of the copies that use it.
  static constexpr int kSlots = Traits::kStages + 1;
  static constexpr int kBytes = Traits::kKTable ? kSlots * Traits::kBlockK * 16 : 0;
  OffsetPair* base_;
  GETT_DEVICE const OffsetPair* slot(int kt) const { return base_ + kt % kSlots * Traits::kBlockK; }
  GETT_DEVICE void write(const typename Traits::Params& p, int kt, int thread) const {
    for (int i = thread; i < Traits::kBlockK; i += Traits::kThreads) {
      const int k = kt * Traits::kBlockK + i;
      OffsetPair e{kInvalid, kInvalid};
      if (k < p.extent_k) {
        const auto at = Index::k_entry(p, k);
        e = {at.a, at.b};
      }
      base_[kt % kSlots * Traits::kBlockK + i] = e;
    }
  }
};

// How an operand arrives: copied, or walked through registers.
template <class Traits, class Index, bool kIsA, bool kCpAsync> struct LoaderOf { typedef CpAsyncLoader<Traits, Index, kIsA> type; };
template <class Traits, class Index, bool kIsA> struct LoaderOf<Traits, Index, kIsA, false> {
  typedef RegisterLoader<Traits, Index, kIsA> type;
};

template <class Traits, class Index, class Mma> struct MultistageGemm {
  typedef typename Traits::Params Params;
  static constexpr int kBatch = Traits::kBatch, kWarps = Traits::kWarpsM * Traits::kWarpsN;
  static constexpr int kBatchesPerWarp = kBatch * kWarps * 32 / Traits::kThreads;  // batches of each warp
  typedef BatchedIndex<Traits, Index, (kBatch > 1)> Where;
  typedef BatchedOperands<Traits> In;
  typedef BatchedResult<Traits> Out;
  typedef typename LoaderOf<In, Where, true, Traits::LoaderTraitsA::kCpAsync>::type LoadA;
  typedef typename LoaderOf<In, Where, false, Traits::LoaderTraitsB::kCpAsync>::type LoadB;
  static constexpr int kStageBytes = LoadA::kBytes + LoadB::kBytes;
  static constexpr int kPipeBytes = Traits::kStages * kStageBytes;
  static constexpr int kMain = kPipeBytes > PaddedTile<Out>::kBytes || Traits::kSplit ? kPipeBytes : PaddedTile<Out>::kBytes;
  static constexpr int kSmemBytes = kMain + KOffsetTable<Traits, Index>::kBytes + (Traits::kSplit ? 0 : EpilogueOffsets<Out>::kBytes);
  static_assert(kSmemBytes <= Traits::kSmemBytes, "the schedule reserved too little shared memory");

  template <class L> static GETT_DEVICE void fetch(L& load, const Params& p, const KOffsetTable<Traits, Index>& table, int kt, uint32 stage, int thread) {
    if constexpr (Traits::kKTable) {
      load.fetch(p, table.slot(kt), stage, thread);
    } else {
      load.fetch(p, Index::k_tile(p, kt), stage, thread);
    }
  }

  static GETT_DEVICE void run(const Params& p) {
    extern __shared__ __align__(128) char smem[];
    const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
    if constexpr (Traits::kSplit) griddepcontrol_launch_dependents();
    const TileId id = locate_tile(p, blockIdx.x);
    const auto lt = Index::l_tile(p, id.l);
    const auto nt = Index::n_tile(p, id.n);
    const auto rows = Where::rows(lt, Index::m_tile(p, id.m));
    const auto columns = Where::columns(lt, nt);
    const KOffsetTable<Traits, Index> table{reinterpret_cast<OffsetPair*>(smem + kMain)};
    const EpilogueOffsets<Out> offsets{reinterpret_cast<long long*>(smem + kMain + KOffsetTable<Traits, Index>::kBytes)};

    // A padded box along K leaves parts of a walked tile unwritten: they must be zero.
    if constexpr (LoadA::kZeroFill || LoadB::kZeroFill) {
      for (int i = thread * 16; i < kPipeBytes; i += Traits::kThreads * 16) Vec<uint32, 4>{{0, 0, 0, 0}}.store(smem + i);
      __syncthreads();
    }
    LoadA load_a;
    LoadB load_b;
    load_a.init(p, p.a + rows.a, rows, thread);
    load_b.init(p, p.b + columns.b, columns, thread);
    Mma mma[kBatchesPerWarp];
#pragma unroll
    for (int q = 0; q < kBatchesPerWarp; ++q) {
      if constexpr (kBatch > 1) {
        mma[q].init(warp % kWarps, lane, warp / kWarps * kBatchesPerWarp + q);
      } else {
        mma[q].init(warp, lane);
      }
    }

    const int first = id.slice * p.k_tiles_per_slice, last = min(first + p.k_tiles_per_slice, p.k_tiles);
    if constexpr (Traits::kKTable) {
      for (int s = 0; s < Traits::kStages; ++s) table.write(p, first + s, thread);
      __syncthreads();
    }
    const uint32 base = smem_address(smem);
#pragma unroll
    for (int s = 0; s < Traits::kStages - 1; ++s) {
      if (first + s < last) {
        fetch(load_a, p, table, first + s, base + s * kStageBytes, thread);
        fetch(load_b, p, table, first + s, base + s * kStageBytes + LoadA::kBytes, thread);
        load_a.store(p, smem + s * kStageBytes, thread);
        load_b.store(p, smem + s * kStageBytes + LoadA::kBytes, thread);
      }
      cp_async_commit();
    }
    if constexpr (!Traits::kSplit) offsets.template fill<Where>(p, rows, nt, thread, Traits::kThreads);

    int read = 0, write = Traits::kStages - 1;
    GETT_MAIN_LOOP
    for (int kt = first; kt < last; ++kt) {
      cp_async_wait<Traits::kStages - 2>();
      __syncthreads();  // the tile has landed for everybody, and nobody reads the stage that is written next
      const int next = kt + Traits::kStages - 1;
      const bool more = next < last;
      if (more) {
        fetch(load_a, p, table, next, base + write * kStageBytes, thread);
        fetch(load_b, p, table, next, base + write * kStageBytes + LoadA::kBytes, thread);
        if constexpr (Traits::kKTable) table.write(p, next + 1, thread);
      }
      cp_async_commit();
      char* const at = smem + read * kStageBytes;
#pragma unroll
      for (int q = 0; q < kBatchesPerWarp; ++q) {
        if constexpr (Traits::kTensorCores) {
          mma[q].multiply(base + read * kStageBytes, base + read * kStageBytes + LoadA::kBytes);
        } else {
          mma[q].multiply(at, at + LoadA::kBytes);
        }
      }
      if (more) {
        load_a.store(p, smem + write * kStageBytes, thread);
        load_b.store(p, smem + write * kStageBytes + LoadA::kBytes, thread);
      }
      read = read + 1 == Traits::kStages ? 0 : read + 1;
      write = write + 1 == Traits::kStages ? 0 : write + 1;
    }
    cp_async_wait<0>();
    __syncthreads();

    if constexpr (Traits::kSplit) {
      typedef typename Traits::Acc Acc;
      const long long tiles = (long long)p.tiles_m * p.tiles_n;
      const long long slot = ((long long)id.l * p.split_k + id.slice) * tiles + (long long)id.m * p.tiles_n + id.n;
      Acc* const to = p.workspace + slot * (Traits::kBlockM * Traits::kBlockN);
      if constexpr (Traits::kTensorCores) {
        mma[0].visit([&](int m, int n, Acc x, Acc y) { Vec<Acc, 2>{{x, y}}.store(to + m * Traits::kBlockN + n); });
      } else {
        mma[0].visit([&](int m, int n, Acc x) { to[m * Traits::kBlockN + n] = x; });
      }
    } else {
      const PaddedTile<Out> stage{smem};
#pragma unroll
      for (int q = 0; q < kBatchesPerWarp; ++q) {
        if constexpr (Traits::kTensorCores) {
          mma[q].visit([&](int m, int n, typename Traits::Acc x, typename Traits::Acc y) {
            stage.store(m, n, scaled<Traits>(p, x), scaled<Traits>(p, y));
          });
        } else {
          mma[q].visit([&](int m, int n, typename Traits::Acc x) { stage.store(m, n, scaled<Traits>(p, x)); });
        }
      }
      __syncthreads();
      const typename Traits::ElementC* c = nullptr;
      if constexpr (Traits::kSourceC == kSourceVector) c = p.c;
      store_tile<Out, Index>(p, p.d, c, offsets, stage, thread, Traits::kThreads);
    }
  }
};

}  // namespace gett
