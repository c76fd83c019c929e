"""Conjugated operands, and real ones beside complex ones, on the GPU: small integers, every element exact."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gett
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.runtime.build import build_executable
from gett.runtime.device import device_facts
from gett.schedule.search.select import candidates
from gett.schedule.spec.schedule import Schedule
from tests.cpu.helpers import contraction_of
from tests.gpu.support import compile_gemms, describe
from tests.schedules import spread

COMPLEX = ("complex64", "complex128")
FLAGS = tuple(itertools.product((False, True), repeat=2))
# Types of A and B, which of them are conjugated.
FACTORS = tuple(
    (a, b, conj)
    for z, r in zip(COMPLEX, ("float32", "float64"), strict=True)
    for (a, b), flags in (((z, z), FLAGS[1:]), ((r, z), ((False, False), (False, True))), ((z, r), FLAGS[::2]))
    for conj in flags
)
CASES = {
    "rows": ("ij,kj->ik", (200, 96), (300, 96)),
    "columns": ("ji,jk->ik", (130, 257), (130, 190)),
    "transposed": ("ij,jk->ki", (129, 77), (77, 255)),
    "boxes": ("kaxb,cykx->abyc", (16, 12, 9, 20), (14, 11, 16, 9)),
    "k-mismatch": ("mkl,nlk->mn", (150, 12, 4), (170, 4, 12)),
    "batches": ("lij,ljk->lik", (5, 60, 33), (5, 33, 48)),
    "batch inside": ("ijl,jkl->ikl", (40, 21, 6), (21, 50, 6)),
    "split": ("ij,jk->ik", (40, 20000), (20000, 48)),
    "vector": ("ij,j->i", (1000, 777), (777,)),
    "vector of columns": ("ji,j->i", (777, 1000), (777,)),
    "dot": ("ij,ji->", (300, 500), (500, 300)),
    "hadamard": ("ij,ji->ij", (300, 257), (257, 300)),
    "outer": ("i,j->ji", (700,), (300,)),
    "diagonal": ("iij,kj->ki", (40, 40, 60), (50, 60)),
}
TOP = 2  # candidates of each that are run


def integers(shape: tuple[int, ...], dtype: str, seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, shape)
    return (values + 1j * rng.integers(-3, 4, shape) if dtype.startswith("c") else values).astype(dtype)


def operands(name: str, dtype_a: str, dtype_b: str) -> tuple[str, list[NDArray[Any]]]:
    subscripts, shape_a, shape_b = CASES[name]
    return subscripts, [integers(shape_a, dtype_a, 1), integers(shape_b, dtype_b, 2)]


def taken(arrays: Any, conj: Any) -> list[Any]:
    return [x.conj() if flag else x for x, flag in zip(arrays, conj, strict=True)]


def exact(subscripts: str, arrays: Any, conj: Any) -> NDArray[Any]:
    wide = [x.astype(np.complex128) for x in taken(arrays, conj)]
    return np.asarray(np.einsum(subscripts, *wide, optimize=True))


def plan_of(name: str, dtype_a: str, dtype_b: str, conj: tuple[bool, bool]) -> GemmPlan:
    subscripts, arrays = operands(name, dtype_a, dtype_b)
    c = contraction_of(subscripts, *arrays)
    assert c.b is not None
    a, b = replace(c.a, conj=conj[0], alignment=16), replace(c.b, conj=conj[1], alignment=16)
    return make_gemm_plan(replace(c, a=a, b=b, d=replace(c.d, alignment=16)))


def schedules(plan: GemmPlan) -> list[Schedule]:
    return spread(candidates(plan, device_facts().arch), TOP)


@pytest.fixture(scope="module", autouse=True)
def _compiled(gpu: None) -> None:
    """All kernels of this file, compiled side by side; one that fails is raised by its own test."""

    plans = [plan_of(name, *factors) for name in CASES for factors in FACTORS]
    compile_gemms((plan, s) for plan in plans for s in schedules(plan))


@pytest.mark.parametrize("name", [*CASES])
@pytest.mark.parametrize("factors", FACTORS, ids=str)
def test_candidates_are_exact(cupy: Any, name: str, factors: tuple[str, str, tuple[bool, bool]]) -> None:
    dtype_a, dtype_b, conj = factors
    subscripts, arrays = operands(name, dtype_a, dtype_b)
    a, b = map(cupy.asarray, arrays)
    plan = plan_of(name, *factors)
    dtype = plan.contraction.dtype
    want = exact(subscripts, arrays, conj)
    for schedule in schedules(plan):
        d = cupy.full(want.shape, np.nan, dtype)
        build_executable(plan, None, schedule)(a, b, None, d, 2 - 1j, 0)
        np.testing.assert_array_equal(cupy.asnumpy(d), ((2 - 1j) * want).astype(dtype), describe(schedule))


@pytest.mark.parametrize("name", [*CASES])
@pytest.mark.parametrize("dtype", COMPLEX)
def test_calls_are_exact(cupy: Any, name: str, dtype: str) -> None:
    real = "float32" if dtype == "complex64" else "float64"
    for dtypes, conj in itertools.product(((dtype, dtype), (real, dtype), (dtype, real)), FLAGS):
        subscripts, arrays = operands(name, *dtypes)
        a, b = map(cupy.asarray, arrays)
        want = exact(subscripts, arrays, conj)
        c = integers(want.shape, dtype, 3)
        out = cupy.full(want.shape, np.nan, dtype)
        gett.einsum(subscripts, a, b, out=out, conj=conj)
        np.testing.assert_array_equal(cupy.asnumpy(out), want.astype(dtype))
        found = gett.contract(subscripts, a, b, cupy.asarray(c), alpha=1j, beta=2 - 1j, conj=conj)
        np.testing.assert_array_equal(cupy.asnumpy(found), (1j * want + (2 - 1j) * c).astype(dtype))
        found = gett.contract(subscripts, a, b, conj=conj, epilogue=lambda d: d.conj() + 1j)
        np.testing.assert_array_equal(cupy.asnumpy(found), (want.conj() + 1j).astype(dtype))


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("subscripts", ["ij->ji", "ij->ij", "ij->i", "ij->j", "ij->", "ii->i"])
def test_one_operand(cupy: Any, subscripts: str, dtype: str) -> None:
    array = integers((257, 257), dtype, 4)
    want = np.einsum(subscripts, array.conj())
    out = cupy.full(want.shape, np.nan, dtype)
    gett.einsum(subscripts, cupy.asarray(array), out=out, conj=(True,))
    np.testing.assert_array_equal(cupy.asnumpy(out), want)
    real = array.real.copy()
    found = gett.einsum(subscripts, cupy.asarray(real), dtype=dtype)
    np.testing.assert_array_equal(cupy.asnumpy(found), np.einsum(subscripts, real).astype(dtype))


def test_elements_that_lie_anywhere(cupy: Any) -> None:
    """Strides of both signs, and operands that begin at an odd element."""
    a, b = integers((65, 130), "complex64", 5), integers((131, 77), "float32", 6)
    x, y = cupy.asarray(a)[::-1, 1:], cupy.asarray(b)[1:-1][:, ::-1]
    for conj in FLAGS:
        found = gett.einsum("ij,jk->ik", x[:, :129], y, conj=conj)
        want = exact("ij,jk->ik", (a[::-1, 1:], b[1:-1][:, ::-1]), conj)
        np.testing.assert_array_equal(cupy.asnumpy(found), want)


def test_networks(cupy: Any) -> None:
    dtypes = ("complex64", "float32", "float32", "complex64")
    shapes = ((40, 50), (50, 60), (60, 45), (45, 30))
    arrays = [integers(s, x, i) for i, (s, x) in enumerate(zip(shapes, dtypes, strict=True))]
    on_gpu = [*map(cupy.asarray, arrays)]
    for conj in itertools.product((False, True), repeat=4):
        want = np.linalg.multi_dot([x.astype(np.complex128) for x in taken(arrays, conj)])
        if max(abs(want.real).max(), abs(want.imag).max()) < 2**24:
            found = gett.einsum("ij,jk,kl,lm->im", *on_gpu, conj=conj)
            np.testing.assert_array_equal(cupy.asnumpy(found), want)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_lazily_conjugated_tensors_are_not_copied(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    n = 1024
    a, b = (torch.from_numpy(integers((n, n), dtype, i)).cuda() for i in (1, 2))
    real = a.real.contiguous()
    wide = torch.complex128
    for x, y, conj in (
        (a.conj(), b, (False, False)),
        (a.conj(), b.conj(), (True, False)),
        (real, b.conj(), (True, True)),
    ):
        gett.einsum("ij,jk->ik", x, y, conj=conj)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        found = gett.einsum("ij,jk->ik", x, y, conj=conj)
        assert torch.cuda.max_memory_allocated() - before < 1.5 * found.numel() * found.element_size()
        factors = [z.conj() if flag else z for z, flag in zip((x, y), conj, strict=True)]
        want = factors[0].resolve_conj().to(wide) @ factors[1].resolve_conj().to(wide)
        assert not found.is_conj()
        assert torch.equal(found, want.to(found.dtype))
        plan = gett.plan("ij,jk->ik", x, y, conj=conj)
        assert torch.equal(plan(x, y), found)
        assert torch.equal(plan(x.conj(), y), gett.einsum("ij,jk->ik", x.conj().resolve_conj(), y, conj=conj))
