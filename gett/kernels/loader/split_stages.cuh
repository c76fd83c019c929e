// The loads of a kernel that multiplies planes: all tiles, then those that are made again. They come by TMA or, where a
// tensor map does not move both operands, by cp.async.
#pragma once
#include "gett/core/pipeline.cuh"
#include "gett/loader/cp_async_tile.cuh"
#include "gett/loader/tma.cuh"
#include "gett/mainloop/split_guard.cuh"
#include "gett/ptx/mbarrier.cuh"

namespace gett {

template <class Traits, class Index, class Scheduler, class Storage, bool kCopies> struct SplitLoaderOf {
  typedef TmaLoader<Traits, Index, Scheduler, Storage> type;
};
template <class Traits, class Index, class Scheduler, class Storage>
struct SplitLoaderOf<Traits, Index, Scheduler, Storage, true> {
  typedef CpAsyncTileLoader<Traits, Index, Scheduler, Storage> type;
};

template <class Traits, class Index, class Scheduler, class Storage> struct SplitLoader {
  typedef typename Traits::Params Params;
  typedef typename Storage::Guard Guard;
  typedef PipelineState<Traits::kStages> Stage;
  typedef typename SplitLoaderOf<Traits, Index, Scheduler, Storage, Storage::kCopies>::type Loader;

  static GETT_DEVICE void run(const Params& p, const Storage& smem, int thread) {
    const Guard guard(p, smem.guard());
    Stage stage(1);
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {  // the code of the copies stands here once
      if (pass > 0) mbarrier_wait(smem.judged(), 0);
      if (pass == 0 || guard.any()) stage = Loader::run(p, smem, thread, stage, TilesOfPass<Guard>{guard, pass > 0});
    }
  }
};

}  // namespace gett
