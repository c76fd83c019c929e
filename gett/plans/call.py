"""`Call`: what a public function is asked for, checked once and handed down; and what its options mean.

Owns the checks of `conj=`, `epilogue=`, `epilogue_args=` and of limits, how a call meets memory that is lent for it,
and the request that a plan is made for. Knows no plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gett.arrays.interop import Loan, borrow, gather
from gett.arrays.kinds import ArrayKind
from gett.console.formatting import brief
from gett.errors import EpilogueError, OptionError
from gett.hw.archs import WORKSPACE_LIMIT
from gett.ir.subscripts import Spec
from gett.ir.tensors import Casting, TensorSpec, UsualPrecision, parse_dtype
from gett.network.limits import Elements, Limit, Share, parse_limit, resolved, usual_limit
from gett.network.optimize import Bytes, Limited, asks_autotune, check_one_limit, freeze_optimize
from gett.network.request import PlanRequest
from gett.plans.checks import any_complex, check_bytes, check_holds, check_workspace_limit
from gett.plans.precision import usual_precision

if TYPE_CHECKING:
    from gett.arrays.torch_autograd import Product
    from gett.epilogue.expression import Expression

Conj = tuple[bool, ...]
"""One truth for each operand, True for one at least; None stands for none."""
NO_ARGUMENTS: tuple[Any, ...] = ()  # one object, which a call without arguments is known by
NO_DERIVATIVES = "strip_exponent= records no derivatives: call within torch.no_grad(), or on x.detach()"
ZERO, ONE = 0, 1  # the usual factors, which a call is known by as well


@dataclass(init=False, eq=False, repr=False, slots=True)
class Call:
    """`epilogue(alpha * einsum(spec, *operands) + beta * c, *extras)`, and how it is to be computed.

    Attributes:
        spec: The subscripts.
        operands: As they were given, or what was lent for them.
        out: The array to write, or None.
        dtype: As it was given, and so are `order` and `casting`.
        optimize: As it stands in a key.
        precision: What was asked for, or what holds where nothing is.
        conj: Flags of operands that may be complex; None where none is conjugated.
        limit: Most bytes of workspace.
        memory: The limit of memory, or None.
        c: What is added, or None.
        alpha: Factor of the contraction.
        beta: Factor of `c`.
        epilogue: The function, or None.
        extras: Its further arguments.
        checkpoint: Most bytes of intermediates that are kept for derivatives; None for all.
        strip: Whether the result is divided by a power of ten, which is returned beside it.
    """

    spec: Spec
    operands: Sequence[Any]
    out: Any
    dtype: Any
    order: Any
    casting: Casting
    optimize: Any
    precision: str | UsualPrecision | None
    conj: Conj | None
    limit: int
    memory: Limit | None
    c: Any
    alpha: Any
    beta: Any
    epilogue: Any
    extras: Sequence[Any]
    checkpoint: int | None
    strip: bool

    def changed(self, **changes: Any) -> Call:
        """The call with other values of some attributes, which are not checked again."""
        made = Call()
        for name in self.__slots__:
            setattr(made, name, changes[name] if name in changes else getattr(self, name))
        return made

    def borrowed(self) -> Loan | None:
        """The arrays that no executor takes, as such that share their memory: `gett.arrays.interop.borrow`."""
        return borrow(self.operands, self.c, self.out, self.dtype, self.casting, self.extras)

    def lent(self, loan: Loan) -> Call:
        """The call on the memory that was lent for it."""
        return self.changed(
            operands=loan.operands, c=loan.c, out=loan.out, dtype=loan.dtype, extras=loan.extras,
            conj=flipped(self.conj, loan.lazy),
        )  # fmt: skip

    def named(self) -> tuple[list[Any], list[str]]:
        """Operands, extras and then `c`, where there is one; and what errors call them."""
        names = [f"operand {i}" for i in range(len(self.operands))] + argument_names(self.extras)
        things = [*self.operands, *self.extras]
        if self.c is not None:
            names.append("c")
            things.append(self.c)
        return things, names

    def gathered(self) -> tuple[ArrayKind, int, list[Any], Any, list[Any]]:
        """Operands, `c` and extras as arrays of one kind on one device: `gather` of all of them.

        Returns:
            The kind, the device, the operands, `c` (None where there is none) and the extras.

        Raises:
            MixedArraysError, DTypeError, OperandError: As `gather`; the text names the argument.
        """
        count = len(self.operands)
        kind, device, arrays = gather(*self.named(), count)
        c = None if self.c is None else arrays.pop()
        return kind, device, arrays[:count], c, arrays[count:]

    def request(
        self,
        kind: ArrayKind,
        operands: Sequence[TensorSpec],
        c: TensorSpec | None,
        out: TensorSpec | None,
        extras: Sequence[TensorSpec],
        arch: str,
        device: int | None,
    ) -> PlanRequest:
        """What a plan is asked for, which takes tensors as they are described here.

        Raises:
            DTypeError: `dtype` is none, or arrays of the kind cannot have it.
            EpilogueError: The epilogue does what none can.
        """
        return PlanRequest(
            spec=self.spec,
            operands=tuple(operands),
            c=c,
            out=out,
            dtype=None if self.dtype is None else check_holds(kind, parse_dtype(self.dtype)),
            order=self.order,
            casting=self.casting,
            optimize=self.optimize,
            precision=self.precision,
            arch=arch,
            device=device,
            epilogue=trace_epilogue(self.epilogue, extras),
            epilogue_args=tuple(extras),
            conj=of_complex(self.conj, operands),
            workspace_limit=self.limit,
            memory_limit=self.memory_on(kind, device),
            complex_factors=self.mixes_complex_factors(operands),
        )

    def memory_on(self, kind: ArrayKind, device: int | None) -> Bytes | Elements | None:
        """The limit of memory on a device, where a share is one of what is free now.

        Raises:
            OptionError: It is a share, and there is no device.
        """
        limit = self.memory
        if limit is None or not isinstance(limit, Share):
            return limit
        if device is None:
            raise OptionError(
                f"memory_limit={limit.part} is a share of a device's memory, but there is none: give a size"
            )
        return resolved(limit, kind.free(device))

    def leaves_c_unread(self) -> bool:
        """Whether `c` is looked at, but not read: beta is plainly 0."""
        return self.beta.__class__ in (int, float) and self.beta == 0

    def mixes_complex_factors(self, operands: Sequence[Any]) -> bool:
        """Whether alpha or beta is complex beside real and complex operands, arrays of any library or descriptions."""
        return any_complex(self.alpha, self.beta) and len({*map(_may_be_complex, operands)}) > 1


def finished(loan: Loan, call: Call, result: Any) -> Any:
    """What a call on lent memory gives, for whoever lent it."""
    if not call.strip:
        return loan.finish(result)
    mantissa, exponent = result
    return loan.finish(mantissa), exponent


def product_call(product: Product, operands: Sequence[Any], out: Any = None, c: Any = None) -> Call:
    """The record of a call that computes a product of PyTorch's tensors."""
    return make_call(
        product.subscripts, operands, out, product.dtype, product.order, "unsafe", True, product.precision,
        product.conj, product.limit, -1, c, product.alpha, 0 if c is None else product.beta,
    )  # fmt: skip


