"""`DevicesPlan`: a contraction that several GPUs of a host share.

Owns which way is taken, a cut of it all or of its steps, and what is told of it. What ways take is in
`gett.slices.cuts` and `gett.slices.stepwise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gett.arrays.kinds import ArrayKind, cupy_kind
from gett.arrays.torch import torch_library
from gett.console.formatting import WIDEST, brief, count, format_bytes, format_seconds, printable, shortened
from gett.errors import DeviceError, DTypeError, OptionError, ShapeError
from gett.ir.subscripts import parse
from gett.network.request import PlanRequest
from gett.network.running import Ending
from gett.network.slicing import slicing
from gett.plans.contraction_plan import ContractionPlan
from gett.slices.cuts import Costs, Cut
from gett.slices.distributed_plan import DistributedPlan, dense_request, refuse_derivatives, way_with, without_slices
from gett.slices.engine import DeviceEngine
from gett.slices.limited import network_of
from gett.slices.links import Link, link_for, peer_access
from gett.slices.recipe import kind_of
from gett.slices.sharded import Sharded, numpys
from gett.slices.shared import Shared, gathered
from gett.slices.sliced_plan import SlicedPlan, Subject, bare_request
from gett.slices.stepwise import Stepwise, stepwise
from gett.slices.sums import Node


class DevicesPlan(DistributedPlan):
    """A contraction that several GPUs share: `plan(a, b)`, with arrays of the first GPU or sharded tensors.

    Attributes:
        devices: The GPUs; results are on the first.
        cut: How it is shared, if it is cut as a whole.
        alone: The cut for one GPU.
        by_step: How it is shared, if its steps are cut one by one; else None.
        engine: What sums the slices.
        shard: The label along which a result is sharded; None for an array on the first GPU.
    """

    __slots__ = ("_layout", "alone", "by_step", "cut", "devices", "engine", "shard")

    def __init__(
        self,
        request: PlanRequest,
        subject: Subject,
        ways: tuple[Cut, Cut, Stepwise | None],
        engine: DeviceEngine,
        shard: str | None,
        layout: Sequence[int | None],
    ) -> None:
        """Made by `share_out`.

        Args:
            request: What was asked for.
            subject: What is shared, and in which slices where it is cut as a whole.
            ways: The cut, that for one GPU, and the steps.
            engine: The devices.
            shard: As the attribute.
            layout: The axis along which each operand is sharded, None where it is an array.
        """
        super().__init__(request, subject, engine, len(engine.devices))
        self.cut, self.alone, self.by_step = ways
        self.devices, self.engine, self.shard, self._layout = engine.devices, engine, shard, tuple(layout)

        def again(changed: PlanRequest, *, keep: bool = True) -> ContractionPlan:
            return DevicesPlan(changed, subject, ways, engine, shard, layout)

        self._replan = again

    @property
    def is_shared(self) -> bool:
        """Whether more than the first GPU computes."""
        return bool(self.cut.lengths) or self.by_step is not None

    def __call__(self, *operands: Any, **options: Any) -> Any:
        """As a call of any plan; operands may be sharded, and with them there are no further options.

        Args:
            operands: Arrays of the first GPU, or `Sharded` ones.
            options: As for `ContractionPlan`.

        Returns:
            An array of the first GPU, or a `Sharded` one where the plan was made with `shard=`.
        """
        if self.shard is None and not any(isinstance(x, Sharded) for x in operands):
            refuse_derivatives(operands, options)
            return super().__call__(*operands, **options) if self.is_shared else self.unsliced(*operands, **options)
        given = [name for name, value in options.items() if value is not None]
        if given or self._request.epilogue is not None:
            raise OptionError(f"{given[0] if given else 'epilogue'}= does not go with sharded tensors")
        operands = tuple(map(numpys, operands))
        self._check(operands)
        axis = None if self.shard is None else self.subscripts.split("->")[1].index(self.shard)
        if self.by_step is None:
            return Shared(self.engine, self.job, self.dtype, self._order, axis).compute(operands)
        found, link = self.by_step.compute(operands), self.engine.link
        if axis is None:
            return gathered(link, found, self.devices[0])
        if isinstance(found, Sharded):
            if found.axis == axis:
                return found
            found = gathered(link, found, self.devices[0])
        return Sharded.cut(found, self.devices, axis)

    def _write(self, kind: ArrayKind, device: int, operands: Sequence[Any], ending: Ending) -> None:
        if kind.name != self.engine.link.name:
            raise DeviceError(f"the plan was made for {self.engine.link.name}'s arrays, these are {kind.name}'s")
        if self.by_step is None:
            super()._write(kind, device, operands, ending)
            return
        sums = gathered(self.engine.link, self.by_step.compute(operands), self.devices[0])
        if self._changes(ending):
            if sums.dtype != self._sums_in:
                narrow, sums = sums, kind.empty(sums.shape, self._sums_in, self._order)
                kind.copy(sums, narrow)
            self._complete(kind, device, {}, sums, ending)
        kind.copy(ending.d, sums)

    def _check(self, operands: Sequence[Any]) -> None:
        wanted = self._request.operands
        if len(operands) != len(wanted):
            raise ShapeError(f"the plan {self.subscripts} takes {len(wanted)} operands, {len(operands)} were given")
        link = self.engine.link
        for i, (x, want, axis) in enumerate(zip(operands, wanted, self._layout, strict=True)):
            if library(x) != link.name:
                raise DeviceError(f"operand {i} is a {type(x).__name__}; the plan was made for {link.name}'s arrays")
            dtype = x.dtype if isinstance(x, Sharded) else link.kind_on(self.devices[0]).describe(x).dtype
            if tuple(x.shape) != want.shape:
                raise ShapeError(f"operand {i} has shape {brief(tuple(x.shape))}, planned was {brief(want.shape)}")
            if dtype != want.dtype:
                raise DTypeError(f"operand {i} has dtype {dtype}, planned was {want.dtype}")
            found = x.axis if isinstance(x, Sharded) else None
            if found != axis:
                raise ShapeError(f"operand {i} is {_spell(found)}, planned was {_spell(axis)}")

    def __repr__(self) -> str:
        return f"<DevicesPlan {printable(self.subscripts)} on {self.arch}, {count(len(self.devices), 'device')}>"

    def explain(self, *, detail: bool = False) -> str:
        """The plan as text: who computes what, bytes over the link, FLOP and expected time; then that of a slice."""
        return printable("\n".join([*map(shortened, self._lines()), super().explain(detail=detail)]))

    def _lines(self) -> Iterator[str]:
        where = f" on {count(len(self.devices), 'device')} {list(self.devices)}, {self.dtype}"
        yield shortened(self.subscripts, WIDEST - len(where)) + where
        terms = self.subscripts.split("->")[0].split(",")
        for i, axis in enumerate(self._layout):
            if axis is not None:
                yield f"  operand {i} is cut along {terms[i][axis]}"
        if not self.is_shared:
            yield "  shared    not: one device takes less time"
            return
        yield from self._steps_told() if self.by_step is not None else self._cut_told()
        if self.arch != "cpu" and self._request.device is not None and not peer_access(self.devices):
            yield "  link      through the host: no peer access"
        if self.cut.is_time:
            cost = self.cut.cost if self.by_step is None else self.by_step.cost
            yield f"  expected  {format_seconds(1e-6 * cost)}, on one device {format_seconds(1e-6 * self.alone.cost)}"

    def _cut_told(self) -> Iterator[str]:
        job, cut = self.job, self.cut
        names = dict(zip((m for t in self._parsed.inputs for m in t), self._letters(), strict=True))
        kinds = [
            f"{names[m]} ({'kept' if m in self._network.output else 'summed'}, {n} of {self._network.extents[m]})"
            for m, n in cut.lengths
        ]
        yield f"  cut       along {', '.join(kinds)}: {count(self.slices, 'slice')}, {self.overhead:.3g} times the FLOP"
        for device, share in zip(self.devices, self.engine.shares(job), strict=True):
            done = sum(map(job.slices, share))
            yield f"  device {device:<3} {count(done, 'slice')}, {_spell_parts(share, job.grid.parts)}"
        yield f"  link      {format_bytes(cut.moved)} of operands, {format_bytes(cut.returned)} of sums"

    def _steps_told(self) -> Iterator[str]:
        assert self.by_step is not None
        names = dict(zip((m for t in self._parsed.inputs for m in t), self._letters(), strict=True))
        steps = self.by_step.steps
        yield f"  steps     {self.by_step.count} of {len(steps)} are shared, the others run on device {self.devices[0]}"
        for number, s in enumerate(steps):
            if s.shared is not None:
                (mode, length), *_ = s.lengths
                kept, whole = "kept" if mode in s.step.modes else "summed", self._network.extents[mode]
                yield f"  step {number + 1:<4} cut along {names[mode]} ({kept}, {length} of {whole})"

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
        devices: Their numbers, which were checked.
        operands: Arrays, pairs or sharded tensors; only how they are sharded counts.
        shard: A label of the result.

    Raises:
        OptionError, DeviceError, DTypeError: Devices or labels do not fit.
    """
    request = plan.request
    link = _link(plan, operands)
    for device in devices if request.device is not None else ():
        kind_of(request.arch, device)  # there is one, of this architecture
    if shard is not None and (not isinstance(shard, str) or shard not in plan.subscripts.split("->")[1]):
        raise OptionError(f"shard={shard!r} is no label of the result of {plan.subscripts}")
    network, path = network_of(request, plan.path)
    layout = [x.axis if isinstance(x, Sharded) else None for x in operands]
    inputs = parse(request.spec, [len(t.shape) for t in request.operands]).inputs
    modes = [None if axis is None else t[axis] for t, axis in zip(inputs, layout, strict=True)]
    wanted = None if shard is None else network.output[plan.subscripts.split("->")[1].index(shard)]
    bare = dense_request(bare_request(request, plan.dtype), path)
    costs = Costs(bare, network, inputs, plan.result.d, len(devices))
    lengths = tuple(plan.lengths.items()) if isinstance(plan, SlicedPlan) else ()
    cut = alone = costs.alone(lengths, modes, wanted)
    by_step = way = None
    if isinstance(plan, SlicedPlan):
        way = way_with(plan, network, len(devices)) or way_with(plan, network, 1)
        assert way is not None
        cut = costs.of(way.lengths, modes, wanted)
    elif 0 not in network.extents and len(devices) > 1:
        cut = costs.best(modes, wanted)
        if len(network.steps) > 1:
            first = None if request.device is None else link.number(devices[0])
            by_step = stepwise(bare, network, inputs, modes, wanted, devices, link, request.operands, first)
    if by_step is not None and by_step.cost < cut.cost:
        cut = alone
    else:
        by_step = None
    subject = Subject(without_slices(plan), path, network, way or slicing(network, dict(cut.lengths)))
    made = replace(request, memory_limit=None)
    return DevicesPlan(made, subject, (cut, alone, by_step), DeviceEngine(devices, link, inputs), shard, layout)


