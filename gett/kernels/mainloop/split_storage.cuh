// The shared memory of a kernel that multiplies planes. The stages of both operands as they are in memory come first.
// Behind them lie stages of B's planes, which wgmma reads. A has none: its planes are fragments in registers.
//
// Complex numbers have planes of their real parts, and behind them those of their imaginary parts.
//
// Where planes are scaled, each of the warps that split B has columns and a scale of its own (kScaleColumns). So no
// warp waits for what another one reads. The inverses of the scales lie behind the guard's words, four a k-tile.
//
// The rows of A and of B may run along two contracted modes, of which a k-tile has kLeadA and kLeadB. Each tile then
// counts along its own mode first.
#pragma once
#include "gett/core/numeric.cuh"
#include "gett/loader/cp_async_tile.cuh"
#include "gett/mainloop/shared_storage.cuh"
#include "gett/mainloop/split_guard.cuh"
#include "gett/mainloop/split_order.cuh"

namespace gett {

// The layout of planes of elements of kE bytes. A row along K is that of a whole k-tile, however short the rows are
// that it is made of. A row along N has as many columns as the rows that it is made of.
template <class Loader, int kBlockK, int kE> struct PlaneLoaderTraits {
  static constexpr bool kMajorK = Loader::kMajorK;
  static constexpr int kSwizzleBytes = kMajorK ? kBlockK * 2 : Loader::kSwizzleBytes * 2 / kE;
};

// A tile of floats as it is in memory, and where in it stands the k that is number `k` of A's tile.
template <class Tile, int kLeadA, int kLeadB> struct SplitTile : Tile {
  static GETT_DEVICE constexpr int place(int k) {
    return k / kLeadA % kLeadB + (k % kLeadA + k / (kLeadA * kLeadB) * kLeadA) * kLeadB;
  }
};

// Columns that each of four warps splits of kRows of a k-tile of B, where they have scales. Along K a warp has whole
// rows. Along N a lane has a k, and the warp groups of eight columns: kPer of them make a slab.
template <bool kMajorK, int kRows, int kPer, int kBlockK> struct ScaleColumns {
  static constexpr int kGroups = (kRows + 31) / 32, kWhole = kGroups == 3 && kPer > 1 ? 4 : kGroups;
  static constexpr int kLanes = 32 / kBlockK;  // groups at a time
  static constexpr int kCount =
      kMajorK ? (kRows > 64 ? 32 : kRows > 32 ? 16 : 8) : (kWhole + kLanes - 1) / kLanes * kLanes * 8;
};

template <class Traits, class Index, class Store, class Scheduler, class Smem>
struct SplitStorage : SharedStorage<Traits, Index, Store, Scheduler, Smem> {
  typedef SharedStorage<Traits, Index, Store, Scheduler, Smem> Base;
  typedef typename Traits::LoaderTraitsB LoaderB;
  typedef typename Traits::LoaderTraitsA LoaderA;
  typedef SplitTile<typename Base::TileA, 1, 1> TileA;
  typedef SplitTile<typename Base::TileB, Traits::kLeadA, Traits::kLeadB> TileB;
  typedef PlaneLoaderTraits<LoaderB, Traits::kBlockK, Base::kE> PlaneTraits;
  typedef SmemOperand<PlaneTraits, LoaderB::kRows, 8, Traits::kBlockK, 2> PlaneB;
  static constexpr int kPlanes = Traits::kPlanes, kPlaneStages = Traits::kPlaneStages;
  static constexpr int kParts = Parts<typename Traits::Element>::kCount;
  static constexpr int kPlaneStageBytes = kParts * kPlanes * PlaneB::kBytes;
  typedef SplitOrder<Traits> Order;
  static constexpr int kSplitters = 4;  // warps that split B
  static constexpr bool kScaled = Traits::kScaled;
  static constexpr int kPer = TileB::kSwizzleBytes / (8 * Base::kE);
  static constexpr int kScaleColumns = ScaleColumns<TileB::kMajorK, LoaderB::kRows, kPer, Traits::kBlockK>::kCount;
  static constexpr int kScaleBytes = kScaled ? 16 * kPlaneStages : 0;
  static_assert(Smem::kPlanes + kPlaneStages * kPlaneStageBytes <= Smem::kStaging, "planes");
  typedef SplitGuard<typename Traits::Params> Guard;
  static constexpr int kGuardEnd = Smem::kBarriers + Base::kBarrierBytes + 16 * kPlaneStages + 8 + Guard::kBytes;
  static constexpr int kScales = (kGuardEnd + 15) / 16 * 16;
  static constexpr bool kCopies = LoaderA::kKind == kLoaderCpAsyncTile || LoaderB::kKind == kLoaderCpAsyncTile;
  typedef CpAsyncTileNeeds<Traits, Index, Scheduler, SplitStorage, kCopies> Copies;
  static_assert((kScaled ? kScales + kScaleBytes : kGuardEnd) <= (kCopies ? Smem::kGather : Base::kEnd),
                "mbarriers of the planes, words of the guard, scales");

  GETT_DEVICE uint32 planes(int i) const { return this->start + Smem::kPlanes + i * kPlaneStageBytes; }
  GETT_DEVICE uint32 planes_full() const { return this->start + Smem::kBarriers + Base::kBarrierBytes; }
  GETT_DEVICE uint32 planes_empty() const { return planes_full() + kPlaneStages * 8; }
  // The mbarrier of the end: all tiles have been made, and those to be made again are known.
  GETT_DEVICE uint32 judged() const { return planes_empty() + kPlaneStages * 8; }
  GETT_DEVICE uint32 guard() const { return judged() + 8; }
  GETT_DEVICE uint32 row_tables() const { return this->start + Smem::kGather; }
  // The inverses of the scales of a k-tile of planes.
  GETT_DEVICE uint32 scales(int i) const { return this->start + kScales + i * 16; }

  // A stage is empty once all warps have read it: those that multiply take A, those that split take B. Planes are
  // empty once the warpgroups have multiplied with them; all of their warps read the scales.
  GETT_DEVICE void init_barriers() const {
    static_assert(Smem::kGather + Copies::kTableBytes <= Base::kEnd, "tables of rows");
    for (int s = 0; s < Traits::kStages; ++s) {
      mbarrier_init(this->full() + s * 8, Copies::kArrivals);
      mbarrier_init(this->empty() + s * 8, 4 * Traits::kConsumerWarpgroups + kSplitters);
    }
    for (int s = 0; s < kPlaneStages; ++s) {
      mbarrier_init(planes_full() + s * 8, kSplitters);
      mbarrier_init(planes_empty() + s * 8, (kScaled ? 4 : 1) * Traits::kConsumerWarpgroups);
    }
    for (int g = 0; g < Store::kBuffers; ++g) mbarrier_init(this->free(g), 1);
    mbarrier_init(judged(), 1);
    Guard::init(guard());
    fence_mbarrier_init();
  }
};

}  // namespace gett
