"""Boxes for the Hopper main loops: of M and N, of whole instructions along K, and residues that zeros fill up.

A box of M or N is bound by the rules of tensor maps (`layouts.tma_map`), not by vectors: one unit-stride run of 16 to
128 bytes a row, sizes up to 256. Knows the plan; what a choice costs is the cost model's.

wgmma takes 16 k at a time. A k-tile of 24, 36 or 84 has room for 32, 48 or 96; the missing k are zeros in both
operands, written once when a block starts, and no copy touches them again: every fill of a stage is the same box at the
same place. So no row of padding is copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.cost.estimate import products_us, traffic_us
from gett.schedule.lower import split_modes
from gett.schedule.search.boxing import Weight, cut_group, partner_modes
from gett.schedule.spec.hopper_needs import up
from gett.schedule.spec.schedule import Split
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box, TileDim
from layouts.modes import Strided
from layouts.swizzle import CHUNK, SWIZZLES, swizzle_dividing, swizzle_holding

DEEPEST = 128  # k of a residue where no operand's rows run along K
DEEP = {4: 1.0, 3: 1.02, 5: 1.03, 6: 1.03, 7: 1.04, 8: 1.04, 1: 1.3}  # factors by instructions, but for two


class HopperBoxes:
    """What may be tried for one assignment of roles to A and B; boxes are worked out once for each block size.

    `runs` says whether a row of a wider swizzle may hold a short run and padding, `few` whether a box of two dimensions
    is among those that are tried: a tensor map of D has five for both groups, of which one is for all others.
    """

    def __init__(self, plan: GemmPlan, facts: ArchFacts, runs: bool = True, few: bool = False) -> None:
        device = nearest(facts)
        self.runs, self.few = runs, few
        self.plan, self.memory = plan, device.memory
        self.size, self.size_d = itemsize(plan.contraction.dtype), itemsize(plan.contraction.d.dtype)
        self.time = traffic_us(plan, device)
        self.compute = products_us(plan, facts)
        self.known: dict[tuple[int, int], list[OperandTiling]] = {}
        self.known_weights: dict[int, list[Weight]] = {}

    def side(self, tensor: int) -> tuple[Strided, ...]:
        """The free modes of A or of B."""
        return self.plan.m if tensor == A else self.plan.n

    def weights(self, tensor: int) -> list[Weight]:
        """The stakes of an operand and of D in the boxes of the operand's free group."""
        if tensor not in self.known_weights:
            modes, other = self.side(tensor), self.side(B if tensor == A else A)
            self.known_weights[tensor] = [
                Weight(tuple(s.strides[tensor] for s in modes), self.size, self.time[tensor]),
                Weight(tuple(s.strides[D] for s in modes), self.size_d, self.time[D], True, partner_modes(other, D)),
            ]
        return self.known_weights[tensor]

    def boxes(self, tensor: int, block: int, unit: int | None) -> list[OperandTiling]:
        """Boxes without flattened dimensions; the operand's unit mode `unit` first, in whole 16-byte pieces."""
        if (tensor, block) not in self.known:
            modes = self.side(tensor)
            extents = tuple(s.extent for s in modes)
            found = []
            for box in self.cuts(tensor, extents, block, unit):
                if box.flattens:
                    continue
                if unit is not None:
                    at = next((d for d in box.dims if unit in d.modes), None)
                    if at is None or at.box * self.size % CHUNK:
                        continue
                spare = _padded_run(modes, box, unit, self.size) if tensor == B and self.runs else None
                found.append(spare or self.split(tensor, box, unit) or OperandTiling(box, modes))
            found = found[:2] if not self.few else found
            if tensor == A and (wide := self.padded_run(block, unit)) is not None:
                found.append(wide)
            self.known[tensor, block] = found
        return self.known[tensor, block]

    def cuts(self, tensor: int, extents: tuple[int, ...], block: int, unit: int | None) -> list[Box]:
        """The best boxes of an operand's free group, best first."""
        weights, runs = self.weights(tensor), None
        if unit is not None:
            runs = _runs_of_a_copy(extents[unit], min(extents[unit], block), self.size)
        best = cut_group(self.memory, extents, block, weights, unit, self.compute, False, runs=runs)
        if not self.few:
            return best
        few = cut_group(self.memory, extents, block, weights, unit, self.compute, False, most_tiled=2, runs=runs)[:1]
        return [*best[:2], *(box for box in few if box not in best[:2])]

    def padded_run(self, block: int, unit: int | None) -> OperandTiling | None:
        """A box of M for an MN-major A whose unit mode, taken whole, fills no row of a swizzle: one row an atom."""
        modes = self.plan.m
        if unit is None or not self.runs:
            return None
        run = modes[unit].extent * self.size
        atom = swizzle_holding(run) // self.size
        if not atom or run % CHUNK or atom == modes[unit].extent or block % atom:
            return None
        count, cut = block // atom, {unit: modes[unit].extent}
        # First D's unit mode, so that its runs are long, then what is nearest in A.
        others = [m for m in range(len(modes)) if m != unit]
        others.sort(key=lambda m: (modes[m].strides[D] != self.size_d, abs(modes[m].strides[A])))
        for m in others:
            cut[m] = max(x for x in range(1, count + 1) if modes[m].extent % x == 0)
            count //= cut[m]
        box = Box.of_cuts(tuple(s.extent for s in modes), cut, others)
        return OperandTiling(box, modes, run=modes[unit].extent, atom=atom)

    def split(self, tensor: int, box: Box, unit: int | None) -> OperandTiling | None:
        """How to cut the unit mode of an MN-major operand whose run is longer than a swizzled row."""
        if unit is None:
            return None
        run, extent = box.cut[unit], box.extents[unit]
        inner = swizzle_dividing(run * self.size) // self.size
        if inner in (0, run, extent) or extent % inner:
            return None
        # The pieces of the run come after the other tiled modes: that is how one copy lays them down.
        others = [(m + (m > unit), d.box) for _, d in box.tiled for m in d.modes if m != unit]
        tiled = [TileDim((m,), x) for m, x in ((unit, inner), *others, (unit + 1, run // inner))]
        ones = tuple(m + (m > unit) for d in box.dims if d.box == 1 for m in d.modes)
        extents = [*box.extents[:unit], inner, extent // inner, *box.extents[unit + 1 :]]
        found = Split("m" if tensor == A else "n", unit, inner)
        plan = split_modes(self.plan, (found,))
        cut = Box(tuple(extents), (*tiled, *((TileDim(ones, 1),) if ones else ())))
        return OperandTiling(cut, plan.m if tensor == A else plan.n, found)


@lru_cache(maxsize=1024)
def _runs_of_a_copy(extent: int, most: int, size: int) -> frozenset[int]:
    """Runs that one copy brings beside other modes: one row of a swizzle, or rows that divide the extent."""
    inner = {run: swizzle_dividing(run * size) // size for run in range(1, most + 1)}
    return frozenset(run for run, x in inner.items() if x == run or (x > 0 and extent % x == 0))


def _padded_run(modes: tuple[Strided, ...], box: Box, unit: int | None, size: int) -> OperandTiling | None:
    """A box of N that is one short run of an MN-major operand: a row of a wider swizzle holds it."""
    if unit is None or len(box.tiled) != 1 or unit not in box.tiled[0][1].modes:
        return None
    elements = box.tiled[0][1].box
    swizzle = swizzle_holding(elements * size)
    if not swizzle or swizzle == elements * size or elements * size % CHUNK or elements != modes[unit].extent:
        return None
    return OperandTiling(box, modes, run=elements, atom=swizzle // size)


def k_boxes(
    extents: tuple[int, ...],
    lead: int | None,
    size: int,
    step: int,
    patient: bool,
    depths: Sequence[int],
    leads: Sequence[int],
) -> list[Box]:
    """Boxes of K of whole instructions: the best three, then the shallowest.

    Past the end of a mode both operands read zeros.

    `lead` is the mode along which an operand's rows run, None where they run along M and N only; `step` the k of one
    instruction; `depths` and `leads` are tried of K and of the lead; `patient` is whether the start of a tile is hidden
    behind others.
    """
    others = sorted((m for m in range(len(extents)) if m != lead), key=lambda m: -extents[m])[:2]
    found: dict[tuple[tuple[int, int], ...], tuple[float, int]] = {}
    shallow, volume = min(16, *depths), math.prod(extents)
    for block in depths:
        for cut in _factors(block, lead, others, extents, step, leads):
            if lead is not None and cut.get(lead, 0) not in leads and len(extents) > 1:
                continue
            tiles = math.prod(-(-extent // cut.get(m, 1)) for m, extent in enumerate(extents))
            # Half of a tile may be padding, of deep ones as much as leaves no more of them than of the shallowest.
            if tiles > 2 * -(-volume // min(block, 2 * shallow)) + 8:
                continue
            lead_bytes = cut.get(lead, 64) * size if lead is not None else 128
            waste = tiles * block / volume
            short = {16: 1.6, 32: 1.25, 64: 1.04}.get(swizzle_dividing(lead_bytes), 1.0)
            deep = 1.08 if patient else 0.99
            cost = waste * short * DEEP.get(block // step, deep)
            found[tuple((m, c) for m, c in cut.items() if c > 1)] = cost, block
    best = sorted(found, key=lambda cut: found[cut][0])
    shallows = [cut for cut in best[3:] if found[cut][1] == step][:1]
    return [Box.of_cuts(extents, dict(cut)) for cut in (*best[:3], *shallows)]


def _factors(
    block: int, lead: int | None, others: Sequence[int], extents: Sequence[int], step: int, leads: Sequence[int]
) -> Iterator[dict[int, int]]:
    """Ways to write the block's depth as a product of cuts, the leading mode first."""
    firsts = [v for v in leads if block % v == 0] if lead is not None else [1]
    if lead is not None and not others:
        firsts = [block]
    for v in firsts:
        if lead is not None and v >= 2 * extents[lead] and v > step:
            continue
        rest = block // v
        head = {lead: v} if lead is not None else {}
        if rest == 1:
            yield head
            continue
        if not others:
            continue
        for x in range(1, rest + 1):
            if rest % x:
                continue
            y = rest // x
            if y > 1 and len(others) < 2:
                continue
            # Past a mode's end lies padding: worth it only where the mode is short.
            if (x > extents[others[0]] and x > step) or (y > 1 and y > extents[others[1]]):
                continue
            yield {**head, others[0]: x, **({others[1]: y} if y > 1 else {})}


def residue_boxes(extents: tuple[int, ...], lead: int | None, size: int, step: int) -> list[Box]:
    """Boxes of K that divide it evenly into tiles that are no whole instructions deep, those that are padded least.

    Arguments are those of `k_boxes`. Where there is a leading mode, its row is one piece of a swizzled row, in whole
    16 bytes, so no other mode is tiled with it.
    """
    longest = lead if lead is not None else max(range(len(extents)), key=lambda m: extents[m])
    beside = {m: e for m, e in enumerate(extents) if m != longest and e > 1} if lead is None else {}
    if (math.prod(extents) if lead is None else extents[lead]) % step == 0:
        return []  # full k-tiles divide it
    whole, deepest = math.prod(beside.values()), DEEPEST if lead is None else SWIZZLES[-1] // size
    found = []
    for cut in (extents[longest] // parts for parts in range(1, extents[longest] + 1) if extents[longest] % parts == 0):
        deep = whole * cut
        if deep % step and deep <= deepest and (lead is None or deep * size % CHUNK == 0):
            found.append(Box.of_cuts(extents, {longest: cut, **beside}))
    least = min((up(b.size, step) / b.size for b in found), default=1.0)
    return [b for b in found if up(b.size, step) / b.size == least]
