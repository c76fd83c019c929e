"""The precision where a call asks for none: that of a block of code, of the process, of the dtype.

Owns the two settings. What a name means is `gett.ir.tensors`' and, for kernels, `gett.hw.dtypes`'.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gett.arrays.dynamo import leaves_tracing
from gett.env import read_environment
from gett.ir.tensors import UsualPrecision, check_precision
from gett.typing import Precision

_block: ContextVar[UsualPrecision | None] = ContextVar("precision", default=None)
_process: list[UsualPrecision | None] = []  # empty until it is first asked for


@leaves_tracing
def usual_precision() -> UsualPrecision | None:
    """What holds where a call's `precision` is None; None where the dtype decides.

    Raises:
        PrecisionError: `GETT_PRECISION` has an unknown name.
    """
    found = _block.get()
    if found is not None:
        return found
    if not _process:
        name = read_environment().precision
        _process.append(None if name is None else UsualPrecision(check_precision(name, "GETT_PRECISION")))
    return _process[0]


def set_default_precision(precision: Precision | None) -> None:
    """Set the precision of all calls that ask for none, in every thread.

    Args:
        precision: A name as `einsum` takes it. It holds for the dtypes that it applies to, others keep their own; None
            is as if nothing had been set, `GETT_PRECISION` included.

    Raises:
        PrecisionError: (ValueError) The name is unknown.

    Example:
        >>> import gett
        >>> gett.set_default_precision("ieee")
        >>> gett.set_default_precision(None)
    """
    _process[:] = [None if precision is None else UsualPrecision(check_precision(precision))]


@contextmanager
def precision(precision: Precision) -> Iterator[None]:
    """Within a `with` block, the precision of calls of this thread or task that ask for none.

    Args:
        precision: A name as `einsum` takes it; it holds for the dtypes that it applies to, others keep their own.

    Raises:
        PrecisionError: (ValueError) The name is unknown.

    Example:
        >>> import gett, numpy as np
        >>> a = np.ones((2, 2), "float32")
        >>> with gett.precision("ieee"):
        ...     d = gett.einsum("ij,jk->ik", a, a)
    """
    token = _block.set(UsualPrecision(check_precision(precision)))
    try:
        yield
    finally:
        _block.reset(token)
