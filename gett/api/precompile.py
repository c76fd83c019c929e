"""The public function `precompile`: fills the cache of kernels before there are calls, or a GPU.

Owns what may be given, and what is told of the outcome. How kernels are compiled is `gett.plans.compiling`'s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gett.api.entries import make_entry, named, naming, read_file
from gett.api.plan import plan
from gett.console.formatting import brief, count, format_seconds
from gett.errors import DeviceError, GettError, MissingPackageError, OptionError
from gett.plans.compiling import compile_parts, keys_of, settle_parts
from gett.plans.contraction_plan import ContractionPlan
from gett.typing import Optimize, Order, Precision, Size

if TYPE_CHECKING:
    from gett.runtime.device import DeviceFacts


@dataclass(frozen=True, slots=True)
class PrecompileResult:
    """What `precompile` did.

    Attributes:
        arch: The architectures that kernels are there for, such as `("sm_90a",)`.
        entries: Names of the contractions, in their order.
        compiled: Kernels that were compiled.
        cached: Kernels that the cache had.
        seconds: From the first plan to the last kernel.
    """

    arch: tuple[str, ...]
    entries: tuple[str, ...]
    compiled: int
    cached: int
    seconds: float

    @property
    def kernels(self) -> int:
        """Kernels that are in the cache now. Contractions share kernels, so there may be fewer than steps."""
        return self.compiled + self.cached

    def __str__(self) -> str:
        """The counts in one line."""
        entries, kernels = count(len(self.entries), "entry", "entries"), count(self.kernels, "kernel")
        done = f"{self.compiled} compiled, {self.cached} from the cache, in {format_seconds(self.seconds)}"
        return f"{kernels} of {entries} for {', '.join(self.arch) or 'no GPU'}: {done}"


def precompile(
    contractions: Any,
    /,
    *,
    arch: str | None = None,
    precision: Precision | None = None,
    order: Order | None = "K",
    optimize: Optimize = True,
    workspace_limit: Size | None = None,
    memory_limit: Size | float | None = None,
    processes: int | None = None,
    progress: bool | None = None,
) -> PrecompileResult:
    """Compile the kernels of contractions into the cache on disk, so that later calls find them.

    Kernels are compiled side by side, equal ones once, and each is in the cache as soon as it is compiled. If the work
    is interrupted, it goes on from there the next time. Kernels are for operands that are C-contiguous and aligned;
    for others, give plans of arrays or with `c=`, `out=` or `epilogue=`.

    Args:
        contractions: What later calls compute: the path of a JSON file, a mapping of names to entries, or a list of
            entries. An entry is a plan of `gett.plan(..., arch=...)`, a tuple `(subscripts, shapes, dtypes)`, or a
            mapping. A mapping has `"eq"`, `"shapes"`, `"dtype"` (one for all operands, or a list) and perhaps
            `"path"` (as opt_einsum has it), `"order"`, `"precision"`, `"conj"`, `"workspace_limit"` or
            `"memory_limit"`. A file has an object of names, or a list, with such mappings.
        arch: The architecture, or the name of a GPU, as for `plan`; it need not be here. By default the current GPU,
            whose choice of schedules is then remembered too. Plans have their own.
        precision: As for `plan`, where an entry does not say; so are `order`, `optimize`, `workspace_limit` and
            `memory_limit`. Plans have their own.
        order: As for `plan`.
        optimize: As for `plan`; the path of an entry comes first.
        workspace_limit: As for `plan`.
        memory_limit: As for `plan`.
        processes: Kernels that are compiled at one time; default: one for each processor.
        progress: Whether there is a progress bar beyond a second; default: where stderr is a terminal, or as
            `GETT_PROGRESS` says.

    Returns:
        How many kernels were compiled, and how many the cache had.

    Raises:
        OptionError: `arch=` is not given and there is no GPU, or is `"cpu"`; an entry has no such form, or the file
            cannot be read.
        GettError: An entry cannot be planned, as `plan` says it; then nothing is compiled. CompileError or
            ScheduleError if an entry has no kernel; then all others are in the cache. The text names the entry.
        MissingPackageError: NVRTC or CUDA's headers are not installed.

    Example:
        >>> import gett
        >>> made = gett.precompile([("ij->ji", [(512, 512)], "float16")], arch="sm_90a")
        >>> made.kernels, made.entries
        (1, ('0',))
    """
    start = time.perf_counter()
    if processes is not None and (type(processes) is not int or processes < 1):
        raise OptionError(f"processes={brief(processes)}; it must be at least 1")
    given = _by_name(contractions)
    device = None
    if arch is None and not all(isinstance(x, ContractionPlan) for x in given.values()):
        device = _present()
    options = {
        "precision": precision, "order": order, "optimize": optimize, "workspace_limit": workspace_limit,
        "memory_limit": memory_limit,
    }  # fmt: skip
    plans: dict[str, ContractionPlan] = {}
    for name, x in given.items():
        plans[name] = x if isinstance(x, ContractionPlan) else _plan(name, x, device.arch if device else arch, options)
        if plans[name].arch == "cpu":
            raise OptionError(f"entry {brief(name)}: arch='cpu' has no kernels to compile; give arch= of a GPU")
    own = {name: p for name, p in plans.items() if p is not given[name]}
    groups = [(plans, None)] if device is None else [(own, device), (_without(plans, own), None)]
    compiled = cached = 0
    for group, place in groups:
        counts = _compile(group, place, processes, progress)
        compiled, cached = compiled + counts[0], cached + counts[1]
    archs = tuple(dict.fromkeys(p.arch for p in plans.values()))
    return PrecompileResult(archs, tuple(plans), compiled, cached, time.perf_counter() - start)


def _by_name(contractions: Any) -> dict[str, Any]:
    """Entries by name; those of a list have their numbers."""
    if isinstance(contractions, str | os.PathLike):
        return read_file(contractions)
    if isinstance(contractions, ContractionPlan):
        return {"0": contractions}
    if isinstance(contractions, Mapping):
        return {str(name): x for name, x in contractions.items()}
    if not isinstance(contractions, Iterable):
        raise OptionError(f"precompile takes a file, a mapping or a list of contractions, not {brief(contractions)}")
    return {str(i): x for i, x in enumerate(contractions)}


def _plan(name: str, given: Any, arch: str | None, options: Mapping[str, Any]) -> ContractionPlan:
    entry = make_entry(name, given)
    with naming(name):
        return plan(entry.subscripts, *entry.operands, arch=arch, **{**options, **entry.options})


def _without(plans: Mapping[str, ContractionPlan], some: Mapping[str, Any]) -> dict[str, ContractionPlan]:
    return {name: p for name, p in plans.items() if name not in some}


def _present() -> DeviceFacts:
    """The current GPU.

    Raises:
        OptionError: There is none.
    """
    from gett.runtime.device import device_facts

    try:
        return device_facts()
    except (MissingPackageError, DeviceError) as error:
        raise OptionError(f"arch= must be given, such as arch='sm_90a', since there is no GPU here: {error}") from error


def _compile(
    plans: Mapping[str, ContractionPlan], device: DeviceFacts | None, processes: int | None, progress: bool | None
) -> tuple[int, int]:
    """How many kernels of some plans were compiled, and how many the cache had.

    Raises:
        GettError: An entry has no kernel; all others are compiled.
    """
    from gett.runtime.compiled import compiled_and_found

    # A plan of arrays on a GPU has its kernels.
    parts = {name: [x for x in p.parts if x.request.device is None] for name, p in plans.items()}
    made = compile_parts(
        [x for some in parts.values() for x in some], device, keep_going=True, shown=progress, processes=processes
    )
    for name, some in parts.items():
        for error in (made.get(key) for x in some for key in keys_of(x)):
            if isinstance(error, MissingPackageError):
                raise error
            if isinstance(error, GettError):
                raise named(error, name) from error
    for name, p in plans.items():
        with naming(name):
            settle_parts([x for x in parts[name] if not x.settled], made)
            p.compile()
    return compiled_and_found([x for x in made.values() if not isinstance(x, GettError)])
