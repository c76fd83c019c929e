"""Schedules of wgmma with A in registers: where the rows of A and of B run along two different contracted modes.

A k-tile has `depth` of A's mode (k1) and `width` of B's (k2). A lies as [row][k2][k1]; B comes in slabs of one k1 each,
[n][k2].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.cost.hopper_units import RS
from gett.schedule.mainloops.wgmma_rs import COPIES, WIDEST_SHARED_A, WIDEST_WITH_C, steps_over_gaps
from gett.schedule.search import tried as records
from gett.schedule.search.hopper.parts import Loader, Parts, by_map
from gett.schedule.search.hopper.search import HopperSearch
from gett.schedule.search.hopper.tma import OperandMaps
from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.hopper_needs import up
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.schedule import Schedule
from gett.schedule.tile.wgmma_tile import WgmmaTile
from layouts.box import Box


class WgmmaRSSearch(HopperSearch):
    """The tiles of one assignment of roles to A and B."""

    mainloop, tried = RS, records.RS

    @property
    def units(self) -> tuple[int, int]:
        """Positions in K of the modes along which A's and B's rows run."""
        a, b = self.leads
        return a, b

    @property
    def slabs(self) -> int:
        """Slabs of B under way at most."""
        return self.tried.stages[0][1]

    def boxes_of_k(self) -> Sequence[Box]:
        """Depths of A's mode times widths of B's; tiles go first along the one with the shorter rows."""
        unit_a, unit_b = self.units
        cuts = self.tried.two_leads if self.atom.either_major else self.tried.word_leads
        ordered = (sorted(((width, unit_b), (depth, unit_a)), key=lambda c: c[0]) for depth, width in cuts)
        return [Box.of_cuts(self.extents_k, {m: cut for cut, m in both}) for both in ordered]

    def choices(self) -> Iterator[WgmmaTile]:
        """Every combination of tile, boxes and who shares."""
        if len(self.leads) < 2:
            return
        (groups,), known, boxes_k = self.tried.groups, self.tried.widths, self.boxes_of_k()
        widest = min(known[0] if self.plan.contraction.c is None else WIDEST_WITH_C, up(self.plan.extent_n, 32))
        # Neighbours along N share A, those along M share B. A is shared by slices of K alone: elsewhere that took a
        # twentieth longer.
        alone = [(box_k, (1, 1)) for box_k in boxes_k]
        for box_k, cluster in (*alone, (boxes_k[0], (1, 2)), (boxes_k[0], (2, 1))):
            most = min(widest, WIDEST_SHARED_A) if cluster[1] > 1 else widest
            for n in (w for w in known if w <= most):
                for m_side, n_side in product(self.boxes.boxes(A, groups.rows, None), self.boxes.boxes(B, n, None)):
                    if cluster[0] <= m_side.box.tiles and cluster[1] <= n_side.box.tiles:
                        yield WgmmaTile(self.atom, groups, m_side, n_side, box_k, cluster)

    def split(self, tile: WgmmaTile, estimate: Estimate) -> tuple[int, int]:
        """Slices of K, to which k-tiles are dealt out in turn: they may differ by one."""
        if estimate.stream_k:
            return super().split(tile, estimate)
        slices = estimate.split_k
        return slices, slices * self.tiles(tile) * self.cost.partial_bytes(tile) if slices > 1 else 0

    def loads(self, plan: GemmPlan, tile: WgmmaTile) -> tuple[Loader, Loader] | None:
        """A k-tile of A, [row][k2][k1], and a slab of B, [n][k2] at one k1; where blocks share A, one's part of k2."""
        (unit_a, unit_b), whole = self.units, tile.k.cut
        part = [cut // tile.cluster[1] if m == unit_b else cut for m, cut in enumerate(whole)]
        slab = [1 if m == unit_a else cut for m, cut in enumerate(whole)]
        a = self.load(OperandMaps(plan, A, self.size), tile.m.box, part, whole, unit_a, unit_b)
        b = self.load(OperandMaps(plan, B, self.size), tile.n.box, slab, whole, unit_b, unit_a)
        return None if a is None or b is None else (_in_copies(a), b)

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaRS]:
        """All slabs that shared memory may hold."""
        a, b = by_map(a, b)
        return (WgmmaRS(a, b, *self.units, False, count) for count in range(self.slabs, 0, -1))

    def made(self, parts: Parts) -> Iterable[Schedule]:
        """Schedules that vary in whether each warpgroup waits for its own rows of A, and in the slabs under way.

        More under way come first, and warpgroups that need not keep step: forecasts of all are the same.
        """
        tile, slices = parts.tile, parts.slices
        deepest = self.fitted(parts, self.loops(tile, parts.a, parts.b))
        most = deepest.hopper.stages if deepest is not None else 0
        # Where many blocks share few tiles the copies limit, and slabs far ahead only delay A, which comes behind them.
        slabs = min(self.slabs if slices == 1 else tile.k.cut[self.units[0]] // 4, most)
        apart, shares_a = self.waits_apart(tile, parts.a, parts.epilogue, slices), tile.cluster[1] > 1
        if deepest is None or slabs < 4 or (shares_a and not (apart and slices > 1)):
            return
        for stages in sorted({slabs, max(slabs, min(self.slabs // 2, most))}, reverse=True):
            for per_warpgroup in (True,) if shares_a else (True, False) if apart else (False,):
                loop = replace(deepest.loop(WgmmaRS), per_warpgroup_a=per_warpgroup, stages=stages)
                made = self.fitted(parts, (loop,))
                if made is not None:
                    yield made

    def words(self, tile: WgmmaTile) -> str:
        """How operands come."""
        return "operands' rows along different contracted modes, A through registers"

    def waits_apart(self, tile: WgmmaTile, a: Loader, epilogue: Epilogue, split: int) -> bool:
        """Whether each warpgroup may wait for its own rows of A, so that the two need not keep step."""
        load = a.tma
        assert load is not None
        loaded = load.bytes * tile.cluster[1] // (tile.shape[2] * self.size)
        # Shares below 64 rows leave gaps between them.
        gaps = steps_over_gaps(epilogue.store, tile.m.box.size, split)
        return load.copies % tile.warpgroups.count == 0 and loaded == (tile.m.box.size if gaps else tile.shape[0])

    def load(
        self, maps: OperandMaps, box: Box, cut: list[int], whole: tuple[int, ...], unit: int, parted: int
    ) -> Tma | None:
        """The copies of a part of a k-tile, which has `cut[parted]` of `whole[parted]`; None where no map does them."""
        rows = [maps.first_mn + m for d in box.dims for m in d.modes]
        first, second = maps.first_k + unit, maps.first_k + parted
        inner = (first, second, *rows) if maps.tensor == A else (first, *rows, second)
        order = [*dict.fromkeys((*inner, *range(maps.first_k, len(maps.modes)), *range(maps.first_mn)))]
        row = cut[unit] * self.size
        made = maps.map(box.cut, cut, order, row, first, 0)
        if made is None or made.slabs > 1 or made.box[0] * self.size != row:
            return None
        step = made.modes[second]
        if whole[parted] > cut[parted] and maps.plan.k[parted].extent % whole[parted]:
            # A part past the end of K must read zeros: nothing slower may share its dimension of the map.
            others = [m.weight for i, m in enumerate(made.modes) if m.dim == step.dim and i != second]
            if step.weight <= 0 or any(w <= 0 or w >= step.weight for w in others if w):
                return None
        return Tma("k", made) if step.weight > 0 else None


def _in_copies(load: Tma) -> Tma:
    """Several copies in place of one, along the slowest dimension of the box, so that slabs of B get between."""
    made = load.map
    slowest = max(i for i, b in enumerate(made.box) if b > 1)
    if slowest < 2:  # k1 and k2 alone: a single row
        return load
    copies = max(d for d in range(1, COPIES + 1) if made.box[slowest] % d == 0)
    part = tuple(b // copies if i == slowest else b for i, b in enumerate(made.box))
    piece = replace(made, box=part)
    return replace(load, map=piece, repeats=((slowest, part[slowest], copies),), pitch=piece.slab_bytes)
