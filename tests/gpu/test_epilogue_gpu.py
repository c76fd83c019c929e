"""Epilogues on the GPU: exactly in every kind of kernel, within bounds where the function rounds, through the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gett
from gett import ops
from gett.runtime.build import load_executable
from gett.runtime.compiling import compile_schedule
from tests.by_hand import by_hand
from tests.cases import to_host
from tests.epilogues import TENSORS, as_result, buffer_of, clipped, most_of, with_epilogue
from tests.gpu.catalogue import kernels, problem_of
from tests.gpu.support import device_facts, exact_product, gemm_plan
from tests.specs import FAMILIES, Spec, covering


def run_with_function(cp: Any, spec: Spec) -> None:
    """Runs a kernel of the catalogue with a function of six tensors, for which registers need not suffice."""
    problem, case, dtype = problem_of(spec), spec.case, spec.dtype
    function = clipped(most_of(dtype))
    plan = with_epilogue(gemm_plan(problem), function, TENSORS)
    run = load_executable(plan, compile_schedule(plan, spec.schedule, allow_spills=True))
    contraction = plan.contraction
    found = [buffer_of(x, contraction.extents, 3 + i) for i, x in enumerate(contraction.extras)]
    given = [cp.asarray(buffer)[start:] for buffer, start in found]
    a, b = case.operands(cp, dtype)
    d, _ = case.result(cp, dtype)
    alpha, beta = (2, 3) if spec.c is not None else (2, 0)
    c = None if spec.c is None else case.added(cp, dtype, spec.c)
    sums = alpha * exact_product(case, np.dtype(dtype).kind if dtype != "bfloat16" else "f").astype(np.float64)
    if spec.c is not None:
        sums = sums + beta * case.added(np, dtype, spec.c).astype(np.float64)
    values = [
        as_result(x, contraction, buffer.astype(np.float64), start)
        for x, (buffer, start) in zip(contraction.extras, found, strict=True)
    ]
    wanted = function(sums, *values)
    run(a, b, c, d, alpha, beta, given)
    np.testing.assert_array_equal(to_host(d).astype(np.float64), wanted, err_msg=repr(spec))


# Complex numbers have no order to clip by: `test_exact_functions_give_numpys_bits` has theirs.
REAL = [name for name, x in FAMILIES.items() if not {"bfloat16", "complex64", "complex128"} & {*x.dtypes}]


@pytest.mark.parametrize("family", REAL)
def test_every_kind_of_kernel_applies_it(cupy: Any, family: str) -> None:
    """Tensors along rows, columns, batches and all of them, in either order and backwards; edges that hang over."""
    divided = [spec for spec in by_hand(kernels(family)) if spec.schedule.scheduler.stream_k]
    for spec in covering((*kernels(family), *divided), pairs=False):
        run_with_function(cupy, spec)


def integers(xp: Any, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    values = np.random.default_rng(seed).integers(0 if np.dtype(dtype).kind in "ub" else -3, 4, shape)
    return xp.asarray(values.astype(dtype))


# Wgmma, mma.sync, simt, sums along K, products of elements, a sum in slices, batches.
SHAPES = {
    "gemm": ("ij,jk->ik", (257, 96), (96, 136)),
    "permuted": ("abk,kc->cab", (17, 24, 40), (40, 64)),
    "batches": ("bij,bjk->ikb", (6, 40, 33), (6, 33, 24)),
    "deep": ("ij,jk->ik", (24, 40_000), (40_000, 32)),
    "map": ("ij,j->ji", (300, 200), (200,)),
    "sum": ("ijk,k->j", (30, 70, 50), (50,)),
}
DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "int8", "int32", "int64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_exact_functions_give_numpys_bits(cupy: Any, name: str, dtype: str) -> None:
    subscripts, shape_a, shape_b = SHAPES[name]
    a, b = integers(np, shape_a, dtype, 0), integers(np, shape_b, dtype, 1)
    full = gett.einsum(subscripts, a, b).shape
    bias = integers(np, full[-1:], dtype, 2)
    other = integers(np, full, "int8", 3)

    def function(d: Any, bias: Any, other: Any) -> Any:
        if np.dtype(dtype).kind == "c":
            return d * bias + other
        return np.clip(np.where(other > 0, d + bias, 2 * other - d), -100, 100)

    expected = gett.contract(subscripts, a, b, alpha=2, epilogue=function, epilogue_args=(bias, other))
    given = tuple(map(cupy.asarray, (bias, other)))
    found = gett.contract(subscripts, cupy.asarray(a), cupy.asarray(b), alpha=2, epilogue=function, epilogue_args=given)
    np.testing.assert_array_equal(to_host(found), expected)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gelu": lambda d, x: ops.gelu(d + x),
    "gelu_tanh": lambda d, x: ops.gelu(d + x, approximate="tanh"),
    "silu": lambda d, x: ops.silu(d + x),
    "tanh": lambda d, x: np.tanh(d / 8) * x,
    "exp": lambda d, x: np.exp(-abs(d) / 16) + x,
    "denominator": lambda d, x: d / (x + 7.5),
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_round(cupy: Any, name: str, dtype: str) -> None:
    """The product of small integers is exact, so the function's roundings are all there are."""
    a, b, x = (integers(np, s, dtype, i) for i, s in enumerate([(200, 24), (24, 144), (144,)]))
    function = FUNCTIONS[name]
    sums = a.astype(np.float64) @ b.astype(np.float64)
    expected = np.asarray(gett.contract("ij->ij", sums, epilogue=function, epilogue_args=(x.astype(np.float64),)))
    found = to_host(
        gett.contract(
            "ij,jk->ik", cupy.asarray(a), cupy.asarray(b), epilogue=function, epilogue_args=(cupy.asarray(x),)
        )
    )
    inside = np.finfo(np.float64 if dtype == "float64" else np.float32).eps
    bound = np.finfo(dtype).eps * abs(expected) + 32 * inside * (abs(sums) + 4)
    if dtype == "float16":
        bound += 2.0**-24  # of numbers too small to be normal
    assert (abs(found.astype(np.float64) - expected) <= bound).all()


