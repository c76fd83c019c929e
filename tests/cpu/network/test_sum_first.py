"""Modes that only one operand has are summed before the product, where that is cheaper, and never rounded twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

import gett
from gett.codegen.render import render_kernel
from gett.jit.compile import compile_kernel
from gett.network.path import SumFirst, find_steps
from tests.cpu.strategies import Case, contractions
from tests.sampling import given_few, slow_but

ALWAYS = SumFirst(1e-6, 0, False)


def steps_of(subscripts: str, *shapes: tuple[int, ...], dtype: str = "float64", arch: str = "cpu") -> list[str]:
    return [s.name for s in gett.plan(subscripts, *((shape, dtype) for shape in shapes), arch=arch).steps]


@pytest.mark.parametrize("arch", ["cpu", "sm_90a"])
@pytest.mark.parametrize(
    ("subscripts", "shapes", "together"),
    [
        ("i,j->", ((10**5,), (10**5,)), 10**10),
        ("ik,jl->ij", ((200, 200), (200, 200)), 200**4),
        ("ikx,kj->ij", ((400, 400, 50), (400, 400)), 50 * 400**3),
        ("ik,kjy->ij", ((400, 400), (400, 400, 50)), 50 * 400**3),
    ],
)
def test_what_one_operand_has_alone_is_summed_first(subscripts, shapes, together, arch):
    plan = gett.plan(subscripts, *((shape, "float64") for shape in shapes), arch=arch)
    assert len(plan.steps) > 1
    assert plan.flops < 2 * together / 20  # two operations a product


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,j->", ((1000, 1000), (1000,))),  # the operand is read once either way
        ("ijx,jk->ik", ((8, 8, 8), (8, 8))),  # a step of its own takes longer
        ("ij,jk->ik", ((300, 300), (300, 300))),
    ],
)
@pytest.mark.parametrize("arch", ["cpu", "sm_90a"])
def test_what_gains_nothing_stays_one_step(subscripts, shapes, arch):
    assert len(steps_of(subscripts, *shapes, arch=arch)) == 1


def test_tensor_cores_sum_in_the_product_what_costs_them_little():
    shapes = ((400, 400, 8), (400, 400))
    assert len(steps_of("ikx,kj->ij", *shapes, dtype="float16", arch="sm_90a")) == 1
    assert len(steps_of("ikx,kj->ij", *shapes, dtype="float64", arch="sm_90a")) == 2


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "float64", "complex64", "complex128"])
def test_sums_are_exact_on_integers(dtype):
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0 if dtype in ("bool", "uint16") else -2, 3, s).astype(dtype) for s in ((60, 70), (50, 80)))
    wide = "float64" if dtype[0] in "fc" and dtype[0] != "c" else "complex128" if dtype[0] == "c" else dtype
    first = a.astype(wide).any(1) if dtype == "bool" else a.astype(wide).sum(1, dtype=wide)
    second = b.astype(wide).any(1) if dtype == "bool" else b.astype(wide).sum(1, dtype=wide)
    np.testing.assert_array_equal(gett.einsum("ik,jl->ij", a, b), np.multiply.outer(first, second).astype(dtype))


def test_sums_of_16_bits_are_not_rounded_before_the_product():
    """2049 and 4097 are no float16: their products would come from 2048 and 4096."""
    a, b = np.ones((2, 4097), np.float16), np.zeros((2, 4097), np.float16)
    a[0, 2049:] = 0
    b[0, :3], b[1, :5] = 1, 1
    result = gett.einsum("ik,jl->ij", a, b)
    assert len(steps_of("ik,jl->ij", a.shape, b.shape, dtype="float16")) == 3
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, np.array([[6147, 10245], [12291, 20485]]).astype(np.float16))
    assert result[0, 0] == 6148


def test_alpha_beta_and_c_come_once():
    rng = np.random.default_rng(6)
    for dtype in ("float16", "float32", "int32"):
        a, b, c = (rng.integers(-2, 3, s).astype(dtype) for s in ((90, 80), (70, 60), (90, 70)))
        wanted = 3 * np.multiply.outer(a.astype("f8").sum(1), b.astype("f8").sum(1)) - 2 * c.astype("f8")
        result = gett.contract("ik,jl->ij", a, b, c, alpha=3, beta=-2)
        np.testing.assert_array_equal(result, wanted.astype(dtype))


def test_a_step_of_a_network_sums_first_too():
    shapes = ((100, 80), (90, 70), (100, 60))
    plan = gett.plan("ik,jl,im->jm", *((s, "float64") for s in shapes), optimize=[(0, 1), (0, 1)])
    assert len(plan.steps) == 4
    rng = np.random.default_rng(7)
    operands = [rng.integers(-2, 3, s).astype("float64") for s in shapes]
    np.testing.assert_array_equal(plan(*operands), np.einsum("ik,jl,im->jm", *operands, optimize=True))


@given_few(12, 60, contractions(operands=2, dtypes=("int64", "float64", "float16")), st.booleans())
def test_summing_first_changes_no_result(case: Case, wide: bool):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            gett.plans.planner, "_when_to_sum", lambda dtype, arch: SumFirst(1e-6, 0, wide and dtype == np.float16)
        )
        gett.plan_cache.clear()
        result = gett.plan(case.subscripts, *case.operands)(*case.operands)
    gett.plan_cache.clear()
    np.testing.assert_array_equal(result, case.reference())


def test_both_operands_are_summed_or_the_cheaper_one():
    steps, _ = find_steps([(0, 1), (2, 3)], (0, 2), [4, 5, 6, 7], [[0, 1], [2, 3]], True, ALWAYS)
    assert [(s.inputs, s.modes) for s in steps] == [((0,), (0,)), ((1,), (2,)), ((2, 3), (0, 2))]
    # Modes 1 and 3 are alone; the second operand is so large that reading it once more gains nothing.
    steps, _ = find_steps([(0, 1), (0, 3)], (0,), [2, 50, 2, 10**6], [[0, 1], [0, 3]], True, SumFirst(1, 0, False))
    assert (steps[0].inputs, len(steps)) in (((0,), 3), ((0,), 2), ((1,), 2))


@pytest.mark.parametrize("dtype", slow_but(["float16", "bfloat16"], ["float16"]))
def test_mixed_types_have_kernels(dtype):
    """Sums in float32, a product of those, and C and D in 16 bits."""
    pair = ((3000, 3000), dtype)
    plan = gett.plan("ik,jl->ij", pair, pair, c=pair, arch="sm_90a")
    types = [(s.gemm.contraction.dtype, s.gemm.contraction.d.dtype) for s in plan.steps]
    assert types == [(dtype, "float32"), (dtype, "float32"), ("float32", dtype)]
    for step in plan.steps:
        kernel = render_kernel(step.gemm, step.schedule)
        assert compile_kernel(kernel.source, kernel.arch)
