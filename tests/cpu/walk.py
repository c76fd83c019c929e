"""Walks the accesses of a tiled kernel one by one: what each vector reads, where it lands, what is stored.

Follows the loaders and the epilogue in Python, on the index functions of a schedule, and checks every
access against `Box.coordinates` and the plan's strides. Knows no values, only element numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gett.codegen.common import store_order, strides_of
from gett.codegen.index import ParamTable
from gett.codegen.multistage import flattened_k, loading, place_steps, unpack_d, walk_function
from gett.codegen.tiles import GroupIndex, group_index, k_box_index, k_table_index
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.schedule import Schedule, Tiling
from gett.schedule.tile.lane_order import Order, elements_of
from layouts.box import Box
from layouts.modes import Strided


def element_offset(box: Box, tile: int, local: int, modes: Sequence[Strided], tensor: int, size: int) -> int | None:
    """Elements from the origin to index `local` of a tile, None in the padding: the definition."""
    at = box.coordinates(tile, local)
    return None if at is None else sum(x * s.strides[tensor] for x, s in zip(at, modes, strict=True)) // size


def element_offsets(box: Box, tile: int, modes: Sequence[Strided], tensor: int, size: int) -> np.ndarray:
    """`element_offset` of every index of a tile of a tensor with no negative stride, -1 in the padding."""
    found = (element_offset(box, tile, local, modes, tensor, size) for local in range(box.size))
    return np.array([-1 if x is None else x for x in found])


def each(value: object, count: int) -> list[int]:
    """The values of an index function for `count` indices, of which it may need none."""
    return np.broadcast_to(np.asarray(value), count).tolist()


class Walk:
    """The index functions of one schedule."""

    def __init__(self, plan: GemmPlan, schedule: Schedule) -> None:
        self.plan, self.schedule = plan, schedule
        table = ParamTable()
        block_m, block_n, block_k = schedule.tiling.shape
        self.m = group_index("m", schedule.tiling.m, block_m, strides_of(plan, plan.m, {"a": A, "d": D}), table)
        self.n = group_index("n", schedule.tiling.n, block_n, strides_of(plan, plan.n, {"b": B, "d": D}), table)
        self.l: GroupIndex | None = None
        if schedule.tiling.l is not None:
            strides = strides_of(plan, plan.l, {"a": A, "b": B, "d": D})
            self.l = group_index("l", schedule.tiling.l, schedule.tiling.batches, strides, table)
        modes = flattened_k(plan, schedule.tiling) if schedule.multistage.k_table else plan.k
        both = strides_of(plan, modes, {"a": A, "b": B})
        if schedule.multistage.k_table:
            self.k = k_table_index([s.extent for s in modes], both, table)[1]
        else:
            self.k = k_box_index(schedule.tiling.k, block_k, both, table)[1]

    def along(self, group: str, tensor: str, tile: int) -> list[int | None]:
        """Offset of every index of a tile of M or N, from the functions; None where they say that it is padding."""
        index = {"m": self.m, "n": self.n, "l": self.l}[group]
        assert index is not None
        origin = index.tile.evaluate(tile=tile)
        env = {f"t.{name}": x for name, x in origin.items()}
        f = next(f for f in index.offsets if f.name == f"{group}_{tensor}")
        block = self.schedule.tiling.batches if group == "l" else self.schedule.tiling.shape[0 if group == "m" else 1]
        local = np.arange(block)
        offsets = each(origin[tensor] + f.evaluate(local=local, **env)[""], block)
        valid = each(index.ok.evaluate(local=local, **env)[""], block)
        return [x if ok else None for x, ok in zip(offsets, valid, strict=True)]

    def tall(self, group: str, tensor: str, tile: int, tile_l: int) -> list[int | None]:
        """Offsets of every row of a tile that holds several batches, one above the other."""
        rows = self.along(group, tensor, tile)
        if self.schedule.tiling.l is None:
            return rows
        batches = self.along("l", tensor, tile_l)
        number = {"a": A, "b": B, "d": D}[tensor]
        size = itemsize(self.plan.contraction.dtype if tensor != "d" else self.plan.contraction.d.dtype)
        box = self.schedule.tiling.l
        assert batches == [element_offset(box, tile_l, i, self.plan.l, number, size) for i in range(box.size)]
        return [None if x is None or y is None else x + y for x in batches for y in rows]

    def along_k(self, tensor: str, tile: int) -> list[int | None]:
        """Offset of every index of a tile of K."""
        block = self.schedule.tiling.shape[2]
        if self.schedule.multistage.k_table:
            extent = self.plan.extent_k
            at = np.arange(tile * block, tile * block + block)
            found = each(self.k[0].evaluate(k=at)[tensor], block)
            return [x if k < extent else None for k, x in zip(at, found, strict=True)]
        k_tile, k_a, k_b, k_ok, k_coord = self.k
        origin = k_tile.evaluate(tile=tile)
        f = k_a if tensor == "a" else k_b
        local = np.arange(block)
        found = each(origin[tensor] + f.evaluate(local=local)[""], block)
        inside = (k_ok.evaluate(local=local)[""] != 0) & (k_coord.evaluate(local=local)[""] < origin["rem"])
        return [x if ok else None for x, ok in zip(found, each(inside, block), strict=True)]

    def check_loads(self, tensor: str, tile_mn: int, tile_k: int, tile_l: int = 0) -> int:
        """Check each access of one operand for one k-tile; returns how many there are."""
        s, plan = self.schedule, self.plan
        group, modes, box = ("m", plan.m, s.tiling.m) if tensor == "a" else ("n", plan.n, s.tiling.n)
        loader = s.multistage.a if tensor == "a" else s.multistage.b
        operand = plan.a if tensor == "a" else plan.b
        assert operand is not None
        size, number = itemsize(operand.dtype), A if tensor == "a" else B
        block_mn, block_k = s.tiling.shape[0 if tensor == "a" else 1], s.tiling.shape[2]
        mns, ks = self.along(group, tensor, tile_mn), self.along_k(tensor, tile_k)
        assert mns == [element_offset(box, tile_mn, i, modes, number, size) for i in range(block_mn)]
        assert ks == [element_offset(s.tiling.k, tile_k, i, plan.k, number, size) for i in range(block_k)]

        mns = self.tall(group, tensor, tile_mn, tile_l)
        landed: set[tuple[int, int]] = set()
        starts: list[int] = []  # places of copies
        load = loading(plan, number, loader, s.tiling)
        accesses = self._accesses(loader, s.tiling, block_mn, load.walk)
        steps = place_steps(loader, load, s.threads)
        for elements in accesses:
            offsets = []
            for mn, k in elements:
                assert (mn, k) not in landed, "two accesses write one place"
                landed.add((mn, k))
                at_mn, at_k = mns[mn], ks[k]
                offsets.append(None if at_mn is None or at_k is None else at_mn + at_k)
            self._check_vector(offsets, loader.vector * size, operand.alignment, size)
            at = [load.tile.address(mn, k, load.spread) for mn, k in elements]
            assert all(x >= 0 and x + size <= loader.smem.bytes and x % size == 0 for x in at)
            if isinstance(loader, CpAsync):
                assert [x - at[0] for x in at] == [i * size for i in range(loader.vector)]
                assert at[0] % (loader.vector * size) == 0
                assert loader.vector * size in (4, 8, 16)
                starts.append(at[0])
            elif steps != (0, 0):  # the first place tells the others
                assert at == [loader.smem.moved(at[0], j * steps[0]) + j * steps[1] for j in range(len(at))]
        if steps[0]:  # of copies: that of a thread's first one tells where its others go
            for v, start in enumerate(starts):
                assert start == loader.smem.moved(starts[v % s.threads], v // s.threads * steps[0])
        # What no access writes is zeroed beforehand, and so must be padding.
        for mn in range(block_mn * s.tiling.batches):
            for k in range(block_k):
                assert (mn, k) in landed or mns[mn] is None or ks[k] is None
        return len(accesses)

    @staticmethod
    def _accesses(
        loader: CpAsync | RegisterStaged, tiling: Tiling, block_mn: int, walk: Order
    ) -> list[list[tuple[int, int]]]:
        """The (mn, k) of the elements of each access, as the loaders number them."""
        vec, along_k = loader.vector, loader.vector_group == "k"
        if walk:
            (unpacked,) = walk_function(walk, "a")
            total = elements_of(walk)
            assert total % vec == 0
            found = unpacked.evaluate(i=np.arange(total))
            at = list(zip(each(found["m"], total), each(found["n"], total), strict=True))
            return [at[i : i + vec] for i in range(0, total, vec)]
        rows, block_k = block_mn * tiling.batches, tiling.shape[2]
        length, across = (block_k, rows) if along_k else (rows, block_k)
        assert length % vec == 0
        places = [(row, first) for row in range(across) for first in range(0, length, vec)]
        return [[(row, x) if along_k else (x, row) for x in range(at, at + vec)] for row, at in places]

    @staticmethod
    def _check_vector(offsets: Sequence[int | None], width: int, alignment: int, size: int) -> None:
        first = offsets[0]
        if first is None:
            assert all(x is None for x in offsets), "a vector reaches from the padding into the tensor"
            return
        assert list(offsets) == [first + j for j in range(len(offsets))], "a vector's elements are not neighbours"
        assert math.gcd(alignment, first * size) % width == 0 or width <= size, "a vector is misaligned"

    def check_stores(self, tile_m: int, tile_n: int, tile_l: int = 0) -> int:
        """Check each store of one tile of D; returns how many there are."""
        s, plan = self.schedule, self.plan
        size = itemsize(plan.contraction.d.dtype)
        rows, columns = self.along("m", "d", tile_m), self.along("n", "d", tile_n)
        assert rows == [element_offset(s.tiling.m, tile_m, i, plan.m, D, size) for i in range(s.tiling.shape[0])]
        assert columns == [element_offset(s.tiling.n, tile_n, i, plan.n, D, size) for i in range(s.tiling.shape[1])]
        rows = self.tall("m", "d", tile_m, tile_l)
        order = store_order(plan, s)
        unpack = unpack_d(s.tiling, order)
        total = s.tiling.m.size * s.tiling.n.size * s.tiling.batches
        assert total % s.epilogue.store.vector == 0
        step = {"m": 0, "n": 0}
        if order:
            group, i = order[0]
            if group == "l":
                assert s.tiling.l is not None
                step["m"] = s.tiling.shape[0] * math.prod(d.box for d in s.tiling.l.dims[:i])
            else:
                step[group] = math.prod(d.box for d in (s.tiling.m if group == "m" else s.tiling.n).dims[:i])
        stored: set[tuple[int, int]] = set()
        first = np.arange(0, total, s.epilogue.store.vector)
        at = unpack.evaluate(i=first)
        for m0, n0 in zip(each(at["m"], len(first)), each(at["n"], len(first)), strict=True):
            places = [(m0 + j * step["m"], n0 + j * step["n"]) for j in range(s.epilogue.store.vector)]
            offsets = []
            for m, n in places:
                row, column = rows[m], columns[n]
                offsets.append(None if row is None or column is None else row + column)
            self._check_vector(offsets, s.epilogue.store.vector * size, plan.contraction.d.alignment, size)
            stored.update(places)
        every = {(m, n) for m in range(s.tiling.m.size) for n in range(s.tiling.n.size)}
        assert stored == {(s.tiling.shape[0] * x + m, n) for x in range(s.tiling.batches) for m, n in every}
        return total // s.epilogue.store.vector
