// What the epilogues of wgmma kernels share: the staged tile of D in shared memory, in D's own order. The accumulators
// get there scaled, and with the plan's function applied. The consumer warpgroups stage; how the tile leaves is for
// TmaStore (epilogue/tma_store.cuh), VectorStore (epilogue/vector_store.cuh) and RowStore (epilogue/row_store.cuh) to
// say.
#pragma once
#include "gett/epilogue/epilogue_op.cuh"
#include "gett/epilogue/r2s.cuh"
#include "gett/epilogue/vector.cuh"
#include "gett/ptx/warpgroup.cuh"

namespace gett {

// The staged tile. The element of row m and column n is at Index::staging_m(m) + Index::staging_n(n).
template <class Traits> struct StagedTile {
  typedef typename LinearCombination<Traits>::Staged Element;
  // Behind the elements, 128 bytes take what stmatrix writes for padding. Single elements and words have none.
  static constexpr bool kAlone =
      Traits::kR2SCopy == kR2SScalar || Traits::kR2SCopy == kR2SPairN || Traits::kR2SCopy == kR2SOne;
  static constexpr int kUsed = Traits::kStagingElements * int(sizeof(Element)) + (kAlone ? 0 : 128);
  static constexpr int kAlign = Traits::kSwizzleBytesD > 16 ? 1024 : 128;  // the period of the swizzle
  static constexpr int kBytes = (kUsed + kAlign - 1) / kAlign * kAlign;
  static constexpr int kBatch = Traits::kVecD * sizeof(Element) > 16 ? 2 : 4;
  const Element* base_;
  static GETT_DEVICE int place(const MNAt& mn) { return mn.at; }
  template <int kV> GETT_DEVICE void load(int place, Element (&x)[kV]) const {
    if constexpr (kV * sizeof(Element) <= 16) {
      const auto v = Vec<Element, kV>::load(base_ + place);
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = v.x[j];
    } else {
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = base_[place + j];
    }
  }
};

template <class Traits, class Index, class Scheduler> struct StagedEpilogue {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef LinearCombination<Traits> Op;
  typedef StagedTile<Traits> Staged;
  typedef typename Staged::Element Element;
  typedef TileOp<Traits, Index> Function;
  static constexpr int kMmaM = Traits::kMmaM, kN = Traits::kBlockN;
  static constexpr int kThreads = 128 * (Traits::kPingPong ? 1 : Traits::kConsumerWarpgroups);  // that share a tile
  // A ping-pong kernel has a staging buffer for each warpgroup.
  static constexpr int kBuffers = Traits::kPingPong ? Traits::kConsumerWarpgroups : 1;
  static constexpr bool kVectorSource = Traits::kSourceC == kSourceVector;

  char* base_;
  int thread_;
  NamedBarrier barrier_;

  GETT_DEVICE StagedEpilogue(char* base, int thread, int group)
      : base_(base), thread_(thread), barrier_(NamedBarrier::kTile + (Traits::kPingPong ? group : 0)) {}

  GETT_DEVICE void sync() const { named_barrier_sync(barrier_, kThreads); }

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

  // Visits accumulators with their places in the staged tile at `base`, `rows` rows further on. Padding is left out.
  // `Columns` are the traits with the columns of `acc`.
  template <class Columns, class Visit>
  GETT_DEVICE void copy(const Params& p, Acc (&acc)[kMmaM][Columns::kBlockN / 2], char* base, int block, int lane,
                        int rows, const Visit& visit) const {
    if constexpr (kSparing) {
      block = opaque(block);
      lane = opaque(lane);
    }
    if constexpr (Traits::kR2SCopy == kR2SScalar) {
      R2SScalarCopy<Columns, Index>{p, reinterpret_cast<Element*>(base), block, rows}.visit(acc, lane, visit);
    } else {
      R2STiledCopy<Columns, Index>(p, smem_address(base), block, lane, rows).visit(acc, visit);
    }
  }
};

// For epilogues whose consumers store D themselves: the table of the offsets of rows and columns, and the copy to the
// staged tile. The padding of that tile keeps fragments in different banks.
template <class Traits, class Index, class Scheduler> struct TableEpilogue : StagedEpilogue<Traits, Index, Scheduler> {
  typedef StagedEpilogue<Traits, Index, Scheduler> Base;
  typedef typename Base::Params Params;
  typedef typename Base::Acc Acc;
  typedef typename Base::Element Element;
  // No warp of the producer warpgroup stores; the staging buffer is D's alone.
  static constexpr bool kTmaStore = false, kStoreWarp = false, kReuseMainloopSmem = false;
  struct Exchange {
    static constexpr int kBarriers = 0;
    static GETT_DEVICE void init(uint32) {}
  };
  // What a staging buffer takes of shared memory; slices are not staged.
  static constexpr int kBytes = Scheduler::kSplit ? 0 : Base::Staged::kBytes + EpilogueOffsets<Traits>::kBytes;

  EpilogueOffsets<Traits> offsets_;

  GETT_DEVICE TableEpilogue(char* base, uint32, int thread, int group)
      : Base(base, thread, group), offsets_(base + Base::Staged::kBytes) {}

  // Before the products of a tile: fills the offsets of its rows and columns.
  GETT_DEVICE void prepare(const Params& p, const TileId& id) {
    if constexpr (!Scheduler::kSplit) {
      this->sync();  // the stores of the tile before have read the table
      const auto lt = Index::l_tile(p, id.l);
      auto mt = Index::m_tile(p, id.m);
      mt.d += lt.d;
      if constexpr (Base::kVectorSource) mt.c += lt.c;
      const int thread = GETT_RECOMPUTE(this->thread_);
      typedef typename Base::Staged Staged;
      offsets_.template fill<Index, Staged>(p, mt, Index::n_tile(p, id.n), thread, Base::kThreads);
    }
  }

  // Stages a tile; `acc` is overwritten.
  GETT_DEVICE void stage(const Params& p, const TileId& id, Acc (&acc)[Base::kMmaM][Base::kN / 2], int block,
                         int lane) {
    Base::scale(typename Base::Op(p), acc);
    if constexpr (Traits::kSourceC == kSourceNone) Base::finish_sums(p, id, acc, block, lane, 0);
    const R2SScalarCopy<Traits, Index> r2s{p, reinterpret_cast<Element*>(this->base_), GETT_RECOMPUTE(block), 0};
    r2s.visit(acc, GETT_RECOMPUTE(lane), StoreStaged<Traits>());
    this->sync();
  }

  GETT_DEVICE void finish() const {}
};

}  // namespace gett
