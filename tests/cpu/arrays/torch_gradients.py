"""What must hold for derivatives of contractions of PyTorch's tensors; run where PyTorch is installed."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

import gett
from gett.arrays.torch import torch_library

CASES: list[tuple[str, list[tuple[int, ...]], tuple[bool, ...] | None]] = [
    ("ij,jk->ik", [(2, 3), (3, 2)], None),
    ("ij,jk->ki", [(2, 3), (3, 2)], (True, True)),
    ("iij,jk->ik", [(2, 2, 3), (3, 2)], (False, True)),
    ("ij,jk->k", [(2, 3), (3, 2)], None),  # i is A's alone
    ("i,j->ij", [(2,), (3,)], (True, False)),
    ("i,i->", [(3,), (3,)], (True, False)),
    ("ij->ji", [(2, 3)], (True,)),
    ("ij->i", [(2, 3)], None),
    ("iji->j", [(2, 3, 2)], None),
    ("ii->i", [(3, 3)], (True,)),
    ("bij,bjk->bik", [(1, 2, 3), (2, 3, 2)], None),  # an axis of extent 1 broadcasts
    ("...ij,jk->...ik", [(2, 1, 2, 3), (3, 2)], None),
    (",ij->ij", [(), (2, 2)], None),
    ("ij,jk,kl->il", [(2, 3), (3, 2), (2, 2)], (True, False, True)),
    ("ii,ij,jk,k->", [(2, 2), (2, 3), (3, 2), (2,)], None),
    ("ij,jk->ik", [(2, 0), (0, 2)], None),
    ("ij,jk->ik", [(0, 2), (2, 2)], None),
    ("ij,jk->ik", [(1, 1), (1, 1)], None),
]


def check_gradients(torch: Any) -> None:
    """Numerical first and second derivatives, of reverse and of forward mode."""
    for dtype in (torch.float64, torch.complex128):
        for subscripts, shapes, conj in CASES:
            operands = [_random(torch, s, dtype) for s in shapes]

            def call(*x: Any, subscripts: str = subscripts, conj: Any = conj) -> Any:
                return gett.einsum(subscripts, *x, conj=conj)

            _check(torch, call, operands)
        alpha, beta = (1.5, -2.0) if dtype is torch.float64 else (1.5 - 1j, 2j)
        for shape in ((2, 2), (2,), (2, 1), (), (1, 2)):

            def added(a: Any, b: Any, c: Any, alpha: Any = alpha, beta: Any = beta) -> Any:
                return gett.contract("ij,jk->ik", a, b, c, alpha=alpha, beta=beta, conj=(True, False))

            _check(torch, added, [_random(torch, s, dtype) for s in ((2, 3), (3, 2), shape)])
        a, b = _random(torch, (2, 3), dtype), _random(torch, (3, 2), dtype)
        _check(torch, gett.plan("ij,jk->ik", a, b), [a, b])
        _check(torch, lambda a, b: gett.tensordot(a, b, 1), [a, b])
        # Views: another order, a conjugate that PyTorch has only marked, an imaginary part.
        _check(torch, lambda a, b: gett.einsum("ji,kj->ik", a.mT.conj(), b.mH), [a, b])
    real, other = _random(torch, (2, 3), torch.float64), _random(torch, (3, 2), torch.complex128)
    _check(torch, lambda a, b: gett.einsum("ij,jk->ik", a, b), [real, other])
    _check(torch, lambda a, b: gett.einsum("ij,jk->ik", a, b.imag), [real, other])
    legacy = dict(check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: gett.einsum("ij,jk->ik", a, b), (real, other), **legacy)


def _check(torch: Any, call: Callable[..., Any], operands: Sequence[Any]) -> None:
    assert torch.autograd.gradcheck(call, operands, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, operands, check_fwd_over_rev=True)


def _random(torch: Any, shape: Sequence[int], dtype: Any) -> Any:
    return torch.randn(tuple(shape), dtype=dtype, requires_grad=True)


def check_dtypes(torch: Any) -> None:
    """Gradients have the operands' dtypes; what is computed in a lower one is differentiated in that."""
    a, b = (_random(torch, s, torch.float32) for s in ((3, 4), (4, 5)))
    for low in (torch.bfloat16, torch.float16):
        x, y = (t.detach().to(low).requires_grad_() for t in (a, b))
        for options, dtype in (({}, low), ({"dtype": torch.float32}, torch.float32)):
            result = gett.einsum("ij,jk->ik", x, y, **options)
            assert result.dtype is dtype
            found = torch.autograd.grad(result.sum(), (x, y))
            assert [t.dtype for t in found] == [low, low]
            exact = torch.autograd.grad((x.double() @ y.double()).sum(), (x, y))
            for one, other in zip(found, exact, strict=True):
                torch.testing.assert_close(one, other)
        with torch.autocast(a.device.type, dtype=low):
            result = gett.einsum("ij,jk->ik", a, b)
            wanted = torch.einsum("ij,jk->ik", a, b)
        assert result.dtype is low
        gradients = [torch.autograd.grad(x.sum(), (a, b)) for x in (result, wanted)]
        for one, other in zip(*gradients, strict=True):
            assert one.dtype is torch.float32
            torch.testing.assert_close(one, other)
    mixed = gett.einsum("ij,jk->ik", a, b.double())
    assert mixed.dtype is torch.float64
    assert torch.autograd.grad(mixed.sum(), a)[0].dtype is torch.float32
    counts = torch.arange(20).reshape(4, 5)
    assert torch.equal(
        torch.autograd.grad(gett.einsum("ij,jk->ik", a, counts).sum(), a)[0], counts.sum(1).expand(3, 4).float()
    )
    (scaled,) = torch.autograd.grad(gett.einsum(",ij->ij", 2.0, a).sum(), a)
    assert torch.equal(scaled, torch.full_like(a, 2))
    assert gett.einsum("ij,jk->ik", a, b, order="F").stride() == (1, 3)
    precise = gett.einsum("ij,jk->ik", a, b, precision="ieee")
    torch.autograd.grad(precise.sum(), (a, b))


