"""Compilation of generated kernels to cubins with NVRTC, and the cache of the results. Needs neither CuPy nor a GPU."""

from gett.jit.cli import cache_cli
from gett.jit.compile import CompileResult, compile_kernel, compile_uncached, kernel_headers
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
    "resources",
]
