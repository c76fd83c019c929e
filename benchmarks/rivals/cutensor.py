"""The rival on the shelf: cuTENSOR through CuPy's low-level bindings, with plans that are made once.

CuPy's own `cupyx.cutensor.contraction` promises only the item size as alignment and asks for workspace at each call;
both may slow cuTENSOR down, so descriptors are made here. Knows nothing of gett's planner or kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.rivals.ttgt import split_subscripts
from gett.errors import DTypeError, MissingPackageError, OptionError, PrecisionError
from gett.hw.tensor_types import PLANES

# cutensorAlgo_t
ALGORITHMS = {"DEFAULT": -1, "PATIENT": -6, "GETT": -4, "TGETT": -3, "TTGT": -2}

# dtype -> (data type, compute descriptor, scalar type)
_TYPES = {
    "float16": ("R_16F", "COMPUTE_DESC_32F", "float32"),
    "bfloat16": ("R_16BF", "COMPUTE_DESC_32F", "float32"),
    "float32": ("R_32F", "COMPUTE_DESC_32F", "float32"),
    "float64": ("R_64F", "COMPUTE_DESC_64F", "float64"),
    "complex64": ("C_32F", "COMPUTE_DESC_32F", "complex64"),
    "complex128": ("C_64F", "COMPUTE_DESC_64F", "complex128"),
}
_SINGLE, _DOUBLE = ("float32", "complex64"), ("float64", "complex128")
# precision -> (compute descriptor, the dtypes that it applies to)
_PRECISIONS = {
    "tf32": ("COMPUTE_DESC_TF32", _SINGLE),
    "3xtf32": ("COMPUTE_DESC_3xTF32", _SINGLE),
    "9x16bf": ("COMPUTE_DESC_9X16BF", _SINGLE),
    "8xint8": ("COMPUTE_DESC_8XINT8", _DOUBLE),
}

EMULATIONS = {"3xtf32": _SINGLE, "9x16bf": _SINGLE, "8xint8": _DOUBLE}
"""Ways to form products of about a dtype's own precision from narrower ones, and the dtypes that have them."""


def load_cutensor() -> ModuleType:
    """CuPy's cuTENSOR bindings.

    CuPy 14's extension needs `libcutensorMg.so.2` beside `libcutensor.so.2` but only looks for the latter; where the
    import fails, both are loaded first from the wheel.

    Raises:
        MissingPackageError: CuPy or cuTENSOR is not installed, or a library that it needs is missing.
    """
    name = "cupy_backends.cuda.libs.cutensor"
    try:
        importlib.import_module("cupy")
    except ImportError as error:
        raise MissingPackageError(f"cuTENSOR is called through CuPy: pip install cupy-cuda13x ({error})") from error
    try:
        return importlib.import_module(name)
    except ImportError:
        _preload()
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"cuTENSOR cannot be loaded ({error}): pip install cutensor-cu13 (2.8.1, or 2.4.1; 2.8.0 lacks "
            "libcutensorMg) and nvidia-cublas, or put their libraries on LD_LIBRARY_PATH"
        ) from error


def _preload() -> None:
    """Load both libraries of the wheel; what cannot be loaded is left to the import's own message."""
    with contextlib.suppress(Exception):
        pathfinder = importlib.import_module("cuda.pathfinder")
        for library in ("cublasLt", "cutensor", "cutensorMg"):
            with contextlib.suppress(Exception):
                pathfinder.load_nvidia_dynamic_lib(library)
    for folder in (Path(p) / "cutensor" / "lib" for p in sys.path if p):
        for library in ("libcutensor.so.2", "libcutensorMg.so.2"):
            if (folder / library).is_file():
                with contextlib.suppress(OSError):
                    ctypes.CDLL(str(folder / library), mode=ctypes.RTLD_GLOBAL)


class CuTensor:
    """The library with one handle, on CuPy's current device.

    Raises:
        MissingPackageError: CuPy or cuTENSOR is not installed.
    """

    def __init__(self) -> None:
        self.lib: Any = load_cutensor()
        self.handle = int(self.lib.create())
        self.version = int(self.lib.get_version())
        self._finalizer = weakref.finalize(self, self.lib.destroy, self.handle)

    def plan(
        self,
        subscripts: str,
        a: Any,
        b: Any,
        d: Any,
        *,
        algorithm: str = "DEFAULT",
        precision: str | None = None,
        alignment: int = 128,
        dtype: str | None = None,
    ) -> CuTensorPlan:
        """Plan `D = A * B`.

        Args:
            subscripts: Explicit two-operand string, e.g. `"akb,jk->jba"`.
            a: CuPy array that stands for all first operands: shape, strides and dtype are taken from it.
            b: Likewise the second operand.
            d: Likewise the result.
            algorithm: A key of `ALGORITHMS`.
            precision: `"tf32"` or a key of `EMULATIONS`; None and `"ieee"` compute in the operands' own precision
                (fp16: in fp32).
            alignment: Bytes to which every pointer is promised to be aligned.
            dtype: What the elements are; by default what the arrays say. `"bfloat16"`, which CuPy lacks, may lie in
                arrays of 16-bit integers.

        Raises:
            OptionError: The algorithm is unknown, or an array is aligned to less than promised.
            DTypeError: The dtype is not one that cuTENSOR contracts through CuPy.
            PrecisionError: The precision is unknown or does not apply to the dtype.
        """
        return CuTensorPlan(self, subscripts, (a, b, d), algorithm, precision, alignment, dtype)


