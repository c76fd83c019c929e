"""PyTorch's tensors over executors and in shared contractions, on the CPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gett

torch = pytest.importorskip("torch")


def integers(*shape):
    return torch.randint(-3, 4, shape).double()


def test_tensors_travel_as_what_their_memory_holds():
    a, b = integers(8, 40), integers(40, 9)
    z = a + 1j * a.flip(0)
    cases = [(a, b), (a.float(), b.float()), (a.bfloat16(), b.bfloat16()), (z.conj(), b), (a.t(), a)]
    for x, y in cases:
        subscripts = "ji,jk->ik" if x.shape[0] == y.shape[0] else "ij,jk->ik"
        plan = gett.plan(subscripts, x, y)
        with ThreadPoolExecutor(2) as pool:
            found = gett.distributed.contract(plan, (x, y), executor=pool, slices=4)
        want = torch.einsum(subscripts, x.to(torch.complex128), y.to(torch.complex128))
        assert isinstance(found, torch.Tensor)
        assert found.dtype == torch.result_type(x, y)
        assert torch.equal(found.to(torch.complex128), want.resolve_conj())


def test_tensors_of_the_host_are_shared():
    a, b = integers(8, 40), integers(40, 9)
    found = gett.einsum("ij,jk->ik", a, b, devices=[0, 1])
    assert torch.equal(found, a @ b)
    cut = gett.Sharded.cut(a, [0, 1], 1)
    assert np.shares_memory(cut.parts[0], a.numpy())
    parts = gett.einsum("ij,jk->ik", cut, b, devices=[0, 1], shard="i")
    np.testing.assert_array_equal(np.asarray(parts), (a @ b).numpy())


def test_derivatives_are_refused():
    a, b = integers(8, 40).requires_grad_(), integers(40, 9)
    plan = gett.plan("ij,jk->ik", a, b)
    with ThreadPoolExecutor(1) as pool, pytest.raises(gett.GradientError, match=r"within torch\.no_grad\(\)"):
        gett.distributed.contract(plan, (a, b), executor=pool)
    with pytest.raises(gett.GradientError, match="derivatives are not recorded over several devices"):
        gett.einsum("ij,jk->ik", a, b, devices=[0, 1])
    with torch.no_grad():
        assert torch.equal(gett.einsum("ij,jk->ik", a, b, devices=[0, 1]), a @ b)
