"""What the GPU at hand is, and the few things that the runtime asks of CuPy: device, stream, memory.

CuPy is imported here only, and only when asked for. Knows neither plans nor kernels. Planning without a GPU takes
`nominal_facts`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gett.errors import INSTALL_GPU, DeviceError, MissingPackageError, OutOfMemoryError
from gett.hw.archs import WORKSPACE_LIMIT, ArchFacts, arch_facts, arch_of

# Runtime attributes that device properties lost in CUDA 13 (cudaDeviceAttr in driver_types.h).
_CLOCK_KHZ, _MEMORY_CLOCK_KHZ, _BUS_BITS = 13, 36, 37
# A large copy on an H200 reaches 4.25 TB/s; its attributes (3.2 GHz, 6016 bits, two transfers a clock) say 4.81.
_COPY_SHARE = 0.883
_INSUFFICIENT_DRIVER, _NO_DEVICE = 35, 100


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One GPU as its driver reports it.

    Attributes:
        device: Device number.
        name: Product name.
        compute_capability: (major, minor).
        arch: Compilation target, e.g. `"sm_90a"`.
        sm_count: Streaming multiprocessors.
        l2_bytes: L2 cache.
        smem_per_block_optin: Most dynamic shared memory of one block, bytes.
        smem_per_sm: Shared memory of one SM, bytes.
        clock_ghz: Highest SM clock.
        dram_tbps: Estimate of what a copy reaches, TB/s, reads plus writes.
        memory_bytes: Device memory.
        workspace_limit: As in `ArchFacts`.
    """

    device: int
    name: str
    compute_capability: tuple[int, int]
    arch: str
    sm_count: int
    l2_bytes: int
    smem_per_block_optin: int
    smem_per_sm: int
    clock_ghz: float
    dram_tbps: float
    memory_bytes: int
    workspace_limit: int = WORKSPACE_LIMIT

    @property
    def planning(self) -> ArchFacts:
        """The architecture's facts with this device's counts, for the cost model.

        The clock is at most the representative GPU's: boards report a boost that matrix products do not hold.
        """
        nominal = arch_facts(self.arch)
        clock = min(self.clock_ghz, nominal.clock_ghz)
        found = nominal.resized(self.name, self.sm_count, self.l2_bytes, clock, self.dram_tbps)
        return replace(found, workspace_limit=self.workspace_limit)


nominal_facts = arch_facts


class Stream(Protocol):
    """A CuPy stream, as far as it is used."""

    ptr: int

    def is_capturing(self) -> bool:
        """Whether work goes into a graph instead of the device."""


class Memory(Protocol):
    """A piece of device memory that goes back to its pool when dropped."""

    ptr: int


class Host(Protocol):
    """What an executable needs of the array library."""

    def current_stream(self) -> Stream:
        """The calling thread's current stream on the current device."""

    def allocate(self, nbytes: int) -> Memory:
        """Device memory from the pool of the current stream."""

    def current_device(self) -> int:
        """The calling thread's device."""

    def device_count(self) -> int:
        """Number of visible devices."""

    def use_device(self, device: int) -> AbstractContextManager[Any]:
        """Switch devices within a `with` block."""

    def bind_context(self, device: int) -> None:
        """Make sure that the device's primary context exists and is current in this thread."""

    def synchronize(self) -> None:
        """Wait for all work of the current device."""


class CupyHost:
    """`Host` on CuPy."""

    def __init__(self) -> None:
        cupy = require_cupy()
        self._cuda = cupy.cuda
        self.current_stream = cupy.cuda.get_current_stream
        self.current_device = cupy.cuda.runtime.getDevice
        self.device_count = cupy.cuda.runtime.getDeviceCount
        self.use_device = cupy.cuda.Device

    def allocate(self, nbytes: int) -> Memory:
        """Memory from CuPy's current allocator; the pool reuses it in the order of the stream.

        Raises:
            OutOfMemoryError: The device has not that much left.
        """
        try:
            memory: Memory = self._cuda.alloc(nbytes)
        except MemoryError as error:
            raise OutOfMemoryError(f"no device memory for a workspace of {nbytes} bytes: {error}") from error
        return memory

    def bind_context(self, device: int) -> None:
        """Set the device, which creates its context since CUDA 12; a thread that records a graph may do so."""
        self._cuda.runtime.setDevice(device)

    def synchronize(self) -> None:
        """Wait for all work of the current device."""
        self._cuda.runtime.deviceSynchronize()