class CuTensorPlan:
    """A contraction with its workspace, ready to run; made by `CuTensor.plan`."""

    def __init__(
        self,
        owner: CuTensor,
        subscripts: str,
        tensors: tuple[Any, Any, Any],
        algorithm: str,
        precision: str | None,
        alignment: int,
        dtype: str | None,
    ) -> None:
        if algorithm not in ALGORITHMS:
            raise OptionError(f"cuTENSOR has no algorithm {algorithm!r}; choose one of {', '.join(ALGORITHMS)}")
        lib, handle = owner.lib, owner.handle
        dtype = dtype or str(tensors[2].dtype)
        data_type, compute, scalar = _describe(dtype, precision)
        self._owner = owner  # the handle must outlive the plan
        self._alignment = alignment
        self._one, self._zero = np.ones((), scalar), np.zeros((), scalar)
        self._keep: list[np.ndarray] = []
        with contextlib.ExitStack() as undo:
            described: list[tuple[int, int]] = []
            for name, modes, x in zip("ABD", split_subscripts(subscripts), tensors, strict=True):
                self._check(name, x)
                extent = np.array(x.shape, np.int64)
                stride = np.array(x.strides, np.int64) // x.itemsize
                labels = np.array([ord(m) for m in modes], np.int32)
                self._keep += [extent, stride, labels]
                tensor = lib.createTensorDescriptor(
                    handle, x.ndim, extent.ctypes.data, stride.ctypes.data, getattr(lib, data_type), alignment
                )
                undo.callback(lib.destroyTensorDescriptor, tensor)
                described.append((tensor, labels.ctypes.data))
            (ta, la), (tb, lb), (td, ld) = described
            same = lib.OP_IDENTITY
            operation = lib.createContraction(
                handle, ta, la, same, tb, lb, same, td, ld, same, td, ld, _descriptor(lib, compute)
            )
            undo.callback(lib.destroyOperationDescriptor, operation)
            preference = lib.createPlanPreference(handle, ALGORITHMS[algorithm], lib.JIT_MODE_NONE)
            undo.callback(lib.destroyPlanPreference, preference)
            self.workspace_bytes = int(
                lib.estimateWorkspaceSize(handle, operation, preference, lib.WORKSPACE_RECOMMENDED)
            )
            self._plan = int(lib.createPlan(handle, operation, preference, self.workspace_bytes))
            keep = undo.pop_all()  # cuTENSOR does not say that a plan copies its descriptors: they live as long
        self._finalizer = weakref.finalize(self, _destroy, lib, self._plan, keep)
        import cupy

        self._workspace = cupy.empty(self.workspace_bytes, "int8") if self.workspace_bytes else None

    def _check(self, name: str, x: Any) -> None:
        if x.data.ptr % self._alignment:
            raise OptionError(f"operand {name} is not aligned to the {self._alignment} bytes that were promised")

    def __call__(self, a: Any, b: Any, out: Any) -> Any:
        """Contract `a` and `b` into `out` on CuPy's current stream and return it.

        The arrays must have the shapes, strides, dtype and alignment that the plan was made for; this is not checked.
        """
        d = out.data.ptr
        owner, ws = self._owner, self._workspace
        owner.lib.contract(
            owner.handle,
            self._plan,
            self._one.ctypes.data,
            a.data.ptr,
            b.data.ptr,
            self._zero.ctypes.data,
            d,
            d,
            0 if ws is None else ws.data.ptr,
            self.workspace_bytes,
        )
        return out


def _describe(dtype: str, precision: str | None) -> tuple[str, str, str]:
    if dtype not in _TYPES:
        raise DTypeError(f"cuTENSOR through CuPy contracts {', '.join(_TYPES)}, not {dtype}")
    data_type, compute, scalar = _TYPES[dtype]
    if precision in _PRECISIONS:
        compute, dtypes = _PRECISIONS[precision]
        if dtype not in dtypes:
            raise PrecisionError(f"precision {precision!r} applies to {' and '.join(dtypes)}, not to {dtype}")
    elif precision not in (None, "ieee", *PLANES):  # as accurate as its float32
        raise PrecisionError(
            f"cuTENSOR has no precision {precision!r} here; choose from ieee, {', '.join(_PRECISIONS)}"
        )
    return data_type, compute, scalar


def _descriptor(lib: Any, name: str) -> int:
    """The address of a compute descriptor: CuPy's bindings have some, the library that they loaded has all.

    Raises:
        PrecisionError: This version of cuTENSOR lacks it.
    """
    if hasattr(lib, name):
        return int(getattr(lib, name))
    try:
        return int(ctypes.c_void_p.in_dll(ctypes.CDLL("libcutensor.so.2"), f"CUTENSOR_{name}").value or 0)
    except (OSError, ValueError) as error:
        raise PrecisionError(f"this cuTENSOR has no {name}: {error}") from error


def _destroy(lib: Any, plan: int, descriptors: contextlib.ExitStack) -> None:
    lib.destroyPlan(plan)
    descriptors.close()
