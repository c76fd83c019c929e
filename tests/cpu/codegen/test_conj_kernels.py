"""Conjugated and real factors in multistage and stream kernels, run whole on the host: small integers bit for bit."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.legality import can_implement
from gett.schedule.search.select import candidates
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.mainloop import Multistage
from gett.schedule.spec.schedule import Schedule
from tests.cpu.helpers import contraction_of
from tests.cpu.host_blocks import run_kernel
from tests.cpu.strategies import values
from tests.sampling import slow_but
from tests.schedules import spread

RNG = np.random.default_rng(11)
# Types of A and B, which of them are conjugated.
FACTORS = (
    ("complex64", "complex64", (True, False)),
    ("complex64", "complex64", (False, True)),
    ("complex64", "complex64", (True, True)),
    ("float32", "complex64", (False, False)),
    ("float32", "complex64", (False, True)),
    ("complex64", "float32", (False, False)),
    ("complex64", "float32", (True, False)),
    ("complex128", "complex128", (True, False)),
    ("complex128", "float64", (True, False)),
    ("float64", "complex128", (False, True)),
)
TILED = {
    "rows": ("mk,nk->mn", (20, 36), (40, 36)),
    "columns": ("km,kn->mn", (21, 34), (21, 18)),
    "transposed": ("mk,kn->nm", (33, 17), (17, 35)),
    "boxes": ("kaxb,cykx->abyc", (6, 4, 5, 8), (3, 9, 6, 5)),
    "batches": ("lmk,lnk->lmn", (2, 18, 12), (2, 20, 12)),
    "k-mismatch": ("mkl,nlk->mn", (36, 6, 4), (40, 4, 6)),
    "beside": ("mkl,nkl->mnl", (6, 5, 40), (7, 5, 40)),  # batches side by side come through registers
}
STREAMED = {
    "hadamard": ("ij,ji->ij", (12, 33), (33, 12)),
    "outer": ("i,j->ji", (40,), (24,)),
    "vector": ("ij,j->i", (30, 37), (37,)),
    "vector-columns": ("ji,j->i", (37, 48), (37,)),
    "dot": ("ij,ji->", (9, 14), (14, 9)),
    "batched": ("bij,bj->bi", (3, 8, 12), (3, 12)),
}
ALONE = {"permutation": ("ij->ji", (24, 40)), "sum": ("ij->j", (30, 20)), "rows": ("ij->i", (10, 64))}


def integers(shape: tuple[int, ...], dtype: str) -> NDArray[np.generic]:
    return values(RNG, shape, np.dtype(dtype), 4)


def plan_of(subscripts: str, arrays: list[NDArray[np.generic]], conj: tuple[bool, ...]) -> GemmPlan:
    c = contraction_of(subscripts, *arrays)
    b = None if c.b is None else replace(c.b, conj=conj[1])
    return make_gemm_plan(replace(c, a=replace(c.a, conj=conj[0]), b=b))


def run(tmp: Path, subscripts: str, arrays: list[NDArray[np.generic]], conj: tuple[bool, ...], schedule: Schedule,
        plan: GemmPlan, alpha: complex = 1) -> None:  # fmt: skip
    taken = [x.conj() if flag else x for x, flag in zip(arrays, conj, strict=True)]
    want = alpha * np.einsum(subscripts, *taken).astype(plan.contraction.dtype)
    d = np.full(want.shape, 77 - 5j, want.dtype)
    roles = dict(zip("ba" if plan.swapped else "ab", arrays, strict=False))
    run_kernel(tmp, plan, schedule, roles, d, alpha)
    np.testing.assert_array_equal(d, want, str(schedule.mainloop))


def tiled(plan: GemmPlan, count: int) -> list[Schedule]:
    found = (s for s in candidates(plan, "sm_90a") if isinstance(s.mainloop, Multistage) and s.split_k == 1)
    return spread(found, count)


TILED_FACTORS = [(name, x) for name in TILED for x in range(len(name) % 3 if name != "rows" else 0, 10,
                                                            4 if name != "rows" else 1)]  # fmt: skip
STREAMED_FACTORS = [(name, x) for name in STREAMED for x in range(len(name) % 2, 10, 3)]
# Conjugated factors of each kind of kernel.
QUICK_TILED = [("boxes", 2)]
QUICK_STREAMED = [("dot", 7), ("vector-columns", 3)]


@pytest.mark.parametrize(("name", "number"), slow_but(TILED_FACTORS, QUICK_TILED))
def test_multiply_adds_of_tiles(name: str, number: int, tmp_path: Path) -> None:
    subscripts, shape_a, shape_b = TILED[name]
    dtype_a, dtype_b, conj = FACTORS[number]
    arrays = [integers(shape_a, dtype_a), integers(shape_b, dtype_b)]
    plan = plan_of(subscripts, arrays, conj)
    schedule = tiled(plan, 1 + number % 2)[-1]
    assert can_implement(schedule, plan, arch_facts("sm_90a")) is None
    run(tmp_path, subscripts, arrays, conj, schedule, plan, 1 + 2j if number % 3 != 1 else 1)


def test_every_way_of_a_loader_is_among_them() -> None:
    met = set()
    for name, (dtype_a, dtype_b, conj) in itertools.product(TILED, FACTORS):
        subscripts, shape_a, shape_b = TILED[name]
        plan = plan_of(subscripts, [integers(shape_a, dtype_a), integers(shape_b, dtype_b)], conj)
        for s in tiled(plan, 2):
            met |= {(type(x), x.major) for x in (s.multistage.a, s.multistage.b)}
    assert met >= {(CpAsync, "k"), (CpAsync, "mn"), (RegisterStaged, "k")}


@pytest.mark.parametrize(("name", "number"), slow_but(STREAMED_FACTORS, QUICK_STREAMED))
def test_streams_of_two_factors(name: str, number: int, tmp_path: Path) -> None:
    subscripts, shape_a, shape_b = STREAMED[name]
    dtype_a, dtype_b, conj = FACTORS[number]
    arrays = [integers(shape_a, dtype_a), integers(shape_b, dtype_b)]
    plan = plan_of(subscripts, arrays, conj)
    (schedule,) = candidates(plan, "sm_90a")
    assert can_implement(schedule, plan, arch_facts("sm_90a")) is None
    run(tmp_path, subscripts, arrays, conj, schedule, plan, 2 - 1j if number % 2 else 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_streams_of_one_factor(name: str, tmp_path: Path) -> None:
    subscripts, shape = ALONE[name]
    arrays = [integers(shape, "complex128" if name == "rows" else "complex64")]
    plan = plan_of(subscripts, arrays, (True,))
    (schedule,) = candidates(plan, "sm_90a")
    run(tmp_path, subscripts, arrays, (True,), schedule, plan)


@pytest.mark.slow
@pytest.mark.parametrize(("subscripts", "dtype"), [("ij->ji", "complex64"), ("ij->i", "complex128")])
def test_a_real_factor_alone_gives_complex_numbers(subscripts: str, dtype: str, tmp_path: Path) -> None:
    real = integers((20, 24), "float32" if dtype == "complex64" else "float64")
    shape = tuple({"i": 20, "j": 24}[label] for label in subscripts.split("->")[1])
    c = contraction_of(subscripts, real, d=np.empty(shape, dtype))
    plan = make_gemm_plan(replace(c, dtype=dtype))
    (schedule,) = candidates(plan, "sm_90a")
    run(tmp_path, subscripts, [real], (False,), schedule, plan, 1j)


@pytest.mark.slow
def test_two_real_factors_have_complex_sums(tmp_path: Path) -> None:
    arrays = [integers((20, 12), "float32"), integers((12, 24), "float32")]
    c = contraction_of("ij,jk->ik", *arrays, d=np.empty((20, 24), "complex64"))
    plan = make_gemm_plan(replace(c, dtype="complex64"))
    for schedule in tiled(plan, 1):
        run(tmp_path, "ij,jk->ik", arrays, (False, False), schedule, plan, 2 + 1j)


def test_what_is_written_names_the_types_of_the_factors() -> None:
    arrays = [integers((64, 64), "complex64"), integers((64, 64), "float32")]
    plan = plan_of("ij,jk->ik", arrays, (True, False))
    text = render_kernel(plan, candidates(plan, "sm_90a")[0]).source.text
    a, b = ("gett::conj64", "float")[:: -1 if plan.swapped else 1]
    assert f"const {a}* a;" in text
    assert f"const {b}* b;" in text
    assert text.index(f"typedef {a} Element;") < text.index(f"typedef {b} Element;")
    assert "typedef gett::complex64 Acc;" in text


@pytest.mark.slow
@pytest.mark.parametrize("numbers", range(5))
def test_kernels_compile_without_spills(numbers: int) -> None:
    jobs = []
    for number, (dtype_a, dtype_b, conj) in list(enumerate(FACTORS))[numbers::5]:
        large = [integers((512, 512), dtype_a), integers((512, 512), dtype_b)]
        for subscripts in ("ij,jk->ik", "ji,jk->ki", "ij,kj->ik")[number % 3 :: 2]:
            plan = plan_of(subscripts, large, conj)
            jobs.append(render_kernel(plan, candidates(plan, "sm_90a" if number % 2 else "sm_80")[0]))
        for subscripts in ("ij,ji->ij", "ij,ji->i"):
            plan = plan_of(subscripts, large, conj)
            jobs.append(render_kernel(plan, candidates(plan, "sm_90a")[0]))
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda kernel: compile_kernel(kernel.source, kernel.arch), jobs):
            assert all(entry.local_bytes == 0 for entry in resources(found).values())


def test_a_real_factor_saves_bytes_and_time() -> None:
    def best(dtype_a: str, dtype_b: str, arch: str) -> Schedule:
        return candidates(plan_of("ij,jk->ik", [np.empty((2048, 2048), dtype_a), np.empty((2048, 2048), dtype_b)],
                                  (False, False)), arch)[0]  # fmt: skip

    for a, b, arch in (("float32", "complex64", "sm_90a"), ("float64", "complex128", "sm_80")):
        assert best(a, b, arch).forecast.us < 0.7 * best(b, b, arch).forecast.us
