"""What copies of the Hopper tiles take: rows of the copy engine, lines of L2, and how runs fill them.

Knows a tile's boxes and the operands' strides; tiles as a whole are estimated in `wgmma.py`.
"""

from __future__ import annotations

import math

from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.cost.estimate import joined
from gett.schedule.tile.wgmma_tile import STEP_K, OperandTiling
from layouts.access import contiguous_run
from layouts.box import Box
from layouts.modes import Strided, unit_mode
from layouts.swizzle import CHUNK, swizzle_dividing

L2_BYTES_PER_CLOCK = 46.0  # what one multiprocessor draws, rows of 128 or 64 bytes
ROW_CLOCKS = 2.0  # a row of 32 or 16 bytes takes the copy engine at least that
MEMORY_ROW_CLOCKS = 2.4  # and any row that comes from memory, for as many as can be under way
SHORT_GAIN = 0.7  # of what sharing gains where rows are longer
L2_LINE, RUN_END_BYTES = 128, 80  # bytes of L2's lines, and of what the two ends of a run cost
COPY_ISSUE_CLOCKS = 24.0  # the thread that issues copies needs about that long for each (instructions counted)
PART_ROWS = 1.6  # what a row of 48, 80 or 112 bytes, which cuts a sector, takes of the time of a whole one
CUT_ROWS = 6.0  # a row that ends in zeros takes as long as so many more


class CopyModel:
    """Clocks and lines of one plan's copies; worked out once for what tiles have in common."""

    def __init__(self, plan: GemmPlan) -> None:
        self.plan = plan
        c = plan.contraction
        self.size, self.size_d = itemsize(c.dtype), itemsize(c.d.dtype)
        self.known_lines: dict[tuple[int, Box, Box], float] = {}
        self.known_clocks: dict[tuple[int, Box, int, Box, int, int], tuple[float, float]] = {}
        self.k_unit = {t: unit_mode(plan.k, t, self.size) for t in (A, B)}

    def item(self, tensor: int) -> int:
        """Bytes of a tensor's elements."""
        c = self.plan.contraction.c
        return itemsize(c.dtype) if tensor == C and c is not None else self.size_d if tensor == D else self.size

    def lines(self, tensor: int, first: OperandTiling, second: Box, modes: tuple[Strided, ...]) -> float:
        """L2's lines that a tensor's runs touch, by those that they fill, anywhere that runs may begin.

        Runs below a line are judged otherwise.
        """
        key = (tensor, first.box, second)
        if key not in self.known_lines:
            strides = tuple(s.strides[tensor] for s in (*first.modes, *modes))
            run = contiguous_run(joined(first.box, second), strides, self.item(tensor))
            touched = 1.0
            if run >= L2_LINE:
                starts = range(0, L2_LINE, math.gcd(run, L2_LINE))
                touched = sum(-(-(at + run) // L2_LINE) for at in starts) / len(starts) * L2_LINE / run
                touched += RUN_END_BYTES / run if tensor == D else 0.0
            self.known_lines[key] = touched
        return self.known_lines[key]

    def clocks(self, tensor: int, side: OperandTiling, box_k: Box, shared: int, reads: int) -> tuple[float, float]:
        """What a k-tile of an operand takes of a multiprocessor's way to L2, and of the copy engine.

        Args:
            tensor: `A` or `B`.
            side: Its rows.
            box_k: Its k.
            shared: Blocks that share it.
            reads: How often it is read; the first time its rows come out of memory.
        """
        key = (tensor, side.box, side.run, box_k, shared, reads)
        if key not in self.known_clocks:
            rows, row = self.rows(tensor, side, box_k)
            if row >= 64:
                drawn = rows * row / L2_BYTES_PER_CLOCK / shared
            else:  # short rows cost as much as longer ones, and those that others send cost as well
                drawn = rows * ROW_CLOCKS / (1 + (shared - 1) * SHORT_GAIN)
            engine = drawn
            if box_k.size % STEP_K and self.k_unit[tensor] is None:  # a copy for each atom
                engine = max(engine, rows / box_k.size / shared * COPY_ISSUE_CLOCKS)
            # Rows out of memory take longer; so do the rows of padding, which bring nothing.
            engine += min(1.0, shared / reads) * max(0.0, rows / shared * MEMORY_ROW_CLOCKS - engine)
            self.known_clocks[key] = drawn, engine
        return self.known_clocks[key]

    def rows(self, tensor: int, side: OperandTiling, box_k: Box) -> tuple[float, int]:
        """Rows that the copy engine moves for one k-tile of an operand, and their bytes.

        Those that pass K's end count as several.
        """
        late = 1.0
        k_unit = self.k_unit[tensor]
        if k_unit is not None:
            cut = next((d.box for d in box_k.dims if d.modes[0] == k_unit), 1)
            extent = self.plan.k[k_unit].extent
            if box_k.size % STEP_K:  # one row holds a tile's k, and only they are moved
                return side.box.size * (PART_ROWS if cut * self.size > CHUNK else 1.0), cut * self.size
            late += CUT_ROWS / -(-extent // cut) if extent % cut else 0.0
        elif side.run:
            return side.box.size // side.run * box_k.size, side.run * self.size
        else:
            unit = side.unit(tensor, self.size) or 0
            cut = next((d.box for d in side.box.dims if d.modes[0] == unit), 1)
        row = swizzle_dividing(cut * self.size) or CHUNK
        return late * side.box.size * box_k.size * self.size / row, row
