"""Registers of the threads of a Hopper kernel: what those that fetch and those that multiply get of a multiprocessor.

Searches choose by these numbers, rules check them, and kernels set them (`setmaxnreg`).
"""

from __future__ import annotations

from gett.ir.gemm import GemmPlan
from gett.schedule.spec.mainloop import Hopper, WgmmaSplit, WgmmaTf32
from gett.schedule.spec.wgmma_needs import ACCUMULATORS, WIDEST_SPLIT, gathers, parts, planes

THREAD_REGISTERS = (40, 232)
"""Registers of a thread that issues copies, and of one that multiplies."""

GATHER_REGISTERS = {96: (112, 144), 128: (96, 160)}
"""The same where operands are gathered, by the accumulators that a thread may have."""

SPLIT_REGISTERS = {96: (64, 192), 128: (56, 200)}
"""The same where planes are multiplied, by the real sums of a row of the tile. The first number is the mean of a thread
that issues copies and of one that splits B, to which the other one leaves what it does not need."""

SCALED_REGISTERS = {112: (56, 200), 128: (48, 208)}
"""The same where planes are scaled."""

TRANSPOSE_REGISTERS = {96: (80, 176), 128: (72, 184)}
"""The same where B is transposed, by a thread that does so too, by the accumulators that a thread may have."""

TF32_SPARE = 32
"""Registers that a thread needs beside sums and fragments of TF32."""

DMMA_SPARE = 32
"""The same beside those of float64, whose places in either major are kept."""


def thread_registers(plan: GemmPlan, loop: Hopper, columns: int) -> tuple[int, int]:
    """Registers of a thread that fetches and of one that multiplies a tile of `columns`."""
    if isinstance(loop, WgmmaSplit):
        made, sums = planes(plan), columns * parts(plan)
        of_split = SCALED_REGISTERS if made is not None and made.scaled else SPLIT_REGISTERS
        return next((r for most, r in of_split.items() if sums <= most), of_split[WIDEST_SPLIT])
    if isinstance(loop, WgmmaTf32) and loop.transposed_stages:
        return _by_accumulators(TRANSPOSE_REGISTERS, loop.mma_m * columns // 2)
    if gathers(loop):
        return _by_accumulators(GATHER_REGISTERS, loop.mma_m * columns // 2)
    return THREAD_REGISTERS


def _by_accumulators(registers: dict[int, tuple[int, int]], held: int) -> tuple[int, int]:
    return next((r for most, r in registers.items() if held <= most), registers[ACCUMULATORS])


def tf32_registers(mma_m: int, columns: int, steps: int, transposes: bool) -> tuple[int, int]:
    """Registers of a thread with fragments of TF32 for `steps` of K in them: those that it needs, and those it has."""
    held = mma_m * columns // 2
    there = _by_accumulators(TRANSPOSE_REGISTERS, held) if transposes else THREAD_REGISTERS
    return held + 4 * mma_m * steps + TF32_SPARE, there[1]


def dmma_step(mma_m: int, columns: int, parts: int) -> int:
    """K of one instruction of float64: sums are read and written half as often by 16 as by 8, if registers suffice.

    A complex number's parts are two of its k.
    """
    return 16 if _dmma_needs(mma_m, columns, 16, parts) <= THREAD_REGISTERS[1] or parts > 1 else 8


def dmma_registers(mma_m: int, columns: int, parts: int) -> tuple[int, int]:
    """Registers of a thread that multiplies float64, also as parts: those that it needs, and those it has."""
    step = dmma_step(mma_m, columns, parts)
    return _dmma_needs(mma_m, columns, step, parts), THREAD_REGISTERS[1]


def _dmma_needs(mma_m: int, columns: int, step: int, parts: int) -> int:
    """Registers for instructions of `step` k.

    A number takes two, and a lane has a fourth of the k of a row. Of A there are two steps, one of which takes twice as
    many where numbers are complex, since either part is multiplied by both of B's. Of B there are four times one row of
    eight columns, or two where each is multiplied by four products.
    """
    steps, rows = (3, 2) if parts > 1 else (2, 4)
    return parts * mma_m * columns + step * steps * mma_m + step // 2 * rows + DMMA_SPARE
