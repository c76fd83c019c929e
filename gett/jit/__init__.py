"""Compilation of generated kernels to cubins with NVRTC, and the cache of the results. Needs neither CuPy nor a GPU.

The modules load when a name is first used: a kernel that comes from the cache must not wait for the compiler's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gett.jit.cli import cache_cli
    from gett.jit.compile import CompileResult, compile_kernel, compile_uncached, kernel_headers, kernel_key
    from gett.jit.diskcache import KernelCache, KernelCacheInfo, kernel_cache
    from gett.jit.elf import Resources, resources

__all__ = [
    "CompileResult",
    "KernelCache",
    "KernelCacheInfo",
    "Resources",
    "cache_cli",
    "compile_kernel",
    "compile_uncached",
    "kernel_cache",
    "kernel_headers",
    "kernel_key",
    "resources",
]

_HOME = {
    **dict.fromkeys(("CompileResult", "compile_kernel", "compile_uncached", "kernel_headers", "kernel_key"), "compile"),
    **dict.fromkeys(("KernelCache", "KernelCacheInfo", "kernel_cache"), "diskcache"),
    **dict.fromkeys(("Resources", "resources"), "elf"),
    "cache_cli": "cli",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
