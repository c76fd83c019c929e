// The table of a grouped launch, in device memory: where the tensors of each problem lie. Strides and offsets of the
// table are bytes, so that no kernel depends on them.
//
// An output is a block of D, the sum of its pairs. Pairs of equal extents and strides share a layout. A layout is four
// groups of modes (l, m, n, k), of which the first mode is the fastest.
#pragma once
#include "gett/core/index.cuh"
#include "gett/core/types.cuh"

namespace gett {

enum ModeGroup { kGroupL, kGroupM, kGroupN, kGroupK, kGroups };

// What a coordinate adds to the addresses in A, B and D.
struct ProblemOffsets {
  long long a, b, d;
  GETT_DEVICE ProblemOffsets operator+(const ProblemOffsets& x) const { return {a + x.a, b + x.b, d + x.d}; }
};
GETT_DEVICE ProblemOffsets operator*(long long count, const ProblemOffsets& x) {
  return {count * x.a, count * x.b, count * x.d};
}

struct ProblemMode {
  int extent, unused;
  ProblemOffsets step;
};
struct ProblemLayout {
  int extent[kGroups], first[kGroups], count[kGroups];  // elements of a group; its modes among those of the table
};
struct ProblemPair {
  const char *a, *b;
  int layout, k_tiles;
};
struct ProblemOutput {
  char* d;
  int first_pair, first_tile, tiles_m, tiles_n, k_tiles, unused;  // k-tiles of all pairs
};

// A problem of a launch whose argument lists them: its addresses, its layout, and its first tile among all.
struct ListedProblem {
  const char *a, *b;
  char* d;
  int layout, first_tile;
};

// A mode whose extent is not the table's, by its number; -1 for none.
struct OtherExtent { int mode, extent; };

// The offsets of element `x` of a group.
GETT_DEVICE ProblemOffsets offsets_in_group(
    const ProblemMode* modes, const ProblemLayout& layout, ModeGroup group, int x, const OtherExtent& other) {
  ProblemOffsets at = {0, 0, 0};
  const int first = layout.first[group], last = first + layout.count[group] - 1;
#pragma unroll 1
  for (int i = first; i <= last; ++i) {
    int inside = x;
    if (i < last) {
      const int extent = i == other.mode ? other.extent : modes[i].extent;
      x = inside / extent;
      inside -= x * extent;
    }
    at = at + inside * modes[i].step;
  }
  return at;
}

}  // namespace gett
