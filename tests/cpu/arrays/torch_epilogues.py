"""Derivatives of epilogues of PyTorch's tensors; run where PyTorch is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gett
from gett import ops
from gett.epilogue.operations import OPERATIONS

Case = tuple[Callable[..., Any], list[tuple[int, ...]]]
REAL: list[Case] = [
    (lambda d, x: ops.relu(d + x), [(2,)]),
    (lambda d, x: ops.silu(d + x[:, None]), [(3,)]),
    (lambda d: ops.gelu(d) + ops.gelu(d, "tanh"), []),
    (lambda d, x, y: d / (3 + x[:, None] * x[:, None] - np.sin(y)), [(3,), (2,)]),
    (lambda d, x: np.where(d > x, d * x, np.exp(d)), [(3, 2)]),
    (lambda d, x: d * x + x, [()]),
    (lambda d, x: d * x + np.cos(x), [(3, 1)]),
    (lambda d, x: x * x, [(2,)]),  # of which the contraction's gradient is none
    (lambda d: np.floor(d) + np.sign(d) + d.astype("int32") + d, []),
    (lambda d: np.sqrt(1 + d * d) + np.abs(d) + np.log(2 + d * d) + np.log1p(d * d) + np.minimum(d, 0.3), []),
    (lambda d: np.expm1(d) + ops.sigmoid(d) + np.clip(d, -0.5, 0.5) + ops.erf(d) + np.tanh(d) - d**3 + (-d), []),
]
COMPLEX: list[Case] = [
    (lambda d, x: np.exp(0.3 * d) * x, [(2,)]),
    (lambda d, x: np.conj(d) * np.abs(d + x) + np.sqrt(d) * np.real(x) + np.log(d) / x + np.imag(d) * d, [(3, 1)]),
    (lambda d: np.where(np.abs(d) > 1, d, d * d), []),
]
NONE = {"floor", "ceil", "rint", "sign", "isnan", "truth", "invert", "bitwise_and", "bitwise_or", "bitwise_xor"}
NONE |= {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}


def check_epilogues(torch: Any) -> None:
    """First and second derivatives, of the arguments too."""
    for dtype, cases in ((torch.float64, REAL), (torch.complex128, COMPLEX)):
        for function, shapes in cases:
            _check(torch, function, [_random(torch, s, dtype) for s in ((3, 4), (4, 2), *shapes)])
    real = _random(torch, (2,), torch.float64)
    a, b = (_random(torch, s, torch.complex128) for s in ((3, 4), (4, 2)))
    _check(torch, lambda d, x: d * x + np.real(d) * x, [a, b, real])
    square, row = _random(torch, (2, 4), torch.float64), _random(torch, (2,), torch.float64)
    _check(torch, lambda d, x: d * x + x[:, None], [square, _random(torch, (4, 2), torch.float64), row])
    without = {name for name, operation in OPERATIONS.items() if operation.derivative is None}
    assert without == NONE


def _check(torch: Any, function: Callable[..., Any], tensors: list[Any]) -> None:
    def call(a: Any, b: Any, *x: Any) -> Any:
        return gett.contract("ij,jk->ik", a, b, epilogue=function, epilogue_args=x)

    a, b, *x = tensors
    assert torch.autograd.gradcheck(call, tensors, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, tensors, check_fwd_over_rev=True)
    plan = gett.plan("ij,jk->ik", a, b, epilogue=function, epilogue_args=x)
    with torch.no_grad():
        plain = call(*tensors)
    torch.testing.assert_close(call(*tensors).detach(), plain)
    torch.testing.assert_close(plan(a, b, epilogue_args=x).detach(), plain)


def _random(torch: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def check_epilogue_transforms(torch: Any) -> None:
    """`torch.func` of calls with an epilogue; dtypes; what is refused."""
    from torch.func import hessian, jacfwd, jacrev, vmap

    a, b, x = (torch.randn(s, dtype=torch.float64) for s in ((3, 4), (4, 2), (2,)))

    def call(a: Any, b: Any, x: Any) -> Any:
        return gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: ops.silu(d + x), epilogue_args=(x,))

    def wanted(a: Any, b: Any, x: Any) -> Any:
        return torch.nn.functional.silu(a @ b + x)

    for dims in ((0, None, None), (None, None, 0), (0, 0, 0), (None, 0, 0)):
        things = [torch.stack([t, 2 * t]) if d == 0 else t for t, d in zip((a, b, x), dims, strict=True)]
        for change in (lambda f: f, lambda f: jacrev(f, argnums=(0, 2)), lambda f: jacfwd(f, argnums=(1, 2))):
            found = [vmap(change(f), in_dims=dims)(*things) for f in (call, wanted)]
            torch.testing.assert_close(*found)
    pair = [hessian(lambda *t, f=f: f(*t).sum(), argnums=(0, 1, 2))(a, b, x) for f in (call, wanted)]
    torch.testing.assert_close(*pair)
    for low in (torch.bfloat16, torch.float16):
        tensors = [t.to(low).requires_grad_() for t in (a, b, x)]
        result = call(*tensors)
        assert result.dtype is low
        with torch.no_grad():
            assert torch.equal(result, call(*tensors))  # rounded once in both
        exact = torch.autograd.grad(wanted(*(t.double() for t in tensors)).sum(), tensors)
        for one, other in zip(torch.autograd.grad(result.sum(), tensors), exact, strict=True):
            assert one.dtype is low
            torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
    zero = torch.zeros(2, 2, requires_grad=True)
    relu = gett.contract("ij->ij", zero, epilogue=ops.relu)
    assert not torch.autograd.grad(relu.sum(), zero)[0].any()  # as torch.relu has it
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)  # an argument alone may require a gradient
    (found,) = torch.autograd.grad(call(a, b, weight).sum(), weight)
    torch.testing.assert_close(found, torch.autograd.grad(wanted(a, b, weight).sum(), weight)[0])
    for error, function, argument, text in (
        (
            gett.EpilogueError,
            lambda d, x: d + x,
            torch.ones(3),
            r"epilogue_args\[0\] of shape \(3,\) does not broadcast",
        ),
        (gett.EpilogueError, lambda d, x: d + x, torch.ones(2) * 1j, r"epilogue_args\[0\] has dtype complex64"),
        (gett.EpilogueError, lambda d, x: d if d > 0 else x, torch.ones(2), "where"),
        (gett.MixedArraysError, lambda d, x: d + x, np.ones(2), r"epilogue_args\[0\] is a numpy\.ndarray"),
    ):
        with pytest.raises(error, match=text):
            gett.contract("ij,jk->ik", a.requires_grad_(), b, epilogue=function, epilogue_args=(argument,))
    with pytest.raises(gett.EpilogueError, match="the plan's epilogue takes 1 epilogue_args, 0 were given"):
        gett.plan("ij,jk->ik", a, b, epilogue=lambda d, x: d + x, epilogue_args=(x,))(a, b)
    meta = torch.empty(2, 2, device="meta")
    with pytest.raises(gett.OperandError, match="epilogue= has no operator that a traced call could be"):
        gett.contract("ij,jk->ik", meta, meta, epilogue=ops.relu)
