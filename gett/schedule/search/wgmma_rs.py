"""Schedules of wgmma with A in registers: where the rows of A and of B run along two different contracted modes.

A k-tile has `depth` of A's mode (k1) and `width` of B's (k2). A lies as [row][k2][k1]; B comes in slabs of one k1 each,
[n][k2].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.cost.hopper_units import RS
from gett.schedule.mainloops.wgmma_rs import COPIES, WIDEST_SHARED_A, WIDEST_WITH_C, steps_over_gaps
from gett.schedule.search import tried as records
from gett.schedule.search.hopper import HopperSearch, Loader, by_map
from gett.schedule.search.tma import OperandMaps
from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.hopper_needs import up
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.schedule import Schedule, TileScheduler
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

    def choices(self) -> Iterator[WgmmaTile]:
        """Every combination of tile, boxes and who shares."""
        if len(self.leads) < 2:
            return
        (groups,), known = self.tried.groups, self.tried.widths
        widest = min(known[0] if self.plan.contraction.c is None else WIDEST_WITH_C, up(self.plan.extent_n, 32))
        cuts = self.tried.two_leads if self.atom.either_major else self.tried.word_leads
        # Neighbours along N share A, those along M share B. A is shared by slices of K alone: elsewhere that took a
        # twentieth longer.
        for cut, cluster in (*((cut, (1, 1)) for cut in cuts), (cuts[0], (1, 2)), (cuts[0], (2, 1))):
            box_k, most = self.k_box(*cut), WIDEST_SHARED_A if cluster[1] > 1 else widest
            for n in (w for w in known if w <= min(widest, most)):
                for m_side in self.boxes.boxes(A, groups.rows, None):
                    for n_side in self.boxes.boxes(B, n, None):
                        if cluster[0] <= m_side.box.tiles and cluster[1] <= n_side.box.tiles:
                            yield WgmmaTile(self.atom, groups, m_side, n_side, box_k, cluster)

    def k_box(self, depth: int, width: int) -> Box:
        """`depth` of A's mode times `width` of B's; tiles go first along the one with the shorter rows."""
        unit_a, unit_b = self.units
        cuts = sorted(((width, unit_b), (depth, unit_a)), key=lambda c: c[0])
        return Box.of_cuts(tuple(s.extent for s in self.plan.k), {m: cut for cut, m in cuts})

    def split(self, tile: WgmmaTile, estimate: Estimate) -> tuple[int, int]:
        """Slices of K, to which k-tiles are dealt out in turn: they may differ by one."""
        rows, columns, _ = tile.shape
        slices = estimate.split_k
        return slices, slices * self.tiles(tile) * rows * columns * 4 if slices > 1 else 0

    def scheduler(self, tile: WgmmaTile, estimate: Estimate, split: int) -> TileScheduler:
        """Which tiles a block makes."""
        return self.raster(tile, split)

    def loads(self, plan: GemmPlan, tile: WgmmaTile) -> tuple[Loader, Loader] | None:
        """A k-tile of A, and a slab of B."""
        a, b = self.load_a(plan, tile), self.load_b(plan, tile)
        return None if a is None or b is None else (a, b)

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaRS]:
        """All slabs that shared memory may hold."""
        a, b = by_map(a, b)
        return (WgmmaRS(a, b, *self.units, False, count) for count in range(self.slabs, 0, -1))

    def made(
        self,
        tile: WgmmaTile,
        loads: tuple[Loader, Loader],
        epilogue: Epilogue,
        split: tuple[int, int],
        order: TileScheduler,
    ) -> Iterable[Schedule]:
        """Schedules that vary in whether each warpgroup waits for its own rows of A, and in the slabs under way.

        More under way come first, and warpgroups that need not keep step: forecasts of all are the same.
        """
        deepest = self.fitted(tile, self.loops(tile, *loads), epilogue, split, order)
        most = deepest.hopper.stages if deepest is not None else 0
        # Where many blocks share few tiles the copies limit, and slabs far ahead only delay A, which comes behind them.
        slabs = min(self.slabs if split[0] == 1 else tile.k.cut[self.units[0]] // 4, most)
        apart, shares_a = self.waits_apart(tile, loads[0], epilogue, split[0]), tile.cluster[1] > 1
        if deepest is None or slabs < 4 or (shares_a and not (apart and split[0] > 1)):
            return
        for stages in sorted({slabs, max(slabs, min(self.slabs // 2, most))}, reverse=True):
            for per_warpgroup in (True,) if shares_a else (True, False) if apart else (False,):
                loop = replace(deepest.loop(WgmmaRS), per_warpgroup_a=per_warpgroup, stages=stages)
                made = self.fitted(tile, (loop,), epilogue, split, order)
                if made is not None:
                    yield made

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        rows, columns, _ = tile.shape
        text = f"{self.tiles(tile)} tiles of {rows} x {columns}, operands' rows along different contracted modes, "
        return text + "A through registers" + ("" if tile.blocks == 1 else ", an operand shared by two blocks")

    def waits_apart(self, tile: WgmmaTile, a: Loader, epilogue: Epilogue, split: int) -> bool:
        """Whether each warpgroup may wait for its own rows of A, so that the two need not keep step."""
        load = a.tma
        assert load is not None
        loaded = load.bytes * tile.cluster[1] // (tile.shape[2] * self.size)
        # Shares below 64 rows leave gaps between them.
        gaps = steps_over_gaps(epilogue.store, tile.m.box.size, split)
        return load.copies % tile.warpgroups.count == 0 and loaded == (tile.m.box.size if gaps else tile.shape[0])

    def load_a(self, plan: GemmPlan, tile: WgmmaTile) -> Tma | None:
        """A k-tile, [row][k2][k1], in copies so that slabs of B get between; where blocks share A, one's part of k2."""
        unit_a, unit_b = self.units
        maps = OperandMaps(plan, A, self.size)
        cut = [*tile.k.cut]
        cut[unit_b] //= tile.cluster[1]
        first = [maps.first_k + unit_a, maps.first_k + unit_b]
        return _in_copies(self.load(maps, tile.m.box, cut, tile.k.cut, unit_b, first, unit_a))

    def load_b(self, plan: GemmPlan, tile: WgmmaTile) -> Tma | None:
        """A slab, [n][k2] at one k1."""
        unit_a, unit_b = self.units
        maps = OperandMaps(plan, B, self.size)
        cut = [*tile.k.cut]
        cut[unit_a] = 1
        order_n = [maps.first_mn + m for d in tile.n.box.dims for m in d.modes]
        first = [maps.first_k + unit_b, *order_n, maps.first_k + unit_a]
        return self.load(maps, tile.n.box, cut, tile.k.cut, unit_a, first, unit_b)

    def load(
        self,
        maps: OperandMaps,
        box: Box,
        cut: list[int],
        whole: tuple[int, ...],
        parted: int,
        first: list[int],
        unit: int,
    ) -> Tma | None:
        """The copies of a part of a k-tile, which has `cut[parted]` of `whole[parted]`; None where no map does them."""
        order_mn = [maps.first_mn + m for d in box.dims for m in d.modes]
        slower = (*order_mn, *range(maps.first_k, len(maps.modes)), *range(maps.first_mn))
        order = [*first, *(i for i in slower if i not in first)]
        row = cut[unit] * self.size
        made = maps.map(box.cut, cut, order, row, maps.first_k + unit, 0)
        if made is None or made.slabs > 1 or made.box[0] * self.size != row:
            return None
        step = made.modes[maps.first_k + parted]
        if whole[parted] > cut[parted] and maps.plan.k[parted].extent % whole[parted]:
            # A part past the end of K must read zeros: nothing slower may share its dimension of the map.
            others = [m.weight for i, m in enumerate(made.modes) if m.dim == step.dim and i != maps.first_k + parted]
            if step.weight <= 0 or any(w <= 0 or w >= step.weight for w in others if w):
                return None
        return Tma("k", made) if step.weight > 0 else None


def _in_copies(load: Tma | None) -> Tma | None:
    """Several copies in place of one, along the slowest dimension of the box."""
    if load is None:
        return None
    made = load.map
    slowest = max(i for i, b in enumerate(made.box) if b > 1)
    if slowest < 2:  # k1 and k2 alone: a single row
        return load
    copies = max(d for d in range(1, COPIES + 1) if made.box[slowest] % d == 0)
    part = tuple(b // copies if i == slowest else b for i, b in enumerate(made.box))
    piece = replace(made, box=part)
    return replace(load, map=piece, repeats=((slowest, part[slowest], copies),), pitch=piece.slab_bytes)
