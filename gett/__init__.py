"""gett: tensor contractions on any layout, planned as GEMMs, without transposed copies.

`einsum`, `contract`, `plan`, `tensordot` and `transpose` take NumPy arrays, which NumPy's BLAS contracts, and CuPy
arrays, for which kernels are generated. Importing this package loads neither CuPy nor a driver.
"""

from gett.api import ContractionPlan, contract, einsum, plan
from gett.array_functions import tensordot, transpose
from gett.errors import (
    CompileError,
    DeviceError,
    DTypeError,
    GettError,
    KernelCacheWarning,
    LabelError,
    MissingPackageError,
    MixedArraysError,
    OptionError,
    OutOfMemoryError,
    OutputError,
    PrecisionError,
    ScheduleError,
    ShapeError,
    SubscriptsError,
)

# The functions and the cache share names with modules; these imports come after those of the modules, so they win.
from gett.plan_cache import plan_cache

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "ContractionPlan",
    "DTypeError",
    "DeviceError",
    "GettError",
    "KernelCacheWarning",
    "LabelError",
    "MissingPackageError",
    "MixedArraysError",
    "OptionError",
    "OutOfMemoryError",
    "OutputError",
    "PrecisionError",
    "ScheduleError",
    "ShapeError",
    "SubscriptsError",
    "__version__",
    "contract",
    "einsum",
    "plan",
    "plan_cache",
    "tensordot",
    "transpose",
]
