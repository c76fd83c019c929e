// The epilogue whose consumers store vectors from the staged tile; C, if there is any, is added there.
#pragma once
#include "gett/contract/stores.cuh"
#include "gett/epilogue/staged.cuh"

namespace gett {

template <class Traits, class Index, class Scheduler>
  GETT_REQUIRES(contract::VectorStore<Traits, Index>)
struct VectorStore : TableEpilogue<Traits, Index, Scheduler> {
  typedef TableEpilogue<Traits, Index, Scheduler> Table;
  typedef typename Table::Base Base;
  using Table::Table;
  static constexpr bool kStoresRows = false;

  // Stages and stores a tile; `acc` is overwritten.
  GETT_DEVICE void store(const typename Base::Params& p, const TileId& id,
                         typename Base::Acc (&acc)[Base::kMmaM][Base::kN / 2], int block, int lane, int = 0) {
    this->stage(p, id, acc, block, lane);
    const typename Base::Staged staged{reinterpret_cast<const typename Base::Element*>(this->base_)};
    store_vectors<Traits, Index, Base::kThreads>(p, this->offsets_, staged, typename Base::Function(p, id),
                                                 GETT_RECOMPUTE(this->thread_));
  }
};

}  // namespace gett
