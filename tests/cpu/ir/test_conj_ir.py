"""Conjugated and real factors in the records of a contraction: nothing on the way to a kernel may lose them."""

from dataclasses import replace

import numpy as np
import pytest

from gett.hw.dtypes import data_type, is_complex
from gett.ir.build import address, make_contraction
from gett.ir.contraction import Contraction
from gett.ir.gemm import make_gemm_plan
from gett.ir.tensors import TensorSpec, dense_strides
from gett.network.cutting import cut_free, cut_sum, partial_sums, uncut
from gett.schedule.lower import swap_ab


def contraction(dtype_a: str = "complex64", dtype_b: str = "complex64", conj=(True, False)) -> Contraction:
    """`jk,ij->ik` of extents that are cut by small limits; D is complex64."""
    extents = (4, 12, 6)

    def operand(modes, dtype, conj=False):
        shape = tuple(extents[m] for m in modes)
        dtype = np.dtype(dtype)
        return address(modes, TensorSpec(shape, dense_strides(shape, dtype.itemsize), dtype), extents, conj)

    a, b = operand((1, 2), dtype_a, conj[0]), operand((0, 1), dtype_b, conj[1])
    d = operand((0, 2), "complex64")
    return make_contraction("ijk", extents, a, b, d, None, np.dtype("complex64"), "ieee")


def test_flags_belong_to_operands_whatever_their_roles():
    c = contraction()
    assert c.conj == (True, False)
    plan = make_gemm_plan(c)
    other = swap_ab(plan)
    assert {plan.swapped, other.swapped} == {True, False}
    for p in (plan, other):
        assert p.b is not None
        assert (p.a.conj, p.b.conj) == ((False, True) if p.swapped else (True, False))
    assert contraction(conj=(False, True)).conj == (False, True)
    assert replace(c, b=None).conj == (True, False)


def test_sections_keep_flags_and_partial_sums_have_none():
    c = contraction(conj=(True, True))
    free = list(cut_free(uncut(c), 4))
    sums = cut_sum(c, 4)
    assert len(free) > 1
    assert len(sums) > 1
    assert all(s.contraction.conj == (True, True) for s in (*free, *sums))
    written, total = partial_sums(sums, "complex64")
    assert all(s.contraction.conj == (True, True) for s in written)
    assert total.conj == (False, False)


@pytest.mark.parametrize(
    ("dtypes", "products"),
    [(("complex64", "complex64"), 4), (("float32", "complex64"), 2), (("complex64", "float32"), 2),
     (("float32", "float32"), 1)],
)  # fmt: skip
def test_a_real_factor_has_half_of_the_products(dtypes, products):
    plan = make_gemm_plan(contraction(*dtypes, conj=(False, False)))
    assert plan.contraction.real_products == products
    assert plan.flops == 2 * products * 4 * 12 * 6
    sizes = [data_type(x).bytes for x in dtypes]
    assert plan.bytes == 72 * sizes[0] + 48 * sizes[1] + 24 * 8


def test_the_parts_of_complex_types():
    assert (data_type("complex64").real, data_type("complex128").real) == ("float32", "float64")
    assert data_type("float16").real == "float16"
    assert is_complex("complex128")
    assert not is_complex("float64")


def test_plans_that_differ_in_a_flag_do_not_share_kernels():
    seen = {make_gemm_plan(contraction(conj=x)).signature for x in ((False, False), (True, False), (False, True))}
    assert len(seen) == 3
