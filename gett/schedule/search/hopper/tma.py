"""Tensor maps of the Hopper main loops: how operands and C come and how D leaves, for boxes that the hardware can move.

Owns the rules that join boxes, swizzles and copies. Which boxes are tried and what they cost is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gett.hw.dtypes import warpgroup_atom
from gett.ir.gemm import A, C, D, GemmPlan
from gett.schedule.spec.epilogue import StagedTile
from gett.schedule.spec.hopper_needs import shared_dimension, tensor_map, up
from gett.schedule.spec.loader import Multicast, Tma
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box
from layouts.modes import unit_mode
from layouts.swizzle import CHUNK, swizzle_dividing, swizzle_holding
from layouts.tma import TmaMap


class OperandMaps:
    """Tensor maps of one operand of a plan."""

    def __init__(self, plan: GemmPlan, tensor: int, size: int) -> None:
        operand = plan.operand(tensor)
        assert operand is not None
        self.plan, self.operand, self.tensor, self.size = plan, operand, tensor, size
        self.step_k = warpgroup_atom(plan.contraction.dtype, plan.contraction.precision).k
        self.side = plan.m if tensor == A else plan.n
        self.modes = (*plan.l, *self.side, *plan.k)
        self.first_mn, self.first_k = len(plan.l), len(plan.l) + len(self.side)
        self.k_unit, self.mn_unit = unit_mode(plan.k, tensor, size), unit_mode(self.side, tensor, size)
        self.loads: dict[tuple[Box, int, int, Box], Tma | None] = {}
        self.major = "k" if self.k_unit is not None else "mn"

    def load(self, cut: OperandTiling, box_k: Box) -> Tma | None:
        """How k-tiles arrive, None where no tensor map brings them; of K the mode along which rows run comes first."""
        key = cut.box, cut.run, cut.atom, box_k
        if key not in self.loads:
            led = box_k if self.k_unit is None else box_k.led_by(self.k_unit)
            self.loads[key] = self._residue(cut, led) if led.size % self.step_k else self._full(cut, led)
        return self.loads[key]

    def map(
        self, box_mn: Sequence[int], box_k: Sequence[int], order: Sequence[int], swizzle_bytes: int, unit: int, row: int
    ) -> TmaMap | None:
        """The map of boxes of the two groups, one batch at a time."""
        box = [*(1 for _ in self.plan.l), *box_mn, *box_k]
        made = tensor_map(self.operand, self.tensor, self.modes, box, order, swizzle_bytes, unit=unit, row=row)
        return made if isinstance(made, TmaMap) else None

    def _order(self, box_mn: Box, box_k: Box) -> list[int]:
        """Modes as the tile has them: the operand's major group first."""
        mn = [self.first_mn + m for d in box_mn.dims for m in d.modes]
        k = [self.first_k + m for d in box_k.dims for m in d.modes]
        return [*((mn + k) if self.major == "k" else (k + mn)), *range(self.first_mn)]

    def _full(self, cut: OperandTiling, box_k: Box) -> Tma | None:
        box_mn, size = cut.box, self.size
        major_k = self.major == "k"
        run = 0 if major_k else cut.run
        unit = self.k_unit if self.k_unit is not None else self.mn_unit or 0
        inner = (box_k.cut if major_k else box_mn.cut)[unit] * size
        swizzle = cut.atom * size if run else swizzle_dividing(inner)
        if not swizzle:
            return None
        # Copies must start at whole periods of the swizzle; where rows do not come in eights, each column of atoms is a
        # copy of its own.
        count_k = [1] * len(box_k.cut)
        if major_k and box_mn.size % 8:
            count_k = [cut * size // swizzle if m == unit else cut for m, cut in enumerate(box_k.cut)]
        part_k = [c // count for c, count in zip(box_k.cut, count_k, strict=True)]
        first = self.first_k if major_k else self.first_mn
        made = self.map(box_mn.cut, part_k, self._order(box_mn, box_k), swizzle, first + unit, run)
        if made is None or made.box[0] * size != (run * size or swizzle):
            return None
        if run:
            return None if box_k.size % 8 else Tma(self.major, made, run=run)
        repeats = []
        for m in (m for d in box_k.dims for m in d.modes if count_k[m] > 1):
            at = made.modes[self.first_k + m]
            repeats.append((at.dim, at.weight * part_k[m], count_k[m]))
        atoms = (box_mn.size if major_k else box_k.size) * swizzle
        if not repeats and made.slab_bytes * made.slabs > atoms and not major_k and box_k.size % 8:
            return None
        if made.slabs > 1 and len((box_k if major_k else box_mn).tiled) > 1:
            return None  # the order of the copies would not be that of the other tensors
        return Tma(self.major, made, tuple(repeats), up(box_mn.size, 8) * swizzle if repeats else 0)

    def _residue(self, cut: OperandTiling, box_k: Box) -> Tma | None:
        """Where k-tiles are not full.

        K-major: one row of a swizzle atom holds the box's k, the rest of the row is the residue. MN-major: each atom (a
        row's worth of M or N) is a copy of its own, at the pitch of a full k-tile.
        """
        size, box_mn = self.size, [*cut.box.cut]
        if any(mode.extent % c for mode, c in zip(self.plan.k, box_k.cut, strict=True)):
            return None
        counts: list[tuple[int, int, int]] = []  # mode of the operand, step along it, copies
        run = 0
        if self.k_unit is not None:
            unit, row = self.first_k + self.k_unit, box_k.cut[self.k_unit]
            swizzle = swizzle_holding(up(box_k.size, self.step_k) * size)
            if box_k.size != row or row * size % CHUNK or not swizzle:
                return None
        elif self.mn_unit is not None:
            unit, run = self.first_mn + self.mn_unit, cut.run
            swizzle = cut.atom * size if run else swizzle_dividing(box_mn[self.mn_unit] * size)
            if not swizzle:
                return None
            row = run or swizzle // size
            tiled = [d.modes[0] for _, d in cut.box.tiled]
            if tiled and tiled[0] != self.mn_unit:
                return None
            pieces = {m: (row, box_mn[m] // row) if m == self.mn_unit else (1, box_mn[m]) for m in tiled}
            counts = [(self.first_mn + m, step, count) for m, (step, count) in pieces.items() if count > 1]
            box_mn = [row if m == self.mn_unit else 1 for m in range(len(self.side))]
        else:
            return None
        made = self.map(box_mn, box_k.cut, self._order(cut.box, box_k), swizzle, unit, row)
        if made is None or made.slabs > 1 or made.box[0] != row:
            return None
        repeats = tuple((made.modes[m].dim, made.modes[m].weight * step, count) for m, step, count in counts)
        return Tma(self.major, made, repeats, up(box_k.size, self.step_k) * swizzle if repeats else 0, run)


def staged_map(plan: GemmPlan, tensor: int, boxes: tuple[Box, Box], stage: StagedTile) -> TmaMap | None:
    """The tensor map of a tile of D, or of C, dimensions as D is staged, else by D's strides."""
    operand, (box_m, box_n) = plan.operand(tensor), boxes
    assert operand is not None
    modes = (*plan.l, *plan.m, *plan.n)
    box = [*(1 for _ in plan.l), *box_m.cut, *box_n.cut]
    first = {"m": len(plan.l), "n": len(plan.l) + len(plan.m)}
    dims = {"m": box_m.dims, "n": box_n.dims}
    staged = [first[g] + dims[g][i].modes[0] for g, i in stage.order]
    rest = sorted((i for i in range(len(modes)) if i not in staged), key=lambda i: (box[i] == 1, modes[i].strides[D]))
    made = tensor_map(operand, tensor, modes, box, staged + rest, stage.swizzle_bytes, row=stage.row)
    return made if isinstance(made, TmaMap) and (made.slabs == 1 or stage.row) else None


def c_map(plan: GemmPlan, boxes: tuple[Box, Box], stage: StagedTile, d: TmaMap) -> TmaMap | None:
    """The tensor map that brings a tile of C to the places that `d`, D's map, stores from; None where there is none.

    C has D's type. Modes that follow each other in D need not do so in C, whose copies may then be others than D's.
    """
    # Without a swizzle, rows end to end are one run: one copy may bring what others store in rows.
    for row in (stage.row, 0) if stage.swizzle_bytes == CHUNK else (stage.row,):
        made = staged_map(plan, C, boxes, replace(stage, row=row))
        if made is not None and _same_places(made, d):
            return made
    return None


def _same_places(first: TmaMap, second: TmaMap) -> bool:
    """Whether two maps of the same box lay all elements down alike.

    A place, but for the swizzle, is a sum over the modes, so each mode is asked alone.
    """
    if (first.swizzle_bytes, first.tile) != (second.swizzle_bytes, second.tile):
        return False
    origin = [0] * len(first.tile)
    single = ((*origin[:m], x, *origin[m + 1 :]) for m, count in enumerate(first.tile) for x in range(1, count))
    return all(first.smem_offset(local) == second.smem_offset(local) for local in single)


def multicast(load: Tma, blocks: int) -> Tma:
    """The same copies where `blocks` blocks of a cluster need the same tiles."""
    return load if blocks == 1 else replace(load, multicast=Multicast(blocks, shared_dimension(load.map, blocks)))
