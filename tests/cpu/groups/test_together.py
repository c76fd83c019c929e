"""Small steps of networks that one launch makes together: order, kernels, and whole networks on the host."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opt_einsum.parser import get_symbol
from opt_einsum.testing import rand_equation

import gett
from gett.codegen.grouped import MOST_LISTED
from gett.network.steps import Step, launch_numbers
from gett.network.together import LEAST
from gett.schedule.grouped import SMALL, listed_schedule, shared_schedule
from tests.cpu.groups.host_tables import Memory, run_listed

CHAINS = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm,mn,no->ao"


def planned(spec: str, shapes: Any, dtype: str = "complex64", **options: Any) -> Any:
    return gett.plan(spec, *[(tuple(s), dtype) for s in shapes], arch="sm_90a", **options)


def network(seed: int, n: int = 24, most: int = 4) -> tuple[str, Any]:
    return rand_equation(n, 3, n_out=2, d_min=2, d_max=most, seed=seed)


def test_steps_come_behind_what_they_read() -> None:
    for seed in range(10):
        spec, shapes = network(seed)
        steps = planned(spec, shapes).steps
        made = {*range(len(shapes))}
        for _, found in itertools.groupby(range(len(steps)), key=launch_numbers(steps).__getitem__):
            own = [steps[i] for i in found]
            assert all(i in made for s in own for i in s.inputs)  # and no step of a launch reads another's result
            made |= {s.output for s in own}
        assert steps[-1].together is None
        assert len({s.output for s in steps}) == len(steps)


def test_a_step_that_sums_nothing_has_its_own_launch_where_none_is_beside_it() -> None:
    spec = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk,z,zq->akq"
    path = [(0, 1), *[(0, n) for n in range(10, 0, -1)]]  # from left to right
    steps = planned(spec, [(4,) * len(term) for term in spec.split("->")[0].split(",")], optimize=path).steps
    assert [s.gemm.extent_k for s in steps] == [4] * 9 + [1, 4]
    assert [s.together is None for s in steps] == [False] * 9 + [True, True]
    assert steps[9].schedule is not None


def test_launches_are_few_and_kernels_shared() -> None:
    spec, shapes = network(3, 80)
    steps = planned(spec, shapes).steps
    together = [s.together for s in steps if s.together is not None]
    assert len(together) > 60
    assert len({x.number for x in together}) < 20
    assert len({x.schedule for x in together}) == 1


@pytest.mark.parametrize(
    ("count", "extent"),
    [
        (LEAST, 4),  # one of the steps is the last
        (14, 256),
    ],
)
def test_some_networks_have_a_launch_for_each_step(count: int, extent: int) -> None:
    spec = ",".join(CHAINS[3 * i : 3 * i + 2] for i in range(count)) + f"->a{CHAINS[3 * count - 2]}"
    steps = planned(spec, [(extent, extent)] * count).steps
    assert all(s.together is None and s.schedule is not None for s in steps)


def test_operands_that_are_converted_keep_launches_apart() -> None:
    shapes = [(4, 4)] * 14
    given = [(s, "float32" if i else "float64") for i, s in enumerate(shapes)]
    steps = gett.plan(CHAINS, *given, arch="sm_90a").steps
    assert all(s.together is None for s in steps)
    assert any(s.together is not None for s in planned(CHAINS, shapes).steps)


def test_large_steps_keep_their_order_and_a_launch_has_a_limit() -> None:
    rng = random.Random(1)
    labels = [get_symbol(i) for i in range(401)]
    chain = ",".join(map("".join, itertools.pairwise(labels))) + f"->{labels[0]}{labels[-1]}"
    steps = planned(chain, [(3, 3)] * 400, optimize=[(0, 1)] * 399).steps
    sizes = [len([*g]) for _, g in itertools.groupby(s.together for s in steps if s.together is not None)]
    assert max(sizes) == MOST_LISTED < 200
    big = "az,zb,bc," + ",".join(f"{chr(99 + i)}{chr(100 + i)}" for i in range(12)) + "->ao"
    extents = {x: rng.choice([3, 4]) for x in "bcdefghijklmno"} | {"a": 900, "z": 1200}
    terms = big.split("->")[0].split(",")
    plan = planned(big, [[extents[x] for x in t] for t in terms], optimize=[(0, 1), *[(0, 1)] * 13])
    alone = [s for s in plan.steps if s.together is None]
    assert [s.output for s in alone] == sorted(s.output for s in alone)


def run_on_host(folder: Path, spec: str, arrays: list[Any], dtype: str) -> Any:
    """A network's small steps by their kernels, the others by NumPy."""
    plan = planned(spec, [x.shape for x in arrays], dtype)
    memory = Memory(1 << 22)
    tensors = {i: memory.put(x.astype(dtype)) for i, x in enumerate(arrays)}

    def problem(s: Step) -> Any:
        a, b = (tensors[i] for i in s.inputs)
        d = tensors[s.output] = memory.take(s.shape, dtype)
        d[...] = 77
        return s.gemm, *((b, a) if s.gemm.swapped else (a, b)), d

    for together, found in itertools.groupby(plan.steps, key=lambda s: s.together):
        steps = [*found]
        if together is not None:
            run_listed(folder, memory, together.schedule, [problem(s) for s in steps])
            assert all(memory.gap_behind(tensors[s.output]) for s in steps)
            continue
        for s in steps:
            tensors[s.output] = memory.put(np.einsum(s.name, *(tensors[i] for i in s.inputs)))
    return plan, tensors[plan.steps[-1].output]