def library(array: Any) -> str:
    """The name of the library that an array is of, as links have it."""
    if isinstance(array, Sharded):
        return array.kind.name
    if isinstance(array, np.ndarray):
        return "NumPy"
    return {"cupy": "CuPy", "torch": "PyTorch"}.get(type(array).__module__.partition(".")[0], "")


def _link(plan: ContractionPlan, operands: Sequence[Any]) -> Link:
    """What moves the arrays that a plan is for."""
    if plan.arch == "cpu":
        return Link()
    sharded = next((x.kind for x in operands if isinstance(x, Sharded)), None)
    if sharded is not None:
        return link_for(sharded)
    torch, cupy = torch_library(), cupy_kind()
    if torch is not None and any(library(x) == "PyTorch" for x in operands):
        return link_for(torch.kind(plan.request.device or 0))
    return Link() if cupy is None else link_for(cupy)


def check_numbers(devices: Sequence[int]) -> None:
    """Refuse devices that are none.

    Raises:
        OptionError: They are no numbers of GPUs, or one is named twice.
    """
    numbers = list(devices) if isinstance(devices, (list, tuple, range)) else []
    if not numbers or any(isinstance(x, bool) or not isinstance(x, int) or x < 0 for x in numbers):
        raise OptionError(f"devices={devices!r}; it must list numbers of GPUs, such as [0, 1]")
    if len(set(numbers)) != len(numbers):
        raise OptionError(f"devices={devices!r} names a GPU twice")
