"""The launches of a list of problems on one device: tables in its memory, and what a call does with them.

Knows array kinds and executables; the tables themselves are made by `gett.groups.table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gett.arrays.kinds import ArrayKind
from gett.codegen.grouped import mode_tables, table_kernel
from gett.groups.layouts import Layout
from gett.groups.reading import Reading
from gett.groups.table import ClassTable
from gett.runtime.device import CupyHost, Host
from gett.runtime.driver import load_driver
from gett.runtime.grouped import GroupedExecutable, compile_grouped

_PLACE = 64  # bytes to whose multiples tables are moved


@dataclass(slots=True)
class _Launch:
    """One executable with the places of its tables."""

    executable: GroupedExecutable
    addresses: dict[str, int]


class Launches:
    """What makes the outputs of tables; each call launches once a class.

    Args:
        kind: Of the arrays.
        device: Where they are.
        layouts: Of all problems.
        tables: The classes.

    Raises:
        CompileError, MissingPackageError, DeviceError: There is no kernel, or no device that runs it.
    """

    def __init__(self, kind: ArrayKind, device: int, layouts: Sequence[Layout], tables: Sequence[ClassTable]) -> None:
        self._kind, self._device, self.tables = kind, device, tables
        host: Host = CupyHost()
        heads, modes = mode_tables(x.modes for x in layouts)
        fixed, places = packed([heads, modes, *(t.tiles for t in tables)])
        self._fixed = kind.from_host(fixed)
        base = kind.pointer(self._fixed)
        self._launches = []
        for number, table in enumerate(tables):
            source, cubin = compile_grouped(table.schedule)
            kernel = table_kernel(table.schedule, source, table.blocks)
            names = {"layouts": places[0], "modes": places[1], "tiles": places[2 + number]}
            addresses = {name: base + place for name, place in names.items()}
            self._launches.append(_Launch(GroupedExecutable(kernel, cubin, host, load_driver()), addresses))
        self._moving: Any = None
        host.synchronize()  # calls may be on other streams

    def point(self, reading: Reading) -> None:
        """Write the arrays' addresses into the tables on the device."""
        for table in self.tables:
            table.point(reading.a, reading.b, reading.d)
        records = [x for t in self.tables for x in (t.outputs, t.pairs)]
        moving, places = packed(records)
        self._moving = self._kind.from_host(moving)
        base = self._kind.pointer(self._moving)
        for number, launch in enumerate(self._launches):
            launch.addresses["outputs"] = base + places[2 * number]
            launch.addresses["pairs"] = base + places[2 * number + 1]

    def run(self) -> None:
        """Launch all classes on the current stream.

        Raises:
            DeviceError: A launch failed.
        """
        stream = self._kind.stream()
        for launch in self._launches:
            launch.executable.run_at(launch.addresses, stream)


def packed(tables: Sequence[NDArray[Any]]) -> tuple[NDArray[np.uint8], list[int]]:
    """Tables in one piece of memory, and where each begins."""
    ends = np.cumsum([-(-x.nbytes // _PLACE) * _PLACE for x in tables])
    places = [0, *map(int, ends[:-1])]
    memory = np.zeros(max(int(ends[-1]), _PLACE), np.uint8)
    for place, table in zip(places, tables, strict=True):
        memory[place : place + table.nbytes] = np.frombuffer(table.tobytes(), np.uint8)
    return memory, places
