"""What PyTorch puts around tensors (transformations, autocast, nesting): torch's answer, or an error that names it.

Run where PyTorch is installed, on CPU tensors or CUDA's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gett


def check(torch: Any, device: str) -> None:
    """All of it."""
    generator = torch.Generator().manual_seed(2)

    def integers(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randint(-3, 4, shape, generator=generator).to(dtype).to(device)

    _check_transforms(torch, integers)
    _check_nested(torch, integers)
    _check_autocast(torch, integers, device)


def _calls(x: Any, b: Any) -> tuple[Callable[[], Any], ...]:
    return (
        lambda: gett.einsum("ij,jk->ik", x, b),
        lambda: gett.contract("ij,jk->ik", x, b),
        lambda: gett.plan("ij,jk->ik", x, b),
        lambda: gett.plan("ij,jk->ik", b, b)(x, b),
        lambda: gett.tensordot(x, b, 1),
    )


def _check_transforms(torch: Any, integers: Any) -> None:
    from torch._subclasses import FakeTensorMode

    a, b = integers(2, 4, 4), integers(4, 4)
    forward = torch.autograd.forward_ad
    for number in range(5):

        def call(x: Any, number: int = number) -> Any:
            return _calls(x, b)[number]()

        if number == 2:  # which gives a plan
            assert torch.func.vmap(lambda x: call(x)(x, b))(a).equal(a @ b)
            continue
        assert torch.equal(torch.func.vmap(call)(a), a @ b)
        for transform in (torch.func.grad, torch.func.jacrev, lambda f: lambda x: _pulled(torch, f, x)):
            assert torch.equal(transform(lambda x: call(x).sum())(b), torch.ones_like(b) @ b.mT)
            assert not transform(lambda x: call(x.detach()).sum() + 0 * x.sum())(b).any()
        assert torch.equal(torch.func.jvp(call, (b,), (b,))[1], b @ b)
        with forward.dual_level():
            dual = call(forward.make_dual(b, torch.ones_like(b)))
            assert torch.equal(forward.unpack_dual(dual).tangent, torch.ones_like(b) @ b)
            assert torch.equal(gett.einsum("ij,jk->ik", b, b), b @ b)  # which has no tangent
        if number != 3:
            assert torch.equal(torch.func.functionalize(call)(b), b @ b)
    with FakeTensorMode():
        fake = torch.empty(4, 4, device=b.device)
        for call_fake in (gett.einsum, gett.contract):
            assert type(call_fake("ij,jk->ik", fake, fake)) is type(fake)
        with pytest.raises(gett.OperandError, match="is a FakeTensor, which holds no values"):
            gett.plan("ij,jk->ik", fake, fake)
    assert torch.equal(torch.func.vmap(gett.transpose)(a), a.mT)


def _pulled(torch: Any, function: Any, x: Any) -> Any:
    """What `torch.func.vjp` gives of a function with one number as its result."""
    result, pull = torch.func.vjp(function, x)
    return pull(torch.ones_like(result))[0]


def _check_nested(torch: Any, integers: Any) -> None:
    parts = [integers(2, 4), integers(3, 4)]
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor(parts, layout=layout)
        for call in _calls(nested, integers(4, 4)):
            with pytest.raises(gett.OperandError, match=r"operand 0 is a nested tensor.*unbind.*to_padded_tensor"):
                call()


def _check_autocast(torch: Any, integers: Any, device: str) -> None:
    cases = [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ij,ij->", [(3, 4), (3, 4)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
        ("ij,ij->ij", [(3, 4), (3, 4)]),  # no sum: autocast has its say on a GPU alone
        ("i,j->ij", [(3,), (4,)]),
        ("ij->ji", [(3, 4)]),
        ("ij->i", [(3, 4)]),
    ]
    for low in (torch.bfloat16, torch.float16):
        for subscripts, shapes in cases:
            for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64):
                operands = [integers(*s, dtype=dtype) for s in shapes]
                with torch.autocast(device, dtype=low):
                    wanted = torch.einsum(subscripts, *operands)
                    for _ in range(2):
                        result = gett.einsum(subscripts, *operands)
                        assert result.dtype is wanted.dtype, (subscripts, dtype, low)
                        assert torch.equal(result, wanted)
                    assert torch.equal(gett.contract(subscripts, *operands), wanted)
                assert gett.einsum(subscripts, *operands).dtype is dtype
        a, b, c = integers(3, 4), integers(4, 5), integers(5)
        fine = torch.full_like(a, 1 + 2.0**-12)
        with torch.autocast(device, dtype=low):
            assert gett.tensordot(a, b, 1).dtype is low
            assert torch.equal(gett.einsum("ij,jk->ik", a, b.to(low)), torch.einsum("ij,jk->ik", a, b.to(low)))
            assert torch.equal(
                gett.contract("ij,jk->ik", a, b, c, alpha=2), (2 * (a.double() @ b.double()) + c).to(low)
            )
            assert torch.equal(gett.einsum("ij,jk->ik", fine, b), torch.einsum("ij,jk->ik", fine, b))  # rounded factors
            # What says its dtype keeps it: `dtype=`, `out=` and plans.
            assert gett.einsum("ij,jk->ik", a, b, dtype=torch.float32).dtype is torch.float32
            out = torch.empty(3, 5, device=device)
            assert gett.einsum("ij,jk->ik", a, b, out=out) is out
            assert gett.plan("ij,jk->ik", a, b)(a, b).dtype is torch.float32
            with torch.autocast(device, enabled=False):
                assert gett.einsum("ij,jk->ik", a, b).dtype is torch.float32
