"""Transformations of `torch.func`, the operator `gett::contract`, and compiled functions with their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gett


def check_transforms(torch: Any) -> None:
    """`torch.func` and its compositions: torch.einsum's answers, of every kind of call."""
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

    a, b, c = (torch.randn(s, dtype=torch.float64) for s in ((3, 4), (4, 5), (3, 5)))
    two_a, two_b = torch.stack([a, a + 1]), torch.stack([b, 2 * b])

    def total(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda a, b: function(a, b).sin().sum()

    transforms: list[Callable[[Callable[..., Any]], Any]] = [
        lambda f: grad(total(f), argnums=(0, 1))(a, b),
        lambda f: jacrev(f, argnums=(0, 1))(a, b),
        lambda f: jacfwd(f, argnums=(0, 1))(a, b),
        lambda f: hessian(total(f), argnums=(0, 1))(a, b),
        lambda f: jacfwd(jacfwd(total(f)))(a, b),
        lambda f: jacrev(jacrev(total(f)))(a, b),
        lambda f: jacrev(jacfwd(total(f)))(a, b),
        lambda f: grad(lambda x: grad(total(f))(x, b).square().sum())(a),
        lambda f: jvp(f, (a, b), (a.cos(), b.cos())),
        lambda f: jvp(lambda x: jvp(f, (x, b), (a, b))[1], (a,), (a.cos(),)),
        lambda f: vjp(f, a, b)[1](c),
        lambda f: vmap(f)(two_a, two_b),
        lambda f: vmap(f, in_dims=(None, 2), out_dims=1)(a, two_b.permute(1, 2, 0)),
        lambda f: vmap(vmap(f, in_dims=(0, None)), in_dims=(None, 0))(two_a, two_b),
        lambda f: vmap(grad(total(f)))(two_a, two_b),
        lambda f: grad(lambda x: vmap(f, in_dims=(None, 0))(x, two_b).sin().sum())(a),
        lambda f: vmap(jacfwd(f), in_dims=(0, None))(two_a, b),
        lambda f: vmap(hessian(total(f)), in_dims=(None, 0))(a, two_b),
    ]
    plan = gett.plan("ij,jk->ik", a, b)
    calls = [
        lambda a, b: gett.einsum("ij,jk->ik", a, b),
        lambda a, b: gett.contract("ij,jk->ik", a, b),
        lambda a, b: gett.tensordot(a, b, 1),
        lambda a, b: gett.plan("ij,jk->ik", a, b)(a, b),
        plan,
        lambda a, b: gett.einsum("ij,jk,kl->il", a, b, torch.eye(5, dtype=torch.float64)),
        gett.contract_expression("ij,jk,kl->il", (3, 4), (4, 5), torch.eye(5, dtype=torch.float64), constants=[2]),
    ]
    for transform in transforms:
        wanted = transform(lambda a, b: torch.einsum("ij,jk->ik", a, b))
        for call in calls:
            torch.testing.assert_close(transform(call), wanted)
    for c_shape in ((), (5,), (3, 1), (3, 5)):
        added = torch.randn(2, *c_shape, dtype=torch.float64)

        def sum_of(a: Any, b: Any, c: Any) -> Any:
            return gett.contract("ij,jk->ik", a, b, c, alpha=2, beta=-3)

        def exact(a: Any, b: Any, c: Any) -> Any:
            return 2 * (a @ b) - 3 * c

        for dims in ((None, None, 0), (0, None, 0), (None, 0, None), (0, 0, 0)):
            things = [x if d == 0 else x[0] for x, d in zip((two_a, two_b, added), dims, strict=True)]
            torch.testing.assert_close(vmap(sum_of, in_dims=dims)(*things), vmap(exact, in_dims=dims)(*things))
            tangents = tuple(x.cos() for x in things)
            pair = [jvp(vmap(f, in_dims=dims), tuple(things), tangents) for f in (sum_of, exact)]
            torch.testing.assert_close(*pair)
    counts = torch.arange(12).reshape(2, 2, 3)
    assert torch.equal(vmap(lambda x: gett.einsum("ij,kj->ik", x, x))(counts).cpu(), counts.cpu() @ counts.cpu().mT)
    layer = torch.nn.Bilinear(3, 4, 2, dtype=torch.float64)
    x, y = (torch.randn(6, n, dtype=torch.float64) for n in (3, 4))

    def loss(weight: Any, x: Any, y: Any, function: Any) -> Any:
        return function("bi,oij,bj->bo", x, weight, y).square().sum()

    for function in (gett.einsum, torch.einsum):  # gradients of each sample, as torch.func is used for
        gradients = vmap(grad(loss), in_dims=(None, 0, 0, None))(
            layer.weight.detach(), x[:, None], y[:, None], function
        )
        assert gradients.shape == (6, 2, 3, 4)
    legacy = torch.autograd.functional.jacobian(lambda x: gett.einsum("ij,jk->ik", x, b), a, vectorize=True)
    torch.testing.assert_close(legacy, jacrev(lambda x: x @ b)(a))


def check_operator(torch: Any) -> None:
    """What stands in graphs: PyTorch's own checks of an operator, and tensors without values."""
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    meta = torch.empty(3, 4, device="meta", requires_grad=True)
    result = gett.contract("ij,kj->ki", meta, meta, torch.empty(3, device="meta", dtype=torch.bfloat16))
    assert (result.device.type, result.shape, result.stride(), result.dtype) == ("meta", (3, 3), (3, 1), torch.float32)
    assert torch.autograd.grad(result.sum(), meta)[0].shape == (3, 4)
    with FakeTensorMode():
        fake = torch.empty(4, 3).mT
        assert gett.einsum("ij,kj,kl->il", fake, fake, fake).shape == (3, 4)
        assert gett.einsum("ij,kj->ik", fake, fake).stride() == (1, 3)  # as of operands in F order
        with pytest.raises(gett.ShapeError, match="mode 'j' has extent 4 in operand 0 and 3 in operand 1"):
            gett.einsum("ij,jk->ik", fake, fake)
    for text in ("ab,bc->ac", "ab->ba"):
        shapes = [(2, 3), (3, 4)][: text.count(",") + 1]
        graph = make_fx(lambda *x, text=text: gett.einsum(text, *x))(*map(torch.ones, shapes))
        assert "torch.ops.gett.contract" in graph.code
    names: list[str] = []

    class Log(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    x = torch.randn(2, 2, requires_grad=True)
    with Log():
        torch.testing.assert_close(gett.einsum("ij,jk->ik", x, x), x @ x)
        with pytest.raises(gett.GradientError, match="forward-mode derivatives of a call that is traced"):
            torch.func.jvp(lambda x: gett.einsum("ij,jk->ik", x, x), (x,), (x,))
    assert "gett.contract.default" in names
    assert torch.equal(torch.func.functionalize(lambda x: gett.einsum("ij,jk", x, x))(x), gett.einsum("ij,jk", x, x))
    operator = torch.ops.gett.contract.default
    passed = {"SUCCESS"}
    for dtype, alpha, beta in ((torch.float64, 2.5, -1.0), (torch.complex128, 2 - 1j, 1j)):
        for subscripts, shapes, c_shape, order in (
            ("ij,jk->ik", [(3, 4), (4, 5)], None, "C"),
            ("ij,jk->ki", [(3, 4), (4, 5)], (3,), "F"),
            ("ij,jk->ki", [(3, 4), (4, 5)], (5, 1), "C"),
            ("ij->j", [(3, 4)], None, "C"),
            ("ij,jk->ik", [(3, 0), (0, 5)], None, "C"),
            ("ij,jk->ik", [(0, 2), (2, 5)], None, "F"),
            ("i,i->", [(1,), (1,)], (), "C"),
        ):
            a, *rest = (torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes)
            c = None if c_shape is None else torch.randn(c_shape, dtype=dtype, requires_grad=True)
            conj = [True, False][: len(shapes)]
            arguments = (subscripts, conj, alpha, beta, dtype, order, None, False, 1 << 28)
            found = torch.library.opcheck(operator, (a, rest[0] if rest else None, c, *arguments))
            assert set(found.values()) == passed, (subscripts, found)


def check_compiled(torch: Any) -> None:
    """Whole graphs, forward and backward, with shapes that change; what has no operator breaks the graph."""
    e, t = gett.einsum, torch.einsum
    pairs: list[tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = [
        (lambda a, b: e("ij,jk->ik", a, b), lambda a, b: t("ij,jk->ik", a, b), [(3, 4), (4, 5)]),
        (lambda a, b: e("iij,jk->ki", a, b), lambda a, b: t("iij,jk->ki", a, b), [(3, 3, 4), (4, 5)]),
        (lambda a, b: e("bij,bjk->bik", a, b), lambda a, b: t("bij,bjk->bik", a, b), [(1, 3, 4), (2, 4, 5)]),
        (lambda *x: e("ij,jk,kl->il", *x), lambda *x: t("ij,jk,kl->il", *x), [(3, 4), (4, 5), (5, 2)]),
        (lambda a, b: e("ij,jk->ik", a, b, order="F"), lambda a, b: a @ b, [(3, 4), (4, 5)]),
        (
            lambda a, b, c: gett.contract("ij,jk->ik", a, b, c, alpha=2, beta=-1, conj=(True, False)),
            lambda a, b, c: 2 * (a.conj() @ b) - c,
            [(3, 4), (4, 5), (5,)],
        ),
    ]
    for dtype in (torch.float64, torch.complex128):
        for call, wanted, shapes in pairs:
            torch._dynamo.reset()
            compiled = torch.compile(lambda *x, call=call: call(*x) * 2, backend="aot_eager", fullgraph=True)
            for grown in range(3):
                x = [torch.randn([n + grown if n > 1 else n for n in s], dtype=dtype).requires_grad_() for s in shapes]
                result, other = compiled(*x), wanted(*x) * 2
                torch.testing.assert_close(result, other)
                assert result.stride() == (call(*x) * 2).stride()
                weight = torch.randn(other.shape, dtype=dtype)
                gradients = [torch.autograd.grad(r, x, weight) for r in (result, other)]
                torch.testing.assert_close(*gradients)
                with torch.no_grad():
                    torch.testing.assert_close(compiled(*x), other)
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    torch._dynamo.reset()

    def product(a: Any, b: Any) -> Any:
        return gett.einsum("ij,jk->ik", a, b)

    whole = torch.compile(product, backend="aot_eager", fullgraph=True)
    with torch.autocast(a.device.type, dtype=torch.bfloat16):
        assert torch.equal(whole(a, b), product(a, b))
        assert whole(a, b).dtype is torch.bfloat16
    mapped = torch.compile(torch.func.vmap(product, in_dims=(0, None)), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(mapped(torch.stack([a, 2 * a]), b), torch.stack([a @ b, 2 * a @ b]))
    for transformed in (
        lambda a: torch.func.jvp(lambda a: product(a, b), (a,), (a,))[1],
        torch.func.grad(lambda a: product(a, b).square().sum()),
    ):
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(transformed, backend="aot_eager")(a), transformed(a))
        torch._dynamo.reset()
        with pytest.raises(Exception, match="breaks the graph around this call"):
            torch.compile(transformed, backend="aot_eager", fullgraph=True)(a)

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any, b: Any) -> Any:
            return product(a, b)

    for strict in (False, True):
        exported = torch.export.export(Module(), (a, b), strict=strict)
        assert "gett.contract" in exported.graph_module.code
        torch.testing.assert_close(exported.module()(a, b), a @ b)
