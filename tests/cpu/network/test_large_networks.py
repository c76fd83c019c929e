"""Networks of thousands of tensors: exact results, and steps that are planned once where only their letters differ."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import opt_einsum
import pytest

import gett
from gett.cpu import NumpyExecutable
from gett.plans import planner


def ring(count: int, extent: int) -> tuple[str, list[tuple[int, ...]]]:
    """The trace of a product of matrices, whose bonds have no two letters alike."""
    labels = [chr(0x4E00 + i) for i in range(count)]
    terms = [x + y for x, y in pairwise([*labels, labels[0]])]
    return ",".join(terms) + "->", [(extent, extent)] * count


def integers(shapes: list[tuple[int, ...]], seed: int = 0) -> list[np.ndarray]:
    """Numbers whose products and sums wrap around, so that results are exact along every path."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-(2**62), 2**62, shape, dtype=np.int64) for shape in shapes]


@pytest.mark.parametrize("count", [1000, pytest.param(5000, marks=pytest.mark.slow)])
def test_thousands_of_tensors_are_exact_along_a_given_path(count: int) -> None:
    subscripts, shapes = ring(count, 3)
    arrays = integers(shapes)
    product = arrays[0]
    for x in arrays[1:]:
        product = product @ x
    path = [(0, 1)] * (count - 1)  # neighbours, so that each result goes behind the others
    plan = gett.plan(subscripts, *arrays, optimize=path)
    assert len(plan.steps) == count - 1
    assert plan(*arrays) == np.trace(product)
    assert len(str(plan).splitlines()) <= 40


@pytest.mark.parametrize("arch", ["cpu", "sm_90a"])
def test_steps_that_differ_in_letters_alone_are_planned_once(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []
    make = planner.make_gemm_plan
    monkeypatch.setattr(planner, "make_gemm_plan", lambda contraction: planned.append(contraction) or make(contraction))
    subscripts, shapes = ring(128, 4)
    plan = gett.plan(subscripts, *[(x, "float32") for x in shapes], optimize=[(0, 1)] * 127, arch=arch)
    assert len(plan.steps) == 127
    assert len(planned) <= 5
    assert {s.name for s in plan.steps} == {str(s.gemm.contraction) for s in plan.steps}
    assert len({s.name for s in plan.steps}) == 127
    for step in plan.steps:
        alone = make(step.gemm.contraction)
        assert alone == step.gemm
    if arch == "cpu":
        made = {id(s.executable) for s in plan.steps}
        assert len(made) == len(planned)
        assert all(isinstance(s.executable, NumpyExecutable) for s in plan.steps)


def benchmark_networks() -> dict[str, tuple[str, list[tuple[int, ...]]]]:
    """Networks of einsum_benchmark's generators, whose paths have small intermediates."""
    generators = pytest.importorskip("einsum_benchmark.generators")
    hyper = generators.random.connected_hypernetwork(
        1000, 2.0, max_edge_order=4, min_axis_size=2, max_axis_size=2, seed=3, diagonals_in_hyper_edges=True,
        number_of_self_edges=5, number_of_single_summation_indices=5, number_of_output_indices=3,
    )  # fmt: skip
    return {
        "hyper": hyper,
        "tree": generators.structured.tree(n=1000, d_min=2, d_max=4, n_outer=2, seed=1),
        "lattice": generators.structured.lattice((50, 8), d_min=2, d_max=2, seed=0),
        "chain": generators.structured.matrix_chain(num_matrices=1000, min_dim=2, max_dim=30, seed=2),
        "hyper of 5000": generators.random.connected_hypernetwork(
            5000, 2.0, max_edge_order=3, min_axis_size=2, max_axis_size=2, seed=5, number_of_output_indices=3
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hyper", "tree", "lattice", "chain", "hyper of 5000"])
def test_generated_networks_are_exact(name: str) -> None:
    subscripts, shapes = benchmark_networks()[name]
    arrays = integers([tuple(map(int, x)) for x in shapes])
    path, _ = opt_einsum.contract_path(subscripts, *arrays, optimize="greedy")
    expected = opt_einsum.contract(subscripts, *arrays, optimize=path)
    np.testing.assert_array_equal(gett.einsum(subscripts, *arrays, optimize=path), expected)
    assert gett.plan(subscripts, *[(x.shape, "float32") for x in arrays], optimize=path, arch="sm_90a").steps
