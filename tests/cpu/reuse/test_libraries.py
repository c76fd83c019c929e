"""What is held, in the library of the call: PyTorch's CPU tensors and their derivatives, JAX's arrays."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import gett
from tests.cpu.strategies import integers_of

integers = integers_of(np.random.default_rng(6))
RING = "ab,bc,cd,da->bd"
HOST = [integers(3, 4), integers(4, 5), integers(5, 6), integers(6, 3)]
WANT = np.einsum(RING, *HOST)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_constants_are_tensors_where_calls_are(torch):
    tensors = [torch.from_numpy(x) for x in HOST]
    for given in (tensors, [tensors[0], HOST[1], HOST[2].tolist(), tensors[3]]):
        plan = gett.plan(RING, *given, constants=[1, 2])
        for _ in range(2):
            found = plan(tensors[0], tensors[3])
            assert type(found) is torch.Tensor
            np.testing.assert_array_equal(found.numpy(), WANT)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(plan))(tensors[0], tensors[3]).numpy(), WANT)
    plan = gett.plan(RING, (HOST[0].shape, "float64"), *HOST[1:3], HOST[3], constants=[1, 2])
    np.testing.assert_array_equal(plan(tensors[0], tensors[3]).numpy(), WANT)  # brought to where a call is
    np.testing.assert_array_equal(plan(HOST[0], HOST[3]), WANT)


def test_lazy_conjugates_and_bfloat16(torch):
    tensors = [torch.from_numpy(x) * (1 + 1j) for x in HOST]
    conjugates = [x.conj() if i % 2 else x for i, x in enumerate(tensors)]
    want = torch.einsum(RING, *conjugates)
    for places in ([1, 2], [0, 1], [3], [1, 3]):
        plan = gett.plan(RING, *conjugates, constants=places)
        found = plan(*(x for i, x in enumerate(conjugates) if i not in places))
        np.testing.assert_array_equal(found.numpy(), want.numpy())
    plan = gett.plan(RING, *conjugates, remember=True)
    np.testing.assert_array_equal(plan(*conjugates).numpy(), want.numpy())
    short = [torch.from_numpy(x).to(torch.bfloat16) for x in HOST]
    made = gett.plan("ab,bc->ac", *short[:2], constants=[1])
    assert made(short[0]).dtype is torch.bfloat16
    np.testing.assert_array_equal(made(short[0]).float().numpy(), (HOST[0] @ HOST[1]).astype("f4"))
    again = gett.plan("ab,bc,cd->ad", *short[:3], remember=True)
    assert again(*short[:3]).dtype is torch.bfloat16
    again(*short[:3], changed=[2])


def test_derivatives_of_what_is_no_constant(torch):
    tensors = [torch.from_numpy(x) for x in HOST]
    plan = gett.plan(RING, *tensors, constants=[1, 2])
    a, d = (tensors[i].clone().requires_grad_() for i in (0, 3))
    found = torch.autograd.grad(plan(a, d).sum(), [a, d])
    want = torch.autograd.grad(torch.einsum(RING, a, tensors[1], tensors[2], d).sum(), [a, d])
    for x, y in zip(found, want, strict=True):
        np.testing.assert_array_equal(x.numpy(), y.numpy())
    fixed = tensors[1].clone().requires_grad_()
    plan = gett.plan(RING, tensors[0], fixed, *tensors[2:], constants=[1, 2])
    with pytest.raises(gett.GradientError, match="constant 1 requires a gradient"):
        plan(tensors[0], tensors[3])
    with torch.no_grad():
        np.testing.assert_array_equal(plan(tensors[0], tensors[3]).numpy(), WANT)


def test_tensors_that_change(torch):
    tensors = [torch.from_numpy(x.copy()) for x in HOST]
    plan = gett.plan(RING, *tensors, remember=True)
    plan(*tensors)
    tensors[2] += 1
    with pytest.raises(gett.OptionError, match="operand 2 was written to"):
        plan(*tensors, changed=[0])
    want = torch.einsum(RING, *tensors)
    np.testing.assert_array_equal(plan(*tensors, changed=[2]).numpy(), want.numpy())
    np.testing.assert_array_equal(plan(*(x[:] for x in tensors), changed=[]).numpy(), want.numpy())
    with pytest.raises(gett.GradientError, match="remember=True"):
        plan(tensors[0].clone().requires_grad_(), *tensors[1:])


def test_jax_s_arrays():
    jnp = pytest.importorskip("jax.numpy")
    arrays = [jnp.asarray(x.astype("f4")) for x in HOST]
    plan = gett.plan(RING, *arrays, constants=[1, 2])
    for _ in range(2):
        found = plan(arrays[0], arrays[3])
        assert type(found) is type(arrays[0])
        np.testing.assert_array_equal(np.asarray(found), WANT)
    kept = gett.plan(RING, *arrays, remember=True)
    kept(*arrays)
    arrays[1] = arrays[1] + 1
    host = [np.asarray(x) for x in arrays]
    np.testing.assert_array_equal(np.asarray(kept(*arrays, changed=[1])), np.einsum(RING, *host))
    with pytest.raises(gett.OptionError, match="operand 3 is another array"):
        kept(*arrays[:3], arrays[3] * 2, changed=[1])
