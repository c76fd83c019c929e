"""Launches that make several small steps of a network, on the current device.

Owns the tables of their modes in the device's memory. Addresses of tensors are in the launch's argument.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from gett.codegen.grouped import groups_of, listed_kernel, mode_tables
from gett.ir.gemm import GemmPlan
from gett.runtime.device import CupyHost, Host
from gett.runtime.driver import Driver, load_driver
from gett.runtime.executable import Addresses
from gett.runtime.grouped import GroupedExecutable, compile_grouped
from gett.schedule.spec.grouped import GroupedSchedule


class Tables:
    """The layouts of problems and their modes in the memory of the current device, for as long as this lives."""

    def __init__(self, gemms: Sequence[GemmPlan], host: Host, driver: Driver) -> None:
        """Copy the tables of all products; those of equal signature have one layout.

        Raises:
            DeviceError, OutOfMemoryError: The device does not take them.
        """
        distinct = {g.signature: g for g in gemms}
        self.numbers = {name: i for i, name in enumerate(distinct)}
        layouts, modes = mode_tables(map(groups_of, distinct.values()))
        data = layouts.tobytes() + modes.tobytes()
        self._memory = host.allocate(max(len(data), 1))
        self.layouts, self.modes = self._memory.ptr, self._memory.ptr + layouts.nbytes
        host.synchronize()  # what had the memory before may still be used on any stream
        code = driver.function("cuMemcpyHtoD_v2")(
            ctypes.c_uint64(self._memory.ptr), ctypes.c_char_p(data), ctypes.c_size_t(len(data))
        )
        if code:
            raise driver.error(code, "cuMemcpyHtoD_v2", f"{len(data)} bytes of tables")
        host.synchronize()


class TogetherExecutable(GroupedExecutable):
    """One launch of several steps. Calls are asynchronous and thread-safe.

    Attributes:
        device: Device number; operands live there.
        kernel: The launch.
        workspace_bytes: 0: it takes no memory.
        measured: None: it is not measured.
    """

    __slots__ = ("_check_device", "_host", "_places", "_tables")

    workspace_bytes = 0
    measured = None

    def __init__(
        self, schedule: GroupedSchedule, gemms: Sequence[GemmPlan], tables: Tables, host: Host, driver: Driver
    ) -> None:
        """Load the kernel.

        Raises:
            CompileError, MissingPackageError, DeviceError: There is none, or no device that runs it.
        """
        source, cubin = compile_grouped(schedule)
        problems = [(tables.numbers[g.signature], (g.extent_l, g.extent_m, g.extent_n)) for g in gemms]
        super().__init__(listed_kernel(schedule, source, problems), cubin, host, driver)
        self._tables, self._host = tables, host  # the tables live as long as this does
        self._check_device = host.device_count() > 1
        block = self._block
        for role, address in (("layouts", tables.layouts), ("modes", tables.modes)):
            for word in block.pointers[role]:
                block.words[word] = address
        # The words of each step's addresses, in the order in which a call has them: a, b, d.
        roles = ("bad" if g.swapped else "abd" for g in gemms)
        self._places = tuple(tuple(block.pointers[f"{x}{i}"][0] for x in role) for i, role in enumerate(roles))

    def run_together(self, addresses: Sequence[Addresses], stream: int) -> None:
        """Launch with tensors at addresses: a, b, c and d of each step, of which c counts for nothing.

        Raises:
            DeviceError: The launch failed.
        """
        if self._check_device and self._host.current_device() != self.device:
            with self._host.use_device(self.device):
                return self._start(addresses, stream)
        return self._start(addresses, stream)

    def _start(self, addresses: Sequence[Addresses], stream: int) -> None:
        with self._lock:
            self._fill(addresses)
            self._launch_on(stream)

    def record(self, recorder: Any, addresses: Sequence[Addresses]) -> int:
        """Launch into a graph; how many launches that are, which is one.

        Raises:
            DeviceError: The launch failed.
        """
        with self._lock:
            self._fill(addresses)
            self._set_stream(recorder.stream)
            recorder.launch(self._block.calls[0], f"{self._block.entries[0]}, GPU {self.device}")
        return 1

    def change(self, graph: Any, numbers: Sequence[int], addresses: Sequence[Addresses]) -> bool:
        """Give the launch of a `gett.runtime.graphs.LaunchGraph` other addresses; whether the driver took them."""
        with self._lock:
            self._fill(addresses)
            return not any(graph.change(number) for number in numbers)

    def _fill(self, addresses: Sequence[Addresses]) -> None:
        """Write the addresses; the lock is held."""
        words = self._block.words
        for (first, second, result), (a, b, _, d) in zip(self._places, addresses, strict=True):
            words[first], words[second], words[result] = a, b, d


def build_together(
    launches: Mapping[int, tuple[GroupedSchedule, Sequence[GemmPlan]]],
) -> dict[int, TogetherExecutable]:
    """The launches of products that are made together, by number, on the current device.

    Raises:
        CompileError, MissingPackageError, DeviceError, OutOfMemoryError: There is no kernel, or no device that runs it.
    """
    host, driver = CupyHost(), load_driver()
    host.bind_context(host.current_device())
    tables = Tables([gemm for _, gemms in launches.values() for gemm in gemms], host, driver)
    return {
        number: TogetherExecutable(schedule, gemms, tables, host, driver)
        for number, (schedule, gemms) in launches.items()
    }
