// The named barriers of a block (PTX: bar.sync and bar.arrive on one of 16 barriers): who waits for whom, and that no
// two uses in one kernel have the same number. The instructions are in ptx/warpgroup.cuh; they take a NamedBarrier, so
// that a plain number does not compile.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

// The first barrier of each use; a use for each of two warpgroups has the next one too. A kernel has one main loop, so
// uses of two main loops may share a number.
enum class NamedBarrier : int {
  kBlock = 0,      // all threads of a block, at each other: __syncthreads
  kTile = 1,       // the consumer warpgroups of a tile, at each other, where they stage or read it; one for each of two
  kVote = 3,       // consumers of WgmmaSplit, at each other: whether any of them says that a tile is made again
  kGive = 4,       // the loading warpgroup of WgmmaSplit, at itself: between two changes of its registers
  kTake = 5,       // the splitting warpgroup of WgmmaSplit, likewise
  kOrder = 4,      // a consumer warpgroup in ping-pong, at the other one: whose main loop it is; one for each of two
  kZeroed = 6,     // consumers of WgmmaSS, at each other: the residue of K is zero
  kRowTables = 6,  // the warps of CpAsyncTile, at each other: tables of rows are written, or have been read
  kStaged = 12,    // the store warp, at the consumer warpgroups of a tile: it is staged; one for each of two
};

// Barriers of warpgroups are neighbours.
GETT_DEVICE constexpr NamedBarrier operator+(NamedBarrier first, int group) {
  return NamedBarrier(int(first) + group);
}
GETT_DEVICE constexpr int operator-(NamedBarrier at, NamedBarrier first) { return int(at) - int(first); }

// Which kernels have a use, as bits, and how many barriers it takes.
enum KernelsOfBarrier { kInSS = 1, kInSplit = 2, kInAll = 7 };
struct BarrierUse {
  NamedBarrier first;
  int count;
  KernelsOfBarrier kernels;
};

GETT_DEVICE constexpr bool share_a_number(const BarrierUse& x, const BarrierUse& y) {
  const bool together = (x.kernels & y.kernels) != 0;
  return together && y.first - x.first < x.count && x.first - y.first < y.count;
}
template <int kCount> GETT_DEVICE constexpr bool are_apart(const BarrierUse (&uses)[kCount]) {
  for (int i = 0; i < kCount; ++i)
    for (int j = 0; j < i; ++j)
      if (share_a_number(uses[i], uses[j])) return false;
  return true;
}
template <int kCount> GETT_DEVICE constexpr bool are_numbers(const BarrierUse (&uses)[kCount]) {
  for (int i = 0; i < kCount; ++i)
    if (int(uses[i].first) < 0 || int(uses[i].first) + uses[i].count > 16) return false;
  return true;
}

// All uses. A function of its own keeps the table out of cubins.
GETT_DEVICE constexpr bool named_barriers_are_apart() {
  const BarrierUse uses[] = {
      {NamedBarrier::kBlock, 1, kInAll},   {NamedBarrier::kTile, 2, kInAll},   {NamedBarrier::kStaged, 2, kInAll},
      {NamedBarrier::kVote, 1, kInSplit},  {NamedBarrier::kGive, 1, kInSplit}, {NamedBarrier::kTake, 1, kInSplit},
      {NamedBarrier::kRowTables, 1, kInSplit}, {NamedBarrier::kOrder, 2, kInSS},   {NamedBarrier::kZeroed, 1, kInSS},
  };
  return are_apart(uses) && are_numbers(uses);
}
static_assert(named_barriers_are_apart(), "two uses of a kernel have one named barrier, or there is no such barrier");

}  // namespace gett
