"""Plans of several launches on a GPU: sums that come first, groups beyond 2^31, empty sums, overlaps, networks."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest

import gett
from gett.network.cutting import cut_free, cut_sum
from gett.runtime.shifted import ShiftedExecutable

DTYPES = ("float16", "float32", "float64", "int8", "int32", "bool", "complex64")


def integers(rng, shape, dtype):
    low = 0 if dtype == "bool" else -2
    values = rng.integers(low, 3, shape)
    return (values % 2 if dtype == "bool" else values).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("i,j->", ((100_000,), (100_000,))),
        ("ik,jl->ij", ((200, 200), (200, 200))),
        ("ikx,kj->ij", ((200, 200, 60), (200, 200))),
        ("ik,kjy->ji", ((200, 200), (200, 200, 60))),
    ],
)
def test_sums_first_are_exact(cupy, subscripts, shapes, dtype):
    rng = np.random.default_rng(1)
    a, b = (integers(rng, s, dtype) for s in shapes)
    result = gett.einsum(subscripts, cupy.asarray(a), cupy.asarray(b))
    wide = {"bool": "bool", "int8": "int8", "int32": "int32"}.get(dtype, "complex128")
    first, second, out = *subscripts.split("->")[0].split(","), subscripts.split("->")[1]
    alone = [[t.index(x) for x in t if x not in other + out] for t, other in ((first, second), (second, first))]
    reduce = np.logical_or.reduce if dtype == "bool" else np.add.reduce
    sums = [reduce(x.astype(wide), axis=tuple(axes), dtype=wide) for x, axes in zip((a, b), alone, strict=True)]
    kept = [
        "".join(x for i, x in enumerate(t) if i not in axes) for t, axes in zip((first, second), alone, strict=True)
    ]
    exact = np.einsum(f"{kept[0]},{kept[1]}->{out}", *sums)
    np.testing.assert_array_equal(cupy.asnumpy(result), exact.real.astype(dtype) if dtype[0] != "c" else exact)


def test_a_product_of_sums_of_16_bits_is_rounded_once(cupy):
    """2049 is no float16; the product of the exact sums is 6147, which rounds to 6148, and that of 2048 is 6144."""
    a, b = np.zeros((2000, 8193), np.float16), np.zeros((2000, 8193), np.float16)
    a[:, :2049], b[:, :3] = 1, 1
    result = gett.einsum("ik,jl->ij", cupy.asarray(a), cupy.asarray(b))
    assert result.dtype == np.float16
    assert bool((result == 6148).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("limit", [7, 40])
@pytest.mark.parametrize("subscripts", ["abi,ijc->acbj", "abi,abi->", "ab,bc->c", "abc->cab", "xai,xij->xaj"])
def test_pieces_of_a_contraction_are_exact(cupy, monkeypatch, subscripts, limit, dtype):
    """As groups beyond the limit of a launch are, only with a limit that small tensors exceed."""
    monkeypatch.setattr("gett.plans.planner.cut_sum", lambda c: cut_sum(c, limit))
    monkeypatch.setattr("gett.plans.planner.cut_free", lambda p: cut_free(p, limit))
    gett.plan_cache.clear()
    rng = np.random.default_rng(2)
    extents = dict(zip("abcijx", (9, 10, 11, 50, 13, 17), strict=True))
    left, out = subscripts.split("->")
    arrays = [integers(rng, [extents[x] for x in t], dtype) for t in left.split(",")]
    c = integers(rng, [extents[x] for x in out], dtype)
    plan = gett.plan(subscripts, *map(cupy.asarray, arrays), c=cupy.asarray(c))
    assert len(plan.steps) > 1
    if limit == 7:
        assert any(isinstance(s.executable, ShiftedExecutable) for s in plan.steps)
    poisoned = cupy.full(c.shape, 99).astype(dtype)
    result = plan(*map(cupy.asarray, arrays), c=cupy.asarray(c), beta=1, out=poisoned)
    wide = dtype if dtype in ("bool", "int8", "int32") else "complex128"
    exact = np.einsum(subscripts, *(x.astype(wide) for x in arrays)) + c.astype(wide)
    np.testing.assert_array_equal(cupy.asnumpy(result), exact.real.astype(dtype) if dtype[0] != "c" else exact)
    gett.plan_cache.clear()


def test_a_group_of_2_to_the_31(cupy):
    """32 GiB of float16 (16 each side): every slice of the result looked at is right."""
    rows = 1 << 31
    free, _ = cupy.cuda.runtime.memGetInfo()
    if free < 36 << 30:
        pytest.skip(f"needs 36 GiB of device memory, {free >> 30} are free")
    a = cupy.empty((rows, 4), np.float16)
    pattern = cupy.asarray(np.random.default_rng(3).integers(-3, 4, (1 << 20) + 7, dtype=np.int8)).astype(np.float16)
    flat = a.reshape(-1)
    for start in range(0, flat.size, pattern.size):
        flat[start : start + pattern.size] = pattern[: flat.size - start]
    b = cupy.asarray(np.random.default_rng(4).integers(-3, 4, (4, 4)).astype(np.float16))
    out = cupy.full((rows, 4), np.nan, np.float16)
    result = gett.einsum("ai,ij->aj", a, b, out=out)
    assert result is out
    wrong = 0
    for start in range(0, rows, 1 << 26):
        part = slice(start, start + (1 << 26))
        wrong += int(cupy.count_nonzero(cupy.matmul(a[part], b) != out[part]))
    assert wrong == 0
    del out, result
    flat[...] = 0
    places = np.append(np.random.default_rng(5).choice(flat.size // 2**12, 2000, replace=False) * 2**12, flat.size - 1)
    flat[cupy.asarray(places)] = 1
    assert gett.einsum("ai,ai->", a, a) == len(places)  # K of 2^33
    assert gett.einsum("ai->", a) == len(places)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "complex64"])
def test_an_empty_sum_is_a_sum_of_zeros(cupy, dtype):
    """beta * c goes through the arithmetic of every other sum."""
    rng = np.random.default_rng(5)
    c = cupy.asarray(integers(rng, (33, 47), dtype))
    for beta in (0, 1, 3):
        results = [
            gett.contract("ik,kj->ij", cupy.zeros((33, k), dtype), cupy.zeros((k, 47), dtype), c, alpha=2, beta=beta)
            for k in (0, 1)
        ]
        assert results[0].tobytes() == results[1].tobytes()
        np.testing.assert_array_equal(cupy.asnumpy(results[0]), cupy.asnumpy(c * beta).astype(dtype))


def test_an_empty_sum_scales_c_in_the_type_of_sums(cupy):
    """beta is beyond float16, its product with c is not."""
    a, b, c = cupy.zeros((5, 0), np.float16), cupy.zeros((0, 7), np.float16), cupy.full((5, 7), 1e-3, np.float16)
    result = gett.contract("ik,kj->ij", a, b, c, beta=1e6)
    np.testing.assert_array_equal(cupy.asnumpy(result), np.float16(np.float32(np.float16(1e-3)) * np.float32(1e6)))


def test_the_kernels_of_a_network_are_compiled_once_each_and_right(cupy, caplog):
    rng = np.random.default_rng(6)
    sizes = (24, 36, 20, 28, 16, 12, 40, 8)
    arrays = [rng.integers(-2, 3, (m, n)).astype(np.float64) for m, n in itertools.pairwise(sizes)]
    gett.plan_cache.clear()
    with caplog.at_level(logging.DEBUG, "gett"):
        result = gett.einsum("ab,bc,cd,de,ef,fg,gh->ah", *map(cupy.asarray, arrays))
    np.testing.assert_array_equal(cupy.asnumpy(result), np.linalg.multi_dot(arrays))
    said = [r.message for r in caplog.records if r.message.startswith(("compiled", "found"))]
    assert len(said) == len(set(said)) > 0
