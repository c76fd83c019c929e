"""Planes: how often shared memory serves what a warp reads of A and B and writes of B's planes, run on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaSplit
from tests.cpu.host_cuda import SPLIT_PARTS, generated, includes, run_host
from tests.specs import Spec, covering, few_specs, specs

PROGRAM = (
    SPLIT_PARTS
    + """
void put(int what, int number, int bytes, int lane, uint32 at) {
  const int x[] = {what, number, bytes, lane, int(at)};
  fwrite(x, sizeof x, 1, stdout);
}
int main() {
  for (int lane = 0; lane < 32; ++lane) {
    const FragmentA fragment(0, lane);
    for (int s = 0; s < MainloopTraits::kBlockK / 16; ++s)
      for (int i = 0; i < FragmentA::kLoads; ++i)
        put(0, s * 8 + i, 4 * FragmentA::kWords, lane, fragment.at(s, 0, i));
    const Transform::Places places(lane);
    for (int i = 0; i < Transform::kPasses; ++i) {
      if (!places.has(i)) continue;
      for (int c = 0; c < Transform::kLoads; ++c)
        put(1, i * 16 + c, 4 * Transform::kLoaded, lane, places.read_at(i, c));
      for (int c = 0; c < Transform::kStores; ++c) put(2, i * 16 + c, 16, lane, places.write_at(i, c));
    }
  }
}
"""
)


def replays(rows: Any) -> int:
    """How often a phase of 128 bytes is served at most; rows are of an access each: its bytes, a lane, an address."""
    size, worst = int(rows[0, 0]), 0
    phases = rows[:, 1] * size // 128
    for phase in np.unique(phases):
        words = np.unique((rows[phases == phase, 2][:, None] // 4 + np.arange(size // 4)).ravel())
        worst = max(worst, int(np.bincount(words % 32).max()))
    return worst


def served(spec: Spec, tmp_path: Path) -> list[int]:
    """Of A's reads, of B's, and of the writes of planes."""
    headers = includes("core/index", "loader/split", "mainloop/split_fragment", "mainloop/split_storage")
    tmp_path.mkdir()
    text = headers + PROGRAM.replace("INSIDE", generated(render_kernel(spec.plan, spec.schedule)))
    rows = np.frombuffer(run_host(tmp_path, text, b""), np.int32).reshape(-1, 5)
    return [
        max(replays(some[some[:, 1] == number, 2:]) for number in np.unique(some[:, 1]))
        for some in (rows[rows[:, 0] == what] for what in range(3))
    ]


FAMILIES = ("split", "split_complex", "split_fp16", "split_fp16_complex")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_long_rows_are_served_at_once(family: str, tmp_path: Path) -> None:
    """One kernel of a family, both of whose operands have rows of 64 bytes and more."""
    found = (
        s
        for s in few_specs(family)
        if min(x.map.swizzle_bytes for x in (s.schedule.hopper.a, s.schedule.hopper.b)) > 64
    )
    assert served(next(found), tmp_path / "one") == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_64_bytes_and_more_are_served_at_once(family: str, tmp_path: Path) -> None:
    seen = set()
    for spec in covering(specs(family), pairs=False):
        loop = spec.schedule.mainloop
        assert isinstance(loop, WgmmaSplit)
        assert isinstance(loop.a, Tma)
        assert isinstance(loop.b, Tma)
        of_a, of_b, of_planes = served(spec, tmp_path / repr(spec))
        a, b = ((x.major, x.map.swizzle_bytes) for x in (loop.a, loop.b))
        seen |= {("a", *a), ("b", *b)}
        # Single numbers of a column of short rows are in twos, whatever their order.
        assert of_a == 1 or a[1] < (128 if a[0] == "mn" else 64), (spec, of_a)
        assert of_b == 1 or b[1] < 64, (spec, of_b)
        assert of_planes == 1, (spec, of_planes)
    assert seen >= {("a", "k", 128), ("a", "mn", 128), ("b", "k", 128)} or "fp16" in family
