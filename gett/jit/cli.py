"""The command that shows and clears the kernel cache. Owns its text only."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gett.console.formatting import printable
from gett.jit.diskcache import KernelCacheInfo, kernel_cache


def cache_cli(argv: Sequence[str]) -> int:
    """Run `python -m gett cache` with the arguments `argv`; return the exit status."""
    import argparse  # here, as only a command needs it

    parser = argparse.ArgumentParser(prog="python -m gett cache", description="Show or clear the kernel cache on disk.")
    parser.add_argument("--clear", action="store_true", help="remove every compiled kernel")
    arguments = parser.parse_args(list(argv))
    cache = kernel_cache()
    if cache.directory is None:
        print("directory  none: kernels are kept in memory only (GETT_CACHE_DISABLE, or no home directory)")
        return 0
    if arguments.clear:
        try:
            removed = cache.clear()
        except OSError as error:
            print(f"cannot clear the kernel cache: {error}", file=sys.stderr)
            return 1
        print(f"removed {removed} {'kernel' if removed == 1 else 'kernels'} from {cache.directory}")
        return 0
    print(_describe(cache.info()))
    if cache.distrust:
        print(f"not used   {cache.distrust}")
    return 0


def _describe(info: KernelCacheInfo) -> str:
    rows = {
        "directory": printable(str(info.directory)),
        "entries": str(info.entries),
        "bytes": f"{info.bytes:,} ({info.bytes / 2**20:.1f} MiB)",
        "limit": f"{info.limit:,} ({info.limit / 2**20:.1f} MiB)",
    }
    return "\n".join(f"{label:<10} {value}" for label, value in rows.items())
