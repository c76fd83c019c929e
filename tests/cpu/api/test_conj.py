"""`conj=` and real operands beside complex ones in the public functions, and PyTorch's lazily conjugated tensors."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gett
from gett.arrays import torch as torch_arrays
from gett.explain.record import plan_record
from tests.cpu.fake_torch import Device, State, Tensor, tensor
from tests.cpu.strategies import integers_of

RNG = np.random.default_rng(31)
FLAGS = tuple(itertools.product((False, True), repeat=2))
integers = integers_of(RNG, 4, "complex64")


def taken(arrays: Any, conj: Any) -> list[Any]:
    return [x.conj() if flag else x for x, flag in zip(arrays, conj, strict=True)]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("conj", FLAGS, ids=str)
def test_every_entry_point(conj: tuple[bool, bool], dtype: str) -> None:
    a, b, c = integers(5, 6, dtype=dtype), integers(6, 7, dtype=dtype), integers(5, 7, dtype=dtype)
    want = np.matmul(*taken((a, b), conj))
    equal = np.testing.assert_array_equal
    for _ in range(2):
        equal(gett.einsum("ij,jk->ik", a, b, conj=conj), want)
        equal(gett.einsum(a, [0, 1], b, [1, 2], [0, 2], conj=list(conj)), want)
        equal(gett.einsum("ij,jk->ik", a, b, conj=conj, out=np.empty_like(c)), want)
        equal(gett.contract("ij,jk->ik", a, b, c, alpha=2j, beta=1 - 1j, conj=conj), 2j * want + (1 - 1j) * c)
        equal(gett.contract("ij,jk->ik", a, b, epilogue=lambda d: d + 1j, conj=conj), want + 1j)
        equal(gett.tensordot(a, b, 1, conj=conj), want)
    plan = gett.plan("ij,jk->ik", a, b, conj=conj)
    equal(plan(a, b), want)
    equal(plan(a, b, alpha=3), 3 * want)
    equal(plan(a, b, c=c, beta=2), want + 2 * c)  # another plan, which has the flags too
    accumulated = c.copy()
    plan(a, b, beta=1, out=accumulated)
    equal(accumulated, want + c)
    assert gett.autotune("ij,jk->ik", a, b, conj=conj, progress=False).arch == "cpu"


def test_one_operand_and_views() -> None:
    a = integers(6, 6, 4)
    for subscripts in ("iij->ij", "ijk->kji", "ijk->", "ijk->ji"):
        np.testing.assert_array_equal(gett.einsum(subscripts, a, conj=(True,)), np.einsum(subscripts, a.conj()))
    found = gett.einsum("ijk,ijk->ij", a[::-1, ::2], a[:, ::2], conj=(True, False))
    np.testing.assert_array_equal(found, np.einsum("ijk,ijk->ij", a[::-1, ::2].conj(), a[:, ::2]))


@pytest.mark.parametrize("optimize", [True, False, "greedy", [(0, 3), (0, 1), (0, 1)]])
def test_networks_conjugate_each_operand_once(optimize: Any) -> None:
    arrays = [integers(3, 4), integers(4, 5), integers(5, 6), integers(6, 2)]
    for conj in itertools.product((False, True), repeat=4):
        want = np.linalg.multi_dot(taken(arrays, conj))
        path = [*optimize] if isinstance(optimize, list) else optimize
        found = gett.einsum("ij,jk,kl,lm->im", *arrays, conj=conj, optimize=path)
        np.testing.assert_array_equal(found, want)
    lonely = gett.einsum("ijx,jk,kly->il", integers(3, 4, 50), arrays[1], integers(5, 6, 40), conj=(True, False, True))
    assert lonely.shape == (3, 6)


def test_sums_of_one_operand_before_a_product_are_conjugated_once() -> None:
    a, b, c = integers(20, 30, 200), integers(30, 25), integers(25, 40, 100)
    for conj in itertools.product((False, True), repeat=3):
        x, y, z = taken((a, b, c), conj)
        want = x.sum(2) @ y @ z.sum(2)
        np.testing.assert_array_equal(gett.einsum("ijx,jk,kly->il", a, b, c, conj=conj), want)


@pytest.mark.parametrize(
    ("dtype_a", "dtype_b"),
    [("float32", "complex64"), ("float64", "complex128"), ("float32", "complex128"), ("float64", "complex64"),
     ("float16", "complex64"), ("int8", "complex64"), ("int32", "complex64"), ("bool", "complex128"),
     (">f4", "complex64"), ("float32", ">c8")],
)  # fmt: skip
def test_real_operands_beside_complex_ones(dtype_a: str, dtype_b: str) -> None:
    a, b = (np.abs(integers(40, 50, dtype="int8")) % 2).astype(dtype_a), integers(50, 60).astype(dtype_b)
    for x, y, subscripts in ((a, b, "ij,jk->ik"), (b, a, "jk,ij->ik"), (a, b.T.copy(), "ij,kj->ki")):
        for conj in FLAGS:
            found = gett.einsum(subscripts, x, y, conj=conj)
            want = np.einsum(subscripts, *taken((x, y), conj))
            np.testing.assert_array_equal(found, want)
            assert found.dtype == np.result_type(a, b).newbyteorder("=")


def test_a_real_operand_keeps_its_dtype_in_the_plan() -> None:
    pairs = ((64, 64), "float32"), ((64, 64), "complex64")
    for arch in ("cpu", "sm_90a"):
        plan = gett.plan("ij,jk->ik", *pairs, arch=arch, conj=(True, True))
        c = plan.steps[0].gemm.contraction
        assert c.b is not None
        assert (c.a.dtype, c.b.dtype, c.dtype, c.conj) == ("float32", "complex64", "complex64", (False, True))
        assert plan.flops == 4 * 64**3
        assert '"ij" (float32)' in plan.explain(detail=True)
        assert '"jk" (conjugated)' in plan.explain(detail=True)
        assert "gemm in complex64" in plan.explain(detail=True)
        operands = plan_record(plan)["steps"][0]["operands"]
        assert operands == [{"dtype": "float32", "conj": False}, {"dtype": "complex64", "conj": True}]
    wide = gett.plan("ij,jk->ik", pairs[0], ((64, 64), "complex128"))
    assert wide.steps[0].gemm.contraction.a.dtype == "float64"
    assert "(" not in gett.plan("ij,jk->ik", pairs[0], pairs[0]).explain(detail=True).splitlines()[2]


def test_real_operands_meet_in_real_numbers() -> None:
    pairs = ((40, 50), "float32"), ((50, 60), "float32"), ((60, 70), "complex64")
    plan = gett.plan("ij,jk,kl->il", *pairs, optimize=[(0, 1), (0, 1)])
    assert [s.gemm.contraction.dtype for s in plan.steps] == ["float32", "complex64"]
    assert plan.flops == 2 * 40 * 50 * 60 + 4 * 40 * 60 * 70
    assert plan.intermediate_bytes == 4 * 40 * 60
    arrays = [integers(*shape, dtype=dtype) for shape, dtype in pairs]
    np.testing.assert_array_equal(plan(*arrays), np.linalg.multi_dot(arrays))
    alone = gett.plan("ij,jk,kl->il", *pairs[:2], ((60, 70), "float32"), dtype="complex64")
    assert [s.gemm.contraction.dtype for s in alone.steps][-1] == "complex64"
    arrays[2] = arrays[2].real.copy()
    np.testing.assert_array_equal(alone(*arrays, alpha=2j), 2j * np.linalg.multi_dot(arrays))


def test_long_sums_of_real_operands_stay_real() -> None:
    long = 1 << 31
    pairs = ((4, long), "float32"), ((long, 4), "float32"), ((4, 4), "complex64")
    plan = gett.plan("ij,jk,kl->il", *pairs, optimize=[(0, 1), (0, 1)], arch="sm_90a")
    contractions = [s.gemm.contraction for s in plan.steps]
    assert len(contractions) > 3  # launches of parts of the sum, their sum, the product
    assert {(c.dtype, c.d.dtype) for c in contractions[:-1]} == {("float32", "float32")}
    assert (contractions[-1].dtype, contractions[-1].d.dtype) == ("complex64", "complex64")


def test_real_operands_with_scalars_and_addends() -> None:
    a, b, c = (
        integers(50, 60, dtype="float64"),
        integers(60, 70, dtype="complex128"),
        integers(50, 70, dtype="complex128"),
    )
    for alpha, beta in ((1, 1), (2, -3), (1 + 2j, 1), (2, 1j), (np.complex128(3), 2.0)):
        for conj in (False, True):
            y = b.conj() if conj else b
            found = gett.contract("ij,jk->ik", a, b, c, alpha=alpha, beta=beta, conj=(False, conj))
            np.testing.assert_array_equal(found, alpha * (a @ y) + beta * c)


def test_the_cache_tells_flags_apart_and_needs_none_for_real_operands() -> None:
    a, b, x = integers(5, 6), integers(6, 7), integers(5, 6, dtype="float32")
    gett.plan_cache.clear()
    for conj in (*FLAGS, None, [True, False]):
        gett.einsum("ij,jk->ik", a, b, conj=conj)
    assert gett.plan_cache.info()[:3] == (2, 4, 4)
    gett.plan_cache.clear()
    for conj in (None, (True, False), (False, False)):
        gett.einsum("ij,jk->ik", x, b, conj=conj)
        gett.contract("ij,jk->ik", x, b, conj=conj)
        gett.plan("ij,jk->ik", x, b, conj=conj)
    assert gett.plan_cache.info().size == 2  # one by the arrays, one by the request
    first = gett.plan("ij,jk->ik", x, b)
    assert gett.plan("ij,jk->ik", x, b, conj=(True, False)) is first
    assert gett.plan("ij,jk->ik", x, b, conj=(True, True)) is not first


@pytest.mark.parametrize(
    ("conj", "text"),
    [
        (True, r"conj=True; it must be a sequence of one bool for each operand"),
        ("ab", r"conj='ab'; it must be a sequence"),
        ((True,), r"conj=\(True,\) has length 1; one bool for each of 2 operands"),
        ((True, False, True), "has length 3"),
        ((), "has length 0"),
        ((True, 1), "what it says of operand 1, 1, is no bool"),
        (("no", False), "what it says of operand 0, 'no', is no bool"),
    ],
)
def test_wrong_flags_are_named(conj: Any, text: str) -> None:
    a = integers(4, 4)
    calls = (
        lambda: gett.einsum("ij,jk", a, a, conj=conj),
        lambda: gett.contract("ij,jk", a, a, a, conj=conj),
        lambda: gett.plan("ij,jk", a, a, conj=conj),
        lambda: gett.tensordot(a, a, 1, conj=conj),
        lambda: gett.autotune("ij,jk", a, a, conj=conj),
    )
    for call in calls:
        with pytest.raises(gett.OptionError, match=text):
            call()


def test_numpys_own_types_and_lists() -> None:
    wide = integers(3, 4, dtype="complex128").astype("G")
    found = gett.einsum("ij,kj->ik", wide, wide, conj=(True, False))
    np.testing.assert_array_equal(found, wide.conj() @ wide.T)
    exact = np.array([[Fraction(1, 3), Fraction(2)], [1j, 2 - 1j]], object)
    np.testing.assert_array_equal(gett.einsum("ij->ji", exact, conj=(True,)), exact.conj().T)
    np.testing.assert_array_equal(gett.contract("ij,j", exact, exact[1], conj=(False, True)), exact @ exact[1].conj())
    assert gett.einsum(",", 1 + 2j, [3j][0], conj=(True, np.bool_(False))) == (1 - 2j) * 3j
    np.testing.assert_array_equal(gett.einsum("i,i->i", [1j, 2], [1, 1], conj=[True, True]), [-1j, 2])


def equals(found: Tensor, want: Any) -> None:
    assert not found.conjugate
    np.testing.assert_array_equal(found.values(), want)


def test_lazily_conjugated_tensors_are_read_where_they_are(torch: Any) -> None:
    a, b = tensor(integers(4, 5)), tensor(integers(5, 6))
    for lazy, conj in itertools.product(FLAGS, FLAGS):
        x, y = taken((a, b), lazy)
        want = np.matmul(*taken((x.values(), y.values()), conj))
        State.allocated.clear()
        for _ in range(2):
            equals(gett.einsum("ij,jk->ik", x, y, conj=conj), want)
            equals(gett.contract("ij,jk->ik", x, y, conj=conj), want)
            equals(gett.tensordot(x, y, 1, conj=conj), want)
        equals(gett.plan("ij,jk->ik", x, y, conj=conj)(x, y), want)
        assert all(shape == (4, 6) for shape, _ in State.allocated)
    assert not State.resolved
    # A call with lazy operands and one with flags are plans of their own; each is made once.
    hits, misses, *_ = gett.plan_cache.info()
    equals(gett.einsum("ij,jk->ik", a.conj(), b), a.memory.conj() @ b.memory)
    assert gett.plan_cache.info()[:2] == (hits + 1, misses)


def test_a_plan_takes_tensors_for_their_values(torch: Any) -> None:
    a, b = tensor(integers(4, 5)), tensor(integers(5, 6))
    c = tensor(integers(4, 6))
    for made, given, conj in itertools.product(FLAGS, FLAGS, FLAGS):
        plan = gett.plan("ij,jk->ik", *taken((a, b), made), conj=conj)
        x, y = taken((a, b), given)
        want = np.matmul(*taken((x.values(), y.values()), conj))
        equals(plan(x, y), want)
        equals(plan(x, y, out=tensor(np.zeros((4, 6), "c8"))), want)
        equals(plan(x, y, c=c.conj(), beta=2), want + 2 * c.memory.conj())
    assert State.resolved == 64  # C, which has no flag


def test_lazily_conjugated_tensors_are_converted_and_contracted_in_networks(torch: Any) -> None:
    a, b, wide = tensor(integers(4, 5)), tensor(integers(5, 6)), tensor(integers(6, 3, dtype="complex128"))
    real = tensor(integers(6, 3, dtype="float64"))
    equals(gett.einsum("ij,jk->ik", b.conj(), wide), b.memory.conj() @ wide.memory)
    equals(gett.einsum("ij,jk->ik", b.conj(), real), b.memory.conj() @ real.memory)
    for conj in FLAGS:
        x, y = taken((a, b), conj)
        for _ in range(2):
            equals(gett.einsum("ij,jk,kl->il", x, y, wide), x.values() @ y.values() @ wide.memory)
            equals(gett.einsum("ij,jk,kl->il", x, y, wide.conj(), conj=(True, False, True)),
                   x.values().conj() @ y.values() @ wide.memory)  # fmt: skip
    assert not State.resolved
    x = a.permute((1, 0)).conj()[1:]
    equals(gett.einsum("ij->ji", x), a.memory[:, 1:].conj())
    scale = tensor([2j] * 6, "complex64").conj()
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, e: d * e, epilogue_args=(scale,))
    equals(found, a.memory @ b.memory * -2j)
    with pytest.raises(gett.OutputError, match="conjugates or negates lazily"):
        gett.einsum("ij,jk", a, b, out=tensor(np.zeros((4, 6), "c8")).conj())


class CpuTensor(Tensor):
    """A tensor in the host's memory, which PyTorch shares with NumPy unless it is conjugated lazily."""

    def __init__(self, memory: NDArray[Any], dtype: str, device: int = 0) -> None:
        super().__init__(memory, dtype, device)
        self.is_cuda = False

    @property
    def device(self) -> Device:
        return Device("cpu")

    def detach(self) -> CpuTensor:
        return self

    def numpy(self) -> NDArray[Any]:
        assert not self.conjugate
        return self.memory


