// The shared memory of a warp-specialised kernel: stages, stationary operand, staging buffers of D, mbarriers, rings of
// the gathering loader, in this order. D may be staged where the stages were (kReuseMainloopSmem), so more of them fit.
// That is for blocks of one tile, or where the loader waits between two tiles. The schedule says where the parts lie
// (the generated struct Smem); what they need is computed here, and that they fit is asserted.
#pragma once
#include "gett/loader/gather.cuh"
#include "gett/loader/stationary.cuh"
#include "gett/mainloop/smem_descriptor.cuh"

namespace gett {

template <class Traits, class Index, class Store, class Scheduler, class Smem> struct SharedStorage {
  typedef typename Traits::LoaderTraitsA LoaderA;
  typedef typename Traits::LoaderTraitsB LoaderB;
  static constexpr bool kGather = LoaderA::kKind == kLoaderGather || LoaderB::kKind == kLoaderGather;
  typedef GatherNeeds<Traits, Index, Scheduler, kGather> Gather;
  static constexpr int kE = sizeof(typename Traits::Element), kStages = Traits::kStages;
  typedef SmemOperand<LoaderA, LoaderA::kRows, 64, Traits::kBlockK, kE,
                      (Traits::kInterleaveRows < 64 ? Traits::kMmaM : 1)> TileA;
  typedef SmemOperand<LoaderB, LoaderB::kRows, 8, Traits::kBlockK, kE> TileB;
  // A stage holds the tiles of the operands that are not stationary.
  static constexpr bool kStationaryA = LoaderA::kKind == kLoaderStationary;
  static constexpr bool kStationaryB = LoaderB::kKind == kLoaderStationary;
  static constexpr bool kStationary = kStationaryA || kStationaryB;
  static constexpr int kStageA = kStationaryA ? 0 : TileA::kBytes;
  static constexpr int kStageBytes = kStageA + (kStationaryB ? 0 : TileB::kBytes);
  static constexpr int kStationaryPitch = kStationaryA ? TileA::kPitch : TileB::kPitch;
  typedef typename LoaderTraitsOf<Traits, kStationaryA>::type StationaryLoader;  // B's where none is
  typedef StationaryOperand<StationaryLoader, Scheduler, Traits::kConsumerWarpgroups, kStationaryPitch> Stationary;
  // Bytes that the copies of a stage bring.
  static constexpr int kTransactionBytes =
      (kStationaryA ? 0 : LoaderA::kTransactionBytes) + (kStationaryB ? 0 : LoaderB::kTransactionBytes);
  // The same of a stage that holds the k-tile already of the operand which all tiles read.
  static constexpr bool kKeeps = LoaderA::kKept || LoaderB::kKept;
  static constexpr int kRenewedBytes = kTransactionBytes - LoaderA::kKept * LoaderA::kTransactionBytes -
                                       LoaderB::kKept * LoaderB::kTransactionBytes;
  static constexpr int kLastKTile = kStationaryA ? TileA::kBytes : TileB::kBytes;
  static constexpr int kStationaryBytes =
      kStationary ? (Stationary::kTiles - 1) * kStationaryPitch + kLastKTile : 0;
  // mbarriers: full and empty of the stages, free of two staging buffers, those of an exchange and of the stationary
  // operand.
  static constexpr int kFreeBarriers = 2 + Store::Exchange::kBarriers;
  static constexpr int kBarrierBytes = (2 * kStages + kFreeBarriers) * 8 + Stationary::kBarrierBytes;
  static constexpr int kEnd = Smem::kSize - 1024;  // the first 1024 bytes align the start
  static constexpr bool kOneMmaTile = Traits::kMmaTilesPerStoreTile == 1;
  static_assert(!Store::kReuseMainloopSmem || (Store::kStoreWarp && kOneMmaTile && !Traits::kPingPong),
                "D is staged in the stages of one MMA tile");
  static constexpr bool kReusedStages = Store::kReuseMainloopSmem;
  static_assert(kOneMmaTile || (Store::kStoreWarp && !Traits::kPingPong && !Scheduler::kSplit),
                "the MMA tiles of a store tile are staged together");
  static constexpr int kLoadedEnd = Store::kReuseMainloopSmem ? Smem::kBarriers : Smem::kStaging;
  static_assert(Smem::kStages + kStages * kStageBytes <= (kStationary ? Smem::kStationary : kLoadedEnd), "stages");
  static_assert(!kStationary || Smem::kStationary + kStationaryBytes <= kLoadedEnd, "stationary operand");
  static_assert(Store::kBytes <= Smem::kStagingPitch, "staging buffer");
  static_assert(Smem::kStaging + Store::kBuffers * Smem::kStagingPitch <= Smem::kBarriers, "staging buffers");
  static_assert(Smem::kBarriers + kBarrierBytes <= (Gather::kBytes ? Smem::kGather : kEnd), "mbarriers");
  static_assert(Gather::kBytes == 0 || Smem::kGather + Gather::kBytes <= kEnd, "rings of the gathering loader");

  // Addresses; `start` is that of the first byte.
  uint32 start;
  GETT_DEVICE uint32 stage(int i) const { return start + Smem::kStages + i * kStageBytes; }
  GETT_DEVICE uint32 stationary() const { return start + Smem::kStationary; }
  GETT_DEVICE uint32 staging(int i) const { return start + Smem::kStaging + i * Smem::kStagingPitch; }
  GETT_DEVICE uint32 full() const { return start + Smem::kBarriers; }
  GETT_DEVICE uint32 empty() const { return full() + kStages * 8; }
  GETT_DEVICE uint32 free(int i) const { return empty() + (kStages + i) * 8; }
  GETT_DEVICE uint32 stationary_bars() const { return empty() + (kStages + kFreeBarriers) * 8; }

  GETT_DEVICE void init_barriers() const {
    constexpr int kConsumersOfTile = Traits::kPingPong ? 1 : Traits::kConsumerWarpgroups;
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(full() + s * 8, Gather::kArrivals);
      mbarrier_init(empty() + s * 8, kConsumersOfTile * Scheduler::kSize);
    }
    for (int g = 0; g < Store::kBuffers; ++g) mbarrier_init(free(g), 1);
    Store::Exchange::init(free(0));
    Stationary::init(stationary_bars());
    fence_mbarrier_init();
  }
};

}  // namespace gett
