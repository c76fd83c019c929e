"""Schedules of wgmma with an operand that tensor maps refuse: warps gather it.

A row may start anywhere and end anywhere; what must lie together is a piece of the unit-stride mode, a multiple of 16
bytes. Boxes may be longer than a short mode (the rest is zeros) and, but for that mode, flattened. An operand that a
tensor map can move under the chosen boxes still goes by it.

Where the unit-stride modes of A and B are two contracted modes, K's box has some of each: B's rows are the tile's, A's
are transposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.cost.hopper_units import GATHER
from gett.schedule.rules.gather import GATHERING
from gett.schedule.search import tried as records
from gett.schedule.search.boxing import cut_group
from gett.schedule.search.hopper import HopperSearch, Loader
from gett.schedule.search.k_boxes import gather_k_boxes
from gett.schedule.search.mixed_loaders import addressable, mixed_tiles
from gett.schedule.search.tma import OperandMaps
from gett.schedule.spec.hopper_needs import up
from gett.schedule.spec.loader import CpAsyncTile, Gather, Tma, Transpose
from gett.schedule.spec.mainloop import WgmmaSS
from gett.schedule.spec.schedule import TileScheduler
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile
from layouts.box import Box
from layouts.swizzle import CHUNK, swizzle_dividing


class GatherSearch(HopperSearch):
    """The boxes of one assignment of roles to A and B."""

    mainloop, tried = GATHER, records.GATHER

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        super().__init__(plan, facts, swap_ab)
        self.chunk = CHUNK // self.size
        self.compute = 2 * self.boxes.compute
        self.transposes = len(self.leads) > 1
        self.cuts: dict[tuple[int, int], list[Box]] = {}
        self.loaders: dict[tuple[int, Box, Box], Tma | Gather | None] = {}

    def choices(self) -> Iterator[WgmmaTile]:
        """Every combination of tile and boxes in which an operand is gathered."""
        plan = self.plan
        if not self.has_units or not addressable(plan):
            return
        free = [
            modes[u].extent
            for t, modes in ((A, plan.m), (B, plan.n))
            if self.k_unit[t] is None and (u := self.mn_unit[t]) is not None
        ]
        if min([plan.k[u].extent for u in self.leads] + free) < self.tried.whole[0]:
            return
        widths = [w for w in self.tried.widths if w < 2 * max(8, plan.extent_n)][:6]
        for box_k in self.k_boxes():
            for groups in self.tried.groups:
                if groups.rows >= 2 * max(64, plan.extent_m) and groups.rows > 64:
                    continue
                for n in (w for w in widths if groups.takes(w)):
                    sides = self.side_boxes(A, groups.rows), self.side_boxes(B, n)
                    yield from (tile for tile, _, _ in mixed_tiles(self, groups, *sides, box_k, self.loader))

    def side_boxes(self, tensor: int, block: int) -> list[Box]:
        """Boxes of M or N; where the operand's unit stride is here, that mode leads in whole chunks."""
        if (tensor, block) in self.cuts:
            return self.cuts[tensor, block]
        modes = self.boxes.side(tensor)
        unit = self.mn_unit[tensor] if self.k_unit[tensor] is None else None

        def cut(chosen: Sequence[int], room: int) -> list[Box]:
            weights = [replace(w, strides=tuple(w.strides[i] for i in chosen)) for w in self.boxes.weights(tensor)]
            return cut_group(
                self.boxes.memory, [modes[i].extent for i in chosen], room, weights, None, self.compute, False
            )

        found: list[Box] = []
        if unit is None:
            found = cut(range(len(modes)), block)
        else:
            rest = [i for i in range(len(modes)) if i != unit]
            extents = tuple(s.extent for s in modes)
            whole = up(extents[unit], self.chunk)
            for lead in dict.fromkeys(min(v, whole) for v in self.tried.leads if v <= block):
                if lead > block or (not rest and 2 * lead <= block and lead < whole):
                    continue
                for box in cut(rest, block // lead)[:2] if rest else [Box((), ())]:
                    found.append(box.behind(unit, extents[unit], lead))
            found = sorted(found, key=lambda b: -b.efficiency(block))
        self.cuts[tensor, block] = found[:3]
        return self.cuts[tensor, block]

    def k_boxes(self) -> list[Box]:
        """Boxes of K; where A is transposed with B's unit-stride mode first and A's second."""
        extents = tuple(s.extent for s in self.plan.k)
        if not self.transposes:
            return gather_k_boxes(extents, next(iter(self.leads), None), self.atom.k, self.chunk)
        second, first = self.leads
        room = extents[second] + self.chunk, extents[first] + self.chunk
        cuts = [(a, b) for a, b in self.tried.two_leads if a < room[0] and b < room[1]]
        return [Box.of_cuts(extents, {first: b, second: a}) for a, b in cuts]

    def loader(self, tensor: int, box: Box, box_k: Box) -> Tma | Gather | None:
        """By tensor map where one can, else gathered; None where the tile would not lie as wgmma wants it."""
        key = (tensor, box, box_k)
        if key not in self.loaders:
            bulk = None
            if not (self.transposes or box.flattens or box_k.flattens):
                side = OperandTiling(box, self.boxes.side(tensor))
                bulk = OperandMaps(self.plan, tensor, self.size).load(side, box_k)
            self.loaders[key] = bulk or self.gather(tensor, box, box_k)
        return self.loaders[key]

    def gather(self, tensor: int, box: Box, box_k: Box) -> Gather | None:
        """The pieces of an operand."""
        k_unit = self.k_unit[tensor]
        major = "k" if k_unit is not None else "mn"
        inner = box_k if major == "k" else box
        transposed = self.transposes and tensor == A
        lead = inner.dims[1 if transposed else 0]
        if lead.modes != (k_unit if k_unit is not None else self.mn_unit[tensor],) or lead.box % self.chunk:
            return None
        run = lead.box
        # The epilogue knows an MN-major tile's atoms by the box of its unit-stride mode, as tensor maps cut them.
        length = inner.size if major == "k" else lead.box
        swizzle_bytes = swizzle_dividing(length * self.size)
        return Gather(major, run, swizzle_bytes, Transpose(box_k.dims[0].box) if transposed else None)

    def scheduler(self, tile: WgmmaTile, estimate: Estimate, split: int) -> TileScheduler:
        """Which tiles a block makes."""
        return self.raster(tile, split)

    def loads(self, plan: GemmPlan, tile: WgmmaTile) -> tuple[Loader, Loader] | None:
        """How the operands come."""
        a, b = self.loader(A, tile.m.box, tile.k), self.loader(B, tile.n.box, tile.k)
        return None if a is None or b is None else (a, b)

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaSS]:
        """Stages, and k-tiles of chunks that wait before they are shifted."""
        assert not isinstance(a, CpAsyncTile)
        assert not isinstance(b, CpAsyncTile)
        groups, mixed = tile.warpgroups, not (a.by_warps and b.by_warps)
        fewest = 1 if self.transposes else 2  # transposed k-tiles are deep
        counts = [(s, r) for s in range(4, fewest - 1 + mixed, -1) for r in range(4, fewest - 1, -1)]
        # What waits for memory is in the ring; two or three stages are enough between the shift and wgmma.
        counts.sort(key=lambda d: (min(d) >= 2, min(d[0], 3) + min(d[1], 3), d[1], d[0]), reverse=True)
        return (WgmmaSS(a, b, groups.count, groups.mma_m, groups.ping_pong, s, GATHERING, r) for s, r in counts)

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        (m, n, k), which = tile.shape, "one operand" if 0 in tile.runs else "operands"
        text = f"{self.tiles(tile)} tiles of {m} x {n}, {k} deep, {which} gathered"
        text += ", A transposed" if self.transposes else ""
        return text + (", ping-pong" if tile.warpgroups.ping_pong else "")
