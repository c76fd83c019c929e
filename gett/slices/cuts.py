"""Ways to share a contraction among devices, and what each takes.

Owns the cost of a cut: the cost model's time on GPUs, products and moved elements on the CPU, and bytes over the link.
Knows neither arrays nor streams.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.tensors import TensorSpec
from gett.network.request import PlanRequest
from gett.network.slicing import MOVED, Network, cost_of_cut, slicing
from gett.plans.contraction_plan import ContractionPlan
from gett.slices.finder import find_plan
from gett.slices.work import SliceWork, packed

FORECAST = 6  # cuts whose kernels the cost model looks at
CHUNKS = (2, 4, 8)  # slices of each device where operands move to it, so that copies run beside the computation
SHARING_US = 50.0  # events and last sums that a contraction takes on several devices: two H100 took 30 to 110
ASKED_US = 260.0  # of the host for each slice, whose copies and kernels it asks for: the same took 250 to 300

Lengths = tuple[tuple[int, int], ...]
"""Each cut mode with its extent in a slice; none where one device computes it all."""
Modes = Sequence[int | None]
"""The mode along which each operand is sharded, None where it is an array of the first device."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to share a contraction.

    Attributes:
        lengths: The cut modes.
        cost: Of the slowest device: microseconds on GPUs, products on the CPU.
        moved: Bytes of operands that cross the link.
        returned: Bytes of sums that cross the link.
        is_time: Whether the cost is one of time.
    """

    lengths: Lengths
    cost: float
    moved: int
    returned: int
    is_time: bool


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a tensor asks of the links.

    Attributes:
        all: Bytes over all links.
        busiest: Bytes in or out of the device that has most, as far as they follow each other.
    """

    all: int
    busiest: int


