"""What copies of the Hopper tiles take: rows of the copy engine, lines of L2, and how runs fill them.

Knows a tile's boxes and the operands' strides; tiles as a whole are estimated in `hopper.py`.
"""

from __future__ import annotations

import math

from gett.hw.device import DeviceModel
from gett.hw.dtypes import warpgroup_atom
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.access import alignment_of_boxes, run_of_boxes
from layouts.box import Box
from layouts.modes import Strided, unit_mode
from layouts.rates import L2_LINE, SECTOR
from layouts.swizzle import CHUNK, swizzle_dividing


class CopyCost:
    """Clocks and lines of one plan's copies; worked out once for what tiles have in common."""

    def __init__(self, plan: GemmPlan, device: DeviceModel) -> None:
        self.plan, self.device = plan, device
        c = plan.contraction
        self.size, self.size_d = itemsize(c.dtype), itemsize(c.d.dtype)
        self.step_k = warpgroup_atom(c.dtype, c.precision).k
        self.known_runs: dict[tuple[int, Box, Box], tuple[int, int]] = {}
        self.known_lines: dict[tuple[int, Box, Box], float] = {}
        self.known_clocks: dict[tuple[int, Box, int, Box, int], float] = {}
        self.k_unit = {t: unit_mode(plan.k, t, self.size) for t in (A, B)}

    def item(self, tensor: int) -> int:
        """Bytes of a tensor's elements."""
        c = self.plan.contraction.c
        return itemsize(c.dtype) if tensor == C and c is not None else self.size_d if tensor == D else self.size

    def run(self, tensor: int, first: OperandTiling, second: Box, modes: tuple[Strided, ...]) -> tuple[int, int]:
        """Bytes of a tensor that lie together in a tile, and the alignment of their starts."""
        key = (tensor, first.box, second)
        if key not in self.known_runs:
            strides = [s.strides[tensor] for s in first.modes]
            boxes = ((first.box, strides), (second, [s.strides[tensor] for s in modes]))
            run = run_of_boxes(boxes, self.item(tensor))
            self.known_runs[key] = run, alignment_of_boxes(boxes, run)
        return self.known_runs[key]

    def lines(self, tensor: int, first: OperandTiling, second: Box, modes: tuple[Strided, ...]) -> float:
        """L2's lines that a tensor's runs touch, by those that they fill, anywhere that runs may begin.

        Runs below a line are judged otherwise.
        """
        key = (tensor, first.box, second)
        if key not in self.known_lines:
            run, _ = self.run(tensor, first, second, modes)
            touched = 1.0
            if run >= L2_LINE:
                starts = range(0, L2_LINE, math.gcd(run, L2_LINE))
                touched = sum(-(-(at + run) // L2_LINE) for at in starts) / len(starts) * L2_LINE / run
                touched += self.device.l2.run_end_bytes / run if tensor == D else 0.0
            self.known_lines[key] = touched
        return self.known_lines[key]

    def clocks(self, tensor: int, side: OperandTiling, box_k: Box, shared: int = 1) -> float:
        """What a k-tile of an operand takes of the copy engine, and of a multiprocessor's way to L2.

        Args:
            tensor: `A` or `B`.
            side: Its rows.
            box_k: Its k.
            shared: Blocks that share it.
        """
        key = (tensor, side.box, side.run, box_k, shared)
        if key not in self.known_clocks:
            rows, row = self.rows(tensor, side, box_k)
            tma = self.device.tma
            if row >= 64:
                drawn = rows * row / self.device.l2.tma_bytes_per_clock / shared
                if self._start(tensor, side, box_k) % SECTOR:
                    drawn *= 1.0 + SECTOR / row  # one more is read
            else:  # short rows cost as much as longer ones, and those that others send cost as well
                drawn = rows * tma.row_clocks / (1 + (shared - 1) * tma.multicast_gain)
            self.known_clocks[key] = drawn
        return self.known_clocks[key]

    def _start(self, tensor: int, side: OperandTiling, box_k: Box) -> int:
        """What the addresses at which rows begin are multiples of, in all batches."""
        batches = (abs(s.strides[tensor]) for s in self.plan.l if s.extent > 1)
        return math.gcd(self.run(tensor, side, box_k, self.plan.k)[1], *batches)

    def rows(self, tensor: int, side: OperandTiling, box_k: Box) -> tuple[float, int]:
        """Rows that the copy engine moves for one k-tile of an operand, and their bytes.

        Those that pass K's end count as several.
        """
        late = 1.0
        k_unit = self.k_unit[tensor]
        if k_unit is not None:
            cut = box_k.cut[k_unit]
            extent = self.plan.k[k_unit].extent
            if box_k.size % self.step_k:  # one row holds a tile's k, and only they are moved
                return side.box.size * (
                    self.device.tma.cut_row_factor if cut * self.size > CHUNK else 1.0
                ), cut * self.size
            if extent % cut:
                late += self.device.tma.past_end_rows * 64 / (cut * self.size) / -(-extent // cut)
        elif side.run:
            return side.box.size // side.run * box_k.size, side.run * self.size
        else:
            cut = side.box.cut[side.unit(tensor, self.size) or 0]
        row = swizzle_dividing(cut * self.size) or CHUNK
        return late * side.box.size * box_k.size * self.size / row, row
