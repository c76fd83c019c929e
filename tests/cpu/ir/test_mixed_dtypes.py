"""Operands and results of several dtypes on a GPU: what is multiplied, in which dtype, and what is converted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gett
from gett.arrays.kinds import NUMPY, conversion, convert
from gett.codegen.render import render_kernel
from gett.ir.contraction import Contraction
from gett.jit import compile_kernel, resources
from gett.network import forms, running
from tests.cpu.fake_torch import State, Tensor, tensor
from tests.sampling import slow_but

RNG = np.random.default_rng(41)
SHORT = ("float16", "bfloat16")
REAL = {"complex64": "float32", "complex128": "float64"}


def integers(*shape: int, most: int = 9, dtype: str = "complex128") -> NDArray[Any]:
    real = RNG.integers(-most, most + 1, shape)
    return (real + 1j * RNG.integers(-most, most + 1, shape) if dtype.startswith("c") else real).astype(dtype)


def steps(*arguments: Any, arch: str = "sm_90a", **options: Any) -> list[tuple[str, str, str, str]]:
    """Of each step: the dtypes of A, of the products and of D, and the schedule."""
    found = gett.plan(*arguments, arch=arch, **options).steps
    made = [(s.gemm.contraction, "" if s.schedule is None else s.schedule.kind) for s in found]
    return [(c.a.dtype, c.dtype, c.d.dtype, kind) for c, kind in made]


@pytest.mark.slow
@pytest.mark.parametrize("short", SHORT)
def test_products_of_16_bits_are_summed_in_float32(short: str) -> None:
    pair = (512, 512), short
    wide = (512, 512), "float32"
    for options in ({"dtype": "float32"}, {"out": wide}, {"c": wide}, {"out": wide, "epilogue": np.abs}):
        for arch, kind in (("sm_90a", "wgmma ss"), ("sm_80", "mma.sync")):
            assert steps("ik,kj->ij", pair, pair, arch=arch, **options) == [(short, short, "float32", kind)]
    for precision in ("tf32", "bf16x3", "bf16x6"):
        found = steps("ik,kj->ij", pair, pair, dtype="float32", precision=precision)
        assert found == [(short, short, "float32", "wgmma ss")]
    assert steps("ik,kj->ij", pair, pair, dtype="float32", precision="ieee")[0][:3] == ("float32",) * 3
    for narrow in ("int8", "uint8", "bool"):  # either dtype of 16 bits holds them
        assert steps("ik,kj->ij", ((512, 512), narrow), pair, dtype="float32")[0][:3] == (short, short, "float32")
    for other in ("int16", "float32", *(x for x in SHORT if x != short)):
        assert steps("ik,kj->ij", ((512, 512), other), pair, dtype="float32")[0][:3] == ("float32",) * 3
    assert steps("ik,k->i", pair, ((512,), short), dtype="float32")[0][:3] == (short, short, "float32")
    assert steps("ik->i", pair, dtype="float32")[0][:3] == (short, short, "float32")
    assert steps("ik,kj->ij", pair, pair, dtype="float64")[0][:3] == ("float64",) * 3
    network = steps("ik,kl,lj->ij", pair, pair, pair, dtype="float32", optimize=[(0, 1), (0, 1)])
    assert [x[1:3] for x in network] == [(short, "float32"), ("float32", "float32")]


def test_a_float32_tile_of_16_bit_operands_keeps_stages() -> None:
    pair = (4096, 4096), "bfloat16"
    found = gett.plan("ik,kj->ij", pair, pair, dtype="float32", arch="sm_90a").steps[0].schedule
    short = gett.plan("ik,kj->ij", pair, pair, arch="sm_90a").steps[0].schedule
    assert found is not None
    assert short is not None
    assert found.hopper.stages >= 3
    assert found.forecast.us < 1.1 * short.forecast.us  # D has twice the bytes


def test_float32_intermediates_of_16_bits_are_multiplied_as_float32_is() -> None:
    pairs = ((2048, 1024, 64), "bfloat16"), ((1024, 2048), "bfloat16")
    for options, kind in (({}, "wgmma split"), ({"precision": "ieee"}, "simt")):
        found = steps("ijl,jk->ik", *pairs, **options)
        assert len(found) > 1  # what one operand alone has is summed first
        assert found[-1] == ("float32", "float32", "bfloat16", kind)


def test_on_the_cpu_products_are_formed_in_float32() -> None:
    a, b = (integers(30, 40, dtype="float16", most=200), integers(40, 20, dtype="float16", most=200))
    assert steps("ik,kj->ij", a, b, dtype="float32", arch="cpu")[0][:3] == ("float32",) * 3
    np.testing.assert_array_equal(gett.einsum("ik,kj->ij", a, b, dtype="float32"), a.astype("f4") @ b.astype("f4"))


@pytest.mark.parametrize("short", SHORT)
def test_16_bits_to_float32_exactly(torch: Any, short: str) -> None:
    """Sums that 16 bits do not hold, by every way to ask for them."""
    a, b = (tensor(integers(*s, most=200, dtype="float32"), short) for s in ((30, 40), (40, 20)))
    c = tensor(integers(30, 20, most=9, dtype="float32"), "float32")
    want = a.values().astype("f8") @ b.values().astype("f8")
    out = tensor(np.zeros((30, 20)), "float32")
    for _ in range(2):
        assert gett.einsum("ik,kj->ij", a, b, out=out) is out
        np.testing.assert_array_equal(out.values(), want)
        np.testing.assert_array_equal(gett.einsum("ik,kj->ji", a, b, dtype="float32").values(), want.T)
        found = gett.contract("ik,kj->ij", a, b, c, alpha=2, beta=-3)
        np.testing.assert_array_equal(found.values(), 2 * want - 3 * c.values())
        gett.contract("ik,kj->ij", a, b, out=out, epilogue=lambda d: d.astype("float32") + 1)
        np.testing.assert_array_equal(out.values(), want + 1)
        np.testing.assert_array_equal(gett.plan("ik,kj->ij", a, b, dtype="float32")(a, b).values(), want)
        assert {x[2] for x in State.launches} == {short}
    x, y = a[::2, ::-1], b[:, 1::3]
    found = gett.einsum("ik,kj->ij", x, y, dtype="float32")
    np.testing.assert_array_equal(found.values(), x.values().astype("f8") @ y.values().astype("f8"))
    i = tensor(integers(20, 7, most=9, dtype="float32"), "int8")
    for path in ([(0, 1), (0, 1)], [(1, 2), (0, 1)]):
        found = gett.einsum("ik,kj,jl->il", a, b, i, dtype="float32", optimize=path)
        np.testing.assert_array_equal(found.values(), want @ i.values())


@pytest.mark.parametrize("cplx", REAL)
@pytest.mark.parametrize(
    "subscripts", slow_but(["ij,jk->ik", "ij,jk->ki", "ji,jk->ik", "ij,kj->ik", "ji,kj->ki"], ["ij,jk->ki"])
)
def test_real_by_complex_takes_two_real_products(subscripts: str, cplx: str) -> None:
    shape, real = (2048, 2048), REAL[cplx]
    kind = "wgmma split" if real == "float32" else "dmma tma"
    alone = gett.plan(subscripts, (shape, real), (shape, real), arch="sm_90a").steps[0].schedule
    assert alone is not None
    for types in ((real, cplx), (cplx, real)):
        plan = gett.plan(subscripts, *((shape, x) for x in types), arch="sm_90a")
        (step,), c = plan.steps, plan.steps[0].gemm.contraction
        assert (c.dtype, c.d.dtype, c.real_products) == (real, real, 1)
        assert (c.extents[-1], c.names[-1]) == (2, "(re,im)")
        assert step.schedule is not None
        assert kind in step.schedule.kind
        assert step.schedule.forecast.us < 2.5 * alone.forecast.us  # of multiply-adds: five times
        assert plan.flops == 4 * 2048**3
        assert (plan.dtype, plan.shape) == (np.dtype(cplx), shape)


def test_what_is_no_matrix_product_stays_complex() -> None:
    matrix, vector = (512, 512), (512,)
    for subscripts, first, second in (
        ("ij,j->i", matrix, vector),
        ("ij,ij->ij", matrix, matrix),
        ("i,j->ij", vector, vector),
    ):
        found = steps(subscripts, (first, "float32"), (second, "complex64"))
        assert found[0][:3] == ("float32", "complex64", "complex64")


def test_a_conjugated_product_is_not_slower_than_one_of_complex_operands() -> None:
    real, cplx = ((2048, 2048), "float32"), ((2048, 2048), "complex64")
    plan = gett.plan("ij,jk->ik", real, cplx, arch="sm_90a", conj=(False, True))
    whole = gett.plan("ij,jk->ik", cplx, cplx, arch="sm_90a", conj=(False, True))
    schedules = [p.steps[0].schedule for p in (plan, whole)]
    assert schedules[0] == schedules[1]
    assert plan.steps[0].gemm.contraction.conj == (False, True)
    least = gett.plan("ij,jk->ik", real, cplx, arch="sm_90a", conj=(False, True), workspace_limit=0)
    assert least.steps[0].gemm.contraction.a.dtype == "float32"  # no copy of the real operand


FORMS = ("plain", "pairs", "widened")


@pytest.fixture(params=FORMS)
def form(request: Any, monkeypatch: Any) -> str:
    """The form that the model is made to prefer."""

    def expected(c: Contraction, facts: Any) -> float:
        assert facts.arch == "sm_90a"
        complexes = [x.dtype.startswith("c") for x in (c.a, c.b) if x is not None]
        kind = "copy" if c.b is None else "widened" if all(complexes) else "plain" if any(complexes) else "pairs"
        return 0.0 if kind in ("copy", request.param) else 1.0

    monkeypatch.setattr(forms, "_expected_us", expected)
    return str(request.param)


@pytest.mark.parametrize("cplx", REAL)
def test_every_form_gives_the_same_product(torch: Any, form: str, cplx: str) -> None:
    real = REAL[cplx]
    shapes = {
        "ij,jk->ik": ((7, 5), (5, 6)),
        "bji,bkj->bki": ((3, 5, 7), (3, 6, 5)),
        "aij,jka->ki": ((2, 7, 5), (5, 6, 2)),
    }
    for (subscripts, (first, second)), swap in itertools.product(shapes.items(), (False, True)):
        types = (cplx, real) if swap else (real, cplx)
        a, b = (tensor(integers(*s, dtype=t), t) for s, t in zip((first, second), types, strict=True))
        want = np.einsum(subscripts, a.values(), b.values())
        plan = gett.plan(subscripts, a, b)
        for _ in range(2):
            found = gett.einsum(subscripts, a, b)
            np.testing.assert_array_equal(found.values(), want)
            assert found.dtype.name == cplx
            assert State.launches[-1][2] == (real if form == "pairs" else cplx)
            np.testing.assert_array_equal(plan(a, b, alpha=3).values(), 3 * want)
            np.testing.assert_array_equal(plan(a, b, alpha=3 + 0j).values(), 3 * want)
            assert isinstance(State.launches[-1][3], (int, float))
            np.testing.assert_array_equal(plan(a, b, alpha=2j).values(), 2j * want)  # by another plan
            assert State.launches[-1][2] == cplx
            c = tensor(integers(*want.shape, dtype=cplx), cplx)
            for alpha, beta in ((2, -1), (np.float64(2), 1), (1j, 1), (1, np.complex128(2j))):
                wanted = alpha * want + beta * c.values()
                np.testing.assert_array_equal(
                    gett.contract(subscripts, a, b, c, alpha=alpha, beta=beta).values(), wanted
                )
                np.testing.assert_array_equal(plan(a, b, c=c, alpha=alpha, beta=beta).values(), wanted)
            added = tensor(integers(*want.shape[1:], dtype=real), real)  # real, and fewer axes
            np.testing.assert_array_equal(gett.contract(subscripts, a, b, added).values(), want + added.values())
        flags = (True, False) if swap else (False, True)
        x, y = (z.values().conj() for z in (a, b))
        np.testing.assert_array_equal(gett.einsum(subscripts, a, b, conj=flags).values(), np.einsum(subscripts, x, y))
        found = gett.contract(subscripts, a, b, epilogue=lambda d: d * 1j)
        np.testing.assert_array_equal(found.values(), 1j * want)
        out = Tensor(np.zeros((*want.shape[:-1], 2 * want.shape[-1]), cplx)[..., ::2], cplx)
        assert gett.einsum(subscripts, a, b, out=out) is out
        np.testing.assert_array_equal(out.values(), want)


def test_views_and_networks_in_every_form(torch: Any, form: str) -> None:
    a = tensor(integers(8, 10, dtype="float32"), "float32")[::2, ::-1]
    z = tensor(integers(10, 12, dtype="complex64"), "complex64")[:, ::3]
    np.testing.assert_array_equal(gett.einsum("ij,jk->ki", a, z).values(), (a.values() @ z.values()).T)
    i = tensor(integers(4, 3, dtype="float32"), "int16")  # is converted once, to what its step reads
    for path in ([(0, 1), (0, 1)], [(1, 2), (0, 1)]):
        found = gett.einsum("ij,jk,kl->il", a, z, i, optimize=path)
        np.testing.assert_array_equal(found.values(), a.values() @ z.values() @ i.values())
    spread = Tensor(np.broadcast_to(a.memory[:1], a.shape), "float32")
    np.testing.assert_array_equal(gett.einsum("ij,jk->ik", spread, z).values(), spread.values() @ z.values())


def test_an_array_given_twice_is_converted_once(monkeypatch: Any) -> None:
    made = []
    monkeypatch.setattr(running, "convert", lambda *x: made.append(x) or convert(*x))
    a, b = integers(6, 6, dtype="float16"), integers(6, 6, dtype="float16")
    want = a.astype("f8") @ a.astype("f8")
    np.testing.assert_array_equal(gett.einsum("ij,jk->ik", a, a, dtype="float32"), want)
    assert len(made) == 1
    for path in ([(0, 1), (0, 1)], [(1, 2), (0, 1)]):
        del made[:]
        found = gett.einsum("ij,jk,kl->il", a, b, a, dtype="float32", optimize=path)
        np.testing.assert_array_equal(found, a.astype("f8") @ b.astype("f8") @ a.astype("f8"))
        assert len(made) == 2


def test_conversions_keep_the_order_and_repeat_nothing() -> None:
    turned = np.asfortranarray(integers(4, 5, 6, dtype="float16"))
    repeated = np.broadcast_to(turned[:1], (7, 5, 6))
    for array, shape in (
        (turned, (6, 5, 4)),
        (repeated, (1, 6, 5)),
        (turned[::2, ::-1], (6, 5, 2)),
        (turned[:, :1], (1, 6, 4)),
    ):
        how = conversion(NUMPY.describe(array), np.dtype("float32"))
        assert how.shape == shape
        found = convert(NUMPY, array, how)
        np.testing.assert_array_equal(np.broadcast_to(found, array.shape), array)
        assert found.dtype == "float32"


@pytest.mark.slow
@pytest.mark.parametrize("short", SHORT)
def test_kernels_of_16_bits_with_float32_results_compile(short: str) -> None:
    pair, wide, turned = ((512, 512), short), ((512, 512), "float32"), ((64, 512, 64), short)
    for plan in (
        gett.plan("ik,kj->ij", pair, pair, out=wide, arch="sm_90a"),
        gett.plan("ik,kj->ij", pair, pair, c=wide, out=wide, arch="sm_90a"),
        gett.plan("lik,jkl->ji", turned, ((512, 64, 64), short), dtype="float32", arch="sm_90a"),
        gett.plan("ik,kj->ij", ((333, 77), short), ((77, 111), short), dtype="float32", arch="sm_90a"),
        gett.plan("ik,kj->ij", pair, pair, out=wide, arch="sm_80"),
    ):
        step = plan.steps[0]
        assert step.schedule is not None
        kernel = render_kernel(step.gemm, step.schedule)
        found = resources(compile_kernel(kernel.source, plan.arch))
        assert all(entry.local_bytes == 0 for entry in found.values())
