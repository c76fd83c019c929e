"""Follows bandwidth-bound kernels access by access: which elements each thread reads, stages, sums and stores.

Uses the generated index functions as the kernels do, and checks every vector on the way: its
elements lie together, its address is a multiple of its size, and it is valid as a whole. Knows no values.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from gett.codegen.common import element_strides
from gett.codegen.index import Function, ParamTable
from gett.codegen.stream import image_is_whole, stream_index, vectors_of_step
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.search.stream_boxes import swizzled
from gett.schedule.spec.mainloop import StreamLoad, StreamMap, StreamSum
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.stream_views import output_modes, output_views
from tests.cpu.walk import each

Offsets = tuple[int, ...]
TENSOR = {"a": A, "b": B, "c": C, "d": D}


class StreamWalk:
    """One kernel's accesses.

    Args:
        plan: What is computed.
        schedule: How.
        addresses: Address in bytes of the element at coordinate 0, by tensor name.
    """

    def __init__(self, plan: GemmPlan, schedule: Schedule, addresses: Mapping[str, int]) -> None:
        assert isinstance(schedule.mainloop, StreamMap | StreamSum)
        self.plan, self.schedule, self.loop, self.addresses = plan, schedule, schedule.mainloop, addresses
        self.index = stream_index(plan, schedule, ParamTable())
        c = plan.contraction
        operands = {"a": plan.a, "b": plan.b, "c": c.c, "d": c.d}
        self.sizes = {name: itemsize(o.dtype) for name, o in operands.items() if o is not None}
        loads = {"a": self.loop.a, "b": self.loop.b, "c": self.loop.c}
        self.loads: dict[str, StreamLoad] = {name: x for name, x in loads.items() if x is not None}
        self._known: dict[tuple[str, tuple[int, ...]], list[int]] = {}

    def definition(self) -> dict[int, Counter[Offsets]]:
        """By D's offset: how often each tuple of operand offsets (a, b) is a product of that element; C's is last."""
        modes = output_modes(self.plan)
        names = [n for n in "abc" if n in self.loads]
        out: dict[int, Counter[Offsets]] = {}
        for at in itertools.product(*(range(s.extent) for s in modes)):
            of = {n: _dot(at, element_strides(self.plan, modes, TENSOR[n])) for n in (*names, "d")}
            products: Counter[Offsets] = Counter()
            for k in itertools.product(*(range(s.extent) for s in self.plan.k)):
                step = {n: _dot(k, element_strides(self.plan, self.plan.k, TENSOR[n])) for n in "ab" if n in of}
                products[tuple(of[n] + step.get(n, 0) for n in names)] += 1
            out[of["d"]] = products
        return out

    def walk(self) -> dict[int, Counter[Offsets]]:
        """The same, from the kernel's accesses."""
        return self._sums() if isinstance(self.loop, StreamSum) else self._map()

    def _map(self) -> dict[int, Counter[Offsets]]:
        stored: dict[int, Counter[Offsets]] = {}
        v, size = self.loop.vector, self.schedule.tiling.m.size
        for tile in range(self.schedule.tiling.m.tiles):
            t = self._tile("o", tile)
            images = {n: self._stage(n, w, t) for n, w in self.loads.items() if w.staged}
            for first in range(0, size, v):
                if not self._ok("o", t, first):
                    continue
                read = {n: self._fetch(n, images[n], first) if w.staged else self._read(n, w, t, first, self._o(n, t))
                        for n, w in self.loads.items()}  # fmt: skip
                d = [t["d"] + self._o("d", t)(first + j) for j in range(v)]
                self._check_vector("d", d)
                self._check_step(t, first)
                for j in range(v):
                    assert self._ok("o", t, first + j)
                    assert d[j] not in stored
                    stored[d[j]] = Counter([tuple(read[n][j] for n in read)])
        return stored

    def _check_step(self, t: dict[str, int], first: int) -> None:
        """That a vector lies where a thread finds it from its vector of the step before."""
        box, v = self.schedule.tiling.m, self.loop.vector
        assert isinstance(self.loop, StreamMap)
        step, rows = vectors_of_step(self.plan, box, self.loop)
        before = first - step * v
        if not rows or before < 0:
            return
        for name, function in self.index.advances.items():
            offset = self._o(name, t)
            assert offset(first) - offset(before) == function.evaluate()[""]
        for name in self.index.images:
            view = output_views(self.plan)[TENSOR[name]]
            further = rows * view.image(box)[box.tiled[-1][0]]
            for j in range(v):
                assert self._image(name, first + j) - self._image(name, before + j) == further

    def _stage(self, name: str, load: StreamLoad, t: dict[str, int]) -> list[int]:
        """The tile's image in shared memory: the tensor's offset at each place, -1 where nothing was written."""
        count = math.prod(digit.size for digit in load.walk)
        image = [-1] * count
        places: dict[int, int] = {}
        for i in range(0, count, load.width):
            local = self._walk(name, i)
            if not self._ok("o", t, local):
                continue
            to = [self._walk(name, i + j) for j in range(load.width)]
            offsets = [t[name] + self._o(name, t)(x) for x in to]
            self._check_vector(name, offsets)
            for x, offset in zip((self._image(name, x) for x in to), offsets, strict=True):
                assert image[x] < 0
                image[x] = offset
                at = swizzled(x * self.sizes[name], load.mask, load.shift)
                assert places.setdefault(at, x) == x
                assert at < -(-count * self.sizes[name] // 128) * 128
        # What a thread reads as one vector must be one in the image, too.
        v = self.loop.vector
        for first in range(0, self.schedule.tiling.m.size, v):
            if not self._is_whole(name):
                break
            x = self._image(name, first)
            assert [self._image(name, first + j) for j in range(v)] == [x + j for j in range(v)]
            at = [swizzled((x + j) * self.sizes[name], load.mask, load.shift) for j in range(v)]
            assert at == [at[0] + j * self.sizes[name] for j in range(v)]
        return image

    def _fetch(self, name: str, image: list[int], first: int) -> list[int]:
        return [image[self._image(name, first + j)] for j in range(self.loop.vector)]

    def _is_whole(self, name: str) -> bool:
        """Whether vectors are read as such: else each element by itself."""
        box, view = self.schedule.tiling.m, output_views(self.plan)[TENSOR[name]]
        return image_is_whole(box, view.image(box), self.loop.vector)

    def _image(self, name: str, local: int) -> int:
        return self._value(self.index.images[name], "i", {}, local)

    def _sums(self) -> dict[int, Counter[Offsets]]:
        s, schedule, tiling = self.loop, self.schedule, self.schedule.tiling
        assert isinstance(s, StreamSum)
        owners = s.threads // s.lanes_k
        vo, vk = (1, s.vector) if s.along_k else (s.vector, 1)
        assert owners * s.rows * vo == tiling.shape[0]
        assert s.lanes_k * s.unroll * vk == tiling.shape[2]
        tiles_k = tiling.k.tiles if self.plan.extent_k else 0
        per_slice = -(-tiles_k // schedule.split_k)
        covered = [k for i in range(schedule.split_k) for k in range(tiles_k)[i * per_slice : (i + 1) * per_slice]]
        assert covered == list(range(tiles_k))
        assert tiles_k == 0 or per_slice * (schedule.split_k - 1) < tiles_k
        stored: dict[int, Counter[Offsets]] = {}
        for tile in range(tiling.m.tiles):
            t = self._tile("o", tile)
            sums: dict[int, Counter[Offsets]] = {}
            for first in range(0, tiling.shape[0], vo):
                if self._ok("o", t, first):
                    for j in range(vo):
                        assert self._ok("o", t, first + j)
                        sums[first + j] = Counter()
            for kt in range(tiles_k):
                tk = self._tile("k", kt)
                for k in range(0, tiling.shape[2], vk):
                    if self._ok("k", tk, k):
                        for first in range(0, tiling.shape[0], vo):
                            if first in sums:
                                self._add(sums, t, first, tk, k)
            for i in range(tiling.m.size):
                local = self._walk("d", i)
                if self._ok("o", t, local):
                    d = t["d"] + self._o("d", t)(local)
                    assert d not in stored
                    c = (t["c"] + self._o("c", t)(local),) if "c" in self.loads else ()
                    stored[d] = Counter({(*x, *c): n for x, n in sums.pop(local).items()})
            assert not sums
        return stored

    def _add(
        self, sums: dict[int, Counter[Offsets]], t: dict[str, int], first: int, tk: dict[str, int], k: int
    ) -> None:
        """One thread's products of one vector."""
        s = self.loop
        assert isinstance(s, StreamSum)
        read = []
        for name, load in self.loads.items():
            if name == "c":
                continue
            row = t[name] + self._o(name, t)(first % s.row_step if load.shared and s.rows > 1 else first)
            at = tk[name] + self._call(self._function("k", f"k_{name}"), tk, k)
            definition = [
                t[name] + self._o(name, t)(first + (0 if s.along_k else j))
                + tk[name] + self._call(self._function("k", f"k_{name}"), tk, k + (j if s.along_k else 0))
                for j in range(s.vector)
            ]  # fmt: skip
            got = self._read_at(name, load, row + at)
            assert got == definition
            read.append(got)
        for j in range(s.vector):
            if s.along_k:
                assert self._ok("k", tk, k + j)
            sums[first + (0 if s.along_k else j)][tuple(x[j] for x in read)] += 1

    def _read(
        self, name: str, load: StreamLoad, t: dict[str, int], first: int, offset: Callable[[int], int]
    ) -> list[int]:
        got = self._read_at(name, load, t[name] + offset(first))
        assert got == [t[name] + offset(first + j) for j in range(self.loop.vector)]
        return got

    def _read_at(self, name: str, load: StreamLoad, at: int) -> list[int]:
        """Offsets that one `read` of stream.cuh touches, starting at offset `at`."""
        v = self.loop.vector
        if v == 1:
            return [at]
        if load.splat:
            return [at] * v
        step = 1 if load.width == v else self.index.steps[name].evaluate()[""]
        out = []
        for j in range(0, v, load.width):
            part = [at + j * step + i for i in range(load.width)]
            self._check_vector(name, part)
            out += part
        return out

    def _check_vector(self, name: str, offsets: list[int]) -> None:
        size = self.sizes[name]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        assert (self.addresses[name] + offsets[0] * size) % (size * len(offsets)) == 0

    def _function(self, group: str, name: str) -> Function:
        found = self.index.o if group == "o" else self.index.k
        assert found is not None
        return next(f for f in (found.tile, found.ok, *found.offsets) if f.name == name)

    def _tile(self, group: str, tile: int) -> dict[str, int]:
        return self._function(group, f"{group}_tile").evaluate(tile=tile)

    def _ok(self, group: str, t: dict[str, int], local: int) -> bool:
        return bool(self._call(self._function(group, f"{group}_ok"), t, local))

    def _o(self, name: str, t: dict[str, int]) -> Callable[[int], int]:
        function = self._function("o", f"o_{name}")
        return lambda local: self._call(function, t, local)

    def _walk(self, name: str, i: int) -> int:
        return self._value(self.index.walks[name], "i", {}, i)

    def _call(self, function: Function, t: dict[str, int], local: int) -> int:
        return self._value(function, "local", t, local)

    def _value(self, function: Function, argument: str, t: dict[str, int], at: int) -> int:
        """A function's value at one index, of values worked out for all indices of a tile at once."""
        key = function.name, tuple(t.values())
        known = self._known.get(key)
        if known is None:
            count = max(self.schedule.tiling.shape) + self.loop.vector
            env = {argument: np.arange(count), **{f"t.{name}": value for name, value in t.items()}}
            known = self._known[key] = each(function.evaluate(**env)[""], count)
        return known[at]


def _dot(x: tuple[int, ...], strides: tuple[int, ...]) -> int:
    return sum(i * s for i, s in zip(x, strides, strict=True))
