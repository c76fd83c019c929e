// Chunks of 16 bytes in a thread's registers, as eight half-words: shifted, cut off, transposed. Plain arithmetic
// without instructions of its own, so that it runs on a host too. ptx/shared.cuh and ptx/cp_async.cuh load and store
// chunks.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

struct Chunk { uint32 w[4]; };

// The 16 bytes that begin `skip` (0 to 7) half-words into the 32 bytes x, y.
GETT_DEVICE Chunk shift_half_words(const Chunk& x, const Chunk& y, uint32 skip) {
  uint32 w[7] = {x.w[0], x.w[1], x.w[2], x.w[3], y.w[0], y.w[1], y.w[2]};
  const uint32 last = skip & 4 ? y.w[3] : y.w[1];
  const bool four = skip & 4, two = skip & 2;
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = four ? w[i + 2] : w[i];
  w[5] = last;
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = two ? w[i + 1] : w[i];
  const uint32 bits = (skip & 1) * 16;
  Chunk out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.w[i] = __funnelshift_r(w[i], w[i + 1], bits);
  return out;
}
// The first `count` half-words, with zeros behind them; `count` may be negative or above 8.
GETT_DEVICE Chunk keep_first(Chunk c, int count) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = count - 2 * i;
    c.w[i] = n >= 2 ? c.w[i] : n == 1 ? c.w[i] & 0xffffu : 0u;
  }
  return c;
}

// Transposes an 8 x 8 matrix of half-words: chunk i of `rows` is row i, chunk j of `columns` becomes column j.
GETT_DEVICE void transpose8x8(const Chunk (&rows)[8], Chunk (&columns)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      columns[j].w[i] = __byte_perm(rows[2 * i].w[j / 2], rows[2 * i + 1].w[j / 2], j & 1 ? 0x7632 : 0x5410);
}

}  // namespace gett
