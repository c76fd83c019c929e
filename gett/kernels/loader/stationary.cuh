// The loader of a stationary operand, which stays in shared memory for several work tiles of a block. Without a panel
// the whole operand stays for all of them. With kOnePanel the rows of the panel stay that all of them are in. With
// kEachPanel a block makes one panel, a row or column of tiles, after the other, and the rows of each stay meanwhile.
// In the last case the work tiles of a block are neighbours, and the rows of a panel are in one of two slots. The
// producer loads those of the next panel while the warpgroups multiply with these.
//
// The producer and every warpgroup follow the work tiles with a StationaryOperand of their own, so all know the panel
// without communication. mbarriers of a slot: `full`, when its rows have arrived, and `empty`, when all warpgroups are
// past its panel. A warpgroup is past a panel when it comes to a tile of another one, so it is never two panels behind.
#pragma once
#include "gett/ptx/tma.cuh"
#include "gett/scheduler/persistent.cuh"

namespace gett {

template <class LoaderTraits, class Scheduler, int kWarpgroups, int kPitch> struct StationaryOperand {
  static constexpr int kPer = LoaderTraits::kKTiles;  // k-tiles of a panel
  static constexpr int kSlots = Scheduler::kEachPanel ? 2 : 1;
  static constexpr int kTiles = kPer * kSlots;
  static constexpr int kBarrierBytes = kPer == 0 ? 0 : 16 * kSlots;
  uint32 bars_;
  int panel_ = -1, panel_length_ = 0, next_panel_ = 0;  // its number, its clusters, the work tile where the next begins

  static GETT_DEVICE void init(uint32 bars) {
    if constexpr (kPer > 0)
      for (int i = 0; i < kSlots; ++i) {
        mbarrier_init(bars + i * 16, 1);
        mbarrier_init(bars + i * 16 + 8, kWarpgroups);
      }
  }
  template <class Params> GETT_DEVICE StationaryOperand(const Params& p, uint32 bars) : bars_(bars) {
    if constexpr (Scheduler::kEachPanel) panel_length_ = Scheduler::panel_length(p);
  }
  GETT_DEVICE int slot() const { return Scheduler::kEachPanel ? panel_ & 1 : 0; }
  GETT_DEVICE uint32 bar() const { return bars_ + slot() * 16; }
  GETT_DEVICE uint32 phase() const { return Scheduler::kEachPanel ? panel_ >> 1 & 1 : 0; }

  // Moves to the panel of work tile `t`; true if that is another one.
  GETT_DEVICE bool step(int t) {
    if (panel_ >= 0 && (!Scheduler::kEachPanel || t < next_panel_)) return false;
    ++panel_;
    if constexpr (Scheduler::kEachPanel) next_panel_ = (t / panel_length_ + 1) * panel_length_;
    return true;
  }

  // The producer's warp calls this before it loads the stages of work tile `t`, whose coordinates are `at`.
  template <class Index, class Params, class TileCoords>
  GETT_DEVICE void fetch(const Params& p, int t, const TileCoords& at, uint32 to) {
    if constexpr (kPer > 0) {
      if (!step(t)) return;
      mbarrier_wait(bar() + 8, phase() ^ 1);
      if (elect_one()) {
        mbarrier_arrive_expect_tx(bar(), kPer * LoaderTraits::kTransactionBytes);
#pragma unroll 1
        for (int kt = 0; kt < kPer; ++kt)
          Index::load_stationary(p, at, kt, to + (slot() * kPer + kt) * kPitch, bar());
      }
      __syncwarp();
    }
  }

  // A warpgroup calls this for each work tile of the block: it no longer reads the rows of a panel before.
  GETT_DEVICE void advance(int t, int lane) {
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
