"""`conj=` as users give it: which operands are read as their complex conjugates.

Owns its checks, and how it meets operands that PyTorch conjugates lazily. Knows no plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gett.console.formatting import brief
from gett.errors import OptionError

Conj = tuple[bool, ...]
"""One truth for each operand, True for one at least; None stands for none."""


def check_conj(conj: Any, count: int) -> Conj | None:
    """`conj=` as plain truths; None where no operand is conjugated.

    Raises:
        OptionError: It is no sequence of one bool for each of `count` operands.
    """
    if conj is None:
        return None
    if not isinstance(conj, (tuple, list)):
        text = brief(conj)
        raise OptionError(f"conj={text}; it must be a sequence of one bool for each operand, such as (True, False)")
    for i, x in enumerate(conj):
        if not isinstance(x, (bool, np.bool_)):
            raise OptionError(f"conj={brief(conj)}: what it says of operand {i}, {brief(x)}, is no bool")
    if len(conj) != count:
        raise OptionError(f"conj={brief(conj)} has length {len(conj)}; one bool for each of {count} operands is needed")
    return tuple(map(bool, conj)) if any(conj) else None


def of_complex(conj: Conj | None, tensors: Sequence[Any]) -> Conj | None:
    """The flags without those of real tensors, arrays of any library or descriptions: they are their own conjugates."""
    if conj is None:
        return None
    found = tuple(flag and _may_be_complex(x) for flag, x in zip(conj, tensors, strict=True))
    return found if any(found) else None


def flipped(conj: Conj | None, lazy: Sequence[bool]) -> Conj | None:
    """The flags for the memory of tensors, some of which are lazily conjugated."""
    if not any(lazy):
        return conj
    found = tuple(lazy) if conj is None else tuple(x != y for x, y in zip(conj, lazy, strict=True))
    return found if any(found) else None


def _may_be_complex(tensor: Any) -> bool:
    dtype = getattr(tensor, "dtype", None)
    kind = getattr(dtype, "kind", None)
    if kind is not None:
        return kind in "cO"  # what objects are, they know
    return bool(getattr(dtype, "is_complex", True))  # PyTorch's; what is no array yet is looked at as one
