"""Problems that are parts of the same tensors, as a ragged mode divides them: subscripts, extents, and the CPU.

Knows neither kernels nor tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gett.errors import DTypeError, OptionError, ShapeError, SubscriptsError
from gett.groups.layouts import Asked, check_pair
from gett.plans.call import Call, make_call

ENDS = ("int32", "int64")
"""dtypes that offsets on a device may have."""

_FORMS = "such as 'tk,ekn->tn' (rows of each problem times its matrix) or 'tk,tn->ekn' (sums over its rows)"


@dataclass(frozen=True, slots=True)
class RaggedModes:
    """What the subscripts of a ragged contraction say.

    Attributes:
        terms: Labels of the operands and of the result.
        ragged: The label along which problems follow one another.
        problem: The label that numbers them.
    """

    terms: tuple[str, str, str]
    ragged: str
    problem: str

    @property
    def plain(self) -> str:
        """The subscripts of one problem."""
        a, b, d = (t.replace(self.problem, "") for t in self.terms)
        return f"{a},{b}->{d}"

    @property
    def sums(self) -> bool:
        """Whether the ragged mode is summed, so that each problem has a result of its own."""
        return self.problem in self.terms[2]

    def axes(self, term: int) -> tuple[int, int]:
        """The axes of the ragged mode and of the problems in an operand or the result, -1 where there is none."""
        return self.terms[term].find(self.ragged), self.terms[term].find(self.problem)


@lru_cache(maxsize=256)
def ragged_modes(subscripts: str) -> RaggedModes:
    """Find the ragged mode and the mode of problems.

    The label of the problems is in one operand alone (`e` of `"tk,ekn->tn"`), and the ragged mode is then the first of
    the other operand. Or it is in the result alone (`e` of `"tk,tn->ekn"`), and the ragged mode is the first of those
    that both operands have and the result has not.

    Raises:
        SubscriptsError: There are no such modes.
    """
    check_pair(subscripts)
    left, arrow, d = subscripts.replace(" ", "").partition("->")
    a, _, b = left.partition(",")
    if not arrow or not all(x.isalpha() and len(set(x)) == len(x) for x in (a, b, d)):
        raise SubscriptsError(f"{subscripts!r}: ragged contractions take letters and an output, {_FORMS}")
    for own, other in ((b, a), (a, b)):
        numbers = [x for x in own if x not in other and x not in d]
        if len(numbers) == 1:
            ragged = other[0]
            if ragged not in d or ragged in own:
                raise SubscriptsError(
                    f"{subscripts!r}: the ragged mode {ragged!r} must be in the output alone, {_FORMS}"
                )
            return RaggedModes((a, b, d), ragged, numbers[0])
    new = [x for x in d if x not in a and x not in b]
    summed = [x for x in a if x in b and x not in d]
    if len(new) != 1 or not summed:
        raise SubscriptsError(f"{subscripts!r} has no mode that numbers the problems, {_FORMS}")
    return RaggedModes((a, b, d), summed[0], new[0])


def check_ragged(modes: RaggedModes, shapes: Sequence[tuple[int, ...]], count: int) -> dict[str, int]:
    """The extent of each label of two operands, for `count` offsets.

    Raises:
        ShapeError: Extents disagree; the text names the mode.
    """
    extents = {modes.problem: count}
    for i, (term, shape) in enumerate(zip(modes.terms, shapes, strict=False)):
        if len(term) != len(shape):
            raise SubscriptsError(f"operand {i} has {len(shape)} axes, its subscripts name {len(term)}")
        for label, extent in zip(term, shape, strict=True):
            known = extents.setdefault(label, extent)
            if known == extent:
                continue
            if label == modes.problem:
                raise ShapeError(f"mode {label!r} has extent {extent} in operand {i}, but there are {count} offsets")
            raise ShapeError(f"mode {label!r} has extent {known} in operand 0 and {extent} in operand {i}")
    return extents


def check_ends(dtype: str, shape: tuple[int, ...]) -> None:
    """Refuse offsets that are no row of integers.

    Raises:
        DTypeError, ShapeError: They are not.
    """
    if dtype not in ENDS:
        raise DTypeError(f"offsets have dtype {dtype}; they must be {' or '.join(ENDS)}")
    if len(shape) != 1:
        raise ShapeError(f"offsets have shape {shape}; one number for each problem is needed, where its rows end")


def run_ragged(
    compute: Callable[[Call], Any], modes: RaggedModes, a: Any, b: Any, ends: Sequence[int], d: Any, precision: Asked
) -> None:
    """Write into `d` what one contraction after the other gives; rows behind the last end are zeros.

    Raises:
        OptionError: The ends do not ascend, or exceed the ragged mode.
        GettError: As `einsum`.
    """
    holder = 0 if modes.ragged in modes.terms[0] else 1
    rows = int((a, b)[holder].shape[modes.axes(holder)[0]])
    begin = 0
    for number, end in enumerate(ends):
        if not begin <= end <= rows:
            raise OptionError(
                f"problem {number}: its rows are {begin} to {end} of mode {modes.ragged!r}, which has extent {rows}; "
                "offsets are where the rows of each problem end"
            )
        parts = [_part(x, *modes.axes(i), number, begin, end) for i, x in enumerate((a, b, d))]
        if begin < end:
            compute(make_call(modes.plain, parts[:2], parts[2], precision=precision))
        elif modes.sums:
            parts[2][...] = 0
        begin = end
    if not modes.sums:
        _part(d, modes.axes(2)[0], -1, 0, begin, rows)[...] = 0


def _part(x: Any, ragged: int, problem: int, number: int, begin: int, end: int) -> Any:
    """The view of a tensor that a problem works on."""
    index: list[Any] = [slice(None)] * len(x.shape)
    if ragged >= 0:
        index[ragged] = slice(begin, end)
    if problem >= 0:
        index[problem] = number
    return x[tuple(index)]


def host_ends(offsets: Any) -> list[int]:
    """Offsets in the host's memory as Python's integers.

    Raises:
        DTypeError, ShapeError: They are no row of integers.
    """
    found = np.asarray(offsets)
    if found.size == 0:
        found = found.astype(np.int64)
    if found.dtype.kind in "iu":
        found = found.astype(np.int64)
    check_ends(found.dtype.name, found.shape)
    return [int(x) for x in found]
