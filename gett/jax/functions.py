"""`gett.jax.einsum` and `gett.jax.contract`: from arguments to products of pairs, each one call of the primitive.

Owns the checks of arguments, JAX's promotion of dtypes, and how operands are viewed before the first product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import gett.jax.running  # noqa: F401  (registers what runs products)
from gett.api.contract import split_factors
from gett.arrays.exported import spell
from gett.errors import DTypeError, MixedArraysError, OperandError, SubscriptsError
from gett.ir.build import address_c, resolve_extents
from gett.ir.subscripts import listed, parse, split_arguments
from gett.ir.tensors import TensorSpec, check_supported, dense_strides, own_dtype, parse_dtype
from gett.jax.primitive import Product, contracted, jax_dtype
from gett.network.optimize import in_elements
from gett.network.products import Reading, products_of
from gett.plans.call import Call, make_call
from gett.plans.checks import resolve_addend
from gett.plans.precision import usual_precision
from gett.plans.recording import settle, steps_of
from gett.plans.unsliced import unsliced

if TYPE_CHECKING:
    from gett.typing import Casting, DType, Optimize, Precision, Size


def einsum(
    subscripts: Any = None,
    /,
    *operands: Any,
    dtype: DType = None,
    casting: Casting = "safe",
    optimize: Optimize = True,
    precision: Precision | None = None,
    conj: Sequence[bool] | None = None,
    workspace_limit: Size | None = None,
    memory_limit: Size | float | None = None,
) -> jax.Array:
    """Contract arrays as `gett.einsum` does, within JAX's transformations too.

    It works under `jax.jit`, `grad`, `vjp`, `jvp`, `vmap`, `hessian`, `jacfwd`, `jacrev`, `checkpoint` and `shard_map`,
    in any composition. Each derivative is a contraction by gett. A network is contracted in pairs along a path that is
    found from the shapes, when the call is traced.

    Args:
        subscripts: As for `gett.einsum`, the interleaved form included.
        operands: JAX's arrays and tracers, NumPy's arrays, and numbers.
        dtype: dtype of the result; by default JAX's promotion of the operands, where Python's numbers are weak.
        casting: NumPy's rule for conversions to `dtype`.
        optimize: As for `gett.einsum`.
        precision: As for `gett.einsum`. That of `gett.precision` holds where a call is traced.
        conj: As for `gett.einsum`: one bool for each operand, whether it is conjugated.
        workspace_limit: As for `gett.einsum`.
        memory_limit: As for `gett.einsum`, but a share means nothing here, and nothing is sliced: a limit that no path
            keeps is an error.

    Returns:
        An array whose axes are the output's labels.

    Raises:
        SubscriptsError, ShapeError, OptionError, PrecisionError: (ValueError) The argument is at fault.
        PathError: (ValueError and RuntimeError) The path of `optimize` leaves arrays uncontracted.
        DTypeError, OperandError, MixedArraysError: (TypeError) What is given is no array of JAX or NumPy, has an
            unsupported dtype, or cannot be cast.

    Example:
        >>> import gett.jax, jax, jax.numpy as jnp
        >>> a, b = jnp.ones((2, 3)), jnp.ones((4, 3))
        >>> jax.jit(lambda a, b: gett.jax.einsum("ik,jk->ij", a, b))(a, b).shape
        (2, 4)
        >>> jax.grad(lambda a: gett.jax.einsum("ik,jk->", a, b))(a)[0]
        Array([4., 4., 4.], dtype=float32)
    """
    held = usual_precision() if precision is None else precision
    settings = dtype, casting, optimize, held, workspace_limit, memory_limit
    return _run(_einsum, subscripts, conj, settings, operands)


def contract(
    subscripts: Any = None,
    /,
    *operands: Any,
    c: Any = None,
    alpha: Any = 1,
    beta: Any = None,
    optimize: Optimize = True,
    precision: Precision | None = None,
    conj: Sequence[bool] | None = None,
    workspace_limit: Size | None = None,
    memory_limit: Size | float | None = None,
) -> jax.Array:
    """Compute `alpha * einsum(subscripts, *operands) + beta * c`, within JAX's transformations too.

    Args:
        subscripts: As for `einsum`.
        operands: As for `einsum`. One array more is `c`, as in `gett.contract`.
        c: Added after scaling; its axes are the result's last ones and broadcast as NumPy's do. Where beta is the
            number 0 its values are not read, but its shape and dtype count.
        alpha: A number that the result's dtype can hold; the kernel multiplies by it. A JAX array of rank 0, or a
            tracer, is multiplied behind the kernel and may be differentiated.
        beta: Likewise, the factor of `c`; 1 by default where there is a `c`.
        optimize: As for `einsum`.
        precision: As for `einsum`.
        conj: As for `einsum`, of the operands alone.
        workspace_limit: As for `einsum`.
        memory_limit: As for `einsum`.

    Returns:
        An array whose axes are the output's labels; its dtype is JAX's promotion of the operands and `c`.

    Raises:
        GettError: As `einsum`; OptionError if beta is not 0 and there is no `c`, or a factor is beyond the dtype's
            range.

    Example:
        >>> import gett.jax, jax.numpy as jnp
        >>> a, bias = jnp.ones((2, 3)), jnp.ones(2)
        >>> gett.jax.contract("ik,jk->ij", a, a, c=bias, alpha=2)
        Array([[7., 7.],
               [7., 7.]], dtype=float32)
    """
    held = usual_precision() if precision is None else precision
    settings = c is not None, alpha, beta, optimize, held, workspace_limit, memory_limit
    return _run(_contract, subscripts, conj, settings, operands if c is None else (*operands, c))


def _run(
    function: Callable[..., Any], subscripts: Any, conj: Any, settings: tuple[Any, ...], arrays: Sequence[Any]
) -> Any:
    """`function(subscripts, conj, *settings, *arrays)`, on arrays that hold values as one program, compiled once."""
    arguments = subscripts, conj, *settings
    if isinstance(subscripts, str) and all(map(_holds_values, arrays)):
        with suppress(TypeError):  # arguments without a hash, such as a list or an array of rank 0
            if conj is None or all([x.__class__ is bool for x in conj]):  # 1 has the hash of True
                function, arguments = _program(function, *arguments), ()
    return function(*arguments, *arrays)


def _holds_values(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)


@lru_cache(maxsize=1024, typed=True)
def _program(function: Callable[..., Any], *settings: Any) -> Callable[..., Any]:
    """A call with all but its arrays, compiled; within a trace it is traced as if it were not."""
    compiled: Callable[..., Any] = jax.jit(partial(function, *settings), inline=True)
    return compiled


def _einsum(
    subscripts: Any,
    conj: Any,
    dtype: Any,
    casting: Any,
    optimize: Any,
    precision: Any,
    workspace_limit: Any,
    memory_limit: Any,
    *operands: Any,
) -> jax.Array:
    spec, found = split_arguments(subscripts, operands)
    found = listed(spec, found)
    arrays, _, asked, rule = _promoted(found, None, dtype, casting)
    call = make_call(spec, arrays, None, asked, "C", rule, optimize, precision, conj, workspace_limit, memory_limit)
    return _computed(call, 1, 0)


def _contract(
    subscripts: Any,
    conj: Any,
    has_c: bool,
    alpha: Any,
    beta: Any,
    optimize: Any,
    precision: Any,
    workspace_limit: Any,
    memory_limit: Any,
    *operands: Any,
) -> jax.Array:
    operands, c = (operands[:-1], operands[-1]) if has_c else (operands, None)
    spec, factors, c = split_factors(subscripts, operands, c)
    if isinstance(beta, jax.Array):
        resolve_addend(c, 1, None)
    else:
        c, beta = resolve_addend(c, beta, None)
    arrays, c, asked, rule = _promoted(factors, c, None, "unsafe")
    kept = [1 if isinstance(x, jax.Array) else x for x in (alpha, beta)]
    call = make_call(
        spec, arrays, None, asked, "C", rule, optimize, precision, conj, workspace_limit, memory_limit, c, *kept
    )  # fmt: skip
    return _computed(call, alpha, beta)


def _promoted(operands: Sequence[Any], c: Any, dtype: Any, casting: Any) -> tuple[list[Any], Any, Any, Any]:
    """The operands and `c` as arrays, the dtype to compute in, and the rule for conversions."""
    named = [(f"operand {i}", x) for i, x in enumerate(operands)] + ([] if c is None else [("c", c)])
    arrays = [_array(x, name) for name, x in named]
    given = arrays[: len(operands)], None if c is None else arrays[-1]
    if dtype is None:
        if not named:
            raise SubscriptsError("einsum needs at least one operand")
        weak = [x if isinstance(x, (bool, int, float, complex)) else y for (_, x), y in zip(named, arrays, strict=True)]
        return *given, own_dtype(np.dtype(jnp.result_type(*weak))), "unsafe"
    asked = parse_dtype(dtype)
    if asked.name in ("int64", "uint64", "float64", "complex128") and not jax.config.jax_enable_x64:
        raise DTypeError(f"dtype={asked} needs jax.config.update('jax_enable_x64', True)")
    return *given, asked, casting


def _array(x: Any, name: str) -> Any:
    """An argument as an array of JAX.

    Raises:
        MixedArraysError: It is an array of another library, but not NumPy's.
        DTypeError: Its dtype is unsupported.
        OperandError: It cannot become an array.
    """
    if not isinstance(x, (jax.Array, np.ndarray, np.generic, bool, int, float, complex, list, tuple)):
        if hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"):
            raise MixedArraysError(f"{name} is a {spell(x)}; gett.jax takes JAX's arrays: pass jnp.from_dlpack of it")
        raise OperandError(f"{name} is a {spell(x)}, which is no array of JAX")
    if isinstance(x, np.ndarray):
        check_supported(own_dtype(x.dtype), name)
    try:
        found = jnp.asarray(x)
    except (TypeError, ValueError, OverflowError) as error:
        raise OperandError(f"{name} of type {type(x).__name__} cannot become an array: {error}") from error
    if jax.dtypes.issubdtype(found.dtype, jax.dtypes.extended):
        raise DTypeError(f"{name} has dtype {found.dtype}, which has no products")
    check_supported(own_dtype(np.dtype(found.dtype)), name)
    return found


def _computed(call: Call, alpha: Any, beta: Any) -> jax.Array:
    """What a call asks for; alpha and beta may be arrays, for which 1 stands in the call."""
    operands, c = call.operands, call.c
    described = [_describe(x) for x in operands]
    subscripts = parse(call.spec, [x.ndim for x in operands])
    extents = resolve_extents(subscripts, [x.shape for x in described])
    added = None if c is None else _describe(c)
    known = settle(call, described, added)
    if added is not None:
        address_c(subscripts.output, added, extents)
    result = jax_dtype(known.dtype)
    call = unsliced(call, [x.shape for x in described], known.dtype.itemsize)
    products = products_of(call.spec, [x.shape for x in described], in_elements(call.optimize, known.dtype.itemsize))
    arrays = [
        _viewed(reading, x).astype(jax_dtype(dtype))
        for reading, x, dtype in zip(products.readings, operands, known.read, strict=True)
    ]
    c = None if c is None or (known.beta == 0 and beta is call.beta) else c.astype(result)
    apart = alpha is not call.alpha or beta is not call.beta
    found: Any = None
    for factor, conj, dtype in steps_of(products, known):
        inputs = [arrays[i] for i in factor.inputs]
        product = Product(factor.terms, factor.output, conj, 1, 0, jax_dtype(dtype), call.precision, call.limit)
        if factor is products.factors[-1]:
            product = replace(product, alpha=known.alpha, beta=known.beta)
            found = contracted(product, inputs, None if apart else c)
        else:
            arrays.append(contracted(product, inputs))
    if not apart:
        return found
    found = found if alpha is call.alpha else found * _factor(alpha, "alpha", result)
    return found if c is None else found + c * _factor(beta, "beta", result)


def _factor(value: Any, name: str, dtype: Any) -> Any:
    """A factor that is an array, or one beside it, in the result's dtype.

    Raises:
        DTypeError: It is no number, or complex or fractional where the result is not.
    """
    found = jnp.asarray(value)
    if found.ndim:
        raise DTypeError(f"{name} must be a number, not an array of shape {found.shape}")
    if "biufc".index(found.dtype.kind.replace("V", "f")) > "biufc".index(dtype.kind.replace("V", "f")):
        raise DTypeError(f"{name} has dtype {found.dtype}, the contraction is in {dtype}")
    return found.astype(dtype)


def _describe(x: Any) -> TensorSpec:
    dtype = own_dtype(np.dtype(x.dtype))
    return TensorSpec(tuple(x.shape), dense_strides(x.shape, dtype.itemsize), dtype)


def _viewed(reading: Reading, x: Any) -> Any:
    """An operand with each label once, by JAX's operations, which it can differentiate."""
    x = jnp.squeeze(x, reading.dropped) if reading.dropped else x
    for first, second in reading.diagonals:
        x = jnp.diagonal(x, axis1=first, axis2=second)
    return x
