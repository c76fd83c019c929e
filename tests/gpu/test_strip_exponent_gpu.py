"""`strip_exponent=` on a GPU: the digits of the plain result, beyond the range too, in slices and as tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gett

cupy = pytest.importorskip("cupy")


def integers(*shape: int, dtype: str, power: int, seed: int) -> Any:
    """Small integers times a power of two."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, shape).astype("float64")
    if dtype.startswith("complex"):
        x = x + 1j * rng.integers(-3, 4, shape)
    return x * 2.0**power


def as_integers(mantissa: Any, exponent: Any, power: int) -> Any:
    """The result in units of a power of two."""
    host = mantissa.get() if hasattr(mantissa, "get") else mantissa.cpu().numpy()
    wide = np.asarray(host, "complex128" if np.iscomplexobj(host) else "float64")
    return wide * 2.0 ** (round(float(exponent) / math.log10(2)) - power)


@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("limit", [None, "60kB"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_networks_beyond_the_range_are_exact(dtype: str, limit: str | None, library: str) -> None:
    power = {"float32": -60, "complex64": -60}.get(dtype, -500)
    n = 24
    host = [integers(n, n, n, dtype=dtype, power=0, seed=i) for i in range(3)]
    host[0][5] = 0
    expected = np.einsum("xab,xbc,xcd->ad", *host, optimize=True)
    arrays = [cupy.asarray((x * 2.0**power).astype(dtype)) for x in host]
    if library == "torch":
        torch = pytest.importorskip("torch")
        arrays = [torch.from_numpy(x.get()).cuda() for x in arrays]
    plan = gett.plan("xab,xbc,xcd->ad", *arrays, memory_limit=limit)
    assert (plan.slices > 1) is (limit is not None)
    mantissa, exponent = plan(*arrays, strip_exponent=True)
    np.testing.assert_array_equal(as_integers(mantissa, exponent, 3 * power), expected)
    assert exponent.shape == ()
    assert type(mantissa) is type(arrays[0])
    mantissa, exponent = gett.einsum("xab,xbc,xcd->ad", *arrays, memory_limit=limit, strip_exponent=True)
    np.testing.assert_array_equal(as_integers(mantissa, exponent, 3 * power), expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_digits_are_those_of_the_plain_result(dtype: str) -> None:
    arrays = [cupy.asarray(integers(32, 32, dtype=dtype, power=-3, seed=i).astype(dtype)) for i in range(3)]
    plain = gett.einsum("ab,bc,cd->ad", *arrays)
    mantissa, exponent = gett.einsum("ab,bc,cd->ad", *arrays, strip_exponent=True)
    np.testing.assert_array_equal(as_integers(mantissa, exponent, 0), as_integers(plain, 0, 0))
    zero, exponent = gett.einsum("ab,bc,cd->ad", arrays[0], arrays[1], 0 * arrays[2], strip_exponent=True)
    assert not zero.any()
    assert float(exponent) == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tensors_of_16_bits(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    own = getattr(torch, dtype)
    a = torch.full((16, 16), 2.0**-12, dtype=own, device="cuda")
    mantissa, exponent = gett.einsum("ab,bc,cd,de->ae", a, a, a, a, strip_exponent=True)
    assert mantissa.dtype is own
    assert math.isclose(float(mantissa[0, 0]) * 10 ** float(exponent), 2.0**-36, rel_tol=1e-12)


def test_a_call_waits_for_nothing() -> None:
    """A recorded stream holds all of a call: what waited for the host would be refused."""
    arrays = [cupy.full((16, 16), 2.0**-60, "float32") for _ in range(3)]  # the product of all is below every float32
    plan = gett.plan("ab,bc,cd->ad", *arrays)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        plan(*arrays, strip_exponent=True)
        stream.synchronize()
        stream.begin_capture()
        kept = plan(*arrays, strip_exponent=True)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    assert math.isclose(float(kept[0][0, 0]) * 10 ** float(kept[1]), 2.0**8 * 2.0**-180, rel_tol=1e-12)
