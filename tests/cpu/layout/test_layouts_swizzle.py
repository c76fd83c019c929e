"""Bank conflicts, the choice of a shared-memory layout, and the hardware's swizzles, against brute force."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layouts.swizzle import (
    Pattern,
    SmemLayout,
    choose_smem,
    replays,
    swizzle_address,
    swizzle_dividing,
    swizzle_holding,
)


@given(st.sampled_from((1, 2, 4, 8, 16)), st.lists(st.integers(0, 255), min_size=1, max_size=32), st.booleans())
def test_replays_count_words_per_bank(width: int, numbers: list[int], aligned: bool) -> None:
    addresses = [n * (width if aligned else 1) for n in numbers]
    per_phase = 128 // max(width, 4)
    expected = []
    for start in range(0, len(addresses), per_phase):
        words = {b // 4 for a in addresses[start : start + per_phase] for b in range(a, a + width)}
        expected.append(max(Counter(w % 32 for w in words).values()))
    assert replays(addresses, width) == expected


@given(st.integers(1, 40), st.integers(0, 3), st.sampled_from((0, 1, 3, 7)), st.integers(1, 4))
def test_a_swizzle_moves_bytes_one_to_one(rows: int, shift: int, mask: int, spans: int) -> None:
    row_bytes = (mask + 1) * 16 * spans
    layout = SmemLayout(rows, row_bytes, row_bytes, mask, shift)
    places = [layout.address(r, x) for r in range(rows) for x in range(row_bytes)]
    assert sorted(places) == list(range(layout.bytes))
    for r in range(rows):
        for x in range(0, row_bytes, 16):  # the bytes of a chunk stay together, so 16-byte accesses stay whole
            assert [layout.address(r, x + i) - layout.address(r, x) for i in range(16)] == list(range(16))


def matrix_rows(lane: int) -> tuple[int, int]:
    """Eight rows of one matrix, as `ldmatrix` addresses them."""
    return lane, 0


def fragment(lane: int) -> tuple[int, int]:
    """Four words of each of eight rows, as fragments of 32-bit elements are read."""
    return lane // 4, 4 * (lane % 4)


def rank_of(layout: SmemLayout, pattern: Pattern) -> int:
    where, width, lanes = pattern
    return max(replays([layout.address(*where(i)) for i in range(lanes)], width))


@pytest.mark.parametrize("row_bytes", [16, 32, 48, 64, 80, 96, 128, 160, 256, 512])
@pytest.mark.parametrize("pattern", [(matrix_rows, 16, 8), (fragment, 4, 32), (lambda i: (i % 32, 0), 16, 32)])
def test_choose_smem_frees_what_can_be_freed(row_bytes: int, pattern: Pattern) -> None:
    layout = choose_smem(64, row_bytes, [pattern])
    assert rank_of(layout, pattern) == 1


def test_choose_smem_prefers_dense_then_swizzled_then_padded() -> None:
    assert choose_smem(8, 16, [(matrix_rows, 16, 8)]) == SmemLayout(8, 16, 16)
    assert choose_smem(8, 128, [(matrix_rows, 16, 8)]) == SmemLayout(8, 128, 128, 7, 0)
    assert choose_smem(8, 64, [(matrix_rows, 16, 8)]) == SmemLayout(8, 64, 64, 3, 1)
    # Fragments of 64-bit elements take two chunks of each row: XOR by less than two chunks swaps them, no more.
    assert choose_smem(8, 128, [(lambda i: (i // 4, 8 * (i % 4)), 8, 32)]) == SmemLayout(8, 128, 160)
    assert choose_smem(8, 20, []).pitch == 32


def test_choose_smem_takes_the_fewest_conflicts() -> None:
    """A column of words, 128-byte rows: chunks of 16 bytes spread it over eight bank groups at best."""
    pattern: Pattern = (lambda i: (i, 0), 4, 32)
    layout = choose_smem(32, 128, [pattern])
    assert rank_of(SmemLayout(32, 128, 128), pattern) == 32
    assert rank_of(layout, pattern) == 4
    assert layout.pitch == 128


def test_choose_smem_names_an_access_outside_the_tile() -> None:
    with pytest.raises(ValueError, match="row 8, byte 0 leaves a tile of 8 rows"):
        choose_smem(8, 128, [(lambda i: (i, 0), 16, 9)])
    with pytest.raises(ValueError, match="byte 120"):
        choose_smem(8, 128, [(lambda i: (0, 120), 16, 1)])


@pytest.mark.parametrize(("span", "bits"), [(128, 3), (64, 2), (32, 1), (16, 0)])
def test_hardware_swizzles(span: int, bits: int) -> None:
    """Bit 4 + i of the address is added (mod 2) to by bit 7 + i, for the first `bits` i;"""

    def expected(address: int) -> int:
        for i in range(bits):
            address ^= ((address >> (7 + i)) & 1) << (4 + i)
        return address

    for address in range(64 * span):
        assert swizzle_address(span, address) == expected(address)
    # eight rows, the same chunk: what ldmatrix and wgmma read at once
    for chunk in range(0, span, 16) if span > 16 else ():
        assert max(replays([swizzle_address(span, row * span + chunk) for row in range(8)], 16)) == 1


def test_swizzles_of_runs() -> None:
    assert [swizzle_dividing(run) for run in (256, 192, 96, 48, 24)] == [128, 64, 32, 16, 0]
    assert [swizzle_holding(run) for run in (16, 33, 96, 128, 129)] == [32, 64, 128, 128, 0]


def test_unknown_layouts() -> None:
    with pytest.raises(ValueError, match="does not stay inside"):
        SmemLayout(8, 48, 48, 3)
    with pytest.raises(ValueError, match="not a shared-memory layout"):
        SmemLayout(8, 48, 40)
