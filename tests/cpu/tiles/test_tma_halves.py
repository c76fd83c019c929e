"""Complex numbers of 16 bytes by tensor map: the copies of a kernel's own text, made as the hardware makes them."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest

from gett.codegen.records import TensorMapSpec
from gett.codegen.render import render_kernel
from gett.ir.gemm import A, B, D
from gett.schedule.lower import lower_plan
from gett.schedule.spec.epilogue import TmaStore
from layouts.swizzle import swizzle_address
from tests.cpu.host_cuda import generated, includes, run_host
from tests.sampling import few_or_every, slow_but
from tests.specs import Spec, SpecsOf, covering

PROGRAM = """
INSIDE
using namespace gett;
int main() {
  Params p;
  if (fread(&p, sizeof p, 1, stdin) != 1) return 2;
  int job[4];
  const Multicast all = {};
  while (fread(job, sizeof job, 1, stdin) == 1) {
    const auto at = Index::tile_coords(p, job[0], job[1], job[2]);
    Index::load_stage(p, at, job[3], 0, 1 << 24, 0, all, all, true);
    STORE
  }
}
"""
STORE = "Index::store_tile(p, Index::store_coords(p, job[0], job[1], job[2]), 0);"
WIDTHS = {0: 16, 1: 32, 2: 64, 3: 128}


def places(spec: TensorMapSpec, at: int, first: list[int]) -> dict[int, int]:
    """Byte in shared memory of each byte's word of eight that a copy moves, by its byte in the tensor."""
    assert spec.data_type == 8
    swizzle = WIDTHS[spec.swizzle]
    pitch = swizzle if swizzle > 16 else spec.box[0] * 8
    assert spec.box[0] * 8 <= pitch
    out = {}
    for row, local in enumerate(itertools.product(*(range(b) for b in reversed(spec.box[1:])))):
        for x in range(spec.box[0]):
            c = [f + i for f, i in zip(first, (x, *reversed(local)), strict=True)]
            if all(0 <= i < e for i, e in zip(c, spec.extents, strict=True)):
                byte = sum(i * s for i, s in zip(c, (8, *spec.strides), strict=True))
                out[byte] = at + swizzle_address(swizzle, row * pitch + x * 8)
    return out


@pytest.mark.parametrize("numbers", slow_but([False, True], [False]))
@few_or_every
def test_copies_bring_both_halves_to_their_places(numbers: bool, specs: SpecsOf, tmp_path: Path) -> None:
    """Of few kernels with every part; where `numbers` count, parts that differ in them are different ones."""
    stores = 0
    every = specs("dmma_complex")
    led = [spec for spec in every if spec.case.name.startswith("two-leads")]
    found = (*covering(every, False, numbers), *covering(led, False, numbers))
    for spec in {id(x): x for x in found}.values():
        if max(spec.schedule.cluster) > 1:
            continue
        folder = tmp_path / repr(spec)
        folder.mkdir()
        stores += check(spec, folder)
    assert stores


def check(spec: Spec, tmp_path: Path) -> bool:
    t, real = spec.schedule.tiling, lower_plan(spec.plan, spec.schedule.tiling)
    store, kernel = spec.schedule.epilogue.store, render_kernel(spec.plan, spec.schedule)
    by_map = isinstance(store, TmaStore)
    tile = [t.m.tiles - 1, t.n.tiles - 1, real.extent_l - 1, t.k.tiles - 1]
    text = includes("core/index", "ptx/cluster", "ptx/tma", "scheduler/persistent", "loader/tma")
    text += PROGRAM.replace("INSIDE", generated(kernel)).replace("STORE", STORE if by_map else "")
    output = run_host(tmp_path, text, kernel.launches[0].params + struct.pack("<4i", *tile)).decode()
    maps = {role: made for role, _, made in kernel.launches[0].maps}
    found: dict[str, dict[int, int]] = {role: {} for role in maps}
    for line in output.splitlines():
        at, *first = (int(x) for x in line[2:].split())
        role = "d" if line[0] == "d" else "b" if at >= 1 << 24 else "a"
        found[role] |= places(maps[role], at % (1 << 24), first)
    batch = coordinate(tile[2], [s.extent for s in real.l])
    for role, tensor, made, groups in (
        ("a", A, spec.schedule.hopper.a.map, ((real.m, t.m, tile[0]), (real.k, t.k, tile[3]))),
        ("b", B, spec.schedule.hopper.b.map, ((real.n, t.n, tile[1]), (real.k, t.k, tile[3]))),
        *(
            (("d", D, store.map, ((real.m, t.m, tile[0]), (real.n, t.n, tile[1]))),)
            if isinstance(store, TmaStore)
            else ()
        ),
    ):
        rest = sum(x * s.strides[tensor] for x, s in zip(batch, real.l, strict=True))
        wanted = set()
        (modes, box, at), (modes2, box2, at2) = groups
        for i in range(box.size):
            for j in range(box2.size):
                one, two = box.coordinates(at, i), box2.coordinates(at2, j)
                if one is None or two is None:
                    continue
                byte = rest + sum(x * s.strides[tensor] for x, s in zip((*one, *two), (*modes, *modes2), strict=True))
                wanted |= {byte, byte + 8}
        assert set(found[role]) == wanted, (spec, role)
        for byte, place in found[role].items():
            assert byte % 16 == 0 or place == found[role][byte - 8] + 8, (spec, role)
        assert made.halves == 2
    return by_map


def coordinate(index: int, extents: list[int]) -> list[int]:
    out = []
    for e in extents:
        index, x = divmod(index, e)
        out.append(x)
    return out