def test_tensors_in_the_hosts_memory_are_not_copied_either(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # NumPy's executables
    library = torch_arrays.TorchLibrary(torch)
    monkeypatch.setattr(torch_arrays, "_library", library)
    torch.from_numpy = lambda x: CpuTensor(x, x.dtype.name)
    a, b = (CpuTensor(integers(*shape), "complex64") for shape in ((4, 5), (5, 6)))
    c = CpuTensor(integers(4, 6), "complex64")
    for made, given, conj in itertools.product(FLAGS, FLAGS, FLAGS):
        x, y = taken((a, b), given)
        want = np.matmul(*taken((x.values(), y.values()), conj))
        equals(gett.einsum("ij,jk->ik", x, y, conj=conj), want)
        equals(gett.tensordot(x, y, 1, conj=conj), want)
        equals(gett.contract("ij,jk->ik", x, y, c, beta=2, conj=conj), want + 2 * c.memory)
        plan = gett.plan("ij,jk->ik", *taken((a, b), made), conj=conj)
        equals(plan(x, y), want)
        equals(plan(x, y, c=c), want + c.memory)
        out = CpuTensor(np.zeros((4, 6), "c8"), "complex64")
        assert plan(x, y, out=out) is out
        equals(out, want)
    assert not State.resolved
    lazy = gett.plan("ij,jk->ik", a.conj(), b)
    np.testing.assert_array_equal(lazy(a.memory, b.memory), a.memory @ b.memory)  # arrays, for their values too
    with pytest.raises(gett.OutputError, match="conjugates or negates lazily"):
        gett.einsum("ij,jk", a, b, out=c.conj())
