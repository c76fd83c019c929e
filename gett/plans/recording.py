"""Calls of which PyTorch records derivatives: from a `Call` to products that its autograd function computes.

Owns the checks of such calls, and the order of their products: pairs of tensors along the path of a network. What a
derivative is `gett.arrays.torch_autograd` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from gett.arrays.interop import gather_recorded
from gett.arrays.torch import TorchLibrary, torch_library
from gett.arrays.torch_autograd import Product, contracted
from gett.arrays.torch_chain import BoundChain, Chain, node_of
from gett.arrays.torch_checkpoint import Intermediates
from gett.arrays.torch_epilogue import Finish, finished
from gett.epilogue.types import value_types
from gett.errors import GradientError, ShapeError, SubscriptsError
from gett.hw.dtypes import data_type
from gett.ir.build import address_c, address_extra, choose_order, resolve_extents
from gett.ir.subscripts import parse, symbols
from gett.ir.tensors import BFLOAT16, TensorSpec, factor_dtype, promote, resolve_precision
from gett.network.optimize import in_elements
from gett.network.path import Path
from gett.network.products import Factor, Products, Reading, products_of
from gett.network.request import PlanRequest
from gett.plans.call import Call, make_call, product_call, trace_epilogue
from gett.plans.checks import check_factors, check_fits, check_planned
from gett.plans.unsliced import unsliced

Compute = Callable[[Call], Any]


def record(call: Call, compute: Compute) -> Any:
    """What a call asks for, as a tensor that PyTorch can differentiate.

    Args:
        call: Of which at least one argument is a tensor.
        compute: Computes calls of which nothing is recorded.

    Raises:
        GradientError: What is asked for has no derivatives: `out=`, a result of integers.
        GettError: As `einsum`.
    """
    torch = torch_library()
    assert torch is not None
    if call.out is not None:
        raise GradientError(
            "out= is given, but derivatives are recorded, or the call is within a transformation of torch.func: "
            "use the result that the call returns, or call within torch.no_grad() on x.detach()"
        )
    if not call.operands:
        raise SubscriptsError("einsum needs at least one operand")
    operands, c, arguments = _tensors(call)
    if call.memory is not None:
        settled = settle(call, [_describe(torch, x) for x in operands], None if c is None else _describe(torch, c))
        call = unsliced(call, [tuple(x.shape) for x in operands], settled.dtype.itemsize, kept=True)
    if call.epilogue is not None:
        return _record_epilogue(torch, call.changed(operands=operands, c=c), arguments, compute)
    recipe = _recipe_of(call, compute, operands, c)
    if recipe.dtype.kind in "biu":
        _check_integers(operands, recipe.dtype)
    c = None if c is None or recipe.beta == 0 else _as_dtype(c, recipe.own)
    tensors = recipe.prepared(operands)
    if c is None and call.checkpoint is None and torch.modes.is_plain(tensors):
        return node_of(torch).apply(recipe.chain, *tensors)
    return _record_products(torch, call, recipe.chain, tensors, c)


def _record_products(torch: TorchLibrary, call: Call, chain: Chain, tensors: list[Any], c: Any) -> Any:
    """The result of a chain whose products PyTorch sees one by one."""
    kept = _intermediates(torch, call, len(chain.steps), tensors)
    *steps, (last, product) = chain.steps
    for inputs, step in steps:
        given = [tensors[i] for i in inputs]
        saving = nullcontext() if kept is None else kept.saving(inputs, given)
        for i in inputs:
            tensors[i] = None
        with saving:
            tensors.append(contracted(step, given))
        if kept is not None:
            kept.add(len(tensors) - 1, tensors[-1], step, inputs)
    given = [tensors[i] for i in last]
    with nullcontext() if kept is None else kept.saving(last, given):
        return contracted(product, given, c)


Bind = Callable[[Product, Sequence[Any]], tuple[Any, Sequence[Any]]]


def record_bound(call: Call, compute: Compute, bind: Bind) -> BoundChain:
    """What runs calls of tensors on one GPU that lie alike, whose derivatives are recorded; without factors or `c`.

    Args:
        call: One of these calls.
        compute: Computes calls of which nothing is recorded.
        bind: From a product and tensors to what runs it, and to the steps of its plan.

    Raises:
        GettError: As `record`.
    """
    operands, _, _ = _tensors(call)
    recipe = _recipe_of(call, compute, operands, None)
    if recipe.dtype.kind in "biu":
        _check_integers(operands, recipe.dtype)
    plain = not any(recipe.readings) and all(x.dtype is y for x, y in zip(operands, recipe.read, strict=True))
    return BoundChain(recipe.chain, None if plain else recipe.prepared, bind)


class Recipe(NamedTuple):
    """What is done for all calls whose tensors have the same layouts and dtypes.

    Attributes:
        dtype: Of the result.
        own: PyTorch's.
        beta: Factor of `c`.
        readings: Views that give an operand each label once, None for an operand that has them so.
        read: PyTorch's dtype in which each operand is read.
        chain: The products.
    """

    dtype: np.dtype[Any]
    own: Any
    beta: Any
    readings: tuple[Reading | None, ...]
    read: tuple[Any, ...]
    chain: Chain

    def prepared(self, operands: Sequence[Any]) -> list[Any]:
        """What the products read: views and conversions of operands, which PyTorch differentiates."""
        return [
            _as_dtype(x if reading is None else _viewed(reading, x), dtype)
            for reading, x, dtype in zip(self.readings, operands, self.read, strict=True)
        ]


def _recipe_of(call: Call, compute: Compute, operands: Sequence[Any], c: Any) -> Recipe:
    """The recipe of a call, worked out once."""
    layouts = tuple([_layout(x) for x in operands])
    added = None if c is None else _layout(c)
    factors = call.alpha, call.beta, type(call.alpha), type(call.beta)
    options = call.dtype, call.order, call.casting, call.optimize, call.precision, call.conj, call.limit, *factors
    try:
        return _known_recipe(compute, call.spec, options, layouts, added)
    except TypeError:  # an option, or an extent that is still a symbol, has no hash
        return _known_recipe.__wrapped__(compute, call.spec, options, layouts, added)


@lru_cache(maxsize=4096)
def _known_recipe(compute: Compute, spec: Any, options: tuple[Any, ...], layouts: tuple[Any, ...], c: Any) -> Recipe:
    torch = torch_library()
    assert torch is not None
    dtype, order, casting, optimize, precision, conj, limit, alpha, beta, *_ = options
    call = make_call(
        spec, layouts, None, dtype, order, casting, True, precision, None, None, None, None, alpha, beta
    ).changed(optimize=optimize, memory=None, conj=conj, limit=limit, alpha=alpha, beta=beta, precision=precision)
    described = [_described(torch, *x) for x in layouts]
    subscripts = parse(spec, [len(x.shape) for x in described])
    extents = resolve_extents(subscripts, [x.shape for x in described])
    added = None if c is None else _described(torch, *c)
    known, own = settle(call, described, added), torch.own_dtypes
    if added is not None:
        address_c(subscripts.output, added, extents)
    products = products_of(spec, [x.shape for x in described], in_elements(optimize, known.dtype.itemsize))
    steps = [
        (x.inputs, Product(x.terms, x.output, f, 1, 0, own[t.name], "C", precision, limit, runner(compute)))
        for x, f, t in steps_of(products, known)
    ]
    steps[-1] = steps[-1][0], replace(steps[-1][1], alpha=known.alpha, beta=known.beta, order=known.order)
    readings = tuple(x if x.dropped or x.diagonals else None for x in products.readings)
    read = tuple(own[x.name] for x in known.read)
    return Recipe(known.dtype, own[known.dtype.name], known.beta, readings, read, Chain(len(layouts), tuple(steps)))


def _layout(x: Any) -> tuple[Any, ...]:
    return tuple(x.shape), x.stride(), x.dtype


def _described(torch: TorchLibrary, shape: Sequence[int], stride: Sequence[int], dtype: Any) -> TensorSpec:
    """A tensor of a layout, which need not have memory."""
    own = torch.dtypes[dtype]
    return TensorSpec(tuple(shape), tuple(s * own.itemsize for s in stride), own, 1)


def _intermediates(torch: TorchLibrary, call: Call, count: int, operands: Sequence[Any]) -> Intermediates | None:
    """What keeps some intermediates of `count` products; None where all are kept, or PyTorch has no hooks."""
    if call.checkpoint is None or count < 2:
        return None
    if torch.modes.transforms() or torch.modes.traces(operands):
        return None
    return Intermediates(torch.module, call.checkpoint, operands)


def _record_epilogue(torch: TorchLibrary, call: Call, arguments: Sequence[Any], compute: Compute) -> Any:
    """The contraction first, in the type that sums have, and the epilogue of that: a derivative reads both.

    Raises:
        EpilogueError: The epilogue does what none can, or an argument does not fit.
    """
    described = [_describe(torch, x) for x in call.operands]
    known = settle(call, described, None if call.c is None else _describe(torch, call.c))
    specs = [_describe(torch, x) for x in arguments]
    expression = trace_epilogue(call.epilogue, specs)
    assert expression is not None
    kept = np.dtype(data_type(known.dtype.name).accumulator) if known.dtype.kind not in "biu" else known.dtype
    plain = call.changed(epilogue=None, extras=(), dtype=kept if kept != known.dtype else call.dtype)
    d = record(plain, compute)
    for x in expression.extras:
        address_extra(tuple(range(d.ndim)), specs[x.argument], x, d.shape)
    value_types(expression, kept.name, [specs[x.argument].dtype.name for x in expression.extras])
    labels = "".join(islice(symbols(), d.ndim))
    product = Product(
        (labels,), labels, (False,), 1, 0, d.dtype, known.order, call.precision, call.limit, runner(compute)
    )
    found = finished(Finish(expression, product, finisher(compute)), d, arguments)
    return _as_dtype(found, torch.own_dtypes[known.dtype.name])


@lru_cache(maxsize=8)
def finisher(compute: Compute) -> Callable[[Finish, Any, Sequence[Any]], Any]:
    """What computes epilogues by `compute`."""
    return partial(_finish, compute)


def _finish(compute: Compute, finish: Finish, d: Any, arguments: Sequence[Any]) -> Any:
    """The epilogue of a tensor, without derivatives."""
    product, labels = finish.product, "".join(islice(symbols(), d.ndim))
    return compute(
        make_call(
            f"{labels}->{labels}", (d,), None, product.dtype, product.order, "unsafe", True, product.precision, None,
            product.limit, -1, epilogue=finish.expression, extras=tuple(arguments),
        )
    )  # fmt: skip


class Settled(NamedTuple):
    """What a call comes to before its products are found.

    Attributes:
        dtype: Of the result.
        read: The dtype that each operand is read in.
        conj: For each operand whether it is conjugated.
        alpha: Factor of the contraction, as `dtype` holds it.
        beta: Factor of `c`.
        order: Memory order of the result.
    """

    dtype: np.dtype[Any]
    read: tuple[np.dtype[Any], ...]
    conj: tuple[bool, ...]
    alpha: Any
    beta: Any
    order: str


def settle(call: Call, operands: Sequence[TensorSpec], c: TensorSpec | None) -> Settled:
    """What a call comes to, by the dtypes of its tensors and the order of their strides.

    Raises:
        DTypeError, PrecisionError, OptionError: An argument is at fault.
    """
    dtype = promote(operands, [] if c is None else [("c", c)], None, call.dtype, call.casting)
    resolve_precision(call.precision, dtype)
    alpha, beta = check_factors(call.alpha, call.beta, dtype)
    conj = call.conj or (False,) * len(operands)
    read = tuple(_read_in(x.dtype, dtype) for x in operands)
    return Settled(dtype, read, conj, alpha, beta, choose_order(call.order, operands))


def steps_of(products: Products, known: Settled) -> Iterator[tuple[Factor, tuple[bool, ...], np.dtype[Any]]]:
    """Each product with the flags of its inputs and the dtype of its result: real while all that it is made of is."""
    dtypes, flags = [*known.read], [*known.conj, *[False] * len(products.factors)]
    for factor in products.factors:
        dtype = known.dtype
        if factor is not products.factors[-1] and all(dtypes[i].kind != "c" for i in factor.inputs):
            dtype = factor_dtype(np.dtype(float), dtype)
        dtypes.append(dtype)
        yield factor, tuple(flags[i] for i in factor.inputs), dtype


def record_planned(
    call: Call, request: PlanRequest, path: Path, order: str, dtype: np.dtype[Any], replan: Callable[..., Any]
) -> Any:
    """What a call of a plan asks for, as a tensor that PyTorch can differentiate.

    Shapes and dtypes must be the plan's. Strides need not be, since transformations give tensors others.

    Args:
        call: The arguments; the options are the plan's.
        request: What the plan was made for.
        path: That the plan follows.
        order: Memory order of a new result.
        dtype: In which the plan forms products.
        replan: From another request to its plan.

    Raises:
        GradientError: As `record`.
        ShapeError, DTypeError: An operand does not fit the plan.
    """
    torch = torch_library()
    assert torch is not None
    operands, _, arguments = _tensors(call)
    if len(operands) != len(request.operands):
        raise ShapeError(f"the plan takes {len(request.operands)} operands, {len(operands)} were given")
    own = [torch.dtypes[x.dtype] for x in operands]
    widened = request.arch == "cpu" and BFLOAT16 in own
    for i, (x, want) in enumerate(zip(operands, request.operands, strict=True)):
        have = replace(want, shape=tuple(x.shape), dtype=want.dtype if widened else own[i])
        check_fits(f"operand {i}", want, have, ShapeError, False)
    check_planned(request.epilogue_args, [_describe(torch, x) for x in arguments])
    options = call.changed(
        dtype=None if widened else dtype, order=order, optimize=path if len(path) > 1 else True,
        casting=request.casting, conj=request.conj, limit=request.workspace_limit,
        memory=request.memory_limit,
    )  # fmt: skip
    return record(options, _by_plans(replan))


@lru_cache(maxsize=8)
def _by_plans(replan: Callable[..., Any]) -> Compute:
    return partial(_compute_by, replan)


def _compute_by(replan: Callable[..., Any], call: Call) -> Any:
    """What a call asks for, of which nothing is recorded, by the plan of its request."""
    loan = call.borrowed()
    if loan is not None:
        return loan.finish(_compute_by(replan, call.lent(loan)))
    kind, device, operands, c, extras = call.gathered()
    described, added = [kind.describe(x) for x in operands], None if c is None else kind.describe(c)
    read = [kind.describe(x) for x in extras]
    context = kind.on(device)
    with nullcontext() if context is None else context:
        plan = replan(call.request(kind, described, added, None, read, kind.arch(device), device))
    return plan.run(kind, device, operands, c, None, *check_factors(call.alpha, call.beta, plan.dtype), extras)


def _tensors(call: Call) -> tuple[list[Any], Any, list[Any]]:
    """The operands, `c` and the arguments of the epilogue as tensors of one device."""
    count = len(call.operands)
    found = gather_recorded(*call.named())
    c = None if call.c is None else found.pop()
    return found[:count], c, found[count:]


def _describe(torch: TorchLibrary, x: Any) -> TensorSpec:
    """Shape, strides and dtype of a tensor that need not have memory."""
    return _described(torch, *_layout(x))


def _read_in(given: np.dtype[Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that a product reads an operand in: 16 bits beside a float32 result, and real beside complex, stay."""
    short = given is BFLOAT16 or given == np.float16
    return given if short and dtype == np.float32 else factor_dtype(given, dtype)


def _check_integers(operands: Sequence[Any], dtype: np.dtype[Any]) -> None:
    """Refuse a result that has no derivatives, where an operand's are recorded.

    Raises:
        GradientError: An operand requires a gradient; the text names it.
    """
    for i, x in enumerate(operands):
        if x.requires_grad:
            raise GradientError(f"operand {i} requires a gradient, but a result of {dtype} has none")


def _as_dtype(x: Any, dtype: Any) -> Any:
    return x if x.dtype is dtype else x.to(dtype)


def _viewed(reading: Reading, x: Any) -> Any:
    """An operand with each label once: PyTorch's views of it, which it can differentiate."""
    for axis in reading.dropped:
        x = x.squeeze(axis)
    for first, second in reading.diagonals:
        x = x.diagonal(dim1=first, dim2=second)
    return x


@lru_cache(maxsize=8)
def runner(compute: Compute) -> Callable[[Product, Sequence[Any], Any], Any]:
    """What computes products by `compute`."""
    return partial(_run, compute)


def _run(compute: Compute, product: Product, operands: Sequence[Any], c: Any) -> Any:
    """D of a product, without derivatives."""
    return compute(product_call(product, operands, c=c))
