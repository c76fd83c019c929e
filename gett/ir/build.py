"""From mode numbers and array descriptions to `Contraction` records.

Owns extents, broadcasting, diagonals and the order of the result. Knows neither paths nor devices nor arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gett.console.formatting import brief
from gett.errors import EpilogueError, OptionError, OutputError, ShapeError, SubscriptsError
from gett.ir.contraction import Contraction, Operand
from gett.ir.subscripts import Subscripts
from gett.ir.tensors import MAX_AXES, TensorSpec, is_contiguous

if TYPE_CHECKING:
    from gett.epilogue.expression import Expression, Extra


def resolve_extents(
    subscripts: Subscripts, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """Extent of each mode. An axis of extent 1 is broadcast against a larger one, to `out`'s extents too.

    Raises:
        ShapeError: Extents disagree; the text names the mode, both operands and both extents.
        OutputError: `out` has another shape than the result.
        SubscriptsError: The result has more modes than an array has axes.
    """
    if len(subscripts.output) > MAX_AXES:
        raise SubscriptsError(f"the result has {len(subscripts.output)} modes; arrays have at most {MAX_AXES} axes")
    extents = [1] * len(subscripts.names)
    owner = [-1] * len(extents)
    for i, (modes, shape) in enumerate(zip(subscripts.inputs, shapes, strict=True)):
        within: dict[int, int] = {}
        for axis, (mode, extent) in enumerate(zip(modes, shape, strict=True)):
            if within.setdefault(mode, extent) != extent:
                raise ShapeError(
                    f"mode {subscripts.names[mode]!r} occurs twice in operand {i} with extents {within[mode]} and "
                    f"{extent} (axis {axis})"
                )
            if extent == 1:
                continue
            if owner[mode] >= 0 and extents[mode] != extent:
                raise ShapeError(
                    f"mode {subscripts.names[mode]!r} has extent {extents[mode]} in operand {owner[mode]} and "
                    f"{extent} in operand {i}"
                )
            extents[mode], owner[mode] = extent, i
    if out is not None:
        result = tuple(extents[m] for m in subscripts.output)
        if len(out) != len(result):
            raise OutputError(f"out has {len(out)} axes and shape {out}, the result has shape {result}")
        for mode, extent, given in zip(subscripts.output, result, out, strict=True):
            if extent == 1 and owner[mode] < 0:
                extents[mode] = given
            elif extent != given:
                raise OutputError(
                    f"out has extent {given} along mode {subscripts.names[mode]!r}, the result has {extent} "
                    f"(shapes {out} and {result})"
                )
    return tuple(extents)


def address(modes: Sequence[int], spec: TensorSpec, extents: Sequence[int], conj: bool = False) -> Operand:
    """How an operand is addressed: repeated modes merged by adding strides, broadcast axes with stride 0.

    Args:
        modes: Of each axis.
        spec: The array.
        extents: Of each mode.
        conj: Whether it is conjugated as it is read.
    """
    strides: dict[int, int] = {}
    for mode, extent, stride in zip(modes, spec.shape, spec.strides, strict=True):
        strides[mode] = strides.get(mode, 0) + (stride if extent == extents[mode] else 0)
    return Operand(tuple(strides), tuple(strides.values()), spec.dtype.name, spec.alignment, conj)


def address_c(output: Sequence[int], spec: TensorSpec, extents: Sequence[int]) -> Operand:
    """How the added tensor is addressed: its axes are the last of the result's, as NumPy broadcasts.

    Raises:
        ShapeError: It does not broadcast to the result's shape.
    """
    return _address_last(output, spec, extents, "c", ShapeError)


def address_extra(output: Sequence[int], spec: TensorSpec, extra: Extra, extents: Sequence[int]) -> Operand:
    """How a tensor that an epilogue reads is addressed through its index, with the same rule as for `c`.

    Raises:
        EpilogueError: It does not broadcast to the result's shape.
    """
    view = replace(spec, shape=extra.pick(spec.shape, 1), strides=extra.pick(spec.strides, 0))
    return _address_last(output, view, extents, f"epilogue_args[{extra.argument}]", EpilogueError)


def _address_last(
    output: Sequence[int], spec: TensorSpec, extents: Sequence[int], name: str, error: type[ShapeError | EpilogueError]
) -> Operand:
    result = tuple(extents[m] for m in output)
    modes = output[len(output) - len(spec.shape) :] if len(spec.shape) <= len(output) else ()
    if len(spec.shape) > len(output) or any(e not in (1, extents[m]) for m, e in zip(modes, spec.shape, strict=True)):
        raise error(f"{name} of shape {spec.shape} does not broadcast to the result's shape {result}")
    return address(modes, spec, extents)


def choose_order(order: str | None, operands: Sequence[TensorSpec]) -> str:
    """C or F: the memory order of a new result.

    `"K"` and `"A"` follow operands that are all F-contiguous, `"K"` only where that is not C-contiguous as well.
    """
    name = "K" if order is None else order.upper() if isinstance(order, str) else ""
    if name not in ("C", "F", "A", "K"):
        raise OptionError(f"order={brief(order)}; it must be 'C', 'F', 'A' or 'K'")
    if name in ("C", "F"):
        return name
    shaped = [t for t in operands if name == "A" or len(t.shape) > 1]
    fortran = bool(shaped) and all(is_contiguous(t, "F") for t in shaped)
    if name == "K":
        fortran = fortran and not all(is_contiguous(t, "C") for t in shaped)
    return "F" if fortran else "C"


def make_contraction(
    names: Sequence[str],
    extents: Sequence[int],
    a: Operand,
    b: Operand | None,
    d: Operand,
    c: Operand | None,
    dtype: np.dtype[Any],
    precision: str,
    epilogue: Expression | None = None,
    extras: Sequence[Operand] = (),
) -> Contraction:
    """A contraction of its own modes only, renumbered: D's first, then the summed ones by appearance."""
    order: dict[int, int] = {}
    for operand in (d, a, b):
        for mode in operand.modes if operand is not None else ():
            order.setdefault(mode, len(order))

    def renumber(operand: Operand) -> Operand:
        modes = tuple([order[m] for m in operand.modes])
        return Operand(modes, operand.strides, operand.dtype, operand.alignment, operand.conj)

    return Contraction(
        names=tuple(names[m] for m in order),
        extents=tuple(extents[m] for m in order),
        a=renumber(a),
        b=None if b is None else renumber(b),
        d=renumber(d),
        c=None if c is None else renumber(c),
        dtype=dtype.name,
        precision=precision,
        epilogue=epilogue,
        extras=tuple(map(renumber, extras)),
    )
