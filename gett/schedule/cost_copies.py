"""What copies of the Hopper family's tiles take: rows of the copy engine, lines of L2, and the boxes that they bring.

Knows a tile's boxes and the operands' strides; tiles as a whole are `cost_sm90`'s.
"""

from __future__ import annotations

import math

from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.cost_tiled import joined
from gett.schedule.sm90_shape import Side, Sm90Shape
from layouts.access import contiguous_run
from layouts.box import Box
from layouts.modes import Strided

L2_BYTES_PER_CLOCK = 46.0  # what one multiprocessor draws, rows of 128 or 64 bytes
ROW_CLOCKS = 2.0  # a row of 32 or 16 bytes takes the copy engine at least that
MEMORY_ROW_CLOCKS = 2.4  # and any row that comes from memory, for as many as can be under way
SHORT_GAIN = 0.7  # of what sharing gains where rows are longer
LINE, ENDS = 128, 80  # bytes of L2's lines, and of what the two ends of a run cost
COPY_CLOCKS = 24.0  # the thread that issues copies needs about that long for each (instructions counted)
PART_ROWS = 1.6  # what a row of 48, 80 or 112 bytes, which cuts a sector, takes of the time of a whole one
CUT_ROWS = 6.0  # a row that ends in zeros takes as long as so many more


class CopyModel:
    """Clocks and lines of one plan's copies."""

    def __init__(self, plan: GemmPlan) -> None:
        self.plan = plan
        c = plan.contraction
        self.size, self.size_d = itemsize(c.dtype), itemsize(c.d.dtype)
        self.parts: dict[tuple[int, tuple[Box, Box]], float] = {}
        self.copies: dict[tuple[int, Box, int, Box, int, int], tuple[float, float]] = {}
        self.major_k = {t: any(s.strides[t] == self.size for s in plan.k) for t in (A, B)}

    def item(self, tensor: int) -> int:
        """Bytes of a tensor's elements."""
        c = self.plan.contraction.c
        return itemsize(c.dtype) if tensor == C and c is not None else self.size_d if tensor == D else self.size

    def follows(self, shape: Sm90Shape) -> bool:
        """Whether C's strides are such that a tensor map may bring its tile where one takes D's.

        They have the same unit-stride mode and take whole 16 bytes along all others.
        """
        for side in (shape.m, shape.n):
            for d in side.box.dims:
                for mode in (side.modes[m] for m in d.modes):
                    unit, step = mode.strides[D] == self.size_d, mode.strides[C]
                    tiled = d.box > 1 and mode.extent > 1
                    if tiled and (step <= 0 or unit != (step == self.item(C))):
                        return False
                    if mode.extent > 1 and step % 16 and not (tiled and unit):
                        return False
        return all(mode.strides[C] % 16 == 0 for mode in self.plan.l)

    def lines(self, tensor: int, first: Side, second: Box, modes: tuple[Strided, ...]) -> float:
        """L2's lines that a tensor's runs touch, by those that they fill; runs below a line are judged otherwise."""
        key = (first.box, second)
        if (tensor, key) not in self.parts:
            self.parts[tensor, key] = self._lines(tensor, first, second, modes)
        return self.parts[tensor, key]

    def _lines(self, tensor: int, first: Side, second: Box, modes: tuple[Strided, ...]) -> float:
        """Lines touched, anywhere that runs may begin, and a little for each run."""
        strides = tuple(s.strides[tensor] for s in (*first.modes, *modes))
        run = contiguous_run(joined(first.box, second), strides, self.item(tensor))
        if run < LINE:
            return 1.0
        ends = ENDS / run if tensor == D else 0.0
        step = math.gcd(run, LINE)
        starts = range(0, LINE, step)
        return sum(-(-(at + run) // LINE) for at in starts) / len(starts) * LINE / run + ends

    def box_of(self, tensor: int, shape: Sm90Shape) -> Box:
        """The box of K that an operand's copies take."""
        return shape.k if shape.filled is None or self.major_k[tensor] else shape.filled

    def clocks(self, tensor: int, side: Side, box_k: Box, shared: int, reads: int) -> tuple[float, float]:
        """`copy_clocks` and `engine_clocks`, worked out once."""
        key = (tensor, side.box, side.run, box_k, shared, reads)
        if key not in self.copies:
            copy = self.copy_clocks(tensor, side, box_k, shared)
            self.copies[key] = copy, self.engine_clocks(tensor, side, box_k, shared, reads)
        return self.copies[key]

    def copy_clocks(self, tensor: int, side: Side, box_k: Box, shared: int) -> float:
        """What one k-tile of an operand takes of a multiprocessor's way to L2; short rows cost as much as longer."""
        rows, span = self.rows(tensor, side, box_k)
        if span >= 64:
            return rows * span / L2_BYTES_PER_CLOCK / shared
        return rows * ROW_CLOCKS / (1 + (shared - 1) * SHORT_GAIN)  # rows that come from others cost as well

    def engine_clocks(self, tensor: int, side: Side, box_k: Box, shared: int, reads: int) -> float:
        """What a k-tile that is read `reads` times takes of the copy engine; rows out of memory take longer.

        So do the rows of its padding, which bring nothing.
        """
        rows, _ = self.rows(tensor, side, box_k)
        first = min(1.0, shared / reads)
        clocks = self.copy_clocks(tensor, side, box_k, shared)
        if box_k.size % 16 and not self.major_k[tensor]:
            clocks = max(clocks, rows / box_k.size / shared * COPY_CLOCKS)  # a copy for each chunk (tails.py)
        return clocks + first * max(0.0, rows / shared * MEMORY_ROW_CLOCKS - clocks)

    def rows(self, tensor: int, side: Side, box_k: Box) -> tuple[float, int]:
        """Rows that the copy engine moves for one k-tile of an operand, and their bytes.

        Those that pass K's end count as several.
        """
        late = 1.0
        unit_k = next((i for i, s in enumerate(self.plan.k) if s.strides[tensor] == self.size), None)
        if unit_k is not None:
            cut = next((d.box for d in box_k.dims if d.modes[0] == unit_k), 1)
            extent = self.plan.k[unit_k].extent
            if box_k.size % 16:  # one row holds a tile's k, and only they are moved
                return side.box.size * (PART_ROWS if cut > 8 else 1.0), cut * self.size
            late += CUT_ROWS / -(-extent // cut) if extent % cut else 0.0
        else:
            unit = next((i for i, s in enumerate(side.modes) if s.strides[tensor] == self.size), 0)
            cut = next((d.box for d in side.box.dims if d.modes[0] == unit), 1)
        if side.run and unit_k is None:
            return side.box.size // side.run * box_k.size, side.run * self.size
        run = cut * self.size
        span = next((s for s in (128, 64, 32, 16) if run % s == 0), 16)
        return late * side.box.size * box_k.size * self.size / span, span
