"""The small parts of the kernels, on the host: ring, swizzle, chunks, fragments, partial tiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from layouts.swizzle import swizzle_address
from tests.cpu.host_cuda import includes, run_host

MAIN = "using namespace gett;\nint main() {\n%s\n}\n"


def lines(tmp: Path, headers: str, body: str) -> list[list[int]]:
    """What a program prints, as integers."""
    return [[int(x) for x in line.split()] for line in run_host(tmp, headers + MAIN % body).decode().splitlines()]


def test_a_ring_changes_its_phase_where_it_begins_again(tmp_path: Path) -> None:
    body = """  PipelineState<3> a(1);
  for (int i = 0; i < 20; ++i, ++a) {
    PipelineState<3> b(1);
    b.advance(i);
    printf("%d %u %d %u %u\\n", a.stage, a.phase, b.stage, b.phase, a.bar(64));
  }"""
    for i, found in enumerate(lines(tmp_path, includes("core/pipeline"), body)):
        stage, phase = i % 3, 1 ^ (i // 3 & 1)
        assert found == [stage, phase, stage, phase, 64 + 8 * stage]


@pytest.mark.parametrize("span", [16, 32, 64, 128])
def test_the_hardwares_swizzle_is_that_of_the_layouts(tmp_path: Path, span: int) -> None:
    body = f'  for (int i = 0; i < 4096; i += 4) printf("%u\\n", HardwareSwizzle<{span}>::apply(i));'
    found = lines(tmp_path, includes("core/swizzle"), body)
    assert [x for (x,) in found] == [swizzle_address(span, i) for i in range(0, 4096, 4)]


def test_a_block_of_chunks_is_transposed(tmp_path: Path) -> None:
    body = """  Chunk rows[8], columns[8];
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 4; ++j) rows[i].w[j] = (8 * i + 2 * j) | (8 * i + 2 * j + 1) << 16;
  transpose8x8(rows, columns);
  for (const Chunk& c : columns)
    printf("%u %u %u %u\\n", c.w[0], c.w[1], c.w[2], c.w[3]);"""
    for j, words in enumerate(lines(tmp_path, includes("core/chunk"), body)):
        assert [x for w in words for x in (w & 0xFFFF, w >> 16)] == [8 * i + j for i in range(8)]


def test_chunks_are_shifted_and_cut(tmp_path: Path) -> None:
    body = """  const Chunk x = {{0x20001, 0x40003, 0x60005, 0x80007}}, y = {{0xa0009, 0xc000b, 0xe000d, 0x10000f}};
  for (int skip = 0; skip < 8; ++skip)
    for (int count = -1; count < 10; ++count) {
      const Chunk c = keep_first(shift_half_words(x, y, skip), count);
      printf("%u %u %u %u\\n", c.w[0], c.w[1], c.w[2], c.w[3]);
    }"""
    found = iter(lines(tmp_path, includes("core/chunk"), body))
    for skip in range(8):
        for count in range(-1, 10):
            half_words = [x for w in next(found) for x in (w & 0xFFFF, w >> 16)]
            assert half_words == [skip + 1 + i if i < count else 0 for i in range(8)]


def test_each_accumulator_has_one_place(tmp_path: Path) -> None:
    """A warpgroup's m64n24 result; the figure of the PTX ISA for one thread."""
    body = """  for (int thread = 0; thread < 128; ++thread)
    Fragment::for_each_pair<24>(thread, [&](int m, int n, int i) { printf("%d %d %d %d\\n", thread, m, n, i); });"""
    found = lines(tmp_path, includes("core/fragment"), body)
    assert sorted((m, n + e) for _, m, n, _ in found for e in (0, 1)) == [(m, n) for m in range(64) for n in range(24)]
    one = {i: (m, n) for thread, m, n, i in found if thread == 32 + 4 * 3 + 1}  # warp 1, group 3, lane 1 of it
    assert one == {0: (19, 2), 2: (27, 2), 4: (19, 10), 6: (27, 10), 8: (19, 18), 10: (27, 18)}


def test_partial_tiles_are_apart(tmp_path: Path) -> None:
    body = """  struct { int tiles_m, tiles_n, split_k; char* workspace; } p = {2, 3, 4, nullptr};
  struct { int m, n, l, slice; } id;
  for (id.l = 0; id.l < 2; ++id.l)
    for (id.slice = 0; id.slice < 4; ++id.slice)
      for (id.m = 0; id.m < 2; ++id.m)
        for (id.n = 0; id.n < 3; ++id.n) printf("%d\\n", int(partial_tile<100>(p, id) - p.workspace));"""
    assert [x for (x,) in lines(tmp_path, includes("core/workspace"), body)] == [100 * i for i in range(48)]
