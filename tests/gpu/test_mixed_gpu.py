"""Operands and results of several dtypes on the GPU: small integers, every element exact."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gett
from gett.errors import PoorKernelError
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.ir.pairs import real_pairs
from gett.ir.tensors import USUAL_PRECISIONS
from gett.runtime.build import build_executable
from gett.runtime.device import device_facts
from gett.schedule.search.select import candidates
from gett.schedule.spec.schedule import Schedule
from tests.cpu.helpers import contraction_of
from tests.gpu.support import compile_gemms, describe
from tests.schedules import spread

CASES = {
    "rows": ("ij,jk->ik", (256, 192), (192, 320)),
    "columns": ("ji,jk->ik", (136, 264), (136, 192)),
    "both": ("ij,kj->ki", (200, 96), (304, 96)),
    "odd": ("ij,jk->ik", (129, 77), (77, 255)),
    "many": ("ij,kj->ik", (1024, 256), (2048, 256)),
    "boxes": ("kaxb,cykx->abyc", (16, 12, 8, 20), (16, 12, 16, 8)),
    "two summed": ("mkl,nlk->mn", (150, 16, 8), (170, 8, 16)),
    "batches": ("lij,ljk->lik", (5, 64, 40), (5, 40, 48)),
    "split": ("ij,jk->ik", (40, 20000), (20000, 48)),
    "thin": ("ij,jk->ik", (4, 1024), (1024, 512)),
    "vector": ("ij,j->i", (1000, 777), (777,)),
    "hadamard": ("ij,ji->ij", (300, 257), (257, 300)),
    "outer": ("i,j->ji", (700,), (300,)),
}
REAL = {"complex64": "float32", "complex128": "float64"}
FACTORS = (
    (("float16", "float16"), "float32"),
    *(((r, z), z) for z, r in REAL.items()),
    *(((z, r), z) for z, r in REAL.items()),
)
PRODUCTS = [n for n in CASES if n not in ("vector", "hadamard", "outer")]
CALLS = ["rows", "odd", "boxes", "batches", "split", "vector", "hadamard", "outer"]
TOP = 3  # schedules of each that are run


def integers(shape: tuple[int, ...], dtype: str, seed: int, most: int = 3) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    values = rng.integers(-most, most + 1, shape)
    return (values + 1j * rng.integers(-most, most + 1, shape) if dtype.startswith("c") else values).astype(dtype)


def operands(name: str, types: tuple[str, str], most: int = 3) -> tuple[str, list[NDArray[Any]], NDArray[Any]]:
    """The subscripts, the operands, and the product in double precision."""
    subscripts, *shapes = CASES[name]
    made = [integers(s, t, i, most) for i, (s, t) in enumerate(zip(shapes, types, strict=True))]
    wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in made]
    return subscripts, made, np.asarray(np.einsum(subscripts, *wide, optimize=True))


def plan_of(name: str, types: tuple[str, str], result: str) -> GemmPlan:
    """16-bit operands with a float32 result, or a real and a complex operand in pairs."""
    subscripts, arrays, want = operands(name, types)
    c = contraction_of(subscripts, *arrays, d=np.empty(want.shape, result))
    made = c if result == "float32" else real_pairs(c)
    assert made is not None
    assert made.b is not None
    a, b, d = (replace(x, alignment=16) for x in (made.a, made.b, made.d))
    precision = USUAL_PRECISIONS.get(made.dtype, "ieee")
    return make_gemm_plan(replace(made, a=a, b=b, d=d, precision=precision))


def schedules(gemm: GemmPlan) -> list[Schedule]:
    return spread(candidates(gemm, device_facts().arch), TOP)


@pytest.fixture(scope="module", autouse=True)
def _compiled(gpu: None) -> None:
    """The kernels of the schedules that are run, compiled side by side; one that fails is raised by its own test."""
    plans = [plan_of(name, *factors) for name in PRODUCTS for factors in FACTORS]
    compile_gemms((plan, s) for plan in plans for s in schedules(plan))


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("factors", FACTORS, ids=str)
def test_schedules_are_exact(cupy: Any, name: str, factors: tuple[tuple[str, str], str]) -> None:
    """Also those that the model would not choose, into an array that was filled with NaN."""
    types, result = factors
    _, arrays, want = operands(name, types)
    a, b = (cupy.asarray(x) for x in arrays)
    gemm, ran = plan_of(name, *factors), 0
    for schedule in schedules(gemm):
        d = cupy.full(want.shape, np.nan, result)
        try:
            run = build_executable(gemm, None, schedule)
        except PoorKernelError:  # a plan goes on to its next candidate
            continue
        run(a, b, None, d)
        np.testing.assert_array_equal(d.get(), want, err_msg=describe(schedule))
        ran += 1
    assert ran


@pytest.mark.parametrize("name", CALLS)
def test_float16_to_float32(cupy: Any, name: str) -> None:
    most = 3 if name == "split" else 40
    subscripts, arrays, want = operands(name, ("float16", "float16"), most)
    a, b = (cupy.asarray(x) for x in arrays)
    plan = gett.plan(subscripts, a, b, dtype="float32")
    c = plan.steps[-1].gemm.contraction
    assert (c.a.dtype, c.d.dtype) == ("float16", "float32")
    np.testing.assert_array_equal(plan(a, b).get(), want)
    out = cupy.full((*want.shape[:-1], 2 * want.shape[-1]), np.nan, "float32")[..., ::2]  # with gaps
    gett.einsum(subscripts, a, b, out=out)
    np.testing.assert_array_equal(out.get(), want)
    added = integers(want.shape, "float32", 7)
    found = gett.contract(subscripts, a, b, cupy.asarray(added), alpha=2, beta=-3)
    np.testing.assert_array_equal(found.get(), 2 * want - 3 * added)
    out = cupy.zeros(want.shape, "float32")
    gett.contract(subscripts, a, b, out=out, epilogue=lambda d: gett.ops.relu(d) + 1)
    np.testing.assert_array_equal(out.get(), np.maximum(want, 0) + 1)
    found = gett.einsum(subscripts, a, cupy.asarray(arrays[1].astype("int8")), dtype="float32")
    np.testing.assert_array_equal(found.get(), want)


@pytest.mark.parametrize("name", CALLS)
def test_bfloat16_to_float32(gpu: None, name: str) -> None:
    torch = pytest.importorskip("torch")
    most = 3 if name == "split" else 40
    subscripts, arrays, want = operands(name, ("float32", "float32"), most)
    a, b = (torch.from_numpy(x).cuda().to(torch.bfloat16) for x in arrays)
    out = torch.empty(want.shape, dtype=torch.float32, device="cuda")
    for found in (
        gett.einsum(subscripts, a, b, dtype="float32"),
        gett.einsum(subscripts, a, b, out=out),
        gett.plan(subscripts, a, b, dtype="float32")(a, b),
    ):
        assert found.dtype is torch.float32
        np.testing.assert_array_equal(found.cpu().numpy(), want)
    mixed = gett.einsum(subscripts, a, b.to(torch.float16))
    assert mixed.dtype is torch.float32
    np.testing.assert_array_equal(mixed.cpu().numpy(), want)


@pytest.mark.parametrize("cplx", REAL)
@pytest.mark.parametrize("name", CALLS)
def test_real_by_complex(cupy: Any, name: str, cplx: str) -> None:
    for types in ((REAL[cplx], cplx), (cplx, REAL[cplx])):
        subscripts, arrays, want = operands(name, types)
        a, b = (cupy.asarray(x) for x in arrays)
        plan = gett.plan(subscripts, a, b)
        added = integers(want.shape, cplx, 7)
        c = cupy.asarray(added)
        np.testing.assert_array_equal(plan(a, b).get(), want)
        for alpha, beta in ((2, -1), (3 + 0j, 1), (1j, 1), (1, 2j)):
            wanted = alpha * want + beta * added
            np.testing.assert_array_equal(plan(a, b, c=c, alpha=alpha, beta=beta).get(), wanted)
            np.testing.assert_array_equal(gett.contract(subscripts, a, b, c, alpha=alpha, beta=beta).get(), wanted)
        flags = tuple(t == cplx for t in types)
        wanted = np.einsum(subscripts, *(x.astype(np.complex128).conj() for x in arrays), optimize=True)
        np.testing.assert_array_equal(gett.einsum(subscripts, a, b, conj=flags).get(), wanted)
        out = cupy.full((*want.shape[:-1], 2 * want.shape[-1]), np.nan, cplx)[..., ::2]
        gett.einsum(subscripts, a, b, out=out)
        np.testing.assert_array_equal(out.get(), want)
        found = gett.contract(subscripts, a, b, epilogue=lambda d: d * 1j)
        np.testing.assert_array_equal(found.get(), 1j * want)


def test_mixed_dtypes_beside_conversions_by_hand(cupy: Any) -> None:
    kinds = ("bool", "int8", "uint8", "int32", "float16", "float32", "float64", "complex64", "complex128")
    for first, second in itertools.permutations(kinds, 2):
        a = np.abs(integers((40, 56), first, 1)) % 2 if first == "bool" else integers((40, 56), first, 1)
        b = integers((56, 48), second, 2)
        result = np.result_type(a, b)
        x, y = (cupy.asarray(z) for z in (a, b))
        found = gett.einsum("ij,jk->ki", x, y)
        assert found.dtype == result
        by_hand = gett.einsum("ij,jk->ki", x.astype(result), y.astype(result))
        np.testing.assert_array_equal(found.get(), by_hand.get())


def test_networks_and_views(cupy: Any) -> None:
    a, z, i = integers((80, 100), "float32", 1), integers((100, 120), "complex64", 2), integers((40, 30), "int16", 3)
    x, y, w = (cupy.asarray(v) for v in (a, z, i))
    for path in ([(0, 1), (0, 1)], [(1, 2), (0, 1)]):
        found = gett.einsum("ij,jk,kl->il", x[::2, ::-1], y[:, ::3], w, optimize=path)
        want = a[::2, ::-1].astype("f8") @ z[:, ::3].astype("c16") @ i.astype("f8")
        np.testing.assert_array_equal(found.get(), want)
    h = cupy.asarray(integers((64, 64), "float16", 4))
    want = np.linalg.multi_dot([h.get().astype("f8")] * 3)
    np.testing.assert_array_equal(gett.einsum("ij,jk,kl->il", h, h, h, dtype="float32").get(), want)


@pytest.mark.parametrize("subscripts", ["ijl,jk->ik", "ijl,jk->ki"])
def test_float32_intermediates_with_a_result_of_16_bits(cupy: Any, subscripts: str) -> None:
    """What one operand alone has is summed first, in float32; the product of that is stored in 16 bits."""
    a, b = integers((520, 256, 1024), "float16", 1, 1), integers((256, 640), "float16", 2, 1)
    plan = gett.plan(subscripts, *(cupy.asarray(x) for x in (a, b)))
    assert plan.steps[-1].gemm.contraction.dtype == "float32"
    want = np.einsum("ij,jk->" + subscripts[-2:], a.sum(2, dtype="f8"), b.astype("f8"), optimize=True)
    found = plan(cupy.asarray(a), cupy.asarray(b))
    np.testing.assert_array_equal(found.get(), want.astype("float16"))
