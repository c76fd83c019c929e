"""`python -m gett precompile`: compile kernels of contractions or dtypes into the cache on disk. Runs nothing."""

from __future__ import annotations

import gett
from gett.console.formatting import printable
from gett.errors import OptionError
from gett.jit.diskcache import kernel_cache
from gett.typing import Precision


def run_precompile(
    file: str | None,
    arch: str | None,
    *,
    shared: str = "",
    precision: Precision | None = None,
    workspace_limit: str | None = None,
    memory_limit: str | None = None,
    processes: int | None = None,
) -> int:
    """Fill the cache and print what was done; returns the exit code.

    Args:
        file: Path of the JSON file, if there is one.
        arch: As `gett.precompile` takes it, and so is what follows.
        shared: dtypes, separated by commas.
        precision: For entries that do not say; so are the limits.
        workspace_limit: Such as `"256MiB"`.
        memory_limit: Such as `"40GiB"`.
        processes: Kernels that are compiled at one time.

    Raises:
        OptionError: There is no cache on disk that would keep the kernels, or nothing to compile.
    """
    if file is None and not shared:
        raise OptionError("precompile takes a file of contractions, or --shared with dtypes")
    cache = kernel_cache()
    if cache.directory is None:
        raise OptionError("there is no cache on disk to fill: GETT_CACHE_DISABLE is set, or there is no home directory")
    if cache.distrust:
        raise OptionError(f"the cache in {cache.directory} would not be used, since {cache.distrust}")
    done = gett.precompile(
        () if file is None else file, shared=[x for x in shared.split(",") if x], arch=arch, precision=precision,
        workspace_limit=workspace_limit, memory_limit=memory_limit, processes=processes,
    )  # fmt: skip
    print(done)
    print(f"cache: {printable(str(cache.directory))}")
    return 0
