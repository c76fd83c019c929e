"""Small steps of networks that one launch makes together: order, kernels, and whole networks on the host."""

from __future__ import annotations

import itertools
import random
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
from gett.schedule.grouped import SMALL
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
