"""A ragged contraction on a device: one launch, whose blocks find their problem by offsets in the device's memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gett.arrays.kinds import ArrayKind
from gett.codegen.grouped import RaggedFigures, mode_tables, ragged_kernel
from gett.codegen.records import Kernel
from gett.codegen.render import render_kernel
from gett.errors import PoorKernelError, ScheduleError
from gett.groups.launches import packed
from gett.groups.layouts import GROUPS, Asked, Layout, arithmetic_of, as_product, whole_strides
from gett.groups.ragged import RaggedModes
from gett.groups.ragged_plans import problem_steps, ragged_contraction, ragged_plans
from gett.groups.ragged_tiles import ragged_schedules
from gett.groups.table import MOST_TILES
from gett.groups.tiles import Majors, schedule_of, tile_for
from gett.ir.gemm import A, B, itemsize
from gett.ir.tensors import TensorSpec
from gett.jit.compile import compile_kernel
from gett.runtime.device import CupyHost
from gett.runtime.driver import load_driver
from gett.runtime.grouped import GroupedExecutable, compile_grouped
from gett.schedule.spec.grouped import GroupedSchedule, Ragged
from gett.schedule.spec.schedule import Schedule

ATTEMPTS = 4
"""Persistent kernels that may compile badly before the one that reads tables is taken."""


class RaggedLaunch:
    """What runs a ragged contraction of tensors that lie alike, with any sizes of its problems.

    Args:
        kind: Of the arrays.
        device: Where they are.
        modes: The subscripts.
        tensors: The operands and the result.
        ends: dtype of the offsets.
        count: How many problems there are.
        precision: As it was asked for.

    Raises:
        DTypeError: Kernels do not take the operands as they are.
        CompileError, MissingPackageError, DeviceError: There is no kernel, or no device that runs it.
    """

    def __init__(
        self,
        kind: ArrayKind,
        device: int,
        modes: RaggedModes,
        tensors: Sequence[TensorSpec],
        ends: str,
        count: int,
        precision: Asked,
    ) -> None:
        host, arch = CupyHost(), kind.arch(device)
        self.schedule: GroupedSchedule | Schedule
        self._stream = kind.stream
        self._addresses: dict[str, int] = {}
        self._executable: GroupedExecutable | None = None
        if (made := persistent_kernel(modes, tensors, arch, ends, count, precision)) is not None:
            self.schedule, self._swapped = made.schedule, made.swapped
            self._executable = GroupedExecutable(made.kernel, made.cubin, host, load_driver())
            return
        layout, problem_step = ragged_layout(modes, tensors, precision)
        self.schedule, figures, tiles = ragged_schedule(layout, problem_step, arch, tensors, ends, count)
        self._swapped = layout.swapped
        memory, places = packed(ragged_tables(layout))
        self._tables = kind.from_host(memory)
        base = kind.pointer(self._tables)
        self._addresses = {"layouts": base + places[0], "modes": base + places[1]}
        if tiles:
            source, cubin = compile_grouped(self.schedule)
            kernel = ragged_kernel(self.schedule, source, tiles, figures)
            self._executable = GroupedExecutable(kernel, cubin, host, load_driver())
        host.synchronize()  # calls may be on other streams

    def run(self, a: int, b: int, d: int, ends: int) -> None:
        """Launch with arrays at addresses, on the current stream.

        Raises:
            DeviceError: The launch failed.
        """
        if self._executable is None:
            return
        if self._swapped:
            a, b = b, a
        self._executable.run_at({"a": a, "b": b, "d": d, "ends": ends, **self._addresses}, self._stream())


@dataclass(frozen=True, slots=True)
class Persistent:
    """A persistent kernel of a ragged contraction.

    Attributes:
        schedule: How it runs.
        kernel: Its text and launch.
        cubin: Of the text.
        swapped: Whether the second operand is A.
    """

    schedule: Schedule
    kernel: Kernel
    cubin: bytes
    swapped: bool


def persistent_kernel(
    modes: RaggedModes, tensors: Sequence[TensorSpec], arch: str, ends: str, count: int, precision: Asked
) -> Persistent | None:
    """The persistent kernel of a ragged contraction, None where no good one takes it.

    Raises:
        DTypeError, PrecisionError: There is no such product.
        CompileError, MissingPackageError: There is no compiler that takes the kernel.
    """
    a, b, d = tensors
    plans = ragged_plans(modes, tensors, arithmetic_of(a, b, d, precision), count)
    if plans is None:
        return None
    for schedule in ragged_schedules(plans, arch, ends)[:ATTEMPTS]:
        kernel = render_kernel(plans.whole, schedule)
        try:
            cubin = compile_kernel(kernel.source, arch)
        except PoorKernelError:
            continue
        return Persistent(schedule, kernel, cubin, plans.whole.swapped != schedule.tiling.swap_ab)
    return None


def ragged_layout(
    modes: RaggedModes, tensors: Sequence[TensorSpec], precision: Asked
) -> tuple[Layout, tuple[int, int, int]]:
    """The layout of one problem that has all rows, and bytes from problem to problem in A, B and D.

    Raises:
        DTypeError, PrecisionError: There is no such product.
    """
    a, b, d = tensors
    arithmetic = arithmetic_of(a, b, d, precision)
    contraction = ragged_contraction(modes, tensors, arithmetic)
    alone = contraction.names.index(modes.ragged)
    layout = as_product(contraction, d, arithmetic.read, arithmetic.whole and whole_strides(tensors), alone)
    steps = problem_steps(modes, tensors)
    return layout, (steps[1], steps[0], steps[2]) if layout.swapped else steps


def ragged_schedule(
    layout: Layout,
    problem_step: tuple[int, int, int],
    arch: str,
    tensors: Sequence[TensorSpec],
    ends: str,
    count: int,
) -> tuple[GroupedSchedule, RaggedFigures, int]:
    """The kernel, what it is told, and as many tiles as there may be at most."""
    assert layout.alone is not None
    group, place = layout.alone
    rows, row_step = layout.modes[group][place]
    extents = [layout.extent(g) for g in GROUPS]
    rest = math.prod(e for i, (e, _) in enumerate(layout.modes[group]) if i != place)
    usual = [rest * -(-rows // max(count, 1)) if g == group else e for g, e in enumerate(extents)]
    tile = tile_for(layout, usual[1], usual[2])
    majors: Majors = (layout.major(A), layout.major(B))
    specs = (tensors[1], tensors[0]) if layout.swapped else (tensors[0], tensors[1])
    vectors = []
    for t in (A, B):
        size = itemsize(layout.factor(t).dtype)
        along = GROUPS.index("k" if majors[t] == "k" else "mn"[t])
        widest = min(layout.vector(t, majors[t]), max(specs[t].alignment // size, 1))
        while widest > 1 and (layout.alone == (along, 0) or problem_step[t] % (widest * size)):
            widest //= 2
        vectors.append(widest)
    ragged: Literal["m", "n", "k"] = "m" if group == 1 else "n" if group == 2 else "k"
    kind: Literal["int32", "int64"] = "int32" if ends == "int32" else "int64"
    schedule = schedule_of(layout, arch, tile, majors, vectors, Ragged(ragged, kind))
    tiles = [-(-extents[1] // tile.shape[0]), -(-extents[2] // tile.shape[1])]
    if ragged == "k":
        total = count * tiles[0] * tiles[1] * extents[0]
    else:  # each problem, and what lies behind the last one, may end within a tile
        side = tile.shape[group - 1]
        total = (rows * rest // side + (count + 1 if rows * rest else 0)) * tiles[2 - group] * extents[0]
    if total > MOST_TILES:
        raise ScheduleError(f"{total} tiles exceed the grid's limit of 2**31 - 1")
    number = sum(map(len, layout.modes[:group])) + place
    return schedule, RaggedFigures(count, rows, number, row_step, problem_step), total


def ragged_tables(layout: Layout) -> list[NDArray[np.void]]:
    """The tables of layouts and of modes; the group of the ragged mode has the product of its other modes."""
    assert layout.alone is not None
    group, place = layout.alone
    heads, modes = mode_tables([layout.modes])
    heads["extent"][0, group] = math.prod(e for i, (e, _) in enumerate(layout.modes[group]) if i != place)
    return [heads, modes]
