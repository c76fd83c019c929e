"""Grouped launches on a device: a compiled class of problems, whose tables are addresses like any tensor's."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import lru_cache

from gett.codegen.grouped import render_grouped
from gett.codegen.records import Kernel, KernelSource
from gett.errors import DeviceError, PoorKernelError
from gett.jit.compile import compile_kernel, kernel_key
from gett.jit.diskcache import kernel_cache
from gett.runtime.device import Host
from gett.runtime.driver import ERROR_INVALID_CONTEXT, DriverApi
from gett.runtime.launch import ArgumentBlock
from gett.runtime.modules import load_module
from gett.schedule.spec.grouped import GroupedSchedule


@lru_cache(maxsize=256)
def compile_grouped(schedule: GroupedSchedule) -> tuple[KernelSource, bytes]:
    """The text and the cubin of a class's kernel.

    Raises:
        CompileError: The kernel does not compile.
        MissingPackageError: NVRTC or CUDA's headers are not installed.
    """
    source = render_grouped(schedule)
    try:
        return source, compile_kernel(source, schedule.arch)
    except PoorKernelError:  # there is no other kernel of the class
        return source, compile_kernel(source, schedule.arch, allow_spills=True)


def is_cached(schedule: GroupedSchedule) -> bool:
    """Whether the cache has a class's kernel.

    Raises:
        MissingPackageError: NVRTC is not installed.
    """
    source, cache = render_grouped(schedule), kernel_cache()
    keys = (kernel_key(source, schedule.arch, allow_spills=x) for x in (False, True))
    return any(cache.get(key) is not None for key in keys)


class GroupedExecutable:
    """A launch of a class of problems, loaded on the current device. Calls are asynchronous and thread-safe.

    Args:
        kernel: The launch.
        cubin: Of its source.
        host: The array library.
        driver: The driver.
    """

    __slots__ = ("__weakref__", "_block", "_context", "_driver", "_launch", "_lock", "_module", "device", "kernel")

    def __init__(self, kernel: Kernel, cubin: bytes, host: Host, driver: DriverApi) -> None:
        self.kernel = kernel
        self.device = host.current_device()
        host.bind_context(self.device)
        self._context = driver.current_context()
        if not self._context:
            raise DeviceError(f"GPU {self.device} has no CUDA context")
        self._driver, self._launch = driver, driver.launch
        self._module = load_module(driver, self.device, cubin)
        self._module.users.add(self)
        functions = {x.entry: self._module.function(x.entry, x.smem_bytes) for x in kernel.launches}
        self._block = ArgumentBlock(driver, kernel, functions)
        for name, value in (("alpha", 1), ("beta", 0)):
            self._block.write_scalar(name, value)
        self._lock = threading.Lock()

    def run_at(self, addresses: Mapping[str, int], stream: int) -> None:
        """Launch with tables and tensors at addresses, whose device is the current one.

        Raises:
            DeviceError: The launch failed.
        """
        block = self._block
        with self._lock:
            for role, address in addresses.items():
                for word in block.pointers[role]:
                    block.words[word] = address
            for role, tensor_map in block.maps:
                tensor_map.point_at(addresses[role])
            for role, shift, place in block.moved:
                assert not isinstance(place, int)
                place.point_at(addresses[role] + shift)
            self._launch_on(stream)

    def _set_stream(self, stream: int) -> None:
        for word in self._block.streams:
            self._block.words[word] = stream

    def _launch_on(self, stream: int) -> None:
        """Launch with the arguments that are written; the lock is held."""
        self._set_stream(stream)
        for call, entry in zip(self._block.calls, self._block.entries, strict=True):
            code = self._launch(*call)
            if code == ERROR_INVALID_CONTEXT:  # a thread that had no context yet
                self._driver.set_context(self._context)
                code = self._launch(*call)
            if code:
                raise self._driver.error(code, "cuLaunchKernelEx", f"{entry}, GPU {self.device}")
