"""Cubins that are loaded on a device: each once, for all executables that use it, until nobody does.

Knows handles and shares of an SM's memory, no plans and no arguments.
"""

from __future__ import annotations

import threading
import weakref

from gett.codegen.records import Launch
from gett.hw.archs import ArchFacts
from gett.runtime.carveout import carveout
from gett.runtime.device import CupyHost, Host
from gett.runtime.driver import (
    ATTRIBUTE_MAX_DYNAMIC_SMEM,
    ATTRIBUTE_REGISTERS,
    ATTRIBUTE_SHARED_BYTES,
    ATTRIBUTE_SMEM_CARVEOUT,
    DriverApi,
)

_DEFAULT_SMEM = 48 * 1024  # what a block gets without opting in, static and dynamic together


class LoadedModule:
    """A cubin in a device's context. Functions are found once; what shared memory they may have only ever grows.

    Two executables may share a kernel and differ in shared memory, and limit and carveout belong to the kernel.
    """

    def __init__(self, driver: DriverApi, cubin: bytes) -> None:
        self.driver = driver
        self.handle = driver.load_module(cubin)
        self.users: weakref.WeakSet[object] = weakref.WeakSet()
        self._functions: dict[str, int] = {}
        self._smem: dict[str, int] = {}
        self._carveouts: dict[str, int] = {}
        self._lock = threading.Lock()

    def function(self, name: str, smem_bytes: int) -> int:
        """The handle of a kernel that may be launched with `smem_bytes` of dynamic shared memory.

        Raises:
            DeviceError: No such kernel, or the device has not that much shared memory.
        """
        with self._lock:
            if name not in self._functions:
                handle = self.driver.get_function(self.handle, name)
                static = self.driver.get_function_attribute(handle, ATTRIBUTE_SHARED_BYTES)
                self._functions[name], self._smem[name] = handle, _DEFAULT_SMEM - static
            handle = self._functions[name]
            if smem_bytes > self._smem[name]:
                what = f"kernel {name!r} asks for {smem_bytes} bytes of dynamic shared memory"
                self.driver.set_function_attribute(handle, ATTRIBUTE_MAX_DYNAMIC_SMEM, smem_bytes, what)
                self._smem[name] = smem_bytes
            return handle

    def divide(self, launch: Launch, facts: ArchFacts) -> None:
        """Have a launch's kernel share an SM's memory with the first cache as its copies need (`carveout`)."""
        if not launch.cache_bytes:
            return
        with self._lock:
            handle = self._functions[launch.entry]
            wanted = carveout(launch, self.driver.get_function_attribute(handle, ATTRIBUTE_REGISTERS), facts)
            if wanted > self._carveouts.get(launch.entry, 0):
                what = f"kernel {launch.entry!r} prefers {wanted} % of shared memory"
                self.driver.set_function_attribute(handle, ATTRIBUTE_SMEM_CARVEOUT, wanted, what)
                self._carveouts[launch.entry] = wanted


_modules: dict[tuple[int, bytes], LoadedModule] = {}
_modules_lock = threading.Lock()


def load_module(driver: DriverApi, device: int, cubin: bytes) -> LoadedModule:
    """The module of a cubin on a device; the device's context must be current.

    Modules stay loaded when their executables go, since kernels may still be running; see `release_modules`.
    """
    with _modules_lock:
        module = _modules.get((device, cubin))
        if module is None:
            module = _modules[device, cubin] = LoadedModule(driver, cubin)
        return module


def release_modules(host: Host | None = None) -> int:
    """Unload the modules that no executable uses any more; waits for their devices. Returns how many.

    Not to be called while a graph that was captured from a dropped executable is still to be replayed.
    """
    with _modules_lock:
        unused = [key for key, module in _modules.items() if not module.users]
        if unused:
            host = host or CupyHost()
        for key in unused:
            assert host is not None
            with host.use_device(key[0]):
                host.synchronize()
                module = _modules.pop(key)
                module.driver.unload_module(module.handle)
        return len(unused)