def test_networks_apply_it_once_at_the_end(cupy: Any) -> None:
    shapes = [(40, 24), (24, 56), (56, 32)]
    arrays = [integers(np, s, "float32", i) for i, s in enumerate(shapes)]
    bias = integers(np, (32,), "float32", 5)
    expected = np.maximum(arrays[0] @ arrays[1] @ arrays[2] + bias, 0)
    found = gett.contract(
        "ij,jk,kl->il",
        *map(cupy.asarray, arrays),
        epilogue=lambda d, x: ops.relu(d + x),
        epilogue_args=(cupy.asarray(bias),),
    )
    np.testing.assert_array_equal(to_host(found), expected)


def test_numbers_and_broadcasts(cupy: Any) -> None:
    a, b, column = (integers(cupy, s, "float32", i) for i, s in enumerate([(48, 40), (40, 64), (48, 1)]))
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x, y: d * x - y, epilogue_args=(2, column))
    expected = to_host(a).astype(np.float64) @ to_host(b).astype(np.float64) * 2 - to_host(column)
    np.testing.assert_array_equal(to_host(found), expected)


def test_strided_and_overlapping_tensors(cupy: Any) -> None:
    """A tensor with steps and signs of its own; a result that is written over a tensor which the function reads."""
    a, b = integers(cupy, (48, 40), "float16", 0), integers(cupy, (40, 64), "float16", 1)
    wide = integers(cupy, (130, 96), "float16", 2)
    view = wide[::-2, 3:51].T[:, ::-1][:, :64]
    expected = to_host(a).astype(np.float64) @ to_host(b).astype(np.float64) - to_host(view)
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: d - x, epilogue_args=(view,))
    np.testing.assert_array_equal(to_host(found), expected)
    out = integers(cupy, (48, 64), "float16", 3)
    for reads in (out, out[::-1], out[:1]):
        before = to_host(out)
        expected = to_host(a).astype(np.float64) @ to_host(b).astype(np.float64) + to_host(reads)
        gett.contract("ij,jk->ik", a, b, out=out, epilogue=lambda d, x: d + x, epilogue_args=(reads,))
        np.testing.assert_array_equal(to_host(out), expected)
        out[...] = cupy.asarray(before)


def test_a_plan_takes_new_tensors_at_each_call_and_in_graphs(cupy: Any) -> None:
    a, b = integers(cupy, (96, 64), "float16", 0), integers(cupy, (64, 80), "float16", 1)
    x, d = integers(cupy, (80,), "float16", 2), cupy.empty((96, 80), "float16")
    plan = gett.plan("ij,jk->ik", a, b, epilogue=lambda d, x: ops.relu(d) + x, epilogue_args=(x,))
    product = np.maximum(to_host(a).astype(np.float64) @ to_host(b).astype(np.float64), 0)
    for other in (x, x + 1, -x):
        np.testing.assert_array_equal(to_host(plan(a, b, epilogue_args=(other,))), product + to_host(other))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan(a, b, out=d, epilogue_args=(x,))
        graph = stream.end_capture()
        x += 2
        graph.launch(stream)
        stream.synchronize()
    np.testing.assert_array_equal(to_host(d), product + to_host(x))


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    a, b = (torch.randint(-3, 4, s, device="cuda").to(torch.bfloat16) for s in ((64, 48), (48, 72)))
    x = torch.randint(-3, 4, (72,), device="cuda").to(torch.bfloat16)
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: np.clip(d + x, -200, 200), epilogue_args=(x,))
    expected = (a.double() @ b.double() + x.double()).clip(-200, 200)
    assert found.dtype == torch.bfloat16
    assert (found.double() == expected).all()


def test_kernels_for_this_gpu_are_measured_with_it(cupy: Any) -> None:
    """Autotuning runs candidates with the tensors that the function reads."""
    a, b, x = (integers(cupy, s, "float16", i) for i, s in enumerate([(256, 128), (128, 192), (192,)]))
    found = gett.contract(
        "ij,jk->ik", a, b, epilogue=lambda d, x: d + x, epilogue_args=(x,), optimize="autotune"
    )  # fmt: skip
    expected = to_host(a).astype(np.float64) @ to_host(b).astype(np.float64) + to_host(x)
    np.testing.assert_array_equal(to_host(found), expected)
    assert device_facts().arch.startswith("sm_")
