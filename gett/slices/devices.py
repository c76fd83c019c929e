"""`DevicesPlan`: a contraction that several GPUs of a host share.

Owns along which mode it is cut, by the cost model and the rate of the link, and sharded operands and results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gett.arrays.kinds import NUMPY, cupy_kind
from gett.console.formatting import brief, count, format_bytes, format_seconds, printable
from gett.errors import DeviceError, DTypeError, OptionError, ShapeError
from gett.hw.archs import arch_facts
from gett.ir.subscripts import parse
from gett.network.path import Path
from gett.network.request import PlanRequest
from gett.network.slicing import MOVED, Network, cost_of_cut, slicing, spread
from gett.plans.contraction_plan import ContractionPlan
from gett.slices.distributed_plan import DistributedPlan, dense_request
from gett.slices.engine import DeviceEngine
from gett.slices.finder import find_plan
from gett.slices.limited import network_of
from gett.slices.links import Link, link_for, peer_access
from gett.slices.sharded import Sharded
from gett.slices.sliced_plan import SlicedPlan, bare_request
from gett.slices.sums import Node
from gett.slices.views import view
from gett.slices.work import SliceWork, packed

FORECAST = 6  # cuts whose kernels the cost model looks at
CHUNKS = 8  # slices of each device where operands move to it, so that copies run beside the computation
SHARING_US = 50.0  # events, requests and last sums that a contraction takes on several devices, until it is measured
HIDDEN = 0.05  # of the time of the computation: copies that take no longer need no chunks


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to share a contraction.

    Attributes:
        lengths: Each cut mode with its extent in a slice; none where one device computes it all.
        us: Microseconds of the slowest device, None where nothing is forecast.
        moved: Bytes that cross the link: operands.
        returned: Bytes of sums that cross the link.
    """

    lengths: tuple[tuple[int, int], ...]
    us: float | None
    moved: int
    returned: int

    @property
    def rank(self) -> float:
        """What cuts are compared by."""
        return math.inf if self.us is None else self.us


