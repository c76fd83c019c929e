"""Boxes of M and N for the Hopper main loops: one unit-stride run of 16 to 128 bytes a row, sizes up to 256.

A box is bound by the rules of tensor maps (`layouts.tma_map`), not by vectors. Knows the plan; what a choice costs is
the cost model's.
"""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import products_of
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.cost.estimate import traffic_us
from gett.schedule.search.boxing import Weight, cut_group, partner_modes
from gett.schedule.search.tried import SS
from gett.schedule.spec.hopper_needs import up
from gett.schedule.spec.schedule import Split
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box, TileDim
from layouts.modes import Strided
from layouts.swizzle import CHUNK, swizzle_dividing, swizzle_holding


class WgmmaBoxes:
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
        tensor, products = products_of(plan.contraction.dtype, plan.contraction.precision)
        self.compute = plan.flops * products / facts.tensor_tflops[tensor.name] * 1e-6
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
                found.append(spare or _split(tensor, modes, box, unit, self.size) or OperandTiling(box, modes))
            found = found[:2] if not self.few else found
            if tensor == A and (wide := self.padded_run(block, unit)) is not None:
                found.append(wide)
            self.known[tensor, block] = found
        return self.known[tensor, block]

    def cuts(self, tensor: int, extents: tuple[int, ...], block: int, unit: int | None) -> list[Box]:
        """The best boxes of an operand's free group, best first."""
        weights = self.weights(tensor)
        best = cut_group(self.memory, extents, block, weights, unit, self.compute, False)
        if not self.few:
            return best
        few = cut_group(self.memory, extents, block, weights, unit, self.compute, False, most_tiled=2)[:1]
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


def _padded_run(modes: tuple[Strided, ...], box: Box, unit: int | None, size: int) -> OperandTiling | None:
    """A box of N that is one short run of an MN-major operand: a row of a wider swizzle holds it."""
    if unit is None or len(box.tiled) != 1 or unit not in box.tiled[0][1].modes:
        return None
    elements = box.tiled[0][1].box
    swizzle = swizzle_holding(elements * size)
    if not swizzle or swizzle == elements * size or elements * size % CHUNK or elements != modes[unit].extent:
        return None
    return OperandTiling(box, modes, run=elements, atom=swizzle // size)


def _split(tensor: int, modes: tuple[Strided, ...], box: Box, unit: int | None, size: int) -> OperandTiling | None:
    """How to cut the unit mode of an MN-major operand whose run is longer than a swizzled row."""
    if unit is None:
        return None
    at = next(i for i, d in enumerate(box.dims) if unit in d.modes)
    run = box.dims[at].box * size
    swizzle = swizzle_dividing(run)
    if not swizzle or run == swizzle or modes[unit].extent * size % swizzle:
        return None
    inner = swizzle // size
    if box.dims[at].box == inner or modes[unit].extent == inner:
        return None
    # The pieces of the run come after the other tiled modes: that is how one copy lays them down.
    dims = [TileDim(tuple(m + (m > unit) for m in d.modes), d.box) for i, d in enumerate(box.dims) if i != at]
    tiled = [TileDim((unit,), inner), *(d for d in dims if d.box > 1)]
    ones = [m for d in dims if d.box == 1 for m in d.modes]
    pieces = box.dims[at].box // inner
    if pieces > 1:
        tiled.append(TileDim((unit + 1,), pieces))
    else:
        ones.append(unit + 1)
    extents = list(box.extents)
    extents[unit : unit + 1] = [inner, modes[unit].extent // inner]
    cut = Box(tuple(extents), (*tiled, *((TileDim(tuple(ones), 1),) if ones else ())))
    outer = Strided(modes[unit].labels, modes[unit].extent // inner, tuple(x * inner for x in modes[unit].strides))
    halves = (Strided(modes[unit].labels, inner, modes[unit].strides), outer)
    split = Split("m" if tensor == A else "n", unit, inner)
    return OperandTiling(cut, (*modes[:unit], *halves, *modes[unit + 1 :]), split)


def widths(extent: int) -> list[int]:
    """Widths of a tile worth trying: usual ones, and the one whose tiles, as few as there can be, waste least."""
    usual = [n for n in SS.widths if n <= max(8, extent)]
    even = up(-(-extent // -(-extent // SS.widths[0])), 8)
    return sorted({*usual[:6], even}, reverse=True)
