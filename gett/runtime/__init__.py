"""Running compiled plans: the driver, device facts, launches, executables. CuPy is imported only on use."""

from gett.runtime.build import build_executable
from gett.runtime.device import DeviceFacts, device_facts, gpu_available, nominal_facts
from gett.runtime.executable import GpuExecutable
from gett.runtime.modules import release_modules

__all__ = [
    "DeviceFacts",
    "GpuExecutable",
    "build_executable",
    "device_facts",
    "gpu_available",
    "nominal_facts",
    "release_modules",
]