def check_memory(torch: Any) -> None:
    """What is saved is the operands, and derivatives along a summed label of one operand are views."""
    a, b = (_random(torch, s, torch.float64) for s in ((3, 4), (4, 5)))
    result = gett.einsum("ij,jk->k", a, b)
    gradient = torch.autograd.grad(result.sum(), a)[0]
    assert gradient.stride()[0] == 0
    (turned,) = torch.autograd.grad(gett.einsum("ij->ji", a), a, grad := torch.randn(4, 3, dtype=torch.float64))
    assert turned.data_ptr() == grad.data_ptr()
    saved: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        gett.einsum("ij,jk->ik", a, b)
    assert {x.data_ptr() for x in saved} == {a.data_ptr(), b.data_ptr()}
    for target in (a, b):
        result = gett.einsum("ij,jk->ik", a, b)
        with torch.no_grad():
            target.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()
    chain = [_random(torch, (2, 2), torch.float64) for _ in range(40)]
    labels = [chr(0x100 + i) for i in range(41)]
    subscripts = ",".join(map("".join, pairwise(labels))) + f"->{labels[0]}{labels[-1]}"
    weight = torch.randn(2, 2, dtype=torch.float64)
    found = torch.autograd.grad(gett.einsum(subscripts, *chain), chain, weight)
    for one, other in zip(found, torch.autograd.grad(torch.linalg.multi_dot(chain), chain, weight), strict=True):
        torch.testing.assert_close(one, other)


