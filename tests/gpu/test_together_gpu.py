"""Small steps of networks that one launch makes together: exact, by graph and without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opt_einsum.testing import rand_equation

import gett
from gett.network.steps import launch_numbers


def network(xp: Any, seed: int, dtype: str, n: int = 24) -> tuple[str, list[Any], Any]:
    spec, shapes = rand_equation(n, 3, n_out=2, d_min=2, d_max=4, seed=seed)
    rng = np.random.default_rng(seed)
    host = [rng.integers(-1, 2, s) + (1j * rng.integers(-1, 2, s) if dtype.startswith("c") else 0) for s in shapes]
    exact = np.einsum(spec, *host, optimize=True)
    assert abs(exact).max() < (2**24 if dtype in ("float32", "complex64") else 2**50)
    return spec, [xp.asarray(x.astype(dtype)) for x in host], exact.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("seed", [0, 1, 5])
def test_networks_are_exact(cupy: Any, seed: int, dtype: str) -> None:
    spec, arrays, exact = network(cupy, seed, dtype, 16)
    plan = gett.plan(spec, *arrays)
    assert launch_numbers(plan.steps)[-1] + 1 < len(plan.steps)
    for _ in range(4):  # one launch after the other, then a graph
        np.testing.assert_array_equal(plan(*arrays).get(), exact)
    moved = [x.copy() for x in arrays]
    arrays[0][...] = 7
    for _ in range(2):
        np.testing.assert_array_equal(plan(*moved).get(), exact)
    out = cupy.full(exact.shape, 9, dtype)
    assert plan(*moved, out=out) is out
    np.testing.assert_array_equal(out.get(), exact)
    np.testing.assert_array_equal(gett.contract(spec, *moved, c=out, alpha=2, beta=-1).get(), exact)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_networks_of_16_bits(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    labels = "abcdefghijklmno"
    spec = ",".join(labels[i : i + 2] for i in range(14)) + "->ao"
    eye = torch.eye(6, device="cuda", dtype=getattr(torch, dtype))
    rng = torch.Generator("cuda").manual_seed(0)
    arrays = [eye[torch.randperm(6, device="cuda", generator=rng)].contiguous() for _ in range(13)]
    arrays.append(torch.randint(-3, 4, (6, 6), device="cuda", generator=rng).to(eye.dtype))
    exact = torch.linalg.multi_dot([x.double() for x in arrays])
    plan = gett.plan(spec, *arrays)
    assert any(s.together is not None for s in plan.steps)
    for _ in range(3):
        assert torch.equal(plan(*arrays).double(), exact)


def test_a_limit_of_memory_and_slices(cupy: Any) -> None:
    spec, arrays, exact = network(cupy, 3, "complex64", 16)
    peak = gett.plan(spec, *arrays).peak_bytes
    for limit in (peak, peak // 2):
        try:
            plan = gett.plan(spec, *arrays, memory_limit=f"{limit}B")
        except gett.OptionError:
            continue
        for _ in range(3):
            np.testing.assert_array_equal(plan(*arrays).get(), exact)


def test_streams_and_capture(cupy: Any) -> None:
    spec, arrays, exact = network(cupy, 1, "complex64", 16)
    plan = gett.plan(spec, *arrays)
    for _ in range(3):
        plan(*arrays)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        np.testing.assert_array_equal(plan(*arrays).get(), exact)
        out = cupy.zeros(exact.shape, "complex64")
        stream.synchronize()
        stream.begin_capture()
        plan(*arrays, out=out)
        graph = stream.end_capture()
        out[...] = 5
        graph.launch()
        stream.synchronize()
        np.testing.assert_array_equal(out.get(), exact)
