// Positions in a ring of stages. A producer waits for a stage to be empty, a consumer for it to be full. Both count the
// rounds of the ring by the parity that an mbarrier's wait takes (CUTLASS: PipelineState).
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// The number of the stage behind `stage`.
template <int kStages> GETT_DEVICE int next_stage(int stage) { return stage + 1 == kStages ? 0 : stage + 1; }

// A stage and the parity of its phase. Consumers start with phase 0. Producers start with phase 1, since the wait for
// the phase before a barrier's first returns at once.
template <int kStages> struct PipelineState {
  int stage = 0;
  uint32 phase;

  GETT_DEVICE explicit PipelineState(uint32 first_phase) : phase(first_phase) {}
  GETT_DEVICE PipelineState& operator++() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
    return *this;
  }
  // Skips `count` stages, which another warpgroup uses.
  GETT_DEVICE void advance(int count) {
    const int end = stage + count;
    phase ^= (end / kStages) & 1;
    stage = end % kStages;
  }
  // The address of this stage's mbarrier in an array of them.
  GETT_DEVICE uint32 bar(uint32 bars) const { return bars + stage * 8; }
};

}  // namespace gett
