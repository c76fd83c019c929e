"""Views of complex arrays as pairs of real numbers, for contractions of `gett.ir.pairs`.

Knows nothing of how they run.
"""

from __future__ import annotations

from numpy.lib.stride_tricks import as_strided

from gett.cpu.views import Array


def as_pairs(array: Array) -> Array:
    """A view of complex numbers with a last axis of real and imaginary parts; a real array itself."""
    if array.dtype.kind != "c":
        return array
    real = array.real
    return as_strided(real, (*real.shape, 2), (*real.strides, real.itemsize))
