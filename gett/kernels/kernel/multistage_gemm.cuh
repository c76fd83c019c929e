// The GEMM kernel of Ampere and later, and of types without tensor cores: a multistage pipeline of tiles in shared
// memory, products of warps, a staged epilogue. One block makes one tile of D, of one batch or of several
// (core/batched.cuh), or one slice of K of it.
//
// Traits give the tile, the loader of each operand and the types. Index (generated) says where everything lies. Mma is
// the policy of mainloop/mma_sync.cuh or mainloop/simt.cuh.
#pragma once
#include "gett/core/batched.cuh"
#include "gett/core/pipeline.cuh"
#include "gett/core/workspace.cuh"
#include "gett/epilogue/vector.cuh"
#include "gett/loader/cp_async.cuh"
#include "gett/loader/k_offset_table.cuh"
#include "gett/loader/register.cuh"
#include "gett/ptx/shared.cuh"
#include "gett/ptx/warpgroup.cuh"
#include "gett/scheduler/raster.cuh"

namespace gett {

// The loader of an operand: by cp.async or through registers.
template <class Traits, class Index, bool kIsA, bool kCpAsync> struct LoaderOf {
  typedef CpAsyncLoader<Traits, Index, kIsA> type;
};
template <class Traits, class Index, bool kIsA> struct LoaderOf<Traits, Index, kIsA, false> {
  typedef RegisterLoader<Traits, Index, kIsA> type;
};

template <class Traits, class Index, class Mma, class Smem> struct MultistageGemm {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  static constexpr int kBatch = Traits::kBatch, kWarps = Traits::kWarpsM * Traits::kWarpsN;
  static constexpr int kBatchesPerWarp = kBatch * kWarps * 32 / Traits::kThreads;
  typedef BatchedIndex<Traits, Index, (kBatch > 1)> Offsets;
  typedef BatchedOperands<Traits> Operands;
  typedef BatchedResult<Traits> Result;
  typedef KOffsetTable<Traits, Index> KTable;
  typedef PaddedTile<Result> Staged;
  typedef LinearCombination<Result> Op;
  typedef typename LoaderOf<Operands, Offsets, true, Traits::LoaderTraitsA::kCpAsync>::type LoadA;
  typedef typename LoaderOf<Operands, Offsets, false, Traits::LoaderTraitsB::kCpAsync>::type LoadB;
  static constexpr int kStageBytes = LoadA::kBytes + LoadB::kBytes;
  static constexpr int kPipeBytes = Traits::kStages * kStageBytes;
  // D is staged where the stages are.
  static constexpr int kOffsetsBytes = Traits::kSplit ? 0 : EpilogueOffsets<Result>::kBytes;
  static_assert(kPipeBytes <= Smem::kKTable && (Traits::kSplit || Staged::kBytes <= Smem::kKTable), "stages");
  static_assert(Smem::kKTable + KTable::kBytes <= Smem::kOffsets, "table of offsets along K");
  static_assert(Smem::kOffsets + kOffsetsBytes <= Smem::kSize, "offsets of rows and columns");

  template <class Loader>
  static GETT_DEVICE void fetch(Loader& load, const Params& p, const KTable& table, int kt, uint32 stage, int thread) {
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
    const auto rows = Offsets::rows(lt, Index::m_tile(p, id.m));
    const auto columns = Offsets::columns(lt, nt);
    const KTable table{reinterpret_cast<OffsetPair*>(smem + Smem::kKTable)};
    const EpilogueOffsets<Result> offsets{reinterpret_cast<long long*>(smem + Smem::kOffsets)};

    // A padded box along K leaves parts of a tile unwritten, which must be zero.
    if constexpr (LoadA::kZeroFill || LoadB::kZeroFill) {
      for (int i = thread * 16; i < kPipeBytes; i += Traits::kThreads * 16)
        Vec<uint32, 4>{{0, 0, 0, 0}}.store(smem + i);
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

    const KTileRange k_tiles = k_tile_range(p, id.slice);
    const int first = k_tiles.first, last = k_tiles.last;
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
    if constexpr (!Traits::kSplit) offsets.template fill<Offsets>(p, rows, nt, thread, Traits::kThreads);

    int read = 0, write = Traits::kStages - 1;
    GETT_MAIN_LOOP
    for (int kt = first; kt < last; ++kt) {
      cp_async_wait<Traits::kStages - 2>();
      __syncthreads();  // the copies of all threads have landed, and all have read the stage that is written next
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
      read = next_stage<Traits::kStages>(read);
      write = next_stage<Traits::kStages>(write);
    }
    cp_async_wait<0>();
    __syncthreads();

    if constexpr (Traits::kSplit) {
      Acc* const to = partial_tile<Traits::kBlockM * Traits::kBlockN>(p, id);
      if constexpr (Traits::kTensorCores) {
        mma[0].visit([&](int m, int n, Acc x, Acc y) { Vec<Acc, 2>{{x, y}}.store(to + m * Traits::kBlockN + n); });
      } else {
        mma[0].visit([&](int m, int n, Acc x) { to[m * Traits::kBlockN + n] = x; });
      }
    } else {
      const Op op(p);
      const Staged staged{smem};
#pragma unroll
      for (int q = 0; q < kBatchesPerWarp; ++q) {
        if constexpr (Traits::kTensorCores) {
          mma[q].visit([&](int m, int n, Acc x, Acc y) { staged.store(op, m, n, x, y); });
        } else {
          mma[q].visit([&](int m, int n, Acc x) { staged.store(op, m, n, x); });
        }
      }
      __syncthreads();
      const typename Traits::ElementC* c = nullptr;
      if constexpr (Traits::kSourceC == kSourceVector) c = p.c;
      store_vectors<Result, Index>(p, p.d, c, offsets, staged, thread, Traits::kThreads);
    }
  }
};

}  // namespace gett
