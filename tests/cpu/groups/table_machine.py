"""A GPU that reads the tables of grouped launches at their addresses, and computes with NumPy what kernels would."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gett.arrays.kinds import NUMPY, NumpyKind
from gett.codegen.grouped import GROUPS, LAYOUT, MODE, OUTPUT, PAIR, render_grouped
from gett.groups import launches, ragged_launch, reading
from gett.ir.tensors import TensorSpec
from gett.schedule.spec.grouped import GroupedSchedule
from tests.cpu.fake_driver import FakeDriver, FakeHost


class GpuKind(NumpyKind):
    """NumPy's arrays as those of a GPU."""

    name = "CuPy"

    def describe(self, array: Any) -> Any:
        return TensorSpec(array.shape, array.strides, array.dtype)

    def arch(self, device: int) -> str:
        return "sm_90a"


def memory(address: int, count: int, dtype: Any) -> NDArray[Any]:
    """The array of `count` numbers or records at an address."""
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * max(size, 1)).from_address(address), dtype, count)


class TableDriver(FakeDriver):
    """Computes each launch when it is asked for."""

    def __init__(self) -> None:
        super().__init__(40)
        self.schedules: dict[bytes, GroupedSchedule] = {}

    def compile(self, schedule: GroupedSchedule) -> tuple[Any, bytes]:
        cubin = repr((id(self), schedule)).encode()
        self.schedules[cubin] = schedule
        return render_grouped(schedule), cubin

    def launch(self, config: Any, function: Any, argv: Any, extra: Any) -> int:
        code = super().launch(config, function, argv, extra)
        schedule = self.schedules[self.modules[function.value // 1000 - 101]]
        if schedule.ragged is None:
            run_tables(schedule, self.launches[-1])
        return code


def run_tables(schedule: GroupedSchedule, seen: Any) -> None:
    """What a launch by a table computes."""
    at_outputs, at_pairs, at_layouts, at_modes, at_tiles = np.frombuffer(seen.params, np.int64).tolist()
    tiles = memory(at_tiles, seen.grid[0], np.int32)
    assert (np.diff(tiles) >= 0).all()
    for number in np.unique(tiles).tolist():
        output = memory(at_outputs + number * OUTPUT.itemsize, 1, OUTPUT)[0]
        blocks = np.flatnonzero(tiles == number)
        assert blocks[0] == output["first_tile"]
        left, total, i = int(output["k_tiles"]), None, int(output["first_pair"])
        while True:
            pair = memory(at_pairs + i * PAIR.itemsize, 1, PAIR)[0]
            layout = memory(at_layouts + int(pair["layout"]) * LAYOUT.itemsize, 1, LAYOUT)[0]
            groups = [
                memory(at_modes + int(layout["first"][g]) * MODE.itemsize, int(layout["count"][g]), MODE)
                for g in range(len(GROUPS))
            ]
            d = view(int(output["d"]), schedule.d, groups[:3], "d")
            if left == 0:
                break
            a = view(int(pair["a"]), schedule.a.dtype, [groups[0], groups[1], groups[3]], "a")
            b = view(int(pair["b"]), schedule.b.dtype, [groups[0], groups[2], groups[3]], "b")
            l, m, n, k = (len(g) for g in groups)
            names = iter(range(l + m + n + k))
            batch, rows, columns, summed = ([next(names) for _ in range(c)] for c in (l, m, n, k))
            product = np.einsum(a, batch + rows + summed, b, batch + columns + summed, batch + rows + columns)
            total = product if total is None else total + product
            steps = -(-int(layout["extent"][3]) // schedule.tile.shape[2])
            assert steps == pair["k_tiles"]
            left -= steps
            i += 1
            if left == 0:
                break
        extents = [int(x) for x in layout["extent"]]
        assert (output["tiles_m"], output["tiles_n"]) == tuple(
            -(-e // t) for e, t in zip(extents[1:3], schedule.tile.shape, strict=False)
        )
        assert len(blocks) == output["tiles_m"] * output["tiles_n"] * extents[0]
        d[...] = 0 if total is None else total


def view(address: int, dtype: str, groups: list[NDArray[Any]], tensor: str) -> NDArray[Any]:
    """A tensor by its modes."""
    shape = tuple(int(x["extent"]) for g in groups for x in g)
    strides = tuple(int(x["step"][tensor]) for g in groups for x in g)
    return np.lib.stride_tricks.as_strided(memory(address, 1, dtype), shape, strides, writeable=True)


@contextmanager
def table_gpu(patch: pytest.MonkeyPatch) -> Iterator[TableDriver]:
    """NumPy's arrays are on a GPU that computes by tables."""
    driver, kind, keys = TableDriver(), GpuKind(), reading._keys
    with patch.context() as m:
        for module in (launches, ragged_launch):
            m.setattr(module, "CupyHost", FakeHost)
            m.setattr(module, "load_driver", lambda: driver)
            m.setattr(module, "compile_grouped", driver.compile)
        m.setattr(reading, "_kind", lambda arrays: (kind, 0))
        m.setattr(reading, "_keys", lambda arrays, kind: keys(arrays, NUMPY))
        m.setattr(reading, "check_out", lambda out, kind, device: kind.describe(out))
        yield driver
