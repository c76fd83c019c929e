"""gett: tensor contractions on any layout, planned as GEMMs, without transposed copies.

`einsum`, `contract`, `plan`, `tensordot` and `transpose` take NumPy arrays, which NumPy's BLAS contracts, and CuPy
arrays, PyTorch tensors and other arrays on a GPU, for which kernels are generated. Importing this package loads neither
CuPy nor PyTorch nor a driver.

What `dir(gett)` lists is public, and so are the types in `gett.typing`; the other modules and packages are internal.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gett.api.contract import contract
from gett.api.einsum import einsum
from gett.api.plan import plan
from gett.api.tensordot import tensordot, transpose
from gett.errors import (
    CompileError,
    DeviceError,
    DistributedError,
    DTypeError,
    EpilogueError,
    GettError,
    GradientError,
    KernelCacheWarning,
    LabelError,
    MissingPackageError,
    MixedArraysError,
    OperandError,
    OptionError,
    OutOfMemoryError,
    OutputError,
    PathError,
    PrecisionError,
    ScheduleError,
    ShapeError,
    SubscriptsError,
    TuneWarning,
)
from gett.plans.contraction_plan import ContractionPlan
from gett.plans.plan_cache import plan_cache
from gett.plans.precision import precision, set_default_precision
from gett.version import __version__

if TYPE_CHECKING:
    from gett.api.autotune import TuneResult, autotune
    from gett.api.expression import contract_expression
    from gett.api.grouped import grouped, plan_grouped, ragged
    from gett.api.paths import contract_path, einsum_path
    from gett.api.precompile import PrecompileResult, precompile
    from gett.epilogue import ops
    from gett.groups.plan import GroupedPlan
    from gett.plans.plan_graph import PlanGraph
    from gett.slices.sharded import Sharded

__all__ = [
    "CompileError",
    "ContractionPlan",
    "DTypeError",
    "DeviceError",
    "DistributedError",
    "EpilogueError",
    "GettError",
    "GradientError",
    "GroupedPlan",
    "KernelCacheWarning",
    "LabelError",
    "MissingPackageError",
    "MixedArraysError",
    "OperandError",
    "OptionError",
    "OutOfMemoryError",
    "OutputError",
    "PathError",
    "PlanGraph",
    "PrecisionError",
    "PrecompileResult",
    "ScheduleError",
    "ShapeError",
    "Sharded",
    "SubscriptsError",
    "TuneResult",
    "TuneWarning",
    "__version__",
    "autotune",
    "contract",
    "contract_expression",
    "contract_path",
    "einsum",
    "einsum_path",
    "grouped",
    "ops",
    "plan",
    "plan_cache",
    "plan_grouped",
    "precision",
    "precompile",
    "ragged",
    "set_default_precision",
    "tensordot",
    "transpose",
]


# What most programs need late or never, by module; the autotuner brings the runtime and the store with it.
_LATE = {
    "GroupedPlan": "gett.groups.plan",
    "PlanGraph": "gett.plans.plan_graph",
    "PrecompileResult": "gett.api.precompile",
    "Sharded": "gett.slices.sharded",
    "TuneResult": "gett.api.autotune",
    "autotune": "gett.api.autotune",
    "contract_expression": "gett.api.expression",
    "contract_path": "gett.api.paths",
    "einsum_path": "gett.api.paths",
    "grouped": "gett.api.grouped",
    "plan_grouped": "gett.api.grouped",
    "precompile": "gett.api.precompile",
    "ragged": "gett.api.grouped",
}


def __getattr__(name: str) -> Any:
    if name == "ops":
        return import_module("gett.epilogue.ops")
    if name in ("cotengra", "distributed", "jax"):  # whose libraries are imported where they are asked for
        return import_module(f"gett.{name}")
    if name not in _LATE:
        from gett.api.backend import find_function

        found = find_function(name)  # what autoray asks of a backend
        if found is not None:
            return found
        raise AttributeError(f"module 'gett' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)  # what is there to use; the modules and what they import are not
