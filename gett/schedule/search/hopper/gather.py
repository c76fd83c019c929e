"""Schedules of wgmma with an operand that tensor maps refuse: warps gather it.

A row may start anywhere and end anywhere; what must lie together is a piece of the unit-stride mode, a multiple of 16
bytes. Boxes may be longer than a short mode (the rest is zeros) and, but for that mode, flattened. An operand that a
tensor map can move under the chosen boxes still goes by it.

Where the unit-stride modes of A and B are two contracted modes, K's box has some of each: B's rows are the tile's, A's
are transposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.hopper_units import GATHER
from gett.schedule.rules.gather import GATHERING
from gett.schedule.search import tried as records
from gett.schedule.search.boxing import cut_group
from gett.schedule.search.hopper.mixed import MixedSearch
from gett.schedule.search.hopper.parts import Loader
from gett.schedule.spec.hopper_needs import up
from gett.schedule.spec.loader import CpAsyncTile, Gather, Tma, Transpose
from gett.schedule.spec.mainloop import WgmmaSS
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile
from layouts.box import Box
from layouts.swizzle import CHUNK, swizzle_dividing


class GatherSearch(MixedSearch):
    """The boxes of one assignment of roles to A and B."""

    mainloop, tried = GATHER, records.GATHER

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        super().__init__(plan, facts, swap_ab)
        self.chunk = CHUNK // self.size
        self.transposes = len(self.leads) > 1

    def takes(self) -> bool:
        """Whether unit-stride modes are no shorter than `Tried.shortest`."""
        if not self.has_units or not super().takes():
            return False
        lengths = [self.plan.k[u].extent for u in self.leads]
        for t in (A, B):
            if self.k_unit[t] is None and (u := self.mn_unit[t]) is not None:
                lengths.append(self.boxes.side(t)[u].extent)
        return min(lengths) >= self.tried.shortest

    def widths(self) -> list[int]:
        """Columns of a tile worth trying."""
        return [w for w in self.tried.widths if w < 2 * max(8, self.plan.extent_n)][:6]

    def cut(self, tensor: int, block: int) -> list[Box]:
        """Boxes of M or N; where the operand's unit stride is here, that mode leads in whole chunks."""
        modes, memory = self.boxes.side(tensor), self.boxes.memory
        unit = self.mn_unit[tensor] if self.k_unit[tensor] is None else None

        def cut(chosen: Sequence[int], room: int) -> list[Box]:
            weights = [replace(w, strides=tuple(w.strides[i] for i in chosen)) for w in self.boxes.weights(tensor)]
            extents = [modes[i].extent for i in chosen]
            return cut_group(memory, extents, room, weights, None, 2 * self.boxes.compute, False)

        if unit is None:
            return cut(range(len(modes)), block)
        found: list[Box] = []
        rest = [i for i in range(len(modes)) if i != unit]
        extent, whole = modes[unit].extent, up(modes[unit].extent, self.chunk)
        for lead in dict.fromkeys(min(v, whole) for v in self.tried.leads if v <= block):
            if lead > block or (not rest and 2 * lead <= block and lead < whole):
                continue
            for box in cut(rest, block // lead)[:2] if rest else [Box((), ())]:
                found.append(box.behind(unit, extent, lead))
        return sorted(found, key=lambda b: -b.efficiency(block))[:3]

    def boxes_of_k(self) -> Sequence[Box]:
        """Boxes of K; where A is transposed with B's unit-stride mode first and A's second."""
        extents = self.extents_k
        if not self.transposes:
            return self.k_boxes(True, self.tried.depths)[:3]
        second, first = self.leads
        room = extents[second] + self.chunk, extents[first] + self.chunk
        cuts = [(a, b) for a, b in self.tried.two_leads if a < room[0] and b < room[1]]
        return [Box.of_cuts(extents, {first: b, second: a}) for a, b in cuts]

    def by_map(self, tensor: int, side: OperandTiling, box_k: Box) -> Tma | None:
        """The tensor map of an operand; none beside one that is transposed."""
        return None if self.transposes else super().by_map(tensor, side, box_k)

    def by_threads(self, tensor: int, box: Box, box_k: Box) -> Gather | None:
        """The pieces of an operand; None where the tile would not lie as wgmma wants it."""
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

    def words(self, tile: WgmmaTile) -> str:
        """What is gathered."""
        return (
            f"{'one operand' if 0 in tile.runs else 'operands'} gathered{', A transposed' if self.transposes else ''}"
        )
