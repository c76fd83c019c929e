"""Precisions: names, defaults of a block, a process and the environment, and what plans say of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gett
from gett.explain.detail import explain
from gett.plans import precision as module

A = np.ones((512, 512), "float32")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = list(module._process)
    yield
    module._process[:] = before


def chosen(precision: str | None = None, a: Any = A) -> str:
    (step,) = gett.plan("ij,jk->ik", a, a, arch="sm_90a", precision=precision).steps
    return str(step.gemm.contraction.precision)


def told(precision: str | None = None, a: Any = A, arch: str = "sm_90a") -> str:
    """What is said of a plan in detail, whose kernel is not compiled for it."""
    return explain(gett.plan("ij,jk->ik", a, a, arch=arch, precision=precision))


def test_float32_is_multiplied_in_planes_unless_asked_otherwise() -> None:
    names = ["ieee", "tf32", "bf16x3", "fp16x3", "bf16x6"]
    assert [chosen(), *map(chosen, names)] == ["bf16x6", *names]
    assert [chosen(a=A.astype(t)) for t in ("float64", "complex128", "int32")] == ["ieee"] * 3
    assert [chosen(p, A.astype("complex64")) for p in (None, "ieee")] == ["bf16x6", "ieee"]


def test_plans_say_which_products_are_formed() -> None:
    text = told()
    assert "products  6, of 3 bfloat16 planes of each operand; float32 sums of every 16 k" in text
    assert "errors at most 13 + k / 16 units of 2^-24" in text
    text = told("fp16x3")
    assert "products  3, of 2 scaled float16 planes of each operand; float32 sums of every 32 k" in text
    assert "errors at most 28 + k / 32 units of 2^-24" in text
    assert "where numbers count as 2^-17 or more of the largest that they are scaled with" in text
    assert "float32 sums of every 16 k" in told("fp16x3", A.astype("complex64"))
    assert "planes" not in told("ieee")
    old = told(arch="sm_80")  # which has no wgmma
    assert "fused multiply-adds, at least as accurate as bf16x6" in old
    assert "planes" not in old


def test_complex_tf32_is_two_planes_of_bfloat16() -> None:
    z = A.astype("complex64")
    text = told("tf32", z)
    assert "products  12, of 2 bfloat16 planes of each part; float32 sums of every 16 k" in text
    assert "errors at most 791 + k / 16 units of 2^-24" in text
    assert "24, of 3 bfloat16 planes of each part" in told(a=z)
    assert "3, of 2 bfloat16 planes" in told("bf16x3")


def test_a_block_and_the_process_have_defaults() -> None:
    gett.set_default_precision("tf32")
    assert chosen() == "tf32"
    with gett.precision("ieee"):
        assert chosen() == "ieee"
        assert chosen("bf16x6") == "bf16x6"
        with gett.precision("bf16x6"):
            assert chosen() == "bf16x6"
        assert chosen() == "ieee"
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(chosen()))
        thread.start()
        thread.join()
        assert found == ["tf32"]
    assert chosen() == "tf32"
    gett.set_default_precision(None)
    assert chosen() == "bf16x6"


def test_defaults_hold_for_the_dtypes_that_they_apply_to() -> None:
    wide = A.astype("float64")
    with gett.precision("tf32"):
        assert chosen(a=wide) == "ieee"
        np.testing.assert_array_equal(gett.einsum("ij,jk->ik", wide, wide), wide @ wide)
    with pytest.raises(gett.PrecisionError, match="applies to float32, complex64, not to float64"):
        gett.einsum("ij,jk->ik", wide, wide, precision="tf32")


def test_the_environment_is_read_when_it_is_first_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    module._process.clear()
    monkeypatch.setenv("GETT_PRECISION", "ieee")
    assert chosen() == "ieee"
    module._process.clear()
    monkeypatch.setenv("GETT_PRECISION", "exact")
    with pytest.raises(gett.PrecisionError, match=r"GETT_PRECISION='exact' is unknown; there are 'ieee'"):
        gett.einsum("ij,jk->ik", A, A)


def test_unknown_names_are_refused() -> None:
    for name in ("fp64", 3, None):
        with (
            pytest.raises(gett.PrecisionError, match="there are 'ieee', 'tf32', 'bf16x3', 'fp16x3', 'bf16x6'"),
            gett.precision(name),
        ):  # type: ignore[arg-type]
            pass
    with pytest.raises(gett.PrecisionError, match="is unknown"):
        gett.set_default_precision("double")


def test_unknown_names_list_what_the_dtype_has() -> None:
    for wrong in ("fp64", ["ieee"], 3):
        with pytest.raises(gett.PrecisionError, match=r"is unknown; float64 has 'ieee'$"):
            gett.plan("ij,jk->ik", A.astype("float64"), A.astype("float64"), arch="sm_90a", precision=wrong)  # type: ignore[arg-type]
        with pytest.raises(gett.PrecisionError, match=r"float32 has 'ieee', 'tf32', 'bf16x3', 'fp16x3', 'bf16x6'$"):
            gett.plan("ij,jk->ik", A, A, arch="sm_90a", precision=wrong)  # type: ignore[arg-type]


def test_results_and_errors_leave_the_block_as_it_was() -> None:
    with pytest.raises(ValueError, match="out of it"), gett.precision("ieee"):
        raise ValueError("out of it")
    assert chosen() == "bf16x6"