def check_checkpoints(torch: Any) -> None:
    """Intermediates beyond the limit are not kept, and gradients of both orders are the same."""
    count, side = 9, 128
    labels = [chr(0x100 + i) for i in range(count + 1)]
    subscripts = ",".join(map("".join, pairwise(labels))) + f"->{labels[0]}{labels[-1]}"
    chain = [torch.randn(side, side, dtype=torch.float64, requires_grad=True) for _ in range(count)]
    weight = torch.randn(side, side, dtype=torch.float64)
    wanted = torch.autograd.grad(torch.linalg.multi_dot(chain), chain, weight)
    size = 8 * side**2
    plan = gett.plan(subscripts, *chain, optimize=False)
    for call in (partial(gett.einsum, subscripts, optimize=False), plan):
        held = []
        for limit in (None, 0, 3 * size, "1GiB"):
            call(*chain, checkpoint=limit)  # what is planned is planned
            tracemalloc.start()
            result = call(*chain, checkpoint=limit)
            held.append(round(tracemalloc.get_traced_memory()[0] / size))
            tracemalloc.stop()
            for retain in (True, False):
                found = torch.autograd.grad(result, chain, weight, retain_graph=retain)
                for one, other in zip(found, wanted, strict=True):
                    torch.testing.assert_close(one, other)
        assert held == [count - 1, 1, 4, count - 1]  # the result counts

    def network(*x: Any) -> Any:
        return gett.einsum("ij,jk,kl,lm->im", *x, checkpoint=0, conj=(True, False, True, False))

    _check(torch, network, [_random(torch, (2, 2), torch.complex128) for _ in range(4)])
    torch.func.jacrev(lambda x: gett.einsum("ij,jk,kl->il", x, x, x, checkpoint=0))(torch.ones(2, 2))
    expression = gett.contract_expression("ij,jk,kl->il", (2, 2), (2, 2), (2, 2), checkpoint="1MiB")
    x = _random(torch, (2, 2), torch.float64)
    assert torch.equal(expression(x, x, x), gett.contract("ij,jk,kl->il", x, x, x, checkpoint=8))
    a, b, c, d = (_random(torch, (2, 2), torch.float64) for _ in range(4))
    result = gett.einsum("ij,jk,kl,lm->im", a, b, c, d, optimize=False, checkpoint=0)
    with torch.no_grad():
        a.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
    for bad in ("much", -1, True, 1.5):
        with pytest.raises(gett.OptionError, match="checkpoint="):
            gett.einsum("ij,jk,kl->il", a, b, c, checkpoint=bad)
        with pytest.raises(gett.OptionError, match="checkpoint="):
            plan(*chain, checkpoint=bad)
    with torch.no_grad():  # nothing is kept then
        assert torch.equal(plan(*chain, checkpoint=0), plan(*chain))


def check_refusals(torch: Any) -> None:
    """What has no derivative is refused by name, and calls without gradients are as they were."""
    a, b = _random(torch, (3, 4), torch.float64), torch.randn(4, 5, dtype=torch.float64)
    plan = gett.plan("ij,jk->ik", a, b)
    out = torch.empty(3, 5, dtype=torch.float64)
    for call in (
        lambda: gett.einsum("ij,jk", a, b, out=out),
        lambda: gett.contract("ij,jk", a, b, beta=1, out=out),
        lambda: plan(a, b, out=out),
        lambda: torch.func.vmap(lambda x: gett.einsum("ij,jk", x, b, out=out))(torch.ones(2, 3, 4)),
    ):
        with pytest.raises(gett.GradientError, match=r"out= is given, but derivatives are recorded"):
            call()
    with torch.no_grad():
        assert gett.einsum("ij,jk", a, b, out=out) is out
    with pytest.raises(gett.GradientError, match="operand 0 requires a gradient, but a result of int64 has none"):
        gett.einsum("ij,jk", a, b, dtype="int64", casting="unsafe")
    with pytest.raises(gett.GradientError, match="constant 1 requires a gradient, but constants are contracted once"):
        gett.contract_expression("ij,jk->ik", (4, 3), a, constants=[1])(torch.ones(4, 3))
    for other, error, text in (
        (b.numpy(), gett.MixedArraysError, r"operand 1 is a numpy\.ndarray"),
        (b.to("meta"), gett.MixedArraysError, "operand 1 on the META"),
        (b[:3], gett.ShapeError, "mode 'j' has extent 4 in operand 0 and 3 in operand 1"),
        (b.to_sparse(), gett.DTypeError, r"layout torch\.sparse_coo"),
    ):
        with pytest.raises(error, match=text):
            gett.einsum("ij,jk", a, other)
    with pytest.raises(gett.ShapeError, match=r"operand 1 has shape \(3, 5\), the plan was made for \(4, 5\)"):
        plan(a, b[:3])
    with pytest.raises(gett.DTypeError, match="operand 1 has dtype float32"):
        plan(a, b.float())
    with pytest.raises(gett.ShapeError, match="the plan takes 2 operands"):
        plan(a)
    with pytest.raises(gett.DTypeError, match="alpha=1j is complex"):
        gett.contract("ij,jk", a, b, alpha=1j)
    with pytest.raises(gett.ShapeError, match=r"c of shape \(4,\) does not broadcast"):
        gett.contract("ij,jk", a, b, torch.ones(4))
    with pytest.raises(gett.PrecisionError):
        gett.einsum("ij,jk", a, b, precision="tf32")
    assert gett.einsum("ij,jk", a, b).requires_grad
    function = torch_library().node
    apply = function.apply
    function.apply = None  # no call without gradients comes there
    for call in (
        lambda: gett.einsum("ij,jk", b.mT, b),
        lambda: gett.contract("ij,jk", b.mT, b, alpha=2),
        lambda: plan(a.detach(), b),
    ):
        assert not call().requires_grad
    with torch.no_grad():
        assert not gett.einsum("ij,jk", a, b).requires_grad
    with torch.inference_mode():
        assert not gett.einsum("ij,jk", a, b).requires_grad
    function.apply = apply


