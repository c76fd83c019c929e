"""Pairs of steps made together: the same tensor, less memory read and written, and only where it pays."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from opt_einsum.testing import rand_equation

import gett
from gett.network.pairs import SMALL_BYTES, Rates, paired
from gett.network.path import NEVER, find_steps
from gett.network.steps import PathStep

FAST = Rates(1e6, 1e6, 1.0, 8)


def run(terms: list[tuple[int, ...]], steps: list[PathStep], arrays: list[np.ndarray]) -> np.ndarray:
    """The result of steps, each by NumPy."""
    tensors, modes = dict(enumerate(arrays)), dict(enumerate(terms))
    for step in steps:
        given = [x for i in step.inputs for x in (tensors[i], list(modes[i]))]
        tensors[step.output], modes[step.output] = np.einsum(*given, list(step.modes)), step.modes
    return tensors[steps[-1].output]


def gates(rng: random.Random, qubits: int, count: int) -> tuple[list[tuple[int, ...]], list[int], tuple[int, ...]]:
    """A state on which gates act one after the other, each on two modes; modes and extents, and the result's modes."""
    now, terms = [*range(qubits)], [tuple(range(qubits))]
    extents = [2] * qubits
    for _ in range(count):
        i, j = rng.sample(range(qubits), 2)
        fresh = [len(extents), len(extents) + 1]
        extents += [2, 2]
        terms.append((*fresh, now[i], now[j]))
        now[i], now[j] = fresh
    return terms, extents, tuple(now)


def spelled(terms: list[tuple[int, ...]], extents: list[int], output: tuple[int, ...]) -> tuple[str, list[Any]]:
    """Subscripts and descriptions of the operands, as `gett.plan` takes them."""
    words = ["".join(chr(0x100 + m) for m in t) for t in (*terms, output)]
    return f"{','.join(words[:-1])}->{words[-1]}", [(tuple(extents[m] for m in t), "complex64") for t in terms]


@pytest.mark.parametrize("seed", range(12))
def test_gates_on_a_state_are_multiplied_first(seed: int) -> None:
    rng = random.Random(seed)
    terms, extents, output = gates(rng, 14, 8)
    chain = [(0, 1)] + [(0, len(terms) - 1 - i) for i in range(1, 8)]
    plain, found = find_steps(terms, output, extents, terms, tuple(chain), NEVER)
    assert found == tuple(chain)
    steps, found = find_steps(terms, output, extents, terms, tuple(chain), NEVER, rates=FAST)
    assert found == tuple(chain)
    assert len(steps) == len(plain)
    assert [s.output for s in steps] == [len(terms) + i for i in range(len(steps))]
    assert sorted(i for s in steps for i in s.inputs) == [*range(len(terms) + len(steps) - 1)]
    assert all(i < s.output for s in steps for i in s.inputs)
    arrays = [np.random.default_rng(seed + i).integers(-2, 3, [extents[m] for m in t]) for i, t in enumerate(terms)]
    np.testing.assert_array_equal(run(terms, [*steps], arrays), run(terms, [*plain], arrays))

    def large(steps: tuple[PathStep, ...]) -> int:
        return sum(math.prod(extents[m] for m in s.modes) * 8 > SMALL_BYTES for s in steps)

    assert large(steps) < large(plain)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_networks_have_the_same_result(seed: int) -> None:
    spec, shapes = rand_equation(9, 3, n_out=2, d_min=2, d_max=6, seed=seed)
    left, _, right = spec.partition("->")
    names = sorted({*left} - {","})
    terms = [tuple(names.index(x) for x in term) for term in left.split(",")]
    extents = [0] * len(names)
    for term, shape in zip(terms, shapes, strict=True):
        for m, e in zip(term, shape, strict=True):
            extents[m] = e
    output = tuple(names.index(x) for x in right)
    slow = Rates(1.0, 1e9, 1.0, 4096)  # of few bytes a tensor is no longer small, and memory is all that counts
    plain, path = find_steps(terms, output, extents, terms, "greedy", NEVER)
    steps, _ = find_steps(terms, output, extents, terms, path, NEVER, rates=slow)
    arrays = [np.random.default_rng(seed + i).integers(-1, 2, s) for i, s in enumerate(shapes)]
    np.testing.assert_array_equal(run(terms, [*steps], arrays), run(terms, [*plain], arrays))


def test_steps_that_sum_first_stay_as_they_are() -> None:
    terms = [(0, 1), (1, 2), (2, 3)]
    steps = [PathStep((0, 1), 3, (0, 2), wide=True), PathStep((3, 2), 4, (0, 3))]
    assert paired(steps, terms, [20000, 4, 4, 4], FAST) == steps
    free = [PathStep((0, 1), 3, (0, 2)), PathStep((3, 2), 4, (0, 3))]
    assert [s.inputs for s in paired(free, terms, [20000, 4, 4, 4], FAST)] == [(1, 2), (0, 3)]


@pytest.mark.parametrize(
    ("extents", "why"),
    [((20000, 200, 200, 200), "neither matrix is small"), ((40, 4, 4, 4), "all of it is small")],
)
def test_others_stay_as_they_are(extents: tuple[int, ...], why: str) -> None:
    steps = [PathStep((0, 1), 3, (0, 2)), PathStep((3, 2), 4, (0, 3))]
    assert paired(steps, [(0, 1), (1, 2), (2, 3)], extents, FAST) == steps, why


def test_arithmetic_is_weighed() -> None:
    """Factors on modes of their own make a product of all of them, which takes 32 times as long to multiply."""
    terms, extents = [(0, 1, 2), (1, 3), (2, 4)], [4096, 64, 64, 64, 64]
    steps = [PathStep((0, 1), 3, (0, 2, 3)), PathStep((3, 2), 4, (0, 3, 4))]
    small = [20000, 8, 8, 8, 8]
    assert paired(steps, terms, small, Rates(1e6, 1e9, 1.0, 8)) != steps
    assert paired(steps, terms, small, Rates(1e6, 1e5, 1.0, 8)) == steps
    assert paired(steps, terms, extents, Rates(1e6, 1e9, 1.0, 8)) == steps  # 64 ** 4 elements are not small


def test_plans_of_a_gpu_have_pairs_and_name_their_path() -> None:
    spec, shapes = spelled(*gates(random.Random(3), 22, 4))
    chain = [(0, 1), (0, 3), (0, 2), (0, 1)]
    plan = gett.plan(spec, *shapes, optimize=chain, arch="sm_90a")
    assert [*plan.path] == chain
    passes = [s for s in plan.steps if math.prod(s.shape) == 2**22]
    assert 1 <= len(passes) < 4
    assert len(plan.steps) == 4
    on_cpu = gett.plan(spec, *shapes, optimize=chain, arch="cpu")
    assert sum(math.prod(s.shape) == 2**22 for s in on_cpu.steps) == 4


@pytest.mark.parametrize("mib", [25, 32, 64])
def test_limits_of_memory_are_kept(mib: int) -> None:
    """The large tensor of a pair lives as long as the pair."""
    spec, shapes = spelled(*gates(random.Random(5), 20, 6))
    plan = gett.plan(spec, *shapes, memory_limit=f"{mib} MiB", arch="sm_90a")
    assert plan.peak_bytes <= mib << 20
