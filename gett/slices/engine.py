"""Sums of slices by several GPUs of this process, which is asked for in turns, so that all are busy.

Owns which device does which slices, and what each has of operands and sums. How arrays move is `gett.slices.links`'.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gett.arrays.kinds import ArrayKind
from gett.slices.distributed_plan import Job
from gett.slices.links import Link
from gett.slices.recipe import added
from gett.slices.sharded import Index, Sharded
from gett.slices.sums import Node, SumTree, nodes
from gett.slices.views import Place
from gett.slices.work import SliceRun, SliceWork, packed

AHEAD = 32  # slices whose copies a device has asked for before it computes

Box = tuple[tuple[int, int], ...]
"""First and one past the last index along each axis."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where slices on a device read an operand.

    Attributes:
        array: What they view; None where pieces come from elsewhere.
        start: Where the array begins along the axis of the sharded tensor that it is a part of.
        axis: That axis.
    """

    array: Any
    start: int = 0
    axis: int = 0

    def view(self, box: Box) -> Any:
        """A box of the operand."""
        first = [self.start if k == self.axis else 0 for k in range(len(box))]
        return self.array[tuple(slice(x - f, y - f) for f, (x, y) in zip(first, box, strict=True))]


@dataclass(slots=True)
class _Held:
    """A copy of a box of an operand, from which another device may copy.

    Attributes:
        array: The copy, or the box of the operand itself.
        event: When it is there; None where it is.
        busy: How many copies one after the other it takes until it can be copied again.
    """

    array: Any
    event: Any
    busy: int = 0


@dataclass(frozen=True)
class _Share:
    """What one device computes of a job.

    Attributes:
        job: The job.
        nodes: Sums of consecutive slices.
    """

    job: Job
    nodes: Sequence[Node]

    @cached_property
    def spans(self) -> Mapping[int, range]:
        """The indices that its slices have together along each sliced mode, which sharded tensors ask for."""
        found: dict[int, range] = {}
        for place in _places(self.job, self.nodes):
            for mode, x in place.items():
                known = found.get(mode, x)
                found[mode] = range(min(known.start, x.start), max(known.stop, x.stop))
        return found


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A job as the devices compute it, which is the same in each call.

    Attributes:
        job: It.
        shares: Of each device.
        works: The slices as devices read them, by device and layouts.
    """

    job: Job
    shares: tuple[_Share, ...]
    works: dict[Any, SliceWork] = field(default_factory=dict)


