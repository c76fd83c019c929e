"""What the Hopper family tries: warpgroups and tiles, boxes of M, N and K that tensor maps can move.

A box here is bound by the hardware's rules (`layouts.tma`), not by vectors: one unit-stride run of 16 to 128 bytes a
row, at most five dimensions, sizes up to 256. Knows the plan; what a choice costs is the cost model's to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.boxing import Weight, beside, cut_group
from gett.schedule.cost_sm90 import Sm90Model
from gett.schedule.cost_tiled import traffic_us
from gett.schedule.records import Split
from gett.schedule.room import up
from gett.schedule.sm90_shape import Roles, Side
from layouts.box import Box, TileDim
from layouts.modes import Strided

SHORT_K = 1024  # sums up to which starts and ends of tiles count more than the loop


ROLES = (
    Roles(2, 1, False),
    Roles(2, 2, False),
    Roles(2, 4, False),
    Roles(2, 8, False),
    Roles(2, 1, True),
    Roles(2, 2, True),
    Roles(2, 4, True),
)


class Space:
    """What may be tried for one assignment of roles to A and B."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, exchanged: bool) -> None:
        self.plan, self.facts, self.exchanged = plan, facts, exchanged
        self.size = itemsize(plan.contraction.dtype)
        self.size_d = itemsize(plan.contraction.d.dtype)
        c = plan.contraction
        self.time = traffic_us(plan, facts)
        self.compute = plan.flops / facts.tensor_tflops[c.dtype] * 1e-6
        self.model = Sm90Model(plan, facts)
        self.cuts: dict[tuple[str, int], list[Side]] = {}

    def boxes(self, group: str, block: int, unit: int | None) -> list[Side]:
        """Boxes of M or N without flattened dimensions; the operand's unit mode first, in whole 16-byte pieces."""
        if (group, block) not in self.cuts:
            modes = self.plan.m if group == "m" else self.plan.n
            operand, other = (A, self.plan.n) if group == "m" else (B, self.plan.m)
            weights = [
                Weight(tuple(s.strides[operand] for s in modes), self.size, self.time[operand]),
                Weight(tuple(s.strides[D] for s in modes), self.size_d, self.time[D], True, beside(other, D)),
            ]
            extents = tuple(s.extent for s in modes)
            found = []
            for box in cut_group(extents, block, weights, unit, self.compute, False):
                if any(len(d.modes) > 1 and d.box > 1 for d in box.dims):
                    continue
                if unit is not None:
                    at = next((d for d in box.dims if unit in d.modes), None)
                    if at is None or at.box * self.size % 16:
                        continue
                cut = _spare(group, modes, box, unit, self.size) or _split(group, modes, box, unit, self.size)
                found.append(Side(box, modes, None) if cut is None else cut)
            self.cuts[group, block] = found[:2]
            if group == "m" and (wide := self.spare_rows(block, unit)) is not None:
                self.cuts[group, block].append(wide)
        return self.cuts[group, block]

    def spare_rows(self, block: int, unit: int | None) -> Side | None:
        """A box of M for an MN-major A whose unit mode, taken whole, fills no row of a swizzle: one row a chunk."""
        modes = self.plan.m
        if unit is None:
            return None
        run = modes[unit].extent * self.size
        chunk = next((s // self.size for s in (32, 64, 128) if s >= run), 0)
        if not chunk or run % 16 or chunk == modes[unit].extent or block % chunk:
            return None
        count, cut = block // chunk, {unit: modes[unit].extent}
        # First D's unit mode, so that its runs are long, then what is nearest in A.
        others = [m for m in range(len(modes)) if m != unit]
        others.sort(key=lambda m: (modes[m].strides[D] != self.size_d, abs(modes[m].strides[A])))
        for m in others:
            cut[m] = max(x for x in range(1, count + 1) if modes[m].extent % x == 0)
            count //= cut[m]
        dims = [TileDim((m,), c) for m, c in cut.items() if c > 1]
        ones = tuple(m for m in others if cut[m] == 1)
        box = Box(tuple(s.extent for s in modes), (*dims, *((TileDim(ones, 1),) if ones else ())))
        return Side(box, modes, None, modes[unit].extent, chunk)

    def k_boxes(self, lead: int | None) -> tuple[list[Box], list[Box]]:
        """Boxes of K whose size is a multiple of 16, the best and the shallowest.

        Past the end of a mode both operands read zeros.
        """
        extents = tuple(s.extent for s in self.plan.k)
        others = sorted((m for m in range(len(extents)) if m != lead), key=lambda m: -extents[m])[:2]
        found: dict[Box, float] = {}
        least = -(-self.plan.extent_m // 256) * -(-self.plan.extent_n // 128) * self.plan.extent_l
        patient = not self.hurried(least)
        for block in (64, 48, 32, 16, 96, 128):
            for cut in _factors(block, lead, others, extents):
                if lead is not None and cut.get(lead, 0) not in (8, 16, 32, 64, 128) and len(extents) > 1:
                    continue
                dims = [TileDim((m,), t) for m, t in cut.items() if t > 1]
                rest = tuple(m for m in range(len(extents)) if cut.get(m, 1) == 1)
                box = Box(extents, (*dims, *((TileDim(rest, 1),) if rest else ())))
                if box.tiles > 2 * -(-box.volume // 32) + 8:
                    continue
                lead_bytes = cut.get(lead, 64) * self.size if lead is not None else 128
                run = next(x for x in (128, 64, 32, 16) if lead_bytes % x == 0)
                waste = box.tiles * block / box.volume
                short = {16: 1.6, 32: 1.25, 64: 1.04}.get(run, 1.0)
                depth = {64: 1.0, 48: 1.02, 96: 1.03, 128: 1.04, 32: 1.08 if patient else 0.99, 16: 1.3}[block]
                found[box] = waste * short * depth
        best = sorted(found, key=lambda b: found[b])
        return best[:3], [b for b in best[3:] if b.size == 16][:1]

    def hurried(self, tiles: int) -> bool:
        """Whether the start and the end of a tile take a share of its time."""
        return self.plan.extent_k <= SHORT_K or tiles <= self.facts.sm_count


def _factors(block: int, lead: int | None, others: Sequence[int], extents: Sequence[int]) -> Iterator[dict[int, int]]:
    """Ways to write the block's depth as a product of cuts, the leading mode first."""
    firsts = [v for v in (128, 64, 32, 16, 8) if block % v == 0] if lead is not None else [1]
    if lead is not None and not others:
        firsts = [block]
    for v in firsts:
        if lead is not None and v >= 2 * extents[lead] and v > 16:
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
            if (x > extents[others[0]] and x > 16) or (y > 1 and y > extents[others[1]]):
                continue
            yield {**head, others[0]: x, **({others[1]: y} if y > 1 else {})}


def _spare(group: str, modes: tuple[Strided, ...], box: Box, unit: int | None, size: int) -> Side | None:
    """A box of N that is one short run of an MN-major operand: a row of a wider swizzle holds it."""
    tiled = [d for d in box.dims if d.box > 1]
    if group != "n" or unit is None or len(tiled) != 1 or unit not in tiled[0].modes:
        return None
    run = tiled[0].box * size
    span = next((s for s in (32, 64, 128) if s >= run), 0)
    if not span or span == run or run % 16 or tiled[0].box != modes[unit].extent:
        return None
    return Side(box, modes, None, tiled[0].box, span // size)


def _split(group: str, modes: tuple[Strided, ...], box: Box, unit: int | None, size: int) -> Side | None:
    """How to cut the unit mode of an MN-major operand whose run is longer than a swizzled row."""
    if unit is None:
        return None
    at = next(i for i, d in enumerate(box.dims) if unit in d.modes)
    run = box.dims[at].box * size
    span = next((s for s in (128, 64, 32, 16) if run % s == 0), None)
    if span is None or run == span or modes[unit].extent * size % span:
        return None
    inner = span // size
    if box.dims[at].box == inner or modes[unit].extent == inner:
        return None

    def moved(m: int) -> int:
        return m + 1 if m > unit else m

    dims = [TileDim((unit,), inner)]
    for i, d in enumerate(box.dims):
        if i != at:
            dims.append(TileDim(tuple(moved(m) for m in d.modes), d.box))
    # The pieces of the run come after the other tiled modes: that is how one copy lays them down.
    tiled = [d for d in dims if d.box > 1]
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
    return Side(cut, (*modes[:unit], *halves, *modes[unit + 1 :]), Split(group, unit, inner))


def sides(extent: int) -> list[int]:
    """Widths of a tile worth trying."""
    usual = [n for n in (256, 192, 128, 96, 64, 48, 32, 24, 16, 8) if n <= max(8, extent)]
    fit = up(extent, 8)
    return sorted({*usual[:6], *([fit] if fit <= 256 else [])}, reverse=True)
