"""Contractions that NumPy's own einsum computes: arrays of dtype object, longdouble or clongdouble on the CPU.

Owns the way there: the subscripts, options and errors are this package's, the arithmetic is NumPy's. There are no plans
for these dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gett.arrays.kinds import NUMPY
from gett.errors import DTypeError, SubscriptsError
from gett.ir.build import address_c, choose_order, resolve_extents
from gett.ir.subscripts import Subscripts, parse
from gett.ir.tensors import (
    NUMPY_EINSUM,
    NUMPY_ONLY,
    SUPPORTED,
    is_numpy_only,
    parse_dtype,
    promote,
    resolve_precision,
)
from gett.network.optimize import check_optimize, in_elements
from gett.network.path import NEVER, find_steps
from gett.network.steps import PathStep
from gett.plans.call import Call
from gett.plans.checks import check_factors, check_out
from gett.plans.unsliced import unsliced

_MAX_MODES = 52  # letters that NumPy's einsum has


def is_numpys(arrays: Sequence[Any], dtype: Any = None) -> bool:
    """Whether a contraction of NumPy arrays, `out` among them, and a `dtype=` is NumPy's to compute."""
    return any([is_numpy_only(x.dtype) for x in arrays]) or (dtype is not None and is_numpy_only(parse_dtype(dtype)))


def numpy_contraction(call: Call) -> Any:
    """`alpha * einsum(spec, *operands) + beta * c` by NumPy, of a call whose operands and `c` are NumPy arrays.

    The objects' own errors come through as they are.

    Raises:
        GettError: As `einsum`; SubscriptsError for more modes than NumPy's einsum can name; DTypeError for an epilogue.
    """
    operands, out, c = call.operands, call.out, call.c
    if call.epilogue is not None:
        raise DTypeError("epilogue= takes no arrays of object, longdouble or clongdouble, which NumPy contracts")
    specs = [NUMPY.describe(x) for x in operands]
    subscripts = parse(call.spec, [x.ndim for x in operands])
    extents = resolve_extents(subscripts, [x.shape for x in operands], None if out is None else out.shape)
    out_spec = None if out is None else check_out(out, NUMPY, NUMPY.device(out))
    named = [] if c is None else [("c", NUMPY.describe(c))]
    result = promote(specs, named, out_spec, call.dtype, call.casting, SUPPORTED | NUMPY_ONLY)
    resolve_precision(call.precision, result)
    if c is not None:
        address_c(subscripts.output, named[0][1], extents)
    alpha, beta = check_factors(call.alpha, call.beta, result)
    if len(extents) > _MAX_MODES:
        raise SubscriptsError(
            f"the subscripts have {len(extents)} modes; in {result}, NumPy's einsum computes, which takes {_MAX_MODES}"
        )
    shape = tuple(extents[m] for m in subscripts.output)
    d = NUMPY.empty(shape, result, choose_order(call.order, specs))
    call = unsliced(call, [x.shape for x in operands], result.itemsize)
    steps = _steps(subscripts, extents, in_elements(call.optimize, result.itemsize))
    if 0 in extents:  # NumPy 2.4's einsum writes beyond an empty array of clongdouble
        d[...] = 0
    else:
        arrays = [x.astype(result, copy=False) for x in operands]
        for i, flag in enumerate(call.conj or ()):
            if flag:
                arrays[i] = np.conjugate(arrays[i])  # a copy: what else would do, objects need not know
        _run_steps(steps, subscripts, extents, arrays, d)
    if not (isinstance(alpha, int) and alpha == 1):
        np.multiply(d, alpha, out=d)
    if c is not None and beta != 0:
        np.add(d, np.multiply(c.astype(result, copy=False), beta), out=d)
    if out is None:
        return d if shape else d[()]
    np.copyto(out, d, casting="unsafe")
    return out


def _steps(subscripts: Subscripts, extents: Sequence[int], optimize: Any) -> tuple[PathStep, ...]:
    """The contractions that a plan would have."""
    count = len(subscripts.inputs)
    check_optimize(optimize, count)
    if count < 3 or 0 in extents:
        return (PathStep(tuple(range(count)), count, subscripts.output),)
    terms = [tuple(dict.fromkeys(modes)) for modes in subscripts.inputs]
    return find_steps(terms, subscripts.output, extents, terms, optimize, NEVER)[0]  # objects need not distribute


def _run_steps(
    steps: Sequence[PathStep], subscripts: Subscripts, extents: Sequence[int], operands: Sequence[Any], d: Any
) -> None:
    """Each step by NumPy's einsum, which gives an array only where it writes one: a scalar may be any object."""
    tensors = {}
    for i, (x, modes) in enumerate(zip(operands, subscripts.inputs, strict=True)):
        tensors[i] = np.broadcast_to(x, [extents[m] for m in modes]), modes
    for step in steps:
        arguments: list[Any] = []
        for i in step.inputs:
            array, modes = tensors.pop(i)
            arguments += [array, list(modes)]
        target = d if step is steps[-1] else NUMPY.empty([extents[m] for m in step.modes], d.dtype)
        NUMPY_EINSUM(*arguments, list(step.modes), out=target, optimize=False)
        tensors[step.output] = target, step.modes
