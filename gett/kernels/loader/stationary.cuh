// The operand that stays in shared memory, and for how long: for all of a block's tiles, fetched once (the whole operand,
// or, kOnePanel, the rows of the line that all of them are in), or (kEachPanel) for those of a line of tiles that need the
// same rows of it. In the last case the block's tiles are neighbours, a line's rows lie in one of two places, and the
// producer fetches those of the next line while the warpgroups multiply with these.
//
// The producer and every warpgroup walk the block's tiles with a `Keep` of their own, so all know the line without a
// word. Barriers of a place: `full`, when its rows have arrived, and `empty`, when all warpgroups are past its line. A
// warpgroup is past a line when it comes to a tile of another one, so it cannot fall two lines behind the producer.
#pragma once
#include "gett/scheduler/persistent.cuh"
#include "gett/ptx/tma.cuh"

namespace gett {

template <class Traits, int kPitch> struct StationaryOperand {
  static constexpr int kPer = Traits::kStationaryKTiles;                  // k-tiles of a line
  static constexpr int kPlaces = Traits::kEachPanel ? 2 : 1;
  static constexpr int kTiles = kPer * kPlaces;
  static constexpr int kBarrierBytes = kPer == 0 ? 0 : 16 * kPlaces;
  uint32 bars_;
  int panel_ = -1, panel_length_ = 0, next_panel_ = 0;  // the line's number, clusters along it, the one where the next begins

  static GETT_DEVICE void init(uint32 bars) {
    if constexpr (kPer > 0)
      for (int i = 0; i < kPlaces; ++i) {
        mbarrier_init(bars + i * 16, 1);
        mbarrier_init(bars + i * 16 + 8, Traits::kConsumerWarpgroups);
      }
  }
  template <class Params> GETT_DEVICE StationaryOperand(const Params& p, uint32 bars) : bars_(bars) {
    if constexpr (Traits::kEachPanel) panel_length_ = PersistentScheduler<Traits>::panel_length(p);
  }
  GETT_DEVICE int slot() const { return Traits::kEachPanel ? panel_ & 1 : 0; }
  GETT_DEVICE uint32 bar() const { return bars_ + slot() * 16; }
  GETT_DEVICE uint32 phase() const { return Traits::kEachPanel ? panel_ >> 1 & 1 : 0; }

  // On to the line of tile `t`; whether it is another one.
  GETT_DEVICE bool step(int t) {
    if (panel_ >= 0 && (!Traits::kEachPanel || t < next_panel_)) return false;
    ++panel_;
    if constexpr (Traits::kEachPanel) next_panel_ = (t / panel_length_ + 1) * panel_length_;
    return true;
  }

  // The producer's warp, before the tile at `at`.
  template <class Index, class Params, class TileCoords>
  GETT_DEVICE void fetch(const Params& p, int t, const TileCoords& at, uint32 kept) {
    if constexpr (kPer > 0) {
      if (!step(t)) return;
      mbarrier_wait(bar() + 8, phase() ^ 1);
      if (elect_one()) {
        mbarrier_arrive_expect_tx(bar(), kPer * Traits::kStationaryTransactionBytes);
#pragma unroll 1
        for (int kt = 0; kt < kPer; ++kt) Index::load_stationary(p, at, kt, kept + (slot() * kPer + kt) * kPitch, bar());
      }
      __syncwarp();
    }
  }

  // A warpgroup that comes to tile `t`, whoever makes it: rows of a line before are needed no more.
  GETT_DEVICE void pass(int t, int lane) {
    if constexpr (kPer > 0) {
      const uint32 before = bar();
      const bool first = panel_ < 0;
      if (step(t) && !first && lane == 0) mbarrier_arrive(before + 8);
    }
  }
  GETT_DEVICE void wait() const {
    if constexpr (kPer > 0) mbarrier_wait(bar(), phase());
  }
};

}  // namespace gett