class PartialSums:
    """The sums of one part of the result, where several devices formed them."""

    def __init__(self, link: Link, devices: Sequence[int], job: Job, values: Sequence[tuple[Node, Any]]) -> None:
        """Of some nodes, which are all of the part."""
        self._link, self._devices, self._job, self._values = link, devices, job, values

    def share(self, where: Index, device: int) -> Any:
        """A box of the total, formed on a device; each element is asked for once."""
        tree = SumTree(self._job.terms, added)
        with self._link.on(device):
            for node, value in self._values:
                tree.put(node.level, node.index, self._link.move(value[where], device))
        return tree.total

    def on(self, device: int) -> Any:
        """The total on a device.

        Of more than two sums each device adds a share of the elements, so that no link carries all of them.
        """
        link, n = self._link, len(self._devices)
        kind = link.kind_on(device)
        spec = kind.describe(self._values[0][1])
        shape, strides = spec.shape, spec.strides
        axis = max(range(len(shape)), key=lambda i: (shape[i] >= n, strides[i]), default=None)
        if len(self._values) < 3 or axis is None or shape[axis] < n:
            return self.share((), device)
        with link.on(device):
            total = kind.empty(shape, spec.dtype, self._job.recipe.order)
        for i, adding in enumerate(self._devices):
            where = (*(slice(None),) * axis, slice(i * shape[axis] // n, (i + 1) * shape[axis] // n))
            piece = self.share(where, adding)
            with link.on(device):
                kind.copy(total[where], link.move(piece, device))
        return total


class DeviceEngine:
    """Several GPUs.

    Attributes:
        devices: Their numbers; the first is the home of results.
        link: Moves arrays between them.
    """

    def __init__(self, devices: Sequence[int], link: Link, inputs: Sequence[Sequence[int]]) -> None:
        """For contractions whose operands have the modes `inputs` in order."""
        self.devices, self.link = tuple(devices), link
        self._inputs = inputs
        self._last: _Prepared | None = None

    def __call__(self, job: Job, kind: ArrayKind, operands: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Each part with its sum on the home."""
        for part, sums in self.sums(job, operands):
            yield part, sums.on(self.devices[0])

    def shares(self, job: Job) -> list[Sequence[Node]]:
        """The nodes of each device: consecutive terms, about as many slices each."""
        return [share.nodes for share in self._prepared(job).shares]

    def _prepared(self, job: Job) -> _Prepared:
        found = self._last
        if found is None or found.job is not job:
            found = self._last = _Prepared(job, tuple(self._divided(job)))
        return found

    def _divided(self, job: Job) -> Iterator[_Share]:
        terms = [Node(part, 0, i) for part in range(job.grid.parts) for i in range(job.terms)]
        for share in job.shares(terms, len(self.devices)):
            made: list[Node] = []
            for part in dict.fromkeys(x.part for x in share):
                own = [x.index for x in share if x.part == part]
                made += nodes(part, range(own[0], own[-1] + 1), job.terms.bit_length(), job.terms)
            yield _Share(job, made)

    def sums(self, job: Job, operands: Sequence[Any]) -> Iterator[tuple[int, PartialSums]]:
        """Each part with its sums, which are read before the next part is asked for.

        Args:
            job: What to compute.
            operands: Arrays, or sharded tensors.
        """
        link, devices = self.link, self.devices
        places = [link.place(x) for o in operands for x in (o.parts if isinstance(o, Sharded) else (o,))]
        with link.lock:
            link.begin(devices, [p for p in places if p is not None])
            try:
                done: list[tuple[Node, Any]] = []
                held: dict[Any, list[_Held]] = {}
                prepared = self._prepared(job)
                running = [
                    self._share(prepared, device, share, operands, done, held)
                    for device, share in zip(devices, prepared.shares, strict=True)
                    if share.nodes
                ]
                while running:  # at the first turn all devices ask for copies, ahead of what others compute
                    running = [x for x in running if next(x, None) is not None]
                for part in dict.fromkeys(node.part for node, _ in done):
                    yield part, PartialSums(link, devices, job, [x for x in done if x[0].part == part])
            finally:
                link.end(devices, devices[0])

    def _share(
        self,
        prepared: _Prepared,
        device: int,
        share: _Share,
        operands: Sequence[Any],
        done: list[tuple[Node, Any]],
        held: dict[Any, list[_Held]],
    ) -> Iterator[bool]:
        """Ask a device for its nodes, one slice at each turn."""
        job = prepared.job
        link, kind, recipe = self.link, self.link.kind_on(device), job.recipe
        ahead = _places(job, share.nodes)
        sources = [self._source(i, x, device, share) for i, x in enumerate(operands)]
        with link.on(device):
            work = self._work(prepared, device, sources)
            pieces = _Pieces(link, device, operands, sources, work, held)
            pieces.fetch(itertools.islice(ahead, AHEAD))
        yield True
        with link.on(device):
            whole = [pieces.whole(i) if i in work.read_once else None for i in range(len(operands))]
            kept = work.keep(kind, link.number(device), whole)
            dense = frozenset(j for j, i in enumerate(work.variable) if sources[i].array is None)
            run = SliceRun(work, kind, link.number(device), kept, pieces.views, dense)
        for node in share.nodes:
            outer, adds = job.grid.part(node.part), False
            with link.on(device):
                sums = kind.empty(job.grid.shape(node.part), np.dtype(recipe.sums), recipe.order)
            for number in job.numbers(node):
                with link.on(device):
                    pieces.fetch(itertools.islice(ahead, 1))
                    run.add(outer, number, sums, adds=adds)
                adds = True
                yield True
            done.append((node, sums))

    def _source(self, i: int, operand: Any, device: int, share: _Share) -> _Source:
        """Where a device reads an operand: an array that is there and has all that is read, if there is one."""
        here = (None, device)
        if not isinstance(operand, Sharded):
            return _Source(operand if self.link.place(operand) in here else None)
        read = range(operand.shape[operand.axis])
        if len(read) != 1:
            read = share.spans.get(self._inputs[i][operand.axis], read)
        for number, part in enumerate(operand.parts):
            held = operand.range(number)
            if held.start <= read.start and read.stop <= held.stop and self.link.place(part) in here:
                return _Source(part, held.start, operand.axis)
        return _Source(None)

    def _work(self, prepared: _Prepared, device: int, sources: Sequence[_Source]) -> SliceWork:
        """The slices as a device reads their operands."""
        kind = self.link.kind_on(device)
        layouts: list[tuple[tuple[int, ...], int] | None] = []
        for source in sources:
            if source.array is None:
                layouts.append(None)
            else:
                found = kind.describe(source.array)
                skipped = found.strides[source.axis] * source.start if source.start else 0
                layouts.append((found.strides, math.gcd(found.alignment, skipped)))
        key = device, *layouts
        work = prepared.works.get(key)
        if work is None:
            recipe = prepared.job.recipe
            specs = tuple(
                packed(x) if layout is None else replace(x, strides=layout[0], alignment=layout[1])
                for x, layout in zip(recipe.bare.operands, layouts, strict=True)
            )
            work = prepared.works[key] = recipe.work(self.link.number(device), specs)
        return work


def _places(job: Job, share: Sequence[Node]) -> Iterator[Place]:
    for node in share:
        outer = job.grid.part(node.part)
        for number in job.numbers(node):
            yield {**outer, **job.grid.slice(number)}


def _box(whole: Box, axes: Sequence[tuple[int, int]], place: Place) -> Box:
    """What a slice reads of an operand that is sliced along some axes."""
    if not axes:
        return whole
    box = list(whole)
    for axis, mode in axes:
        box[axis] = place[mode].start, place[mode].stop
    return tuple(box)


class _Pieces:
    """What slices on a device read: views of what is there, copies of what is not."""

    def __init__(
        self,
        link: Link,
        device: int,
        operands: Sequence[Any],
        sources: Sequence[_Source],
        work: SliceWork,
        held: dict[Any, list[_Held]],
    ) -> None:
        self._link, self._device, self._operands, self._sources = link, device, operands, sources
        self._held = held
        self._copies: dict[Any, Any] = {}
        self._events: dict[Any, Any] = {}
        self._read: list[tuple[int, Box, tuple[tuple[int, int], ...]]] = []
        for i, axes in zip(work.variable, work.axes, strict=True):
            shape = operands[i].shape
            varying = tuple((axis, mode) for axis, mode in axes if shape[axis] != 1)
            self._read.append((i, tuple((0, e) for e in shape), varying))
        self._fetched = [x for x in self._read if sources[x[0]].array is None]

    def fetch(self, places: Iterable[Place]) -> None:
        """Ask for copies of all that slices read elsewhere, in their order."""
        if self._fetched:
            for place in places:
                for i, whole, axes in self._fetched:
                    self._copy(i, _box(whole, axes, place))

    def whole(self, i: int) -> Any:
        """All of an operand."""
        if self._sources[i].array is not None:
            return self._sources[i].array
        key = i, tuple((0, int(e)) for e in self._operands[i].shape)
        self._copy(*key)
        return self._ready(key)

    def views(self, place: Place) -> list[Any]:
        """What a slice reads."""
        found = []
        for i, whole, axes in self._read:
            source = self._sources[i]
            if source.array is None:
                found.append(self._ready((i, _box(whole, axes, place))))
            else:
                found.append(source.view(_box(whole, axes, place)) if axes else source.array)
        return found

    def _copy(self, i: int, box: Box) -> None:
        key = i, box
        if key in self._copies:
            return
        link, operand = self._link, self._operands[i]
        index: Index = tuple(slice(*x) for x in box)
        if not isinstance(operand, Sharded):
            self._take(key, operand[index])
            return
        pieces = list(operand.pieces(index))
        if len(pieces) == 1:
            self._take(key, operand.parts[pieces[0].part][pieces[0].inside])
            return

        def fetched(part: Any) -> Any:
            copy, event = link.fetch(part, self._device)
            if event is not None:
                link.wait(self._device, event)
            return copy

        self._copies[key] = operand.joined(index, link.kind_on(self._device), fetched)

    def _take(self, key: Any, array: Any) -> None:
        """Copy from whichever device has the same box and can send it first: several send at a time."""
        holders = self._held.setdefault(key, [_Held(array, None)])
        source = min(holders, key=lambda x: x.busy)
        copy, event = self._link.fetch(source.array, self._device, source.event)
        source.busy += 1
        holders.append(_Held(copy, event, source.busy))
        self._copies[key], self._events[key] = copy, event

    def _ready(self, key: Any) -> Any:
        """A copy, which is read from here on."""
        event = self._events.pop(key, None)
        if event is not None:
            self._link.wait(self._device, event)
        return self._copies[key]