@pytest.mark.parametrize(("dtype", "seed"), [("complex64", 0), ("complex64", 1), ("complex128", 2), ("float32", 3)])
def test_networks_are_exact(tmp_path: Path, dtype: str, seed: int) -> None:
    spec, shapes = network(seed, 18)
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-1, 2, s) + (1j * rng.integers(-1, 2, s) if dtype.startswith("c") else 0) for s in shapes]
    plan, found = run_on_host(tmp_path, spec, arrays, dtype)
    assert sum(s.together is not None for s in plan.steps) >= LEAST
    exact = np.einsum(spec, *arrays, optimize=True)
    assert abs(exact).max() < (2**24 if dtype in ("float32", "complex64") else 2**50)
    np.testing.assert_array_equal(found, exact.astype(dtype))


def test_small_steps_have_few_products() -> None:
    spec, shapes = network(7, 60, 6)
    for s in planned(spec, shapes).steps:
        if s.together is not None:
            g = s.gemm
            assert g.extent_l * g.extent_m * g.extent_n * g.extent_k <= SMALL


def product(m: int, n: int, k: int, dtype: str = "complex64", **options: Any) -> Any:
    return gett.plan("km,nk->mn", ((k, m), dtype), ((n, k), dtype), arch="sm_90a", **options).steps[0].gemm


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int8", "int64"]
)
def test_two_kernels_of_a_dtype_make_all_products(dtype: str) -> None:
    rng = random.Random(0)
    gemms = [product(*(rng.choice([3, 40, 700, 5000]) for _ in "mnk"), dtype) for _ in range(40)]
    found = [shared_schedule(g, "sm_90a") for g in gemms]
    assert len({x[0] for x in found if x is not None}) == 2
    for gemm, x in zip(gemms, found, strict=True):
        assert x is not None
        assert x[1] > 0
        small = listed_schedule(gemm, "sm_90a")
        assert small is None or small.tile in {y[0].tile for y in found if y is not None}


def test_a_long_sum_takes_long_and_what_is_no_product_has_no_shared_kernel() -> None:
    short, long = (shared_schedule(product(8, 8, k), "sm_90a") for k in (64, 1 << 24))
    assert short is not None
    assert long is not None
    assert short[0] == long[0]
    assert long[1] > 1e5 > 100 > short[1]
    one = gett.plan("iij->j", ((5, 5, 9), "float32"), arch="sm_90a").steps[0].gemm
    assert shared_schedule(one, "sm_90a") is None
    added = gett.plan("ij,jk->ik", *[((64, 64), "float32")] * 2, c=((64, 64), "float32"), arch="sm_90a").steps[0].gemm
    assert shared_schedule(added, "sm_90a") is None


def test_elements_that_lie_anywhere_are_not_copied_whole() -> None:
    gemm = product(40, 40, 40)
    a = replace(gemm.contraction.a, alignment=4)
    odd = replace(gemm, contraction=replace(gemm.contraction, a=a))
    assert listed_schedule(gemm, "sm_90a") is not None
    assert listed_schedule(odd, "sm_90a") is shared_schedule(odd, "sm_90a") is None


@pytest.mark.parametrize("dtype", ["complex64", "float32"])
def test_large_tiles_are_exact(tmp_path: Path, dtype: str) -> None:
    """Alone in a launch, with odd extents in several modes."""
    shapes = ((21, 2, 33, 3), (2, 5, 7, 21, 3))
    gemm = gett.plan("kbmx,bnyko->bmxnyo", *[(s, dtype) for s in shapes], arch="sm_90a").steps[0].gemm
    large = shared_schedule(product(4096, 4096, 64, dtype), "sm_90a")
    assert large is not None
    assert large[0].tile.shape[:2] == (64, 64)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, s).astype(dtype) for s in shapes]
    memory = Memory(1 << 22)
    a, b = (memory.put(x) for x in arrays)
    exact = np.einsum("kbmx,bnyko->bmxnyo", *arrays)
    d = memory.take(exact.shape, dtype)
    d[...] = 77
    run_listed(tmp_path, memory, large[0], [(gemm, *((b, a) if gemm.swapped else (a, b)), d)])
    np.testing.assert_array_equal(d, exact)
