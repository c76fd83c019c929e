// The shared memory of a warp-specialised kernel: stages, stationary operand, staging buffers of D, mbarriers, rings of
// the gathering loader, in this order. A block that makes one tile may stage D where the stages were
// (kReuseMainloopSmem), so more of them fit. The schedule says where the parts lie (the generated struct Smem); what
// they need is computed here, and that they fit is asserted.
#pragma once
#include "gett/epilogue/tma.cuh"
#include "gett/loader/gather.cuh"
#include "gett/loader/stationary.cuh"
#include "gett/mainloop/smem_descriptor.cuh"

namespace gett {

template <class Traits, class Index, class Smem> struct SharedStorage {
  typedef Epilogue<Traits, Index> Store;
  typedef GatherNeeds<Traits, Index, Traits::kGather> Gather;
  static constexpr int kE = sizeof(typename Traits::Element), kStages = Traits::kStages;
  typedef SmemOperand<typename Traits::LoaderTraitsA, Traits::kRowsA, 64, Traits::kBlockK, kE,
                      (Traits::kInterleaveRows < 64 ? Traits::kMmaM : 1)> TileA;
  typedef SmemOperand<typename Traits::LoaderTraitsB, Traits::kRowsB, 8, Traits::kBlockK, kE> TileB;
  // A stage holds the tiles of the operands that are not stationary.
  static constexpr bool kStationary = Traits::kStationaryKTiles > 0;
  static constexpr bool kStationaryA = kStationary && Traits::kStationaryA;
  static constexpr bool kStationaryB = kStationary && !Traits::kStationaryA;
  static constexpr int kStageA = kStationaryA ? 0 : TileA::kBytes;
  static constexpr int kStageBytes = kStageA + (kStationaryB ? 0 : TileB::kBytes);
  static constexpr int kStationaryPitch = kStationaryA ? TileA::kPitch : TileB::kPitch;
  typedef StationaryOperand<Traits, kStationaryPitch> Stationary;
  static constexpr int kLastKTile = kStationaryA ? TileA::kBytes : TileB::kBytes;
  static constexpr int kStationaryBytes =
      kStationary ? (Stationary::kTiles - 1) * kStationaryPitch + kLastKTile : 0;
  // Staging buffers: one, or one for each warpgroup of a ping-pong kernel.
  static constexpr int kStagingBuffers = Traits::kPingPong ? Traits::kConsumerWarpgroups : 1;
  static constexpr int kOffsetsBytes = Traits::kSplit || Traits::kTmaStore ? 0 : EpilogueOffsets<Traits>::kBytes;
  static constexpr int kStagingBytes = Traits::kSplit ? 0 : Store::kBytes + kOffsetsBytes;  // of a buffer
  // mbarriers: full and empty of the stages, free of two staging buffers, those of an exchange and of the stationary
  // operand.
  static constexpr int kFreeBarriers = 2 + Store::Exchange::kBarriers;
  static constexpr int kBarrierBytes = (2 * kStages + kFreeBarriers) * 8 + Stationary::kBarrierBytes;
  static constexpr int kEnd = Smem::kSize - 1024;  // the first 1024 bytes align the start
  static constexpr bool kOneMmaTile = Traits::kMmaTilesPerStoreTile == 1;
  static_assert(!Traits::kReuseMainloopSmem || (Store::kStoreWarp && kOneMmaTile && !Traits::kPingPong),
                "D is staged in the stages by blocks that make one tile");
  static_assert(kOneMmaTile || (Store::kStoreWarp && !Traits::kPingPong && !Traits::kSplit),
                "the MMA tiles of a store tile are staged together");
  static constexpr int kLoadedEnd = Traits::kReuseMainloopSmem ? Smem::kBarriers : Smem::kStaging;
  static_assert(Smem::kStages + kStages * kStageBytes <= (kStationary ? Smem::kStationary : kLoadedEnd), "stages");
  static_assert(!kStationary || Smem::kStationary + kStationaryBytes <= kLoadedEnd, "stationary operand");
  static_assert(kStagingBytes <= Smem::kStagingPitch, "staging buffer");
  static_assert(Smem::kStaging + kStagingBuffers * Smem::kStagingPitch <= Smem::kBarriers, "staging buffers");
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
      mbarrier_init(empty() + s * 8, kConsumersOfTile * PersistentScheduler<Traits>::kSize);
    }
    for (int g = 0; g < kStagingBuffers; ++g) mbarrier_init(free(g), 1);
    Store::Exchange::init(free(0));
    Stationary::init(stationary_bars());
    fence_mbarrier_init();
  }
};

}  // namespace gett
