"""The public function `plan`: from arrays or `(shape, dtype)` pairs to a plan, without running it.

Owns what pairs stand for, and what `arch` may be. Knows nothing of how plans are made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gett.arrays.bfloat16 import FLOAT32
from gett.arrays.dynamo import untraced
from gett.arrays.interop import gather
from gett.arrays.kinds import NUMPY, ArrayKind
from gett.arrays.torch import torch_library
from gett.console.formatting import brief
from gett.errors import DTypeError, OptionError, ShapeError
from gett.ir.subscripts import split_arguments
from gett.ir.tensors import (
    ALIGNMENT_LIMIT,
    BFLOAT16,
    MAX_AXES,
    Casting,
    TensorSpec,
    converted,
    dense_strides,
    parse_dtype,
    result_type,
)
from gett.network.optimize import AUTOTUNE
from gett.network.request import PlanRequest
from gett.plans.call import Call, argument_names, make_call
from gett.plans.checks import check_out, check_places, is_shape
from gett.plans.contraction_plan import ContractionPlan
from gett.slices.finder import plan_on_device
from gett.typing import DType, Optimize, Order, Precision, Size

Make = Callable[[ArrayKind, PlanRequest], ContractionPlan]
"""Makes the plan of a request, for arrays of a kind."""
_GPU_ARCH = re.compile(r"sm_[1-9]\d{1,2}[af]?")


@untraced
def plan(
    subscripts: Any,
    /,
    *operands: Any,
    c: Any = None,
    out: Any = None,
    dtype: DType = None,
    order: Order | None = "K",
    casting: Casting = "safe",
    optimize: Optimize = True,
    precision: Precision | None = None,
    arch: str | None = None,
    epilogue: Callable[..., Any] | None = None,
    epilogue_args: Sequence[Any] = (),
    conj: Sequence[bool] | None = None,
    workspace_limit: Size | None = None,
    memory_limit: Size | float | None = None,
    devices: Sequence[int] | None = None,
    shard: str | None = None,
    constants: Collection[int] | None = None,
    remember: bool = False,
) -> ContractionPlan:
    """Plan a contraction, to run it many times or to look at it: `print(gett.plan(...))`.

    Args:
        subscripts: As for `einsum`, the interleaved form included.
        operands: Arrays, or `(shape, dtype)` pairs, which stand for C-contiguous, aligned arrays.
        c: Array or pair that calls will add with `beta`; calls may also bring a `c` that was not announced.
        out: Array or pair that stands for the `out` of calls; without it, results are dense in `order`.
        dtype: As for `einsum`.
        order: As for `einsum`.
        casting: As for `einsum`.
        optimize: As for `einsum`.
        precision: As for `einsum`.
        arch: `"cpu"`, or an architecture such as `"sm_90a"`, to plan for it whether or not there is such a GPU. The
            name of a GPU such as `"H100"` stands for its architecture; estimates are those of one GPU of it, for
            `"sm_90a"` the H200. By default the GPU of the operands, or the CPU for NumPy arrays and pairs.
        epilogue: As for `contract`: a function of the result, which is traced here, once.
        epilogue_args: Arrays, pairs or numbers that stand for the `epilogue_args` of calls.
        conj: As for `einsum`. Calls of the plan conjugate these operands.
        workspace_limit: As for `einsum`.
        memory_limit: As for `einsum`.
        devices: As for `einsum`.
        shard: As for `einsum`.
        constants: Places of operands, counted from 0, which are arrays that the plan holds. Calls take the others, in
            their order. Steps of constants alone run once on each device, at the first call or by `compile()`, and
            their results are kept. Arrays of NumPy are brought to where the others are.
        remember: Whether calls keep all intermediates, so that `plan(*operands, changed=[3, 7])` runs the steps that
            depend on these operands, and the last one. Each thread keeps its own; `plan.forget()` gives them back.

    Raises:
        GettError: As `einsum`; ScheduleError and CompileError if no kernel can be made; OptionError for a bad `arch`,
            or for `constants` or `remember` beside what they exclude; EpilogueError as `contract`.

    Example:
        >>> import gett, numpy as np
        >>> plan = gett.plan("ik,kj->ij", ((2, 3), "float64"), ((3, 2), "float64"))
        >>> plan(np.ones((2, 3)), np.ones((3, 2)))
        array([[3., 3.],
               [3., 3.]])
        >>> plan = gett.plan(
        ...     "ik,kj->ij", ((2, 3), "float64"), ((3, 2), "float64"),
        ...     epilogue=lambda d, bias: gett.ops.silu(d + bias), epilogue_args=(((2,), "float64"),),
        ... )
        >>> plan(np.ones((2, 3)), np.ones((3, 2)), epilogue_args=(np.array([-3.0, -3.0]),))
        array([[0., 0.],
               [0., 0.]])
        >>> plan = gett.plan("ij,jk,k->i", np.ones((2, 3)), np.ones((3, 4)), ((4,), "float64"), constants=[0, 1])
        >>> plan(np.ones(4))
        array([12., 12.])
    """
    spec, found = split_arguments(subscripts, operands)
    if len(operands) == 1 and len(found) > 1 and described_pair(operands[0], "operand 0") is not None:
        found = operands  # a pair, not a list of operands
    make: Make = plan_on_device
    if constants is not None or remember is not False:
        from gett.api.reuse import maker, with_constants  # late: few plans hold anything

        if devices is not None or shard is not None:
            raise OptionError(
                "constants= and remember= hold arrays of one device: give them without devices= and shard="
            )
        places = None if constants is None else check_places(constants, len(found), "constants")
        found = tuple(with_constants(found, places or (), described_pair))
        make = maker(found, places, remember, optimize)
    call = make_call(
        spec, found, out, dtype, order, casting, optimize, precision, conj, workspace_limit, memory_limit, c,
        epilogue=epilogue, extras=epilogue_args,
    )  # fmt: skip
    if devices is not None or shard is not None:
        from gett.api.devices import plan_over  # late: few programs have several GPUs

        return plan_over(call, plan_call, devices, shard, arch)
    return plan_call(call, arch, make)


def plan_call(call: Call, arch: str | None = None, make: Make = plan_on_device) -> ContractionPlan:
    """The plan of a call on one device, which `make` makes of a request."""
    found, c, out = call.operands, call.c, call.out
    torch = torch_library()
    if torch is None or not torch.modes.records([*found, c, out, *call.extras]):
        return _plan_borrowed(call, arch, make)
    with torch.modes.untransformed():  # a plan depends on the layouts alone
        operands, extras = (tuple(map(torch.modes.unrecorded, x)) for x in (found, call.extras))
        c, out = torch.modes.unrecorded(c), torch.modes.unrecorded(out)
        return _plan_borrowed(call.changed(operands=operands, c=c, out=out, extras=extras), arch, make)


def _plan_borrowed(call: Call, arch: str | None, make: Make) -> ContractionPlan:
    """`plan` of a call, of whose arrays some may have to be lent."""
    loan = call.borrowed()
    if loan is None:
        return _plan(call, arch, (False,) * len(call.operands), make)
    # The plan is one of the memory's layout, and calls come here again.
    if call.dtype is not None and loan.dtype is not call.dtype:
        _check_rounding(call.dtype, [parse_dtype(x.dtype) for x in call.operands if hasattr(x, "dtype")])
    return _plan(call.lent(loan).changed(conj=call.conj), arch, loan.lazy or (False,) * len(call.operands), make)


def _plan(call: Call, arch: str | None, lazy: tuple[bool, ...], make: Make) -> ContractionPlan:
    """`plan` of a call, of whose operands some may stand for tensors that are conjugated lazily."""
    operands, out = len(call.operands), call.out
    count = operands + len(call.extras)
    names = [f"operand {i}" for i in range(operands)] + argument_names(call.extras)
    further = [(n, x) for n, x in (("c", call.c), ("out", out)) if x is not None]
    named = [*zip(names, (*call.operands, *call.extras), strict=True), *further]
    pairs = [described_pair(x, n) for n, x in named]
    real = [(n, x) for (n, x), p in zip(named, pairs, strict=True) if p is None]
    kind, device, arrays = gather([x for _, x in real], [n for n, _ in real], pairs[:operands].count(None))
    if arch is not None:
        arch = meant_arch(arch)
    if arch == "cpu" and kind is not NUMPY:
        raise OptionError(f"arch='cpu' cannot plan for {kind.name} arrays")
    target = arch or kind.arch(device)
    elsewhere = arch is not None and arch != "cpu" and (kind is NUMPY or arch != kind.arch(device))
    if elsewhere and call.optimize == AUTOTUNE:
        raise OptionError(f"optimize='autotune' measures on the GPU at hand, but arch={brief(arch)} plans without one")
    alignment = 1 if target == "cpu" else ALIGNMENT_LIMIT
    queue = list(arrays)

    def describe(pair: TensorSpec | None) -> TensorSpec:
        spec = pair if pair is not None else kind.describe(queue.pop(0))
        if pair is None and (kind is not NUMPY or target == "cpu"):
            return spec
        return replace(spec, alignment=alignment)

    specs = [describe(p) for p in pairs]
    if target == "cpu":
        specs, dtype = _in_float32(specs, call.dtype, operands)
        call = call.changed(dtype=dtype)
    factors = [replace(x, conj=x.conj or y) for x, y in zip(specs, lazy, strict=False)]
    if out is not None and pairs[-1] is None:
        check_out(out, kind, device)
    added = dict(zip([n for n, _ in further], specs[count:], strict=True))
    place = target, None if elsewhere else device
    request = call.request(kind, factors, added.get("c"), added.get("out"), specs[operands:count], *place)
    return make(kind, request)


def _check_rounding(dtype: Any, operands: Sequence[np.dtype[Any]]) -> bool:
    """Whether calls of a plan for the CPU round to bfloat16, which they see by their operands' dtypes alone.

    Raises:
        DTypeError: They would not, but `dtype=` asks for it.
    """
    rounds = result_type(operands) is BFLOAT16
    if dtype is not None and not rounds and parse_dtype(dtype) is BFLOAT16:
        raise DTypeError(
            "dtype='bfloat16': a plan for the CPU gives bfloat16 where the operands' own dtype is that; convert them, "
            "or call einsum with dtype="
        )
    return rounds


def _in_float32(specs: list[TensorSpec], dtype: Any, operands: int) -> tuple[list[TensorSpec], Any]:
    """Tensors and `dtype=` of a plan for the CPU, which computes bfloat16 in float32, on copies that calls make.

    Raises:
        DTypeError: As `_check_rounding`.
    """
    asked = None if dtype is None else parse_dtype(dtype)
    if asked is not BFLOAT16 and all(x.dtype is not BFLOAT16 for x in specs):
        return specs, dtype
    rounds = _check_rounding(dtype, [x.dtype for x in specs[:operands]])
    wide = [x.dtype is BFLOAT16 or (rounds and i < operands) for i, x in enumerate(specs)]
    specs = [converted(x, FLOAT32) if y else x for x, y in zip(specs, wide, strict=True)]
    return specs, FLOAT32 if asked is BFLOAT16 else dtype


def meant_arch(arch: Any) -> str:
    """The architecture that `arch=` means.

    Raises:
        OptionError: It means none, or several; the text says which were near.
    """
    name = arch if isinstance(arch, str) else ""
    if name == "cpu":
        return name
    from gett.hw.archs import ARCHS, archs_named

    if name and len(found := archs_named(name)) == 1:
        return found[0]
    digits = "".join(re.findall(r"\w", str(arch))).rstrip("af")  # of a number, of a pair, of a target with a suffix
    near = archs_named(str(arch)) or archs_named(digits)
    if _GPU_ARCH.fullmatch(name) and not near:
        return name  # what is known, the schedules say
    hint = ": did you mean " + " or ".join(f"{x!r} ({ARCHS[x].name})" for x in near) + "?" if near else ""
    raise OptionError(f"arch={arch!r}; it must be 'cpu', a target such as 'sm_90a' or a GPU such as 'H100'{hint}")


def described_pair(x: Any, name: str) -> TensorSpec | None:
    """The description that a `(shape, dtype)` pair stands for, None if `x` is no such pair."""
    if not isinstance(x, tuple):
        return None
    if x and is_shape(x):
        raise ShapeError(
            f"{name} is {brief(x)}, a shape without a dtype: a plan takes arrays or pairs (shape, dtype), such as "
            f"({brief(x)}, 'float64')"
        )
    if len(x) != 2 or not isinstance(x[0], (tuple, list)):
        return None
    try:
        dtype = parse_dtype(x[1])
    except DTypeError as error:
        raise DTypeError(f"{name}: {error}") from error
    if not is_shape(x[0]) or min(x[0], default=0) < 0:
        raise ShapeError(f"{name}: {brief(x[0])} is no shape")
    shape = tuple(int(e) for e in x[0])
    if any(extent >= 1 << 63 for extent in shape):
        raise ShapeError(f"{name} of shape {brief(shape)} has an extent of 2^63 or more, which no array has")
    if len(shape) > MAX_AXES:
        raise ShapeError(f"{name} has {len(shape)} axes; arrays have at most {MAX_AXES}")
    return TensorSpec(shape, dense_strides(shape, dtype.itemsize), dtype)
