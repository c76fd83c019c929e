// From wgmma's accumulators into the staged tile of D that a tensor map stores: vectors of D's own order, gathered from
// registers or turned by stmatrix. Traits::kPut says which; schedule/d_box.py chooses it and the places of the rows.
#pragma once
#include "gett/sm90_ptx.cuh"

namespace gett {

enum Put { kPutElements, kPutRows, kPutTurned, kPutColumns, kPutBlocks };

GETT_DEVICE void store_matrices(uint32 at, uint32 a, uint32 b, uint32 c, uint32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
GETT_DEVICE void store_matrices(uint32 at, uint32 a, uint32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b) : "memory");
}
GETT_DEVICE void store_turned(uint32 at, uint32 a, uint32 b, uint32 c, uint32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}
GETT_DEVICE void store_turned(uint32 at, uint32 a, uint32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b) : "memory");
}

GETT_DEVICE uint32 pack_pair(float low, float high, half_t) {
  uint32 y; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y;
}
GETT_DEVICE uint32 pack_pair(float low, float high, bhalf_t) {
  uint32 y; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y;
}

// Rows of the accumulators and rows of M's box: chunks of kChunk rows of a block are kMi chunks apart. Or chunks of
// kPadChunk rows have only kPadRun rows of the box.
template <class Traits> struct BoxRows {
  static constexpr int kPer = 64 / Traits::kChunk;
  // Row `x` of block `i` of the warpgroup whose first block is `first`; kBoxM or more for padding.
  static GETT_DEVICE int at(int first, int i, int x) {
    if constexpr (Traits::kPadRun > 0) {
      const int row = (first + i) * 64 + x, within = row % Traits::kPadChunk;
      return within < Traits::kPadRun ? row / Traits::kPadChunk * Traits::kPadRun + within : Traits::kBoxM;
    }
    if constexpr (kPer == 1) return (first + i) * 64 + x;
    return (first * kPer + i + Traits::kMi * (x / Traits::kChunk)) * Traits::kChunk + x % Traits::kChunk;
  }
};

