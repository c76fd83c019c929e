"""Every error and warning that gett raises for what a user can cause.

Each error is a `GettError` and also the built-in that NumPy would raise in its place: handlers keep working.
"""

from __future__ import annotations

from gett.console.formatting import printable

INSTALL_GPU = 'in a clone of gett, pip install ".[cuda13]" (".[cuda12]" for a driver of CUDA 12)'
"""How to install what a GPU needs; messages end in it."""


class GettError(Exception):
    """Base of all errors of this package. The text can be written to a terminal, whatever the user's labels are."""

    def __str__(self) -> str:
        return printable(super().__str__())


class SubscriptsError(GettError, ValueError):
    """The subscripts are malformed or do not fit the number of operands or their ranks."""


class LabelError(SubscriptsError, TypeError):
    """A label list of the interleaved form is not a list of hashable labels."""


class ShapeError(GettError, ValueError):
    """Extents disagree; the text names the mode, the operands and both extents."""


class DTypeError(GettError, TypeError):
    """A dtype is unsupported, or a cast is not allowed by `casting=`."""


class OperandError(DTypeError, ShapeError):
    """An operand is no array and cannot become one: a ragged list, a sparse matrix, any other object."""


class MixedArraysError(GettError, TypeError):
    """Operands live in different places: arrays of two libraries, or two devices."""


class GradientError(GettError, RuntimeError):
    """Derivatives are recorded of what has none: `out=`, integers, constants, several devices."""


class OutputError(GettError, ValueError):
    """`out=` has the wrong shape, dtype or kind, is read-only, or elements of it overlap each other."""


class PrecisionError(GettError, ValueError):
    """`precision=` is unknown, or does not apply to the operands' dtype."""


class OptionError(GettError, ValueError):
    """Another option has a value that it does not take."""


class EpilogueError(GettError, ValueError, TypeError):
    """`epilogue=` does what an epilogue cannot, or `epilogue_args=` do not fit; the text names which."""


class PathError(OptionError, RuntimeError):
    """The contraction path of `optimize=` leaves tensors uncontracted."""


class ScheduleError(GettError, ValueError):
    """No kernel schedule meets the hard limits; the text names the limit."""


class CompileError(GettError, RuntimeError):
    """The CUDA compiler rejected a kernel, spilled registers, or serialised tensor-core instructions."""


class PoorKernelError(CompileError):
    """A kernel compiles, but spills registers or serialises its tensor-core instructions."""


class SpillError(PoorKernelError):
    """A kernel compiles, but its threads need more registers than they have."""


class MissingPackageError(GettError, ImportError):
    """A package is needed that is not installed; the text says how to install it."""


class DeviceError(GettError, RuntimeError):
    """There is no usable driver or GPU, or a driver call failed."""


class DistributedError(GettError, RuntimeError):
    """A process that computes a part of a contraction failed, was lost, or does not agree; the text says which."""


class OutOfMemoryError(GettError, MemoryError):
    """An allocation failed; the text gives the bytes asked for."""


class TuneWarning(UserWarning):
    """A schedule gave a wrong result while tuning; it is not used."""


class KernelCacheWarning(UserWarning):
    """The disk cache cannot be used; kernels are compiled again in each process."""
