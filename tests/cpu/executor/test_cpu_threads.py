"""Threads of the NumPy executor, and those of BLAS while its own run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import threadpoolctl

from gett.cpu import blas, executable, packed
from gett.cpu.arithmetic import multiply
from tests.cpu.executor.executing import check, integers, make


def blas_threads() -> list[int]:
    return [x["num_threads"] for x in threadpoolctl.threadpool_info() if x["user_api"] == "blas"]


def test_middling_products_run_on_own_threads_with_blas_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_WORTH_THREADS", 0.0)
    monkeypatch.setattr(executable, "available_threads", lambda: 2)
    before, seen = blas_threads(), []

    def spy(*args: Any) -> None:
        seen.append(blas_threads())
        multiply(*args)

    monkeypatch.setattr(packed, "multiply", spy)
    run = check("zij,zjk->zik", integers((20, 70, 72)), integers((20, 72, 74)))
    assert run.route == "batched BLAS"
    assert seen == [[1] * len(before)] * len(seen)
    assert len(seen) >= 4
    assert blas_threads() == before


def test_overlapping_limits_end_with_the_last() -> None:
    before = blas_threads()
    first, second = blas.one_thread(), blas.one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == [1] * len(before)
    second.__exit__(None, None, None)
    assert blas_threads() == before


@pytest.mark.usefixtures("tiny_tiles")
def test_an_error_in_a_thread_reaches_the_caller() -> None:
    a, b = np.full((16, 16), 1e30, "float32"), np.full((16, 16), 1e30, "float32")
    d = np.empty((16, 16), "float32")
    run = make("ij,ij->ji", a, b, None, d)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        run(a, b, None, d)