class Costs:
    """What cuts of one contraction take."""

    def __init__(
        self, bare: PlanRequest, network: Network, inputs: Sequence[Sequence[int]], d: TensorSpec, devices: int
    ) -> None:
        """Of a contraction.

        Args:
            bare: It alone, of dense operands, on no device; its path is explicit.
            network: What the path amounts to.
            inputs: Modes of each operand in order.
            d: The result.
            devices: How many there are.
        """
        self.network, self._bare, self._inputs, self._d, self._n = network, bare, inputs, d, devices
        self._on_cpu = bare.arch == "cpu"
        self._computed: dict[tuple[Lengths, int], float] = {}

    @cached_property
    def _facts(self) -> ArchFacts:
        return arch_facts("sm_90a" if self._on_cpu else self._bare.arch)

    def best(self, layout: Modes, shard: int | None) -> Cut:
        """The cut that takes least: none where one GPU takes less; on the CPU one where there is any.

        Devices share one mode. Where they all read an operand whose parts come from elsewhere, each goes through
        another mode of it in chunks.

        Args:
            layout: Of the operands.
            shard: The mode along which the result is wanted sharded.
        """
        alone = self.of((), layout, shard)
        found = [self._chunked(x, layout, shard) for x in self.promising(layout, shard)]
        if self._on_cpu:
            return min(found, key=_cost, default=alone)
        best = min([alone, *found], key=_cost)
        return min([best, *self._twice(best, layout, shard)], key=_cost)

    def promising(self, layout: Modes, shard: int | None = None) -> list[Lengths]:
        """Cuts of one mode that may take least, by what a model without kernels says."""
        network, n = self.network, self._n
        modes = sorted({m for t in network.terms for m in t if network.extents[m] >= n})
        lengths: list[Lengths] = [((m, -(-network.extents[m] // n)),) for m in modes]

        def cost(x: Lengths) -> float:
            moved, returned = self.traffic(x, layout, shard)
            return self._products(x, n) + self._as_products(moved.busiest + returned.busiest)

        return sorted(lengths, key=lambda x: (cost(x), x))[:FORECAST]

    def of(self, lengths: Lengths, layout: Modes, shard: int | None) -> Cut:
        """What a cut takes."""
        moved, returned = self.traffic(lengths, layout, shard)
        cost = self.compute(lengths) + self.crossing(moved.busiest + returned.busiest)
        return Cut(lengths, cost, moved.all, returned.all, not self._on_cpu)

    def alone(self, lengths: Lengths, layout: Modes, shard: int | None) -> Cut:
        """What it takes on the first device, slice by slice where it has slices."""
        cut = self.of((), layout, shard)
        return replace(cut, cost=cut.cost - self.compute(()) + self.compute(lengths, 1)) if lengths else cut

    def compute(self, lengths: Lengths, devices: int | None = None) -> float:
        """The cost of the computation, on all devices by default where it is cut, else on one."""
        n = (self._n if lengths else 1) if devices is None else devices
        found = self._computed.get((lengths, n))
        if found is None:
            made = self._products(lengths, n) if self._on_cpu else self._forecast(lengths, n)
            found = self._computed[lengths, n] = made
        return found

    @property
    def gathering(self) -> float:
        """What a byte takes that is read and written beside the link, as bytes that cross."""
        return 0.0 if self._on_cpu else 2 * self._facts.link_tbps / self._facts.dram_tbps

    def crossing(self, nbytes: int) -> float:
        """The cost of bytes that cross the link."""
        return self._as_products(nbytes) if self._on_cpu else nbytes / (self._facts.link_tbps * 1e6)

    def _as_products(self, nbytes: int) -> float:
        slower = self._facts.dram_tbps / self._facts.link_tbps
        return MOVED * slower * nbytes / self._d.dtype.itemsize

    def _products(self, lengths: Lengths, devices: int) -> float:
        return cost_of_cut(self.network, dict(lengths)) / devices

    def _forecast(self, lengths: Lengths, devices: int) -> float:
        work = SliceWork(self._bare, self.network, slicing(self.network, dict(lengths)), find_plan)
        grid = work.grid
        sums = packed(replace(self._d, shape=grid.shape(0)))
        slices = math.ceil(grid.parts * grid.summed / devices)
        first = math.ceil(grid.parts / devices) if grid.parts >= devices else 1
        us = sum(expected_us(x.plan) for x in work.once) + first * expected_us(work.part(work.lengths, sums, add=False))
        if slices > first:
            us += (slices - first) * expected_us(work.part(work.lengths, sums, add=True))
        return us if devices == 1 else SHARING_US + max(us, ASKED_US * slices * devices)

    def _chunked(self, lengths: Lengths, layout: Modes, shard: int | None) -> Cut:
        """A cut, in chunks where operands move and that takes less time."""
        cut = self.of(lengths, layout, shard)
        ((mode, length),) = lengths
        operands = zip(self._bare.operands, self._inputs, layout, strict=True)
        cutting = [operand_traffic(x.nbytes, self._n, [mode], m, at).busiest for x, m, at in operands if mode in m]
        moving = self.crossing(sum(cutting))  # what all slices read must be there before the first
        if self._on_cpu or moving < ASKED_US:
            return cut
        found = [cut]
        for least in CHUNKS:
            count = next((k for k in range(least, 2 * least) if length % k == 0), least)
            if length >= count:
                chunks = self.of(((mode, -(-length // count)),), layout, shard)
                found.append(replace(chunks, cost=_beside(chunks.cost, moving, count)))
        return min(found, key=_cost)

    def _twice(self, best: Cut, layout: Modes, shard: int | None) -> Iterator[Cut]:
        """The best cut of one mode, in chunks of a mode of an operand that every device reads all of."""
        if not best.lengths or best.lengths[0][1] * self._n < self.network.extents[best.lengths[0][0]]:
            return  # not cut, or in chunks already
        ((mode, _),) = best.lengths
        operands = zip(self._bare.operands, self._inputs, layout, strict=True)
        found = [(operand_traffic(x.nbytes, self._n, [mode], m, at).busiest, m) for x, m, at in operands]
        moved, modes = max((x for x in found if mode not in x[1]), default=(0, ()))
        moving = self.crossing(moved)
        if moving < ASKED_US:
            return
        summed = [m for m in modes if m not in self.network.output]
        for other in dict.fromkeys((modes[0], max(summed, key=lambda m: self.network.extents[m], default=modes[0]))):
            extent = self.network.extents[other]
            gathered = 0.0 if other == modes[0] else self.crossing(int(moved * self.gathering))
            for count in CHUNKS:
                if extent >= count:
                    cut = (*best.lengths, (other, -(-extent // count)))
                    us = best.cost - self.compute(best.lengths) + self.compute(cut) + gathered
                    yield replace(best, lengths=cut, cost=_beside(us, moving, count))

    def traffic(self, lengths: Lengths, layout: Modes, shard: int | None) -> tuple[Traffic, Traffic]:
        """What operands and sums ask of the links."""
        cut, n = [m for m, _ in lengths], self._n
        operands = zip(self._bare.operands, self._inputs, layout, strict=True)
        moved = [operand_traffic(x.nbytes, n, cut, modes, sharded, self.gathering) for x, modes, sharded in operands]
        total = Traffic(sum(x.all for x in moved), sum(x.busiest for x in moved))
        whole = self._d.nbytes
        if any(m not in self.network.output for m in cut):
            return total, sums_traffic(whole, n, self.gathering, stays=shard is not None)
        if (shard is None) if not cut else (shard in cut):
            return total, Traffic(0, 0)
        return total, Traffic(whole * (n - 1) // n, whole * (n - 1) // n)


def _beside(cost: float, moving: float, count: int) -> float:
    """A cost where what it moves comes in so many chunks, all but the first beside the computation."""
    return cost - (1 - 1 / count) * min(moving, cost / 2)


def sums_traffic(nbytes: int, devices: int, gathering: float, *, stays: bool = False) -> Traffic:
    """Of partial sums on all devices, which are added on the first; of more than two each adds a share.

    Args:
        nbytes: Of the total.
        devices: How many there are.
        gathering: As `operand_traffic` takes it: two elements are read and one is written for each that is added.
        stays: Whether each keeps its share.
    """
    others = devices - 1
    share = nbytes * others // devices
    if stays:
        return Traffic(nbytes * others, share + int(1.5 * gathering * share))
    if devices < 3:
        return Traffic(nbytes * others, nbytes * others + int(1.5 * gathering * nbytes * others))
    busiest = 2 * nbytes * others // devices
    return Traffic(nbytes * others + share, busiest + int(1.5 * gathering * share))


def operand_traffic(
    nbytes: int, devices: int, cut: Sequence[int], modes: Sequence[int], sharded: int | None, gathering: float = 0.0
) -> Traffic:
    """Of one operand.

    Args:
        nbytes: Of the operand.
        devices: How many there are.
        cut: Modes along which the contraction is cut; none where the first device computes it all.
        modes: Of the operand.
        sharded: The mode along which it is sharded, or None.
        gathering: What a byte takes that is gathered before it crosses the link, as bytes that cross.
    """
    share = nbytes * (devices - 1) // devices
    if any(m in cut for m in modes):  # each device has its part of it
        dense = all(m not in cut for m in modes[1:])
        return (
            Traffic(0, 0)
            if [sharded] == list(cut)
            else Traffic(share, share + (0 if dense else int(share * gathering)))
        )
    if not cut:
        return Traffic(0, 0) if sharded is None else Traffic(share, share)
    everywhere = nbytes * (devices - 1)
    if sharded is not None:
        return Traffic(everywhere, share)
    return Traffic(everywhere, nbytes * math.ceil(math.log2(devices)))  # who has it sends it on


def expected_us(plan: ContractionPlan) -> float:
    """What the cost model expects of a plan for a GPU."""
    return sum(s.forecast.us for s in plan.steps if s.forecast is not None)


def _cost(cut: Cut) -> Any:
    return cut.cost
