"""PyTorch's CUDA tensors and bfloat16 in the public functions, on a stand-in for PyTorch."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import opt_einsum
import pytest

import gett
from gett.ir.tensors import BFLOAT16, TensorSpec, parse_dtype, promote, result_type
from gett.plans import executables
from tests.cpu.fake_cupy import GpuArray
from tests.cpu.fake_torch import AddressExecutable, Dtype, Parameter, State, Tensor, decode, encode, tensor
from tests.cpu.strategies import integers_of

RNG = np.random.default_rng(5)
DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "int32", "bool")
integers = integers_of(RNG, 3, "float32")


def spec(dtype: Any) -> TensorSpec:
    return TensorSpec((2,), (2,), parse_dtype(dtype))


PROMOTIONS = [
    ("bfloat16", "bfloat16", "bfloat16"),
    ("bfloat16", "float16", "float32"),
    ("bfloat16", "float32", "float32"),
    ("bfloat16", "float64", "float64"),
    ("bfloat16", "int8", "bfloat16"),
    ("bfloat16", "int64", "bfloat16"),
    ("bfloat16", "bool", "bfloat16"),
    ("bfloat16", "complex64", "complex64"),
    ("bfloat16", "complex128", "complex128"),
]


@pytest.mark.parametrize(("first", "second", "wanted"), PROMOTIONS)
def test_promotion_of_bfloat16(first: str, second: str, wanted: str) -> None:
    for pair in ((first, second), (second, first)):
        assert promote([spec(x) for x in pair], [], None, None, "safe").name == wanted


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("bfloat16", "bfloat16", "no equiv safe same_kind unsafe"),
        ("bfloat16", "float32", "safe same_kind unsafe"),
        ("bfloat16", "complex64", "safe same_kind unsafe"),
        ("bfloat16", "float16", "same_kind unsafe"),
        ("float32", "bfloat16", "same_kind unsafe"),
        ("int64", "bfloat16", "safe same_kind unsafe"),
        ("bfloat16", "int64", "unsafe"),
        ("complex64", "bfloat16", "unsafe"),
    ],
)
def test_casting_of_bfloat16(source: str, target: str, allowed: str) -> None:
    for casting in ("no", "equiv", "safe", "same_kind", "unsafe"):
        if casting in allowed.split():
            assert promote([spec(source)], [], None, target, casting).name == target  # type: ignore[arg-type]
        else:
            with pytest.raises(gett.DTypeError, match=f"operand 0 cannot be cast from {source} to {target}"):
                promote([spec(source)], [], None, target, casting)  # type: ignore[arg-type]
    with pytest.raises(gett.OptionError, match="casting='often'"):
        promote([spec(source)], [], None, target, "often")  # type: ignore[arg-type]


def test_bfloat16_is_one_object_that_no_dtype_equals() -> None:
    assert parse_dtype("bfloat16") is parse_dtype(BFLOAT16) is BFLOAT16
    assert (str(BFLOAT16), BFLOAT16.itemsize, BFLOAT16.kind) == ("bfloat16", 2, "f")
    assert all(np.dtype(x) != BFLOAT16 for x in ("f2", "u2", "f4", "V2"))
    assert result_type([np.dtype("int32"), BFLOAT16, np.dtype("int8")]) is BFLOAT16


def test_plans_of_bfloat16_need_no_gpu_and_no_torch() -> None:
    pair = ((64, 64), "bfloat16")
    plan = gett.plan("ij,jk->ik", pair, pair, arch="sm_90a")
    assert plan.dtype is BFLOAT16
    assert plan.bytes == 3 * 64 * 64 * 2
    assert "gemm in bfloat16" in plan.explain(detail=True)
    chain = gett.plan("ij,jk,kl->il", pair, pair, pair, arch="sm_80")
    assert chain.intermediate_bytes == 64 * 64 * 2
    assert gett.plan("ij,jk->ik", pair, pair).dtype == np.float32  # on the CPU, where calls convert
    wide = ((64, 64), "float32")
    with pytest.raises(gett.DTypeError, match="a plan for the CPU gives bfloat16 where"):
        gett.plan("ij,jk->ik", wide, wide, dtype="bfloat16", casting="same_kind")


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_in_tensors_out(torch: Any, dtype: str) -> None:
    kind = "float32" if dtype == "bfloat16" else dtype
    a, b = integers(4, 3, 5, dtype=kind), integers(5, 6, 4, dtype=kind)
    wanted = np.einsum("aib,bja->ij", a, b)
    for _ in range(2):  # planned, then from the cache
        result = gett.einsum("aib,bja->ij", tensor(a, dtype), tensor(b, dtype))
        assert type(result) is Tensor
        assert result.dtype.name == dtype
        np.testing.assert_array_equal(result.values(), wanted)
    assert gett.plan_cache.info()[:3] == (1, 1, 1)
    assert {x[:3] for x in State.launches} == {(0x700, 0, dtype)}


def test_strides_views_and_orders(torch: Any) -> None:
    a = tensor(integers(8, 6, 5), "bfloat16")[::2].permute((2, 0, 1))
    b = tensor(np.asfortranarray(integers(6, 9)))[:, ::3]
    wanted = np.einsum("kij,jl->kil", a.values(), b.values())
    for order in ("C", "F"):
        result = gett.einsum("kij,jl->kil", a, b, order=order)
        np.testing.assert_array_equal(result.values(), wanted)
        assert result.memory.flags[f"{order}_CONTIGUOUS"]
        assert result.dtype.name == "float32"
    spread = Tensor(np.broadcast_to(b.memory[:, :1], b.shape), "float32")
    np.testing.assert_array_equal(
        gett.einsum("kij,jl->kil", a, spread).values(), np.einsum("kij,jl->kil", a.values(), spread.values())
    )


@pytest.mark.parametrize(("first", "second", "wanted"), PROMOTIONS)
def test_conversion_by_the_tensors_own_library(torch: Any, first: str, second: str, wanted: str) -> None:
    a, b = (tensor(np.abs(integers(3, 3)) % (2 if x == "bool" else 9), x) for x in (first, second))
    result = gett.einsum("ij,jk->ki", a, b)
    assert result.dtype.name == wanted
    np.testing.assert_array_equal(result.values(), (a.values().astype("c16") @ b.values().astype("c16")).T)


def test_dtype_option(torch: Any) -> None:
    a = tensor(integers(3, 3), "float32")
    for asked in ("bfloat16", torch.bfloat16):
        result = gett.einsum("ij,jk", a, a, dtype=asked, casting="same_kind")
        assert result.dtype is torch.bfloat16
        np.testing.assert_array_equal(result.values(), a.values() @ a.values())
    assert gett.einsum("ij,jk", a, a, dtype=torch.float64).dtype is torch.float64
    with pytest.raises(gett.DTypeError, match="cannot be cast from float32 to bfloat16 under casting='safe'"):
        gett.einsum("ij,jk", a, a, dtype="bfloat16")


def test_out_and_overlap_of_tensors(torch: Any) -> None:
    memory = tensor(np.zeros((4, 8)), "bfloat16")
    evens, odds, b = memory[:, ::2], memory[:, 1::2], tensor(integers(4, 4), "bfloat16")
    evens.copy_(tensor(integers(4, 4)))
    plan = gett.plan("ij,jk->ik", b, evens, out=odds)
    for run in (plan, lambda *x, **y: gett.einsum("ij,jk->ik", *x, **y)):
        for _ in range(2):
            odds.fill_(9)
            assert run(b, evens, out=odds) is odds
            np.testing.assert_array_equal(odds.values(), b.values() @ evens.values())
        before = evens.values()
        same = memory[:, :8:2]
        assert run(b, evens, out=same) is same  # through a tensor of its own
        np.testing.assert_array_equal(evens.values(), b.values() @ before)
        evens.copy_(tensor(before))
    before = odds.values()
    assert gett.contract("ij,jk->ik", b, evens, odds, alpha=2, beta=-1, out=odds) is odds
    np.testing.assert_array_equal(odds.values(), 2 * b.values() @ evens.values() - before)
    with pytest.raises(gett.OutputError, match="elements of out overlap"):
        gett.einsum("ij,jk->ik", b, b, out=Tensor(np.broadcast_to(memory.memory[0, :4], (4, 4)), "bfloat16"))
    wide = tensor(np.zeros((4, 4)), "float32")
    gett.einsum("ij,jk->ik", b, b, out=wide)  # out takes part in the promotion
    np.testing.assert_array_equal(wide.values(), b.values() @ b.values())
    assert State.launches[-1][2] == "bfloat16"  # whose products float32 holds
    gett.einsum("ij,jk->ik", wide, wide, out=odds, casting="same_kind")
    np.testing.assert_array_equal(odds.values(), decode(encode(wide.values() @ wide.values(), "bfloat16"), "bfloat16"))


def test_plans_take_tensors(torch: Any) -> None:
    a, b = tensor(integers(4, 4), "bfloat16"), tensor(integers(4, 4), "bfloat16")
    wanted = a.values() @ b.values()
    plan = gett.plan("ij,jk->ik", a, b)
    made = gett.plan_cache.info().misses
    assert plan.arch == "sm_90a"
    np.testing.assert_array_equal(plan(a, b).values(), wanted)
    d = tensor(np.zeros((4, 4)), "bfloat16")
    assert plan(a, b, out=d, alpha=2) is d
    np.testing.assert_array_equal(d.values(), 2 * wanted)
    assert gett.plan_cache.info().misses == made
    np.testing.assert_array_equal(plan(a, b, c=d, beta=-1).values(), -wanted)
    with pytest.raises(gett.ShapeError, match=r"operand 1 has strides \(2, 8\), the plan was made for \(8, 2\)"):
        plan(a, b.permute((1, 0)))
    with pytest.raises(gett.DTypeError, match="operand 0 has dtype float16, the plan was made for bfloat16"):
        plan(tensor(a.values(), "float16"), b)
    with pytest.raises(gett.OptionError, match="arch='cpu' cannot plan for PyTorch arrays"):
        gett.plan("ij,jk", a, b, arch="cpu")
    with pytest.raises(gett.DeviceError, match="operands are NumPy arrays"):
        plan(a.values(), b.values())


def test_alignment_of_tensors_counts(torch: Any) -> None:
    memory = np.zeros(64, "f4")
    start = -memory.__array_interface__["data"][0] % 16 // 4
    even, odd = (tensor(memory[start + i : start + i + 16].reshape(4, 4)) for i in (0, 1))
    b = tensor(integers(4, 4))
    relaxed, strict = gett.plan("ij,kj->ik", odd, b), gett.plan("ij,kj->ik", even, b)
    relaxed(even, b)
    with pytest.raises(gett.ShapeError, match="operand 0 is aligned to 4 bytes, the plan was made for 16"):
        strict(odd, b)


def test_streams_devices_and_workspace_are_torchs(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = tensor(integers(4, 4), device=3), tensor(integers(4, 4), device=3)
    monkeypatch.setattr(
        executables,
        "_build_executables",
        lambda gemms, arch, tuned, limit: [AddressExecutable(gemm, 4096) for gemm in gemms],
    )
    State.stream = lambda device: 0xABC0 + device
    result = gett.einsum("ij,jk", a, b)
    assert result.get_device() == 3
    ((stream, workspace, *_),) = State.launches
    assert stream == 0xABC3
    assert workspace
    assert State.allocated == [((4, 4), "float32"), ((4096,), "uint8")]


def test_networks_of_tensors(torch: Any) -> None:
    x, y, z = (tensor(integers(*s), "bfloat16") for s in ((3, 4, 5), (5, 4, 6), (6, 3)))
    # Small enough that the intermediate, which is rounded to bfloat16, is exact.
    wanted = np.einsum("abc,cbd,da->a", *(t.values() for t in (x, y, z)))
    steps = (gett.einsum, lambda *args: opt_einsum.contract(*args, backend="gett"))
    for run in steps:
        result = run("abc,cbd,da->a", x, y, z)
        assert type(result) is Tensor
        np.testing.assert_array_equal(result.values(), decode(encode(wanted, "bfloat16"), "bfloat16"))
    expression = opt_einsum.contract_expression("abc,cbd,da->a", x.shape, y.shape, z.shape)
    np.testing.assert_array_equal(expression(x, y, z, backend="gett").values(), result.values())
    product = gett.tensordot(x, y, ([1, 2], [1, 0]))
    np.testing.assert_array_equal(product.values(), np.tensordot(x.values(), y.values(), ([1, 2], [1, 0])))
    turned = gett.transpose(x, (2, 0, -2))
    assert turned.data_ptr() == x.data_ptr()
    assert turned.shape == (5, 3, 4)
    assert gett.transpose(x).shape == (5, 4, 3)
    with pytest.raises(gett.ShapeError, match="no permutation"):
        gett.transpose(x, (0, 0, 1))


def test_scalars_join_tensors_as_in_torch(torch: Any) -> None:
    a = tensor(integers(2, 3), "bfloat16")
    for scalar, dtype in ((3, "bfloat16"), (2.0, "bfloat16"), (2j, "complex64"), (np.float32(2), "float32")):
        result = gett.einsum(",ij->ji", scalar, a)
        assert result.dtype.name == dtype
        np.testing.assert_array_equal(result.values(), a.values().T * scalar)
    with pytest.raises(gett.DTypeError, match="NumPy scalar of dtype <U1"):
        gett.einsum(",ij->ji", np.str_("x"), a)


def test_mixed_kinds_are_named(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a = tensor(integers(2, 2))
    with pytest.raises(gett.MixedArraysError, match=r"operand 0 is a PyTorch tensor, operand 1 is a numpy\.ndarray"):
        gett.einsum("ij,jk", a, a.values())
    with pytest.raises(gett.MixedArraysError, match=r"operand 1 is a PyTorch tensor, operand 0 is a .*GpuArray"):
        gett.einsum("ij,jk", GpuArray.of(a.values(), 0), a)
    with pytest.raises(gett.MixedArraysError, match="operand 0 is on GPU 0, operand 1 on GPU 1"):
        gett.einsum("ij,jk", a, tensor(a.values(), device=1))
    with pytest.raises(gett.MixedArraysError, match="out must be a PyTorch array as the operands are, not ndarray"):
        gett.einsum("ij,jk", a, a, out=np.empty((2, 2), "f4"))
    with pytest.raises(gett.MixedArraysError, match="out must be a NumPy array as the operands are, not Tensor"):
        gett.einsum("ij,jk", a.values(), a.values(), out=a)
    with pytest.raises(gett.MixedArraysError, match="out is on device 1"):
        gett.einsum("ij,jk", a, a, out=tensor(a.values(), device=1))
    with pytest.raises(gett.MixedArraysError, match="c is a numpy"):
        gett.contract("ij,jk", a, a, a.values(), beta=1)
    elsewhere = tensor(a.values())
    elsewhere.is_cuda = False
    monkeypatch.setattr(Tensor, "device", property(lambda self: types.SimpleNamespace(type="mps")))
    with pytest.raises(gett.DTypeError, match="there are CUDA and CPU tensors here"):
        gett.einsum("ij,jk", elsewhere, elsewhere)


def test_epilogues_of_tensors(torch: Any) -> None:
    """What is checked before a plan is made."""
    a, x = tensor(integers(2, 2)), tensor(integers(2))

    def add(*given: Any) -> Any:
        return gett.contract("ij,jk", a, a, epilogue=lambda d, x: d + x, epilogue_args=given)

    with pytest.raises(gett.MixedArraysError, match=r"operand 0 is a PyTorch tensor, epilogue_args\[0\] is a numpy"):
        add(x.values())
    with pytest.raises(gett.MixedArraysError, match=r"operand 0 is on GPU 0, epilogue_args\[0\] on GPU 1"):
        add(tensor(x.values(), device=1))
    with pytest.raises(gett.MixedArraysError, match=r"epilogue_args\[0\] is a PyTorch tensor, operand 0 is a numpy"):
        gett.contract("ij,jk", a.values(), a.values(), epilogue=lambda d, x: d + x, epilogue_args=(x,))
    assert not State.launches
    weight = Parameter(integers(2), "float32", requires_grad=True)
    recorded = add(weight)  # the contraction, then the epilogue of it
    np.testing.assert_array_equal(recorded.values(), a.values() @ a.values() + weight.values())
    assert len(State.launches) == 2
    _, of_d, _ = recorded.backward(a)
    np.testing.assert_array_equal(of_d.values(), a.values())


def test_gradients_are_recorded(torch: Any) -> None:
    """Calls go through the autograd function, and its derivatives launch kernels."""
    a, w = tensor(integers(2, 2)), Parameter(integers(2, 2), "float32", requires_grad=True)
    plan, product = gett.plan("ij,jk", a, w), a.values() @ w.values()
    calls = (
        lambda: gett.einsum("ij,jk", a, w),
        lambda: gett.contract("ij,jk", a, w),
        lambda: gett.contract("ij,jk", a, w, tensor(integers(2)), beta=0),
        lambda: gett.tensordot(a, w, 1),
        lambda: plan(a, w),
    )
    for call in calls:
        count = len(State.launches)
        result = call()
        np.testing.assert_array_equal(result.values(), product)
        assert len(State.launches) == count + 1
        gradient = tensor(integers(2, 2))
        _, da, dw, *_ = result.backward(gradient)
        np.testing.assert_array_equal(da.values(), gradient.values() @ w.values().T)
        np.testing.assert_array_equal(dw.values(), a.values().T @ gradient.values())
        assert len(State.launches) == count + 3
    with pytest.raises(gett.GradientError, match=r"out= is given, but derivatives are recorded.*no_grad"):
        gett.einsum("ij,jk", a, a, out=w)
    State.grad = False
    count = len(State.launches)
    for call in (*calls, lambda: gett.einsum("ij,jk", a, a, out=w)):
        assert not hasattr(call(), "context")
    assert len(State.launches) == count + 6
    np.testing.assert_array_equal(w.values(), a.values() @ a.values())


def test_negated_views_are_resolved(torch: Any) -> None:
    a = tensor(integers(3, 3, dtype="complex64"))
    lazy, negative = a.conj(), tensor(integers(3, 3))
    negative.negative = True
    np.testing.assert_array_equal(gett.einsum("ij,jk", negative, a).values(), -negative.memory @ a.memory)
    for out in (lazy, negative):
        with pytest.raises(gett.OutputError, match="conjugates or negates lazily"):
            gett.einsum("ij,jk", a, a, out=out, casting="unsafe")


def test_tensors_that_cannot_be_read(torch: Any) -> None:
    a = tensor(integers(2, 2))
    strange, sparse, hollow = tensor(a.values()), tensor(a.values()), tensor(a.values())
    strange.dtype = Dtype("float32")  # not the one that the library knows
    sparse.layout = "sparse_coo"
    hollow.data_ptr = lambda: 0  # type: ignore[method-assign]
    with pytest.raises(gett.DTypeError, match=r"operand 1 has dtype .*; supported are bfloat16, bool"):
        gett.einsum("ij,jk", a, strange)
    with pytest.raises(gett.DTypeError, match="operand 0 is a PyTorch tensor of layout sparse_coo"):
        gett.einsum("ij->ji", sparse, order="A")
    with pytest.raises(gett.DTypeError, match="operand 0 is a Tensor without memory"):
        gett.contract("ij,jk", hollow, a)
    plan = gett.plan("ij,jk", a, a)
    plan(a, a)
    with pytest.raises(gett.DTypeError, match="operand 0 is a Tensor without memory"):
        plan(hollow, a)


def test_epilogues_read_tensors_at_their_addresses(torch: Any) -> None:
    """Those of each call, in the order in which the function first reads them; strided ones and broadcast ones."""
    values = [integers(*s) for s in ((4, 3), (3, 5), (4, 1), (9,))]
    a, b, x, long = (tensor(v, "bfloat16") for v in values)
    y = long[1:6]

    def function(d: Any, x: Any, y: Any) -> Any:
        return np.clip(d + 2 * y, -9, 9) - x

    product = values[0] @ values[1]
    found = gett.contract("ij,jk->ik", a, b, epilogue=function, epilogue_args=(x, y))
    expected = function(product, values[2], values[3][1:6])
    np.testing.assert_array_equal(found.values(), expected)
    plan = gett.plan("ij,jk->ik", a, b, epilogue=function, epilogue_args=(x, y))
    other = tensor(values[2] + 1, "bfloat16")
    np.testing.assert_array_equal(plan(a, b, epilogue_args=(other, y)).values(), expected - 1)


def test_out_of_memory_and_empty_sums_of_tensors(torch: Any) -> None:
    a = tensor(np.ones((10, 10)), "float64")
    State.limit = 1000
    with pytest.raises(gett.OutOfMemoryError, match="80000 bytes of device memory"):
        gett.einsum("ij,kl->ijkl", a, a)
    State.launches.clear()
    none, c = tensor(np.ones((2, 0)), "bfloat16"), tensor([1.0, 2.0], "bfloat16")
    np.testing.assert_array_equal(gett.einsum("ij,kj", none, none).values(), np.zeros((2, 2)))
    result = gett.contract("ij,kj", none, none, c, beta=2)
    np.testing.assert_array_equal(result.values(), [[2, 4]] * 2)
    assert len(State.launches) == 2