def make_call(
    spec: Spec,
    operands: Sequence[Any],
    out: Any = None,
    dtype: Any = None,
    order: Any = "K",
    casting: Casting = "safe",
    optimize: Any = True,
    precision: str | UsualPrecision | None = None,
    conj: Any = None,
    workspace_limit: Any = None,
    memory_limit: Any = None,
    c: Any = None,
    alpha: Any = 1,
    beta: Any = 0,
    epilogue: Any = None,
    extras: Any = NO_ARGUMENTS,
    checkpoint: Any = None,
    strip: Any = False,
) -> Call:
    """The record of a public function's arguments, its options checked; an `__init__` would take half as long again.

    Raises:
        OptionError, PathError, PrecisionError, EpilogueError: An option is at fault.
    """
    call = Call()
    call.spec, call.operands = spec, operands
    call.out, call.c = out, c
    call.alpha, call.beta = alpha, beta
    call.dtype, call.order, call.casting = dtype, order, casting
    call.epilogue = epilogue
    call.conj = None if conj is None else of_complex(check_conj(conj, len(operands)), operands)
    call.extras = extras if extras is NO_ARGUMENTS else check_arguments(epilogue, extras)
    call.limit = WORKSPACE_LIMIT if workspace_limit is None else check_workspace_limit(workspace_limit)
    call.checkpoint = None if checkpoint is None else check_bytes(checkpoint, "checkpoint")
    call.optimize = optimize if optimize is True else freeze_optimize(optimize)
    limited = isinstance(call.optimize, Limited) or asks_autotune(call.optimize)
    if memory_limit is None:
        call.memory = None if limited else usual_limit()
    else:
        call.memory = parse_limit(memory_limit)
        if limited and call.memory is not None:
            check_one_limit(call.optimize, memory_limit)
    call.precision = usual_precision() if precision is None else precision
    call.strip = False if strip is False else check_strip(strip, call)
    return call


def check_strip(strip: Any, call: Call) -> bool:
    """`strip_exponent=` of a call.

    Raises:
        OptionError: It is no bool, or the call has what needs the result itself.
    """
    if not isinstance(strip, (bool, np.bool_)):
        raise OptionError(f"strip_exponent={brief(strip)}; it must be True or False")
    named = (("out", call.out), ("c", call.c), ("epilogue", call.epilogue))
    unfit = [name for name, x in named if x is not None]
    if strip and unfit:
        raise OptionError(
            f"{unfit[0]}= needs the result itself, but strip_exponent= divides it by a power of ten: leave out one"
        )
    return bool(strip)


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


def argument_names(arguments: Sequence[Any]) -> list[str]:
    """How messages call the `epilogue_args`."""
    return [f"epilogue_args[{i}]" for i in range(len(arguments))]


def trace_epilogue(epilogue: Any, arguments: Sequence[TensorSpec]) -> Expression | None:
    """What `epilogue=` computes; None where there is none.

    Raises:
        EpilogueError: It does what an epilogue cannot.
    """
    if epilogue is None:
        return None
    from gett.epilogue import ops  # noqa: F401  (gives NumPy's functions their meaning on traced tensors)
    from gett.epilogue.expression import Expression
    from gett.epilogue.traced import trace

    if isinstance(epilogue, Expression):  # a derivative's
        return epilogue
    return trace(epilogue, [len(x.shape) for x in arguments])
