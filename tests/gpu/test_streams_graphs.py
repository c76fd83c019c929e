"""Plans in streams, threads and CUDA graphs: order within a stream, independence of streams, replay."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import gett
from tests.cases import Case, by_name, to_host

SQUARE = Case("square", "ikj,jl->kli", {"i": 20, "k": 12, "j": 96, "l": 64})
CASES = (SQUARE, by_name("huge-k"), by_name("k-mismatch"), by_name("k-is-1"), by_name("m-is-1"))


def planned(cp: Any, case: Case, dtype: str) -> tuple[Any, Any, Any, Any]:
    """A plan, its operands, and the exact result."""
    a, b = case.operands(cp, dtype)
    exact = case.reference(to_host(a), to_host(b), dtype).astype(dtype)
    return gett.plan(case.subscripts, a, b), a, b, exact


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_two_streams_at_once(cupy: Any, dtype: str) -> None:
    made = [planned(cupy, case, dtype) for case in CASES]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    outs = [[[cupy.full(m[3].shape, -1, dtype) for m in made] for _ in range(10)] for _ in streams]
    cupy.cuda.Device().synchronize()
    for i in range(10):
        for stream, mine in zip(streams, outs, strict=True):
            with stream:
                for (plan, a, b, _), out in zip(made, mine[i], strict=True):
                    plan(a, b, out=out)
    for stream in streams:
        stream.synchronize()
    for mine in outs:
        for rounds in mine:
            for (_, _, _, exact), out in zip(made, rounds, strict=True):
                np.testing.assert_array_equal(to_host(out), exact)


def test_a_stream_keeps_the_order_of_calls(cupy: Any) -> None:
    """Each product is the next one's operand: a call that did not wait would read old values."""
    rng = np.random.default_rng(2)
    turn = np.eye(96, dtype="f4")[rng.permutation(96)]
    a = rng.integers(-8, 9, (64, 96)).astype("f4")
    x, y, p = cupy.asarray(a), cupy.zeros((64, 96), "f4"), cupy.asarray(turn)
    plan = gett.plan("ij,jk->ik", x, p)
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(20):
            plan(x, p, out=y)
            plan(y, p, out=x)
        stream.synchronize()
    wanted = a
    for _ in range(40):
        wanted = wanted @ turn
    np.testing.assert_array_equal(to_host(x), wanted)


@pytest.mark.parametrize("case", CASES, ids=repr)
@pytest.mark.parametrize("dtype", ["float16", "complex64"])
def test_a_captured_plan_replays(cupy: Any, case: Case, dtype: str) -> None:
    plan, a, b, exact = planned(cupy, case, dtype)
    out = cupy.full(exact.shape, -1, dtype)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan(a, b, out=out)
        graph = stream.end_capture()
    np.testing.assert_array_equal(to_host(out), np.full(exact.shape, -1, dtype))  # captured, not run
    for factor in (1, 2, -1):
        a2 = a * cupy.asarray(factor, dtype)
        saved = a.copy()
        a[...] = a2
        out[...] = -1
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(to_host(out), factor * exact)
        a[...] = saved
        cupy.cuda.Device().synchronize()


def test_one_plan_in_many_threads(cupy: Any) -> None:
    plan, a, b, exact = planned(cupy, SQUARE, "float32")
    outs = [cupy.zeros(exact.shape, "float32") for _ in range(6)]
    cupy.cuda.Device().synchronize()
    errors: list[Exception] = []

    def work(out: Any) -> None:
        try:
            with cupy.cuda.Stream(non_blocking=True) as stream:
                for _ in range(25):
                    plan(a, b, out=out)
                stream.synchronize()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    for out in outs:
        np.testing.assert_array_equal(to_host(out), exact)


def test_a_warm_call_allocates_the_result_only(cupy: Any) -> None:
    pool = cupy.get_default_memory_pool()
    for case in (SQUARE, by_name("k-mismatch")):
        plan, a, b, exact = planned(cupy, case, "float16")
        out = cupy.empty(exact.shape, "float16")
        plan(a, b, out=out)
        cupy.cuda.Device().synchronize()
        pool.free_all_blocks()
        held = pool.total_bytes()
        plan(a, b, out=out)
        cupy.cuda.Device().synchronize()
        workspace = sum(getattr(s.executable, "workspace_bytes", 0) for s in plan.steps)
        assert pool.total_bytes() - held <= workspace + 512
