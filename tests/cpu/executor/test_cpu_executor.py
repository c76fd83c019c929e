"""The NumPy executor: exact on small integers against `numpy.einsum`, every route and type, bounded scratch."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gett.cpu import NumpyExecutable, arithmetic, boxes, executable, moving
from gett.cpu.arithmetic import make_arithmetic, multiply
from gett.errors import DTypeError, OptionError
from gett.ir.gemm import make_gemm_plan
from tests.cpu.executor.executing import RNG, check, integers, make
from tests.cpu.helpers import Array, contraction_of
from tests.cpu.strategies import DTYPES, contractions, outputs, values
from tests.sampling import slow_but
from tests.tolerances import allowed_error

QUICK_DTYPES = ["float16", "complex64"]
EXAMPLES = slow_but([(operands, examples) for operands in (1, 2) for examples in (20, 100)], [(1, 20), (2, 20)])


@pytest.mark.parametrize(("operands", "examples"), EXAMPLES)
def test_random_contractions_are_exact(operands: int, examples: int) -> None:
    @settings(max_examples=examples)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case = data.draw(contractions(operands=operands))
        d = data.draw(outputs(case.shape, np.result_type(*case.operands)))
        check(case.subscripts, *case.operands, d=d)

    run()


@pytest.mark.usefixtures("tiny_tiles")
@pytest.mark.parametrize(("operands", "examples"), EXAMPLES)
def test_random_contractions_are_exact_in_tiny_tiles(operands: int, examples: int) -> None:
    @settings(max_examples=examples)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case = data.draw(contractions(operands=operands, extents=(2, 3, 5, 9)))
        dtype = np.result_type(*case.operands)
        d = data.draw(outputs(case.shape, dtype))
        c = data.draw(st.sampled_from((None, d, values(RNG, case.shape, dtype))))
        scalars = {"alpha": 1, "beta": 1} if dtype.kind == "b" else {"alpha": 3, "beta": 2}
        check(case.subscripts, *case.operands, **({} if operands == 2 else {"b": None}), c=c, d=d, **scalars)

    run()


ROUTES = [
    ("ij,jk->ik", (40, 50), (50, 60), "one BLAS call"),
    ("ji,kj->ik", (50, 40), (60, 50), "one BLAS call"),
    ("abcd,cdef->abef", (6, 7, 8, 9), (8, 9, 4, 5), "one BLAS call"),
    ("ij,j->i", (90, 70), (70,), "one BLAS call"),
    ("zij,zjk->zik", (5, 40, 50), (5, 50, 60), "batched BLAS"),
    ("aib,bj->aij", (20, 8, 30), (30, 40), "one BLAS call"),
    ("iaj,jb->abi", (30, 20, 40), (40, 30), "batched BLAS"),
    ("dbea,ec->abcd", (20, 10, 30, 24), (30, 20), "packed boxes"),
    ("akbl,lbkc->ca", (30, 5, 9, 7), (7, 9, 5, 40), "packed boxes"),
    ("ij,ij->ij", (30, 40), (30, 40), "element-wise"),
    ("ij,ji->ji", (30, 40), (40, 30), "element-wise"),
    ("i,j->ij", (300,), (400,), "element-wise"),
    ("ij,i->ij", (30, 40), (30,), "element-wise"),
    ("abc,abc->b", (3, 4, 5), (3, 4, 5), "element-wise"),
    ("abcd->dbca", (9, 8, 7, 6), None, "permutation"),
    ("iij->ji", (9, 9, 7), None, "permutation"),
    ("abcd->db", (9, 8, 7, 6), None, "sum"),
    ("ii->", (30, 30), None, "sum"),
]


@pytest.mark.parametrize(("subscripts", "shape_a", "shape_b", "route"), ROUTES)
@pytest.mark.parametrize("scalars", [(1, None), (3, None), (1, 1), (2, 3)])
def test_every_route_with_alpha_and_beta(
    subscripts: str, shape_a: tuple[int, ...], shape_b: tuple[int, ...] | None, route: str, scalars: Any
) -> None:
    a, b = integers(shape_a), None if shape_b is None else integers(shape_b)
    alpha, beta = scalars
    assert check(subscripts, a, b, alpha=alpha).route == route
    if beta is not None:
        d = integers(np.einsum(subscripts, *(x for x in (a, b) if x is not None)).shape)
        check(subscripts, a, b, c=d.copy(), d=d.copy(), alpha=alpha, beta=beta)
        check(subscripts, a, b, c=d, d=d, alpha=alpha, beta=beta)  # C is D itself


@pytest.mark.parametrize("dtype", [*DTYPES, "int16", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "iaj,jb->abi", "ia,ia->a", "ai,bi->ba"])
def test_all_dtypes(subscripts: str, dtype: str) -> None:
    inputs = subscripts.split("->")[0].split(",")
    extents = dict(i=40, j=30, k=35, a=24, b=20)
    a, b = (integers(tuple(extents[x] for x in labels), dtype) for labels in inputs)
    check(subscripts, a, b)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_wrap_around_over_their_whole_range(dtype: str) -> None:
    info = np.iinfo(dtype)
    a = RNG.integers(info.min, info.max, (33, 47), dtype, endpoint=True)
    b = RNG.integers(info.min, info.max, (47, 29), dtype, endpoint=True)
    a[0], b[:, 0] = info.min, info.max
    out = np.empty((33, 29), dtype)
    multiply(make_arithmetic(dtype), a, b, out)
    # Python's integers do not overflow: reduced modulo the word at the end, they are the definition.
    exact = (a.astype(object) @ b.astype(object)) % (1 << 8 * out.itemsize)
    np.testing.assert_array_equal(out.astype(object) % (1 << 8 * out.itemsize), exact)
    np.testing.assert_array_equal(np.einsum("ij,jk->ik", a, b), out)
    check("ij,jk->ki", a, b, alpha=-3)


MIXED = [("float32", "float64"), ("complex64", "float32"), ("int32", "float64"), ("bool", "int16"), ("int8", "uint8")]


@pytest.mark.parametrize(("left", "right"), MIXED)
@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij,jk->ki", "ij,jk->ijk", "ij,jk->j"])
def test_mixed_dtypes_promote_as_numpy_does(subscripts: str, left: str, right: str) -> None:
    check(subscripts, integers((40, 30), left), integers((30, 50), right))


def test_result_may_have_another_dtype_of_its_kind() -> None:
    a, b = integers((40, 30)), integers((30, 50))
    for dtype in ("float16", "float64", "complex128"):
        check("ij,jk->ki", a, b, d=np.empty((50, 40), dtype))
        check("ij,jk->ik", a, b, c=integers((40, 50), dtype), d=np.empty((40, 50), dtype), beta=2)


def test_float16_accumulates_in_float32() -> None:
    a, b = np.ones((1, 5000), "float16"), np.ones((5000, 1), "float16")
    a[0, 0] = 3000  # from 2048 on, adding 1 to a float16 loses it
    d = np.empty((1, 1), "float16")
    make("ij,jk->ik", a, b, None, d)(a, b, None, d)
    assert d[0, 0] == np.float16(3000 + 4999)


def test_modes_that_one_tensor_alone_has() -> None:
    a, b = integers((6, 7, 8)), integers((7, 9, 5))
    check("iaj,ask->ik", a, b)  # j, s: summed in one operand before the product
    d = np.empty((6, 11, 5), "float32")
    record = contraction_of("iaj,ask->ixk", a, b, d=d)
    NumpyExecutable(make_gemm_plan(record))(a, b, None, d)
    np.testing.assert_array_equal(d, np.broadcast_to(np.einsum("iaj,ask->ik", a, b)[:, None], d.shape))
    ones = integers((1, 7, 8))  # i is broadcast in A, and B lacks it
    d = np.empty((6, 5), "float32")
    NumpyExecutable(make_gemm_plan(contraction_of("iaj,ask->ik", ones, b, d=d)))(ones, b, None, d)
    np.testing.assert_array_equal(d, np.broadcast_to(np.einsum("iaj,ask->ik", ones, b), d.shape))


def test_no_elements_and_no_modes() -> None:
    empty = np.empty((0, 4), "float32")
    c = integers((4, 4))
    check("ki,kj->ij", empty, empty)
    check("ki,kj->ij", empty, empty, c=c, d=c.copy(), beta=2)
    check("ki,kj->ij", empty, empty, c=c, d=c, beta=2)
    check("ik,jk->ij", np.empty((0, 4), "int32"), integers((5, 4), "int32"))
    check("ki->i", empty)
    check(",->", integers(()), integers(()), alpha=4)
    check("->", integers(()), alpha=4)
    check("i,i->", integers((30,)), integers((30,)), c=integers(()), d=integers(()), beta=2)


def test_c_is_not_read_where_beta_is_zero() -> None:
    a, b = integers((20, 30)), integers((30, 40))
    c, d = np.full((20, 40), np.nan, "float32"), np.full((20, 40), np.nan, "float32")
    make("ij,jk->ik", a, b, c, d)(a, b, c, d, 1, 0)
    np.testing.assert_array_equal(d, a @ b)


@pytest.mark.parametrize("dtype", slow_but(["float16", "float32", "float64", "complex64", "complex128"], QUICK_DTYPES))
@pytest.mark.parametrize(("subscripts", "shapes"), [(s, (a, b)) for s, a, b, _ in ROUTES if b is not None])
def test_rounding_stays_within_the_bound_of_each_element(subscripts: str, shapes: Any, dtype: str) -> None:
    def part(shape: tuple[int, ...]) -> Array:
        return RNG.uniform(-1, 1, shape)

    a, b = ((part(s) + (1j * part(s) if dtype.startswith("c") else 0)).astype(dtype) for s in shapes)
    exact_type = np.clongdouble if dtype.startswith("c") else np.longdouble
    reference = np.einsum(subscripts, a.astype(exact_type), b.astype(exact_type))
    magnitude = np.einsum(subscripts, abs(a).astype(np.longdouble), abs(b).astype(np.longdouble))
    d = np.empty(reference.shape, dtype)
    run = make(subscripts, a, b, None, d)
    run(a, b, None, d)
    depth = run.plan.extent_k
    assert (abs(d - reference) <= allowed_error(reference, magnitude, depth, dtype)).all()


LARGE = [
    ("iaj,jb->abi", (500, 60, 200), (200, 60)),
    ("ab,bc->ca", (2600, 2500), (2500, 2600)),
    ("ak,bk->ab", (2, 6_000_000), (3, 6_000_000)),
    ("abc->cba", (200, 300, 200), None),
    ("ab,ba->ab", (3500, 3500), (3500, 3500)),
]


@pytest.mark.parametrize(("subscripts", "shape_a", "shape_b"), slow_but(LARGE, LARGE[::4]))
@pytest.mark.parametrize("with_c", slow_but([False, True], [True]))
def test_scratch_is_bounded(subscripts: str, shape_a: Any, shape_b: Any, with_c: bool) -> None:
    a = np.ones(shape_a, "float32")[..., ::-1]  # not an operand that BLAS reads as it is
    b = None if shape_b is None else np.ones(shape_b, "float32")
    extents = dict(zip(subscripts.split("->")[0].replace(",", ""), (*shape_a, *(shape_b or ())), strict=True))
    d = np.ones([extents[x] for x in subscripts.split("->")[1]], "float32")
    run = make(subscripts, a, b, d if with_c else None, d)
    tracemalloc.start()
    run(a, b, d if with_c else None, d, 1, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    summed = {x: n for x, n in extents.items() if x not in subscripts.split("->")[1]}
    assert (d == float(np.prod([*summed.values()])) + 3 * with_c).all()


@pytest.mark.usefixtures("tiny_tiles")
@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64"])
def test_long_integer_sums_are_cut(dtype: str) -> None:
    # Tiles of 8 x 8 x 8: longer ones trip the assertion on EXACT_K.
    a, b = integers((8, 100), dtype), integers((100, 8), dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes, "SCRATCH_BYTES", 1 << 20)
        assert check("ij,jk->ik", a, b).route == "packed boxes"


def test_limbs_stay_exact_up_to_the_longest_sum_they_are_used_for() -> None:
    largest = Fraction((1 << arithmetic.LIMB_BITS) - 1) ** 2 * arithmetic.EXACT_K
    assert largest < 2**53
    assert float(largest) == largest


def test_scalars_that_do_not_fit_are_named() -> None:
    a = integers((4, 4), "int32")
    d = np.empty((4, 4), "int32")
    run = make("ij,jk->ik", a, a, None, d)
    with pytest.raises(OptionError, match=r"alpha=0\.5 .*int32"):
        run(a, a, None, d, 0.5)
    x = integers((4, 4))
    run = make("ij,jk->ik", x, x, x, x.copy())
    with pytest.raises(OptionError, match=r"beta=.*complex"):
        run(x, x, x, x.copy(), 1, 2j)


def test_dtypes_that_numpy_cannot_compute_in_are_named() -> None:
    a = integers((4, 4), "complex64")
    with pytest.raises(DTypeError, match="complex64 to D's dtype float32"):
        make("ij,jk->ik", a, a, None, np.empty((4, 4), "float32"))
    with pytest.raises(DTypeError, match="bfloat16"):
        make_arithmetic("bfloat16")


@pytest.mark.parametrize(
    ("subscripts", "extents", "dtype", "expected"),
    [
        ("Xa,ab->Xb", dict(X=2, a=2, b=1 << 16), "float32", "element-wise"),  # numpy.einsum's loop has vectors
        ("Xa,ab->Xb", dict(X=2, a=2, b=1 << 16), "complex64", "one BLAS call"),  # and has none here
        ("bmki,cajm->kjicba", dict(zip("abcijkm", (11, 9, 9, 11, 9, 9, 11), strict=True)), "float32", "batched BLAS"),
        ("uw,zui->zwi", dict(u=36, w=36, z=900, i=5), "float64", "batched BLAS"),
    ],
)
def test_routes_that_were_measured_to_be_faster(
    subscripts: str, extents: dict[str, int], dtype: str, expected: str
) -> None:
    inputs, _ = subscripts.split("->")
    a, b = (integers([extents[x] for x in labels], dtype) for labels in inputs.split(","))
    run = NumpyExecutable(make_gemm_plan(contraction_of(subscripts, a, b)))
    assert run.route == expected
    d = np.zeros(run.plan.contraction.shape_d, dtype)
    run(a, b, None, d)
    np.testing.assert_array_equal(d, np.einsum(subscripts, a, b))


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("subscripts", ["njmi,mknl->lkji", "kjc,kic->ijc", "abjm,mbak->kj", "akbc,jk->cjba"])
@pytest.mark.parametrize("alpha", [1, 3])
def test_a_single_packed_tile_is_exact(
    monkeypatch: pytest.MonkeyPatch, subscripts: str, dtype: str, alpha: int
) -> None:
    monkeypatch.setattr(executable, "element_wise_cost", lambda groups, work: float("inf"))
    extents = dict(zip("abcijklmn", (9, 8, 40, 10, 12, 11, 9, 7, 8), strict=True))
    inputs, output = subscripts.split("->")
    a, b = (integers([extents[x] for x in labels], dtype) for labels in inputs.split(","))
    for conj in ("", "a", "b", "ab") if dtype == "complex128" else ("",):
        contraction = contraction_of(subscripts, a, b)
        conjugated = {n: replace(getattr(contraction, n), conj=True) for n in conj}
        run = NumpyExecutable(make_gemm_plan(replace(contraction, **conjugated)))
        assert run.explain.startswith("packed boxes, 1 tile ")
        d = np.full([extents[x] for x in output], np.nan, dtype)
        run(a, b, None, d, alpha)
        x, y = (np.conj(v) if n in conj else v for n, v in zip("ab", (a, b), strict=True))
        np.testing.assert_array_equal(d, alpha * np.einsum(subscripts, x, y))


def test_copies_go_through_scratch_only_where_a_plain_one_would_miss_caches() -> None:
    def local(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
        source = np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), shape, strides)
        target = np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), shape, np.zeros(shape, "f4").strides)
        return moving._is_local(target, source, moving.unit_axis(target), moving.unit_axis(source))

    assert local((500, 1000), (4, 2000))  # all of it lies in a second-level cache
    assert local((16000, 1000), (4, 64016))  # a thousand pages
    assert not local((16000, 4000), (4, 64016))  # four thousand
    assert not local((1000, 16000), (4, 4004))  # sixteen thousand lines
    assert not local((1000, 1024), (4, 4096))  # lines of one cache set


@pytest.mark.slow
def test_long_thin_products_are_cut_so_that_copies_stay_in_cache() -> None:
    a, b = integers((2, 2, 4, 4), "complex128"), integers((1 << 8, 4, 1 << 6, 4, 1 << 4), "complex128")
    run = NumpyExecutable(make_gemm_plan(contraction_of("XYkw,aklwx->aXlYx", a, b)))
    found = re.match(r"packed boxes, (\d+) tiles of 4 x 262144 x 16 products", run.explain)
    assert found, run.explain
    assert int(found[1]) >= 8
    d = np.empty((1 << 8, 2, 1 << 6, 2, 1 << 4), "complex128")
    run(a, b, None, d)
    np.testing.assert_array_equal(d, np.einsum("XYkw,aklwx->aXlYx", a, b, optimize=True))