def check_drawn(torch: Any, count: int = 60) -> None:
    """Many drawn contractions: gradients of both orders, tangents and mapped results are torch.einsum's."""
    generator = random.Random(3)
    torch.manual_seed(3)
    for _ in range(count):
        subscripts, shapes = _draw(generator)
        dtype = generator.choice([torch.float64, torch.complex128])
        conj = tuple(generator.random() < 0.4 for _ in shapes)
        x = [_random(torch, s, dtype) for s in shapes]
        tangents = [torch.randn_like(t) for t in x]

        def call(*x: Any, subscripts: str = subscripts, conj: Any = conj) -> Any:
            return gett.einsum(subscripts, *x, conj=conj)

        def wanted(*x: Any, subscripts: str = subscripts, conj: Any = conj) -> Any:
            return torch.einsum(subscripts, *[t.conj() if f else t for t, f in zip(x, conj, strict=True)])

        results = []
        for function in (call, wanted):
            value = function(*x)
            torch.manual_seed(4)
            weight = torch.randn(value.shape, dtype=dtype)
            first = torch.autograd.grad(value, x, weight.requires_grad_(), create_graph=True)
            second = torch.autograd.grad(sum((t.abs() ** 2).sum() for t in first), [*x, weight], allow_unused=True)
            tangent = torch.func.jvp(function, tuple(t.detach() for t in x), tuple(tangents))[1]
            stacked = [torch.stack([t, 2 * t], dim=t.ndim // 2).detach() for t in x]
            mapped = torch.func.vmap(function, in_dims=tuple(t.ndim // 2 for t in x))(*stacked)
            results.append([value, *first, *second, tangent, mapped])
        for one, other in zip(*results, strict=True):
            if one is None or other is None:  # of what a derivative does not depend on
                assert one is other or not (one if other is None else other).any(), subscripts
            else:
                torch.testing.assert_close(one, other, msg=f"{subscripts} {shapes} {conj}")


def _draw(generator: random.Random) -> tuple[str, list[tuple[int, ...]]]:
    extents = {label: generator.choice([0, 1, 2, 2, 3]) for label in "abcde"}
    terms = []
    for _ in range(generator.choice([1, 2, 2, 3])):
        terms.append("".join(generator.choice("abcde") for _ in range(generator.randint(0, 3))))
    present = sorted(set("".join(terms)))
    output = "".join(generator.sample(present, generator.randint(0, len(present))))
    shapes = [tuple(extents[x] for x in term) for term in terms]
    return f"{','.join(terms)}->{output}", shapes
