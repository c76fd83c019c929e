"""The public function `precompile`: fills the cache of kernels before there are calls, or a GPU.

Owns what may be given, and what is told of the outcome. How kernels are compiled is `gett.plans.compiling`'s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gett.api.entries import make_entry, named, naming, read_file
from gett.api.plan import meant_arch, plan
from gett.console.formatting import brief, count, format_seconds
from gett.errors import DeviceError, DTypeError, GettError, MissingPackageError, OptionError
from gett.hw.dtypes import DTYPES
from gett.ir.tensors import parse_dtype, resolve_precision
from gett.plans.compiling import cached_among, compile_parts, compile_shared, keys_of, settle_parts
from gett.plans.contraction_plan import ContractionPlan
from gett.typing import Optimize, Order, Precision, Size

if TYPE_CHECKING:
    from gett.runtime.device import DeviceFacts
    from gett.schedule.spec.grouped import GroupedSchedule

_NO_GPU = "arch='cpu' has no kernels to compile; give arch= of a GPU"


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
        entries = f" of {count(len(self.entries), 'entry', 'entries')}" if self.entries else ""
        done = f"{self.compiled} compiled, {self.cached} from the cache, in {format_seconds(self.seconds)}"
        return f"{count(self.kernels, 'kernel')}{entries} for {', '.join(self.arch) or 'no GPU'}: {done}"


def precompile(
    contractions: Any = (),
    /,
    *,
    shared: Sequence[Any] = (),
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
        shared: dtypes whose shared kernels are compiled, too: two of each, on which networks of any extents run until
            their own are compiled.
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
        DTypeError: `shared=` has a dtype that no shared kernel multiplies.
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
    if arch is None and (shared or not all(isinstance(x, ContractionPlan) for x in given.values())):
        device = _present()
    of_dtypes = _shared(shared, device.arch if device else arch, precision)
    options = {
        "precision": precision, "order": order, "optimize": optimize, "workspace_limit": workspace_limit,
        "memory_limit": memory_limit,
    }  # fmt: skip
    plans: dict[str, ContractionPlan] = {}
    for name, x in given.items():
        plans[name] = x if isinstance(x, ContractionPlan) else _plan(name, x, device.arch if device else arch, options)
        if plans[name].arch == "cpu":
            raise OptionError(f"entry {brief(name)}: {_NO_GPU}")
    own = {name: p for name, p in plans.items() if p is not given[name]}
    groups = [(plans, None)] if device is None else [(own, device), (_without(plans, own), None)]
    compiled = cached = 0
    for group, place in groups:
        counts = _compile(group, place, processes, progress)
        compiled, cached = compiled + counts[0], cached + counts[1]
    counts = compile_shared(of_dtypes, processes)
    compiled, cached = compiled + counts[0], cached + counts[1]
    archs = tuple(dict.fromkeys([*(p.arch for p in plans.values()), *(x.arch for x in of_dtypes)]))
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


def _shared(dtypes: Sequence[Any], arch: str | None, precision: Precision | None) -> list[GroupedSchedule]:
    """The shared kernels of dtypes.

    Raises:
        DTypeError, PrecisionError: There is no such kernel.
        OptionError: `dtypes` is no list, or the architecture no GPU's.
    """
    if isinstance(dtypes, str | bytes) or not isinstance(dtypes, Iterable):
        raise OptionError(f"shared={brief(dtypes)} is no list of dtypes")
    wanted = [*map(parse_dtype, dtypes)]
    if not wanted:
        return []
    if (name := meant_arch(arch)) == "cpu":
        raise OptionError(_NO_GPU)
    if wrong := [x for x in wanted if x.name not in DTYPES]:
        raise DTypeError(f"shared= has {wrong[0]}, which no kernel multiplies")
    from gett.schedule.grouped import shared_schedules  # late: plans of NumPy arrays have none

    return [s for x in wanted for s in shared_schedules(x.name, resolve_precision(precision, x), name)]


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
    keys = dict.fromkeys(key for some in parts.values() for x in some for key in keys_of(x))
    together = cached_among(key for key in keys if not isinstance(key, tuple))
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
    compiled, cached = compiled_and_found([x for x in made.values() if not isinstance(x, GettError)])
    return compiled + together[0], cached + together[1]