def require_cupy() -> Any:
    """The `cupy` module, with a driver and a GPU behind it.

    Raises:
        MissingPackageError: CuPy is not installed.
        DeviceError: There is no driver or no GPU.
    """
    try:
        import cupy
    except ImportError as error:
        raise MissingPackageError(
            f"running on a GPU needs CuPy, which is not installed: {INSTALL_GPU} ({error})"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(_no_device_text(error)) from error
    if not count:
        raise DeviceError("no NVIDIA GPU is visible (CUDA_VISIBLE_DEVICES hides it, or there is none)")
    return cupy


def gpu_available() -> bool:
    """Whether CuPy, a driver and at least one GPU are there."""
    try:
        require_cupy()
    except (MissingPackageError, DeviceError):
        return False
    return True


def _no_device_text(error: Exception) -> str:
    status = getattr(error, "status", None)
    if status == _INSUFFICIENT_DRIVER:
        return (
            "no NVIDIA driver was found, or it is older than CuPy's CUDA: install a newer one, or use NumPy "
            f"arrays, which need none; {INSTALL_GPU} ({error})"
        )
    if status == _NO_DEVICE:
        return f"no NVIDIA GPU is visible (CUDA_VISIBLE_DEVICES hides it, or there is none) ({error})"
    return f"the CUDA runtime cannot list the GPUs: {error}"


_facts: dict[int, DeviceFacts] = {}


def device_facts(device: int | None = None) -> DeviceFacts:
    """Facts of a GPU, read once per process.

    Args:
        device: Device number; None is the current device.

    Raises:
        MissingPackageError: CuPy is not installed.
        DeviceError: There is no driver, no GPU or no such device.
        ScheduleError: The GPU is older than Ampere, or its generation is unknown.
    """
    runtime = require_cupy().cuda.runtime
    if device is None:
        device = int(runtime.getDevice())
    if device not in _facts:
        if not 0 <= device < runtime.getDeviceCount():
            raise DeviceError(f"there is no GPU {device}; {runtime.getDeviceCount()} are visible")
        _facts[device] = read_facts(runtime, device)
    return _facts[device]


def read_facts(runtime: Any, device: int) -> DeviceFacts:
    """Read a device's properties through CuPy's runtime module."""
    properties = runtime.getDeviceProperties(device)
    name = properties["name"]
    major, minor = int(properties["major"]), int(properties["minor"])
    arch = arch_of(major, minor)
    # Two transfers a clock; virtual GPUs report zeros, then the representative GPU's rate stands.
    peak = (
        2e-9 * runtime.deviceGetAttribute(_MEMORY_CLOCK_KHZ, device) / 8 * runtime.deviceGetAttribute(_BUS_BITS, device)
    )
    clock = 1e-6 * runtime.deviceGetAttribute(_CLOCK_KHZ, device)
    nominal = arch_facts(arch)
    return DeviceFacts(
        device=device,
        name=name.decode() if isinstance(name, bytes) else str(name),
        compute_capability=(major, minor),
        arch=arch,
        sm_count=int(properties["multiProcessorCount"]),
        l2_bytes=int(properties["l2CacheSize"]),
        smem_per_block_optin=int(properties["sharedMemPerBlockOptin"]),
        smem_per_sm=int(properties["sharedMemPerMultiprocessor"]),
        clock_ghz=clock or nominal.clock_ghz,
        dram_tbps=_COPY_SHARE * peak or nominal.dram_tbps,
        memory_bytes=int(properties["totalGlobalMem"]),
    )
