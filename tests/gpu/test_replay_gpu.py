"""Networks that are played as one CUDA graph from their second call on: exact, whatever the arrays and streams are."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import opt_einsum
import pytest

import gett
from gett.graphs import replay as module

SPEC = "ab,bcd,cef,deg,fgh,hi->ai"
EXTENTS = dict(zip("abcdefghi", (37, 24, 16, 18, 20, 12, 14, 32, 21), strict=True))


def operands(xp: Any, dtype: str, seed: int) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(seed)
    shapes = [[EXTENTS[x] for x in term] for term in SPEC.split("->")[0].split(",")]
    host = [rng.integers(-1, 2, s).astype(dtype) for s in shapes]
    wide = "complex128" if dtype.startswith("c") else "float64"
    want = opt_einsum.contract(SPEC, *(x.astype(wide) for x in host))  # np.einsum takes minutes
    return [xp.asarray(x) for x in host], want


def graph_of(plan: Any) -> Any:
    (replay,) = plan._replays.values()
    return replay


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_calls_are_exact(cupy: Any, dtype: str) -> None:
    first, _ = operands(cupy, dtype, 0)
    plan = gett.plan(SPEC, *first)
    results = []
    for seed in range(6):
        given, want = operands(cupy, dtype, seed)
        out = plan(*given) if seed % 2 else plan(*given, out=cupy.full((37, 21), 7, dtype))
        results.append((out, want))
        if seed == 4:
            given[2][...] = 1  # behind the call
    for found, want in results:
        np.testing.assert_array_equal(found.get(), want)
    assert graph_of(plan)._graph is not None


def test_c_factors_and_functions(cupy: Any) -> None:
    given, want = operands(cupy, "float64", 1)
    c = cupy.arange(37 * 21, dtype="float64").reshape(37, 21)
    for alpha in (1, 2, -3, 2):
        found = gett.contract(SPEC, *given, c=c, alpha=alpha, beta=2)
        np.testing.assert_array_equal(found.get(), alpha * want + 2 * c.get())
    for bias in (c[0], c[1] + 1, c[2], c[2]):
        found = gett.contract(SPEC, *given, epilogue=lambda x, y: x + y, epilogue_args=(bias,))
        np.testing.assert_array_equal(found.get(), want + bias.get())


def test_streams_capture_and_threads(cupy: Any) -> None:
    given, want = operands(cupy, "float32", 2)
    plan = gett.plan(SPEC, *given)
    out = cupy.empty((37, 21), "float32")
    for _ in range(3):
        plan(*given, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        found = plan(*given)
        stream.synchronize()
        np.testing.assert_array_equal(found.get(), want)
        out[...] = 0
        stream.begin_capture()
        plan(*given, out=out)
        graph = stream.end_capture()
        for _ in range(2):
            graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(out.get(), want)
    wrong = []

    def work(seed: int) -> None:
        mine, right = operands(cupy, "float32", seed)
        wrong.extend(seed for _ in range(20) if not np.array_equal(plan(*mine).get(), right))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_memory_goes_with_the_plan(cupy: Any) -> None:
    given, _ = operands(cupy, "float64", 3)
    gett.plan_cache.clear()
    before = dict(module._kept)
    plan = gett.plan(SPEC, *given)
    for _ in range(3):
        plan(*given)
    assert module._kept[0] > before.get(0, 0)
    gett.plan_cache.clear()
    del plan
    import gc

    gc.collect()
    assert module._kept[0] == before.get(0, 0)


def test_slices_are_played(cupy: Any) -> None:
    given, want = operands(cupy, "complex64", 4)
    whole = gett.plan(SPEC, *given)
    plan = gett.plan(SPEC, *given, memory_limit=f"{whole.peak_bytes // 2}B")
    assert plan.slices > 2
    for _ in range(3):
        np.testing.assert_array_equal(plan(*given).get(), want)


def test_split_and_packed_steps_are_played(cupy: Any) -> None:
    """Steps of several launches: partial sums, copies."""
    rng = np.random.default_rng(0)
    host = [rng.integers(-1, 2, s).astype("float32") for s in ((20, 6000), (6000, 24), (24, 30), (30, 300, 8))]
    spec = "ab,bc,cd,dkz->akz"
    want = np.einsum(spec, *(x.astype("float64") for x in host), optimize=True)
    given = [cupy.asarray(x) for x in host]
    plan = gett.plan(spec, *given, optimize=[(0, 1), (0, 2), (0, 1)])
    for _ in range(4):
        np.testing.assert_array_equal(plan(*given).get(), want)


def test_tensors_of_pytorch(cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(5):
        given, want = operands(np, "float32", seed)
        found = gett.einsum(SPEC, *[torch.from_numpy(x).cuda() for x in given])
        np.testing.assert_array_equal(found.cpu().numpy(), want)
    with torch.cuda.stream(torch.cuda.Stream()):
        for seed in range(3):
            given, want = operands(np, "float32", seed)
            found = gett.einsum(SPEC, *[torch.from_numpy(x).cuda() for x in given])
            np.testing.assert_array_equal(found.cpu().numpy(), want)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("spec", [SPEC, "ab,bcd->adc"])
def test_graphs_by_hand(cupy: Any, spec: str, dtype: str) -> None:
    """Of a network and of one step: on other streams, with other arrays, with a factor."""
    count = spec.count(",") + 1

    def drawn(seed: int) -> tuple[list[Any], Any]:
        given, want = operands(cupy, dtype, seed)
        return given[:count], want if count > 2 else np.einsum(spec, *(x.get().astype("complex128") for x in given[:2]))

    given, want = drawn(0)
    plan = gett.plan(spec, *given)
    out = cupy.full(want.shape, 7, dtype)
    graph = plan.graph(*given, out=out, alpha=2)
    np.testing.assert_array_equal(out.get(), 2 * want)
    stream = cupy.cuda.Stream(non_blocking=True)
    for seed in (0, 1, 1, 2):
        given, want = drawn(seed)
        graph.update(*given)
        out[...] = 7
        cupy.cuda.Device().synchronize()
        with stream:
            assert graph.launch() is out
        stream.synchronize()
        np.testing.assert_array_equal(out.get(), 2 * want)
        out[...] = 7
        graph.launch()
        np.testing.assert_array_equal(out.get(), 2 * want)
    other = cupy.empty_like(out)
    graph.update(*given, out=other)
    np.testing.assert_array_equal(graph.launch().get(), 2 * want)
    assert graph.out is other
    assert (graph.nbytes > 0) is (count > 2)


def test_graphs_by_hand_name_what_does_not_fit(cupy: Any) -> None:
    given, _ = operands(cupy, "float32", 0)
    plan = gett.plan(SPEC, *given)
    graph = plan.graph(*given)
    with pytest.raises(gett.ShapeError, match="takes 6 operands, 1 were given"):
        graph.update(given[0])
    with pytest.raises(gett.ShapeError, match="operand 1 has shape"):
        graph.update(given[0], given[0], *given[2:])
    with pytest.raises(gett.DTypeError, match="operand 0 has dtype float64"):
        graph.update(given[0].astype("float64"), *given[1:])
    with pytest.raises(gett.OutputError, match="out has shape"):
        graph.update(*given, out=given[0])
    limited = gett.plan(SPEC, *given, memory_limit=f"{plan.peak_bytes // 2}B")
    with pytest.raises(gett.OptionError, match="does more than launch them"):
        limited.graph(*given)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(gett.DeviceError, match="could not be recorded or played"):
            graph.launch()
        stream.end_capture()
    torch = pytest.importorskip("torch")
    tensors = [torch.as_tensor(x.get()).cuda() for x in given]
    found = gett.plan(SPEC, *tensors).graph(*tensors)
    np.testing.assert_array_equal(found.launch().cpu().numpy(), plan(*given).get())
