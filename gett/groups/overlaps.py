"""Whether what problems write lies apart from what they read, and from one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gett.arrays.kinds import overlap
from gett.errors import OutputError
from gett.groups.layouts import Layout
from gett.groups.reading import Reading
from gett.groups.table import Outputs
from gett.ir.gemm import A, B, D, itemsize
from gett.ir.tensors import TensorSpec, parse_dtype

_LOOKED_AT = 1000  # arrays whose ranges meet, of which bytes are compared

Integers = NDArray[np.int64]


def check_apart(reading: Reading, outputs: Outputs) -> None:
    """Refuse outputs that share memory with an operand, or in part with another output.

    Ranges of addresses are compared, and bytes where ranges meet. Of many arrays that lie within one another some are
    compared with the nearest alone.

    Raises:
        OutputError: They do; the text numbers both problems.
    """
    if not len(reading.which):
        return
    lead = outputs.order[outputs.first]
    low, high = _bounds(reading, D, reading.d)
    low, high = low[lead], high[lead]
    some = np.flatnonzero(low < high)
    order = some[np.argsort(low[some], kind="stable")]
    if not len(order):
        return
    starts, ends = low[order], high[order]
    farthest = np.maximum.accumulate(ends)
    # Of the outputs that begin no later the one that ends last.
    owner = np.maximum.accumulate(np.where(ends == farthest, np.arange(len(order)), 0))
    met = np.flatnonzero(starts[1:] < farthest[:-1])
    for i in met[:_LOOKED_AT]:
        one, other = int(lead[order[i + 1]]), int(lead[order[owner[i]]])
        if _share(reading, one, D, other):
            raise OutputError(f"problem {one}: out overlaps out of problem {other}, and is another array")
    first = (reading.a, reading.b)
    for tensor, addresses in enumerate(first):
        low, high = _bounds(reading, tensor, addresses)
        before = np.searchsorted(starts, high) - 1
        met = np.flatnonzero((before >= 0) & (low < high) & (farthest[np.maximum(before, 0)] > low))
        for i in met[:_LOOKED_AT]:
            other = int(lead[order[owner[before[i]]]])
            if _share(reading, int(i), tensor, other):
                raise OutputError(
                    f"problem {other}: out overlaps operand {tensor} of problem {i}; all problems are computed at "
                    "once, so give an array apart from what they read"
                )


def _share(reading: Reading, one: int, tensor: int, other: int) -> bool:
    """Whether a tensor of a problem shares bytes with what another one writes."""
    layouts = reading.layouts
    own, theirs = layouts[int(reading.which[one])], layouts[int(reading.which[other])]
    address = (reading.a, reading.b, reading.d)[tensor][one]
    return overlap(int(address), _spec(own, tensor), int(reading.d[other]), _spec(theirs, D))


def _role(layout: Layout, tensor: int) -> int:
    """The position in steps of an operand, as the user counts them, or of the result."""
    return tensor if tensor == D or not layout.swapped else A + B - tensor


def _spec(layout: Layout, tensor: int) -> TensorSpec:
    """A tensor as its modes describe it."""
    role = _role(layout, tensor)
    dtype = layout.d.dtype if tensor == D else parse_dtype(layout.factor(role).dtype)
    modes = [(e, s[role]) for group in layout.modes for e, s in group if s[role] or e == 0]
    return TensorSpec(tuple(e for e, _ in modes), tuple(s for _, s in modes), dtype)


def _bounds(reading: Reading, tensor: int, addresses: NDArray[np.uint64]) -> tuple[Integers, Integers]:
    """First and one past the last byte of each problem's tensor; equal ones where it is empty."""
    ranges = np.array([_range(x, tensor) for x in reading.layouts], np.int64)[reading.which]
    base = addresses.astype(np.int64)
    return base + ranges[:, 0], base + ranges[:, 1]


def _range(layout: Layout, tensor: int) -> Sequence[int]:
    role = _role(layout, tensor)
    size = itemsize(layout.d.dtype.name if tensor == D else layout.factor(role).dtype)
    modes = [(e, s[role]) for group in layout.modes for e, s in group if s[role] or e == 0]
    if any(e == 0 for e, _ in modes):
        return 0, 0
    ends = [(e - 1) * s for e, s in modes]
    return sum(x for x in ends if x < 0), size + sum(x for x in ends if x > 0)