template <class Traits, class Index> struct Fragments {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef typename Traits::ElementD Element;
  typedef BoxRows<Traits> Rows;
  static constexpr int kMi = Traits::kMi, kN = Traits::kBlockN, kJ = kN / 8, kV = Traits::kPutVector;
  static constexpr int kDump = Traits::kStageElements * 2;  // bytes: where matrices' rows of the padding go
  static constexpr int kRoom = kDump + 128;

  const Params& p_;
  uint32 base_;
  int first_, row_, column_, lane_;  // of this thread: first block, row and column of a fragment, lane of the warp
  int rows_;  // of the tile before those of the accumulators

  GETT_DEVICE Fragments(const Params& p, uint32 base, int first, int thread, int rows)
      : p_(p), base_(base), first_(first), row_((thread >> 5) * 16), column_((thread & 3) * 2), lane_(thread & 31),
        rows_(rows) {}

  // Byte address of element `x` of the staged tile.
  GETT_DEVICE uint32 at(int x) const {
    const uint32 byte = uint32(x) * 2;
    if constexpr (Traits::kSpanD == 16) return base_ + byte;
    return base_ + (byte ^ (((byte >> 7) & (Traits::kSpanD / 16 - 1)) << 4));
  }
  GETT_DEVICE uint32 pack(Acc x, Acc y) const {
    return pack_pair(x, y, Element());
  }
  // Place of column 8 * j + c, c below 8 and not known when compiling.
  GETT_DEVICE int column(int j, int c) const {
    if constexpr (Traits::kColumnsBy8) return Index::stage_n(p_, j * 8) + c * Traits::kStageStepN;
    return Index::stage_n(p_, j * 8 + c);
  }
  static GETT_DEVICE uint32 fetch(const Acc (&acc)[kN / 2], const Fragments& f, int j, int r) {
    return f.pack(acc[j * 4 + r * 2], acc[j * 4 + r * 2 + 1]);
  }

  GETT_DEVICE void put(const Acc (&acc)[kMi][kN / 2]) const {
    if constexpr (Traits::kPut == kPutRows || Traits::kPut == kPutTurned) {
      matrices(acc);
    } else if constexpr (Traits::kPut == kPutColumns) {
      columns(acc);
    } else {
      blocks(acc);
    }
  }

  // stmatrix: lanes 8q .. 8q + 7 give the addresses of matrix q's rows; matrices go by (rows r, columns j).
  GETT_DEVICE void matrices(const Acc (&acc)[kMi][kN / 2]) const {
    constexpr bool kTurned = Traits::kPut == kPutTurned;
    const int r = (lane_ >> 3) & 1, jj = lane_ >> 4, within = lane_ & 7;
#pragma unroll
    for (int i = 0; i < kMi; ++i) {
      const int m = Rows::at(first_, i, row_ + r * 8 + (kTurned ? 0 : within));
      const bool row_ok = m < Traits::kBoxM;
      const int line = row_ok ? Index::stage_m(p_, m + rows_) : 0;
#pragma unroll
      for (int j = 0; j < kJ; j += 2) {
        const bool four = j + 1 < kJ;
        int n;
        bool ok = row_ok;
        if constexpr (kTurned) {
          n = jj && four ? column(j + (four ? 1 : 0), within) : column(j, within);
          if (Traits::kBoxN < kN) ok = ok && (j + (four ? jj : 0)) * 8 + within < Traits::kBoxN;
        } else {
          n = jj && four ? Index::stage_n(p_, (j + 1) * 8) : Index::stage_n(p_, j * 8);
          if (Traits::kBoxN < kN) ok = ok && (j + (four ? jj : 0)) * 8 < Traits::kBoxN;
        }
        const uint32 to = ok ? at(line + n) : base_ + kDump + within * 16;
        const uint32 a = fetch(acc[i], *this, j, 0), b = fetch(acc[i], *this, j, 1);
        if (four) {
          const uint32 c = fetch(acc[i], *this, j + 1, 0), d = fetch(acc[i], *this, j + 1, 1);
          if constexpr (kTurned) store_turned(to, a, b, c, d);
          else store_matrices(to, a, b, c, d);
        } else {
          if constexpr (kTurned) store_turned(to, a, b);
          else store_matrices(to, a, b);
        }
      }
    }
  }

  GETT_DEVICE void vector(uint32 to, const uint32 (&x)[4]) const {
    if constexpr (kV == 8) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
    } else if constexpr (kV == 4) {
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(x[0]), "r"(x[1]) : "memory");
    } else {
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x[0]) : "memory");
    }
  }

  // D's neighbours are kPutStep groups of eight columns apart.
  GETT_DEVICE void columns(const Acc (&acc)[kMi][kN / 2]) const {
    constexpr int kStep = Traits::kPutStep;
#pragma unroll
    for (int i = 0; i < kMi; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int m = Rows::at(first_, i, row_ + (lane_ >> 2) + r * 8);
        if (m >= Traits::kBoxM) continue;
        const int line = Index::stage_m(p_, m + rows_);
#pragma unroll
        for (int j = 0; j < Traits::kBoxN / 8; ++j) {
          if (j / kStep % kV) continue;
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            uint32 x[4];
#pragma unroll
            for (int v = 0; v < kV; v += 2)
              x[v / 2] = pack(acc[i][(j + v * kStep) * 4 + r * 2 + e], acc[i][(j + (v + 1) * kStep) * 4 + r * 2 + e]);
            vector(at(line + column(j, column_ + e)), x);
          }
        }
      }
  }

  // D's neighbours are in blocks one after the other.
  GETT_DEVICE void blocks(const Acc (&acc)[kMi][kN / 2]) const {
#pragma unroll
    for (int i = 0; i < kMi; i += kV)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int m = Rows::at(first_, i, row_ + (lane_ >> 2) + r * 8);
        if (m >= Traits::kBoxM) continue;
        const int line = Index::stage_m(p_, m + rows_);
#pragma unroll
        for (int j = 0; j < kJ; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (Traits::kBoxN < kN && j * 8 + column_ + e >= Traits::kBoxN) continue;
            uint32 x[4];
#pragma unroll
            for (int v = 0; v < kV; v += 2) x[v / 2] = pack(acc[i + v][j * 4 + r * 2 + e], acc[i + v + 1][j * 4 + r * 2 + e]);
            vector(at(line + column(j, column_ + e)), x);
          }
      }
  }
};

}  // namespace gett
