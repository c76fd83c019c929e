"""`epilogue=` and `epilogue_args=` as users give them.

Owns the checks of the two arguments, and how they are brought to arrays beside the operands and `c`. Knows no plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gett.arrays.interop import gather
from gett.arrays.kinds import ArrayKind
from gett.errors import EpilogueError, GradientError
from gett.ir.tensors import TensorSpec

if TYPE_CHECKING:
    from gett.epilogue.expression import Expression

NO_ARGUMENTS: tuple[Any, ...] = ()  # one object, which a call without arguments is known by


def check_arguments(epilogue: Any, arguments: Any) -> tuple[Any, ...]:
    """`epilogue_args` as a tuple.

    Raises:
        EpilogueError: They are no tuple or list, or there is no epilogue that takes them.
    """
    if not isinstance(arguments, (tuple, list)):
        raise EpilogueError(
            f"epilogue_args must be a tuple of tensors and numbers, such as (x,), not {type(arguments).__name__}"
        )
    if epilogue is None and arguments:
        raise EpilogueError("epilogue_args are given, but there is no epilogue= that takes them")
    return tuple(arguments)


def check_planned(planned: Sequence[TensorSpec], given: Sequence[TensorSpec]) -> None:
    """Refuse `epilogue_args` that a plan's epilogue was not traced for.

    Raises:
        EpilogueError: Another number of them, or of one's axes.
    """
    if len(given) != len(planned):
        raise EpilogueError(f"the plan's epilogue takes {len(planned)} epilogue_args, {len(given)} were given")
    for i, (want, have) in enumerate(zip(planned, given, strict=True)):
        if len(want.shape) != len(have.shape):
            raise EpilogueError(
                f"epilogue_args[{i}] has shape {have.shape}, the plan was made for one of {len(want.shape)} axes"
            )


def trace_epilogue(epilogue: Any, arguments: Sequence[TensorSpec]) -> Expression | None:
    """What `epilogue=` computes; None where there is none.

    Raises:
        EpilogueError: It does what an epilogue cannot.
    """
    if epilogue is None:
        return None
    from gett.epilogue import ops  # noqa: F401  (gives NumPy's functions their meaning on traced tensors)
    from gett.epilogue.traced import trace

    return trace(epilogue, [len(x.shape) for x in arguments])


def gradient_error(error: GradientError, epilogue: Any) -> GradientError:
    """The error of a call that may have an epilogue, which has no derivative either."""
    return error if epilogue is None else GradientError(f"{error}; epilogue= has no derivative")


def gather_call(
    operands: Sequence[Any], c: Any, arguments: Sequence[Any]
) -> tuple[ArrayKind, int, list[Any], Any, list[Any]]:
    """Operands, `c` and `epilogue_args` as arrays of one kind on one device: `gather` of all of them.

    Returns:
        The kind, the device, the operands, `c` (None where there is none) and the arguments.

    Raises:
        MixedArraysError, GradientError, DTypeError, OperandError: As `gather`; the text names the argument.
    """
    count = len(operands)
    names = [f"operand {i}" for i in range(count)]
    things = [*operands]
    if arguments:
        names += argument_names(arguments)
        things += arguments
    if c is not None:
        names.append("c")
        things.append(c)
    kind, device, arrays = gather(things, names, count)
    c = None if c is None else arrays.pop()
    extras = arrays[count:]
    del arrays[count:]
    return kind, device, arrays, c, extras


def argument_names(arguments: Sequence[Any]) -> list[str]:
    """How messages call the `epilogue_args`."""
    return [f"epilogue_args[{i}]" for i in range(len(arguments))]
