"""What must hold for PyTorch's CPU tensors; run where PyTorch is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import opt_einsum
import pytest

import gett


def check(torch: Any) -> None:
    """All of it."""
    generator = torch.Generator().manual_seed(1)

    def integers(*shape: int, dtype: Any = torch.float32) -> Any:
        real = torch.randint(-3, 4, shape, generator=generator)
        return (
            (real + 1j * torch.randint(-3, 4, shape, generator=generator)).to(dtype)
            if dtype.is_complex
            else real.to(dtype)
        )

    _check_values(torch, integers)
    _check_out(torch, integers)
    _check_networks(torch, integers)
    _check_epilogues(torch, integers)
    _check_refusals(torch, integers)


def _check_values(torch: Any, integers: Any) -> None:
    wide = {"f": torch.float64, "c": torch.complex128}
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.int64):
        a, b = integers(4, 3, 5, dtype=dtype), integers(5, 6, 4, dtype=dtype).transpose(0, 1)
        result = gett.einsum("aib,jba->ij", a, b)
        kind = wide["c" if dtype.is_complex else "f"]
        exact = torch.einsum("aib,jba->ij", a.to(kind), b.to(kind)).to(dtype)
        assert type(result) is torch.Tensor
        assert result.dtype is dtype
        assert torch.equal(result, exact)
        assert torch.equal(gett.tensordot(a, b, ([0, 2], [2, 1])), exact)
        turned = gett.transpose(a, (1, 2, 0))
        assert turned.data_ptr() == a.data_ptr()
        assert turned.shape == (3, 5, 4)
    a = integers(3, 3, dtype=torch.bfloat16)
    for other in (torch.float16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool, torch.complex64):
        b = integers(3, 3, dtype=other)
        result = gett.einsum("ij,jk", a, b)
        assert result.dtype is torch.promote_types(torch.bfloat16, other)
        assert torch.equal(result, (a.to(torch.complex128) @ b.to(torch.complex128)).to(result.dtype))
    for scalar in (True, 3, 2.5, 2j):
        result = gett.einsum(",ij->ij", scalar, a)
        assert result.dtype is torch.result_type(a, scalar)
        assert torch.equal(result, a * scalar)
    assert gett.einsum("ij->", a).shape == ()
    assert gett.einsum("ij,jk", a.float(), a.float(), dtype=torch.bfloat16, casting="same_kind").dtype is torch.bfloat16
    z = integers(3, 3, dtype=torch.complex64)
    assert torch.equal(gett.einsum("ij,jk", z.conj(), z), z.conj() @ z)
    assert torch.equal(gett.einsum("ij,jk", z.conj().imag, z.real), z.conj().imag @ z.real)


def _check_out(torch: Any, integers: Any) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        a, b, c = (integers(4, 4, dtype=dtype) for _ in range(3))
        exact, added = a.double() @ b.double(), c.double()
        memory = torch.zeros(4, 8, dtype=dtype)
        out = memory[:, ::2].T
        assert gett.einsum("ij,jk", a, b, out=out) is out
        assert torch.equal(out.double(), exact)
        assert not memory[:, 1::2].any()
        assert gett.contract("ij,jk", a, b, c, alpha=2, beta=-1, out=c) is c
        assert torch.equal(c.double(), 2 * exact - added)
        plan = gett.plan("ij,jk", a, b)
        assert plan(a, b).dtype is dtype
        dense = torch.empty(4, 4, dtype=dtype)
        assert plan(a, b, out=dense) is dense
        assert torch.equal(dense.double(), exact)
        narrow = torch.empty(4, 4, dtype=torch.bfloat16)
        gett.einsum("ij,jk", a.double(), b.double(), out=narrow, casting="same_kind")
        assert torch.equal(narrow.double(), exact)
        with pytest.raises(gett.OutputError, match=r"out has 1 axes|out has extent"):
            gett.einsum("ij,jk", a, b, out=torch.empty(4, dtype=dtype))
    # One rounding at the end: 257 and 259 are no bfloat16, and the products' sum is.
    a = torch.tensor([[256.0, 1, 256, 3, -4]], dtype=torch.bfloat16)
    assert gett.einsum("ij,ij->i", a, torch.ones_like(a)).item() == 512


def _check_networks(torch: Any, integers: Any) -> None:
    shapes = ((3, 4, 5), (5, 4, 6), (6, 3))
    for dtype in (torch.float32, torch.bfloat16):
        tensors = [integers(*s, dtype=dtype) for s in shapes]
        exact = torch.einsum("abc,cbd,da->a", *(t.double() for t in tensors)).to(dtype)
        expression = opt_einsum.contract_expression("abc,cbd,da->a", *shapes)
        found = (
            gett.einsum("abc,cbd,da->a", *tensors),
            opt_einsum.contract("abc,cbd,da->a", *tensors, backend="gett"),
            expression(*tensors, backend="gett"),
        )
        for result in found:
            assert type(result) is torch.Tensor
            assert torch.equal(result, exact)


def _check_epilogues(torch: Any, integers: Any) -> None:
    def function(d: Any, x: Any, y: Any) -> Any:
        return gett.ops.maximum(d - x, 0) * 2 + y[:, None]

    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8):
        a, b, x, y = (integers(*shape, dtype=dtype) for shape in ((3, 4), (4, 5), (5,), (3,)))
        exact = (a.double() @ b.double() - x.double()).clamp(min=0) * 2 + y.double()[:, None]
        result = gett.contract("ij,jk->ik", a, b, epilogue=function, epilogue_args=(x, y))
        assert type(result) is torch.Tensor
        assert result.dtype is dtype
        assert torch.equal(result.double(), exact)
        plan = gett.plan("ij,jk->ik", a, b, epilogue=function, epilogue_args=(x, y))
        assert torch.equal(plan(a, b, epilogue_args=(x, y)), result)
        out = x.expand(3, 5).clone()
        overlapping = gett.contract("ij,jk->ik", a, b, out=out, epilogue=function, epilogue_args=(out, 0 * y))
        assert overlapping is out
        assert torch.equal(out.double(), (a.double() @ b.double() - x.double()).clamp(min=0) * 2)
    # bfloat16 arguments beside float32: they take no part in the promotion.
    a, b, x = integers(3, 4), integers(4, 5), integers(5, dtype=torch.bfloat16)
    result = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: d + x, epilogue_args=(x,))
    assert result.dtype is torch.float32
    assert torch.equal(result, a @ b + x.float())
    # One rounding at the end: the bias alone would be lost in bfloat16's sum.
    a = torch.tensor([[256.0, 1.0]], dtype=torch.bfloat16)
    result = gett.contract("ij,ij->i", a, torch.ones_like(a), epilogue=lambda d: d + 1)
    assert result.item() == 258
    with pytest.raises(gett.MixedArraysError, match=r"epilogue_args\[0\] is a numpy\.ndarray"):
        gett.contract("k,k->k", b[0], b[0], epilogue=lambda d, x: d + x, epilogue_args=(np.ones(5),))


def _check_refusals(torch: Any, integers: Any) -> None:
    a = integers(3, 3)
    weight = torch.nn.Parameter(integers(3, 3))
    for call in (
        lambda: gett.einsum("ij,jk", a, weight),
        lambda: gett.contract("ij,jk", a, a, weight, beta=1),
        lambda: gett.plan("ij,jk", a, a)(a, weight),
        lambda: gett.tensordot(a, weight, 1),
    ):
        assert call().requires_grad
        with torch.no_grad():
            assert not call().requires_grad
    for other, error, text in (
        (a.numpy(), gett.MixedArraysError, r"operand 1 is a numpy\.ndarray"),
        (a.to("meta"), gett.MixedArraysError, "operand 1 on the META"),
        (a.to_sparse(), gett.DTypeError, r"operand 1 is a PyTorch tensor of layout torch\.sparse_coo"),
        (a.to(torch.float8_e5m2), gett.DTypeError, r"operand 1 has dtype torch\.float8_e5m2"),
    ):
        with pytest.raises(error, match=text):
            gett.einsum("ij,jk", a, other)
    with pytest.raises(gett.MixedArraysError, match="out must be a PyTorch tensor"):
        gett.einsum("ij,jk", a, a, out=np.empty((3, 3), "f4"))
    z = integers(3, 3, dtype=torch.complex64)
    with pytest.raises(gett.OutputError, match="lazily"):
        gett.einsum("ij,jk", z, z, out=torch.empty_like(z).conj())
    before = a.clone()
    assert gett.einsum("ij,jk", before, a, out=a) is a
    assert torch.equal(a, before @ before)