class DevicesPlan(DistributedPlan):
    """A contraction that several GPUs share: `plan(a, b)`, with arrays of the first GPU or sharded tensors.

    Attributes:
        devices: The GPUs; results are on the first.
        cut: How it is shared.
        alone: The cut for one GPU.
        shard: The label along which a result is sharded; None for an array on the first GPU.
    """

    __slots__ = ("_layout", "_peers", "alone", "cut", "devices", "shard")

    def __init__(
        self,
        request: PlanRequest,
        free: ContractionPlan,
        path: Path,
        network: Network,
        cut: Cut,
        alone: Cut,
        engine: DeviceEngine,
        shard: str | None,
        layout: Sequence[int | None],
    ) -> None:
        """Made by `share_out`.

        Args:
            request: What was asked for.
            free: The plan without slices.
            path: Of all operands.
            network: What the path amounts to.
            cut: How it is shared.
            alone: The cut for one GPU.
            engine: The devices.
            shard: As the attribute.
            layout: The axis along which each operand is sharded, None where it is an array.
        """
        way = slicing(network, dict(cut.lengths))
        super().__init__(request, free, path, network, way, engine, len(engine.devices))
        self.devices, self.cut, self.alone, self.shard = engine.devices, cut, alone, shard
        self._layout = tuple(layout)
        self._peers = self.arch == "cpu" or len(self.devices) < 2 or request.device is None or peer_access(self.devices)

        def again(changed: PlanRequest, *, keep: bool = True) -> ContractionPlan:
            return DevicesPlan(changed, free, path, network, cut, alone, engine, shard, layout)

        self._replan = again

    def __call__(self, *operands: Any, **options: Any) -> Any:
        """As a call of any plan; operands may be sharded, and with them there are no further options.

        Args:
            operands: Arrays of the first GPU, or `Sharded` ones.
            options: As for `ContractionPlan`.

        Returns:
            An array of the first GPU, or a `Sharded` one where the plan was made with `shard=`.
        """
        if self.shard is None and not any(isinstance(x, Sharded) for x in operands):
            return super().__call__(*operands, **options)
        given = [name for name, value in options.items() if value is not None]
        if given or self._request.epilogue is not None:
            raise OptionError(f"{given[0] if given else 'epilogue'}= does not go with sharded tensors")
        self._check(operands)
        engine, job = self.engine, self.job
        kind, link = engine.link.kind, engine.link
        home = self.devices[0]
        with link.on(home):
            if self.shard is None:
                d = kind.empty(self.shape, self.dtype, self._order)
                for part, total in engine.sums(job, operands, lambda part: home):
                    place = job.grid.part(part)
                    kind.copy(view(d, self._output_axes, place), total)
                return d
        axis = self.subscripts.split("->")[1].index(self.shard)
        d = self._sharded_result(axis)

        def owner(part: int) -> int:
            where = job.grid.part(part).get(self._network.output[axis])
            return home if where is None else next(
                g for i, g in enumerate(self.devices) if d.range(i).start <= where.start < d.range(i).stop
            )  # fmt: skip

        for part, total in engine.sums(job, operands, owner):
            place, extents = job.grid.part(part), self._network.extents
            box = tuple(place.get(m, slice(0, extents[m])) for m in self._network.output)
            for piece in d.pieces(box):
                device = self.devices[piece.part]
                with link.on(device):
                    kind.copy(d.parts[piece.part][piece.inside], link.move(total[piece.target], device))
        return d

    def _sharded_result(self, axis: int) -> Sharded:
        engine, n = self.engine, len(self.devices)
        length = -(-self.shape[axis] // n)
        parts = []
        for i, device in enumerate(self.devices):
            extent = max(0, min(length, self.shape[axis] - i * length))
            with engine.link.on(device):
                shape = (*self.shape[:axis], extent, *self.shape[axis + 1 :])
                parts.append(engine.link.kind.empty(shape, self.dtype, self._order))
        return Sharded(parts, axis)

    def _check(self, operands: Sequence[Any]) -> None:
        wanted = self._request.operands
        if len(operands) != len(wanted):
            raise ShapeError(f"the plan {self.subscripts} takes {len(wanted)} operands, {len(operands)} were given")
        kind = self.engine.link.kind
        for i, (x, want, axis) in enumerate(zip(operands, wanted, self._layout, strict=True)):
            if not isinstance(x, Sharded) and (kind is NUMPY) is not (type(x).__module__.split(".")[0] == "numpy"):
                raise DeviceError(f"operand {i} is a {type(x).__name__}; the plan was made for {kind.name} arrays")
            if tuple(x.shape) != want.shape:
                raise ShapeError(f"operand {i} has shape {brief(tuple(x.shape))}, planned was {brief(want.shape)}")
            if x.dtype != want.dtype:
                raise DTypeError(f"operand {i} has dtype {x.dtype}, planned was {want.dtype}")
            found = x.axis if isinstance(x, Sharded) else None
            if found != axis:
                raise ShapeError(f"operand {i} is {_spell(found)}, planned was {_spell(axis)}")

    @property
    def engine(self) -> DeviceEngine:
        """What sums the slices."""
        engine: DeviceEngine = self._engine  # type: ignore[assignment]
        return engine

    def __repr__(self) -> str:
        return f"<DevicesPlan {printable(self.subscripts)} on {self.arch}, {count(len(self.devices), 'device')}>"

    def explain(self, *, detail: bool = False) -> str:
        """The plan as text: who computes what, bytes over the link, FLOP and expected time; then that of a slice."""
        return printable("\n".join([*self._lines(), super().explain(detail=detail)]))

    def _lines(self) -> Iterator[str]:
        job, cut = self.job, self.cut
        names = dict(zip((m for t in self._parsed.inputs for m in t), self._letters(), strict=True))
        yield f"{self.subscripts} on {count(len(self.devices), 'device')} {list(self.devices)}, {self.dtype}"
        if not cut.lengths:
            yield "  shared    not: one device takes less time"
            return
        kinds = [
            f"{names[m]} ({'kept' if m in self._network.output else 'summed'}, {n} of {self._network.extents[m]})"
            for m, n in cut.lengths
        ]
        yield f"  cut       along {', '.join(kinds)}: {count(self.slices, 'slice')}, {self.overhead:.3g} times the FLOP"
        for device, share in zip(self.devices, self.engine.shares(job), strict=True):
            done = sum(map(job.slices, share))
            yield f"  device {device:<3} {count(done, 'slice')}, {_spell_parts(share, job.grid.parts)}"
        for i, axis in enumerate(self._layout):
            if axis is not None:
                yield f"  operand {i} is cut along {self.subscripts.split('->')[0].split(',')[i][axis]}"
        how = "" if self._peers else ", through the host: no peer access"
        yield f"  link      {format_bytes(cut.moved)} of operands, {format_bytes(cut.returned)} of sums{how}"
        if cut.us is not None and self.alone.us is not None:
            yield (f"  expected  {format_seconds(1e-6 * cut.us)}, on one device {format_seconds(1e-6 * self.alone.us)}")

    def _letters(self) -> str:
        return "".join(self.subscripts.split("->")[0].split(","))


def _spell_parts(share: Sequence[Node], parts: int) -> str:
    """What a device's slices are of."""
    if not share:
        return "nothing"
    first, last = share[0].part, share[-1].part
    if parts == 1:
        return "a partial sum of all of the result"
    return f"part {first} of the result" if first == last else f"parts {first} to {last} of the result"


def _spell(axis: int | None) -> str:
    return "an array" if axis is None else f"sharded along axis {axis}"


def share_out(
    plan: ContractionPlan, devices: Sequence[int], operands: Sequence[Any], shard: str | None = None
) -> DevicesPlan:
    """A plan for several devices.

    Args:
        plan: Of one device, made for the first.
        devices: Their numbers.
        operands: Arrays, pairs or sharded tensors; only how they are sharded counts.
        shard: A label of the result.

    Raises:
        OptionError, DeviceError, DTypeError: Devices or labels do not fit.
    """
    request, free = plan.request, plan.unsliced if isinstance(plan, SlicedPlan) else plan
    kind = next((x.kind for x in operands if isinstance(x, Sharded)), None)
    link = _link(plan, kind)
    check_devices(devices, request.arch, request.device is not None)
    if shard is not None and (not isinstance(shard, str) or shard not in plan.subscripts.split("->")[1]):
        raise OptionError(f"shard={shard!r} is no label of the result of {plan.subscripts}")
    network, path = network_of(request, plan.path if len(request.operands) > 2 else True)
    layout = [x.axis if isinstance(x, Sharded) else None for x in operands]
    inputs = parse(request.spec, [len(t.shape) for t in request.operands]).inputs
    engine = DeviceEngine(devices, link, network, inputs)
    costs = _Costs(plan, network, path, len(devices), layout, inputs, shard)
    alone = costs.of(())
    if 0 in network.extents or len(devices) == 1:
        cut = alone
    elif isinstance(plan, SlicedPlan):
        way = spread(network, plan.lengths, len(devices))  # as it is, where it has as many slices
        cut = alone if way is None else costs.of(way.lengths)
    else:
        cut = costs.best(alone)
    made = replace(request, memory_limit=None)
    return DevicesPlan(made, free, path, network, cut, alone, engine, shard, layout)


def _link(plan: ContractionPlan, kind: Any) -> Link:
    if plan.arch == "cpu":
        return Link()
    if kind is not None:
        return link_for(kind)
    found = cupy_kind()
    return Link() if plan.request.device is None or found is None else link_for(found)


def check_devices(devices: Sequence[int], arch: str, here: bool) -> None:
    """Refuse devices that are none, or differ.

    Raises:
        OptionError: They are no numbers of GPUs, or one is named twice.
        DeviceError: There is no such GPU, or one has another architecture.
    """
    numbers = list(devices) if isinstance(devices, (list, tuple, range)) else []
    if not numbers or any(isinstance(x, bool) or not isinstance(x, int) or x < 0 for x in numbers):
        raise OptionError(f"devices={devices!r}; it must list numbers of GPUs, such as [0, 1]")
    if len(set(numbers)) != len(numbers):
        raise OptionError(f"devices={devices!r} names a GPU twice")
    if arch == "cpu" or not here:
        return
    from gett.slices.recipe import kind_of

    for x in numbers:
        kind_of(arch, x)


class _Costs:
    """What cuts take: by the cost model on GPUs, by products and moved elements on the CPU."""

    def __init__(
        self,
        plan: ContractionPlan,
        network: Network,
        path: Path,
        devices: int,
        layout: Sequence[int | None],
        inputs: Sequence[Sequence[int]],
        shard: str | None,
    ) -> None:
        self._plan, self._network, self._n = plan, network, devices
        self._layout, self._inputs = layout, inputs
        self._bare = None if plan.arch == "cpu" else dense_request(bare_request(plan.request, plan.dtype), path)
        self._shard = None if shard is None else network.output[plan.subscripts.split("->")[1].index(shard)]

    def best(self, alone: Cut) -> Cut:
        """The cut that takes least time, which may be none."""
        network, n = self._network, self._n
        modes = sorted({m for t in network.terms for m in t if network.extents[m] >= n})
        lengths = [((m, -(-network.extents[m] // n)),) for m in modes]
        ranked = sorted(lengths, key=lambda x: (cost_of_cut(network, dict(x)) + self._moves(x), x))
        if self._bare is None:
            return self.of(ranked[0]) if ranked else alone
        found = [self._chunked(x) for x in ranked[:FORECAST]]
        return min([alone, *found], key=lambda x: x.rank)

    def _chunked(self, lengths: tuple[tuple[int, int], ...]) -> Cut:
        """A cut, in chunks where operands move."""
        cut = self.of(lengths)
        ((mode, length),) = lengths
        rate = arch_facts(self._plan.arch).link_tbps * 1e6
        if cut.us is None or cut.moved / rate < HIDDEN * cut.us or length < CHUNKS:
            return cut
        count = next((k for k in range(CHUNKS, 2 * CHUNKS) if length % k == 0), CHUNKS)
        chunks = self.of(((mode, -(-length // count)),))
        assert chunks.us is not None
        hidden = replace(chunks, us=chunks.us - (1 - 1 / CHUNKS) * min(cut.moved / rate, chunks.us / 2))
        return min(cut, hidden, key=lambda x: x.rank)

    def _moves(self, lengths: tuple[tuple[int, int], ...]) -> int:
        """Elements that cross the link, as products: a cut along the axis of a sharded operand moves nothing of it."""
        moved, returned = self._bytes(lengths)
        facts = arch_facts("sm_90a" if self._plan.arch == "cpu" else self._plan.arch)
        slower = facts.dram_tbps / facts.link_tbps
        return int(MOVED * slower * (moved + returned)) // self._plan.dtype.itemsize

    def _bytes(self, lengths: tuple[tuple[int, int], ...]) -> tuple[int, int]:
        cut = dict(lengths)
        moved = 0
        others = self._n - 1
        for i, (modes, axis) in enumerate(zip(self._inputs, self._layout, strict=True)):
            nbytes = self._plan.request.operands[i].nbytes
            if axis is not None:
                there = modes[axis] in cut and len(cut) == 1
                moved += 0 if there else nbytes * others // self._n
            elif cut:
                moved += nbytes * others // self._n if any(m in cut for m in modes) else nbytes * others
        whole = self._plan.result.d.nbytes
        if not cut:
            return moved, 0 if self._shard is None else whole * others // self._n
        kept = [m for m in cut if m in self._network.output]
        if kept and len(kept) == len(cut):
            return moved, 0 if self._shard in kept else whole * others // self._n
        return moved, whole * others

    def of(self, lengths: tuple[tuple[int, int], ...]) -> Cut:
        """What a cut takes."""
        moved, returned = self._bytes(lengths)
        if self._bare is None:
            return Cut(lengths, None, moved, returned)
        facts = arch_facts(self._plan.arch)
        us = (moved + returned) / (facts.link_tbps * 1e6) + (SHARING_US if lengths else 0.0)
        way = slicing(self._network, dict(lengths))
        work = SliceWork(self._bare, self._network, way, find_plan)
        shape = work.grid.shape(0)
        sums = packed(replace(self._plan.result.d, shape=shape))
        slices = -(-work.grid.parts * work.grid.summed // (self._n if lengths else 1))
        part = work.part(work.lengths, sums, add=False)
        us += sum(_us(x.plan) for x in work.once) + slices * _us(part)
        return Cut(lengths, us, moved, returned)


def _us(plan: ContractionPlan) -> float:
    return sum(s.schedule.forecast.us for s in plan.steps if s.schedule is not None)
