"""cotengra's optimisers as `optimize=`, and its trees contracted by gett: pairs, slices, whole trees as one plan."""

from __future__ import annotations

import math
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import opt_einsum
import pytest

import gett
from gett.network.asking import asked_path

RING = "ab,bc,cd,de,ef,fa->"
TERMS = RING[:-2].split(",")


def integers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype("float64")


def ring() -> list[Any]:
    return [integers(4, 4, seed=i) for i in range(6)]


# --- optimisers


def three(inputs: Any, output: Any, sizes: Any) -> Any:
    assert all(isinstance(x, frozenset) for x in inputs)
    return [(0, 1)] * (len(inputs) - 1)


def test_callables_and_what_searches_are_asked_for_paths() -> None:
    seen = []

    def four(inputs: Any, output: Any, sizes: Any, memory_limit: Any = None) -> Any:
        seen.append(memory_limit)
        return three(inputs, output, sizes)

    def named(inputs: Any, output: Any, sizes: Any, *, memory_limit: Any = None) -> Any:
        return four(inputs, output, sizes, memory_limit)

    class Searching:
        def search(self, inputs: Any, output: Any, sizes: Any) -> Any:
            assert [*map("".join, inputs)] == TERMS
            return SimpleNamespace(get_path=lambda: three([*map(frozenset, inputs)], output, sizes))

    arrays = ring()
    expected = np.einsum(RING, *arrays, optimize=True)
    for optimizer in (three, four, named, Searching(), opt_einsum.RandomGreedy(max_repeats=2)):
        assert gett.einsum(RING, *arrays, optimize=optimizer) == expected
        assert gett.plan(RING, *arrays, optimize=optimizer).path
    for optimizer in (four, named):
        gett.contract_path(RING, *arrays, optimize=optimizer, memory_limit=10**6)
    assert 10**6 in seen
    sizes = dict.fromkeys("abcdef", 4)
    for optimizer, path in ((four, 5 * ((0, 1),)), (named, 5 * ((0, 1),))):
        assert asked_path(optimizer, TERMS, "", sizes, "max_input") == path
        assert seen[-1] == 16


def test_optimisers_that_do_not_fit_say_why() -> None:
    arrays = ring()
    with pytest.raises(gett.PathError, match="leaves 5 tensors"):
        gett.einsum(RING, *arrays, optimize=lambda *_: [(0, 1)])
    with pytest.raises(gett.OptionError, match="found no path: odd"):
        gett.einsum(RING, *arrays, optimize=lambda *_: (_ for _ in ()).throw(ValueError("odd")))
    with pytest.raises(gett.OptionError, match="takes no memory_limit"):
        asked_path(three, TERMS, "", dict.fromkeys("abcdef", 4), 100)


def test_every_optimiser_of_cotengra_is_taken() -> None:
    ctg = pytest.importorskip("cotengra")
    arrays = ring()
    expected = np.einsum(RING, *arrays, optimize=True)
    options = {"max_repeats": 2, "parallel": False, "progbar": False}
    found = [
        *(ctg.HyperOptimizer(**options), ctg.ReusableHyperOptimizer(**options)),
        *(ctg.GreedyOptimizer(), ctg.OptimalOptimizer(), ctg.RandomGreedyOptimizer(max_repeats=2)),
        *(ctg.AutoOptimizer(parallel=False), ctg.AutoHQOptimizer(parallel=False)),
        *(ctg.auto_optimize, ctg.auto_hq_optimize, ctg.greedy_optimize, ctg.optimal_optimize),
    ]
    for optimizer in found:
        assert gett.einsum(RING, *arrays, optimize=optimizer) == expected
        if hasattr(optimizer, "search"):
            searching = SimpleNamespace(search=optimizer.search)
            assert gett.einsum(RING, *arrays, optimize=searching) == expected


# --- trees


def tree_of(ctg: Any, terms: list[str], output: str, arrays: list[Any], sliced: str = "") -> Any:
    sizes = {x: n for term, array in zip(terms, arrays, strict=True) for x, n in zip(term, array.shape, strict=True)}
    tree = ctg.array_contract_tree([tuple(x) for x in terms], tuple(output), sizes)
    for label in sliced:
        tree.remove_ind_(label)
    return tree


@pytest.mark.parametrize("sliced", ["", "c", "ad"])
@pytest.mark.parametrize("output", ["", "a", "da"])
def test_trees_are_contracted_pair_by_pair_and_whole(sliced: str, output: str) -> None:
    ctg = pytest.importorskip("cotengra")
    arrays = ring()
    expected = np.einsum(f"{','.join(TERMS)}->{output}", *arrays, optimize=True)
    tree = tree_of(ctg, TERMS, output, arrays, sliced)
    pairs = tree.contract(arrays, implementation=gett.cotengra.implementation)
    np.testing.assert_array_equal(pairs, expected)
    np.testing.assert_array_equal(gett.cotengra.contract(tree, arrays), expected)
    calls: list[Any] = []

    def counted(*operands: Any, **options: Any) -> Any:
        calls.append(options["optimize"])
        return gett.einsum(*operands, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gett.cotengra.einsum", counted)
        assert gett.cotengra.attach(tree) is tree
        for options in ({}, {"implementation": gett.cotengra.implementation}):
            np.testing.assert_array_equal(tree.contract(arrays, **options), expected)
        assert calls == [tree, tree]  # each call is one, slices included
        calls.clear()
        slices = [tree.contract_slice(arrays, i) for i in range(tree.nslices)]
        assert len(calls) == tree.nslices
        np.testing.assert_array_equal(tree.gather_slices(slices), expected)
        fn = tree.get_contractor()
        assert isinstance(fn, gett.cotengra.Contractor)
        assert tree.get_contractor() is fn
        np.testing.assert_array_equal(tree.contract(arrays, implementation="cotengra"), expected)
        np.testing.assert_array_equal(tree.copy().contract(arrays), expected)
    again = pickle.loads(pickle.dumps(tree))
    np.testing.assert_array_equal(again.contract(arrays), expected)


@pytest.mark.parametrize("sliced", ["", "c", "a"])
def test_exponents_are_stripped_through_trees(sliced: str) -> None:
    ctg = pytest.importorskip("cotengra")
    arrays = [x * 1e-90 for x in ring()]
    tree = tree_of(ctg, TERMS, "a", arrays, sliced)
    exact = np.einsum(f"{','.join(TERMS)}->a", *ring(), optimize=True)
    theirs = tree.contract(arrays, strip_exponent=True)
    backend = tree.contract(arrays, strip_exponent=True, backend="gett")
    whole = gett.cotengra.contract(tree, arrays, strip_exponent=True)
    gett.cotengra.attach(tree)
    attached = tree.contract(arrays, strip_exponent=True)
    slices = [tree.contract_slice(arrays, i, strip_exponent=True) for i in range(tree.nslices)]
    for mantissa, exponent in (theirs, backend, whole, attached, tree.gather_slices(slices)):
        np.testing.assert_allclose(mantissa * 10 ** (exponent + 540), exact, rtol=1e-9)


def test_any_labels_and_what_is_no_tree() -> None:
    ctg = pytest.importorskip("cotengra")
    a, b, c = integers(3, 4), integers(4, 5), integers(5, 6)
    tree = ctg.array_contract_tree(
        [("i", 7), (7, (1, 2)), ((1, 2), "long")], ("long", "i"), {"i": 3, 7: 4, (1, 2): 5, "long": 6}
    )
    np.testing.assert_array_equal(gett.cotengra.contract(tree, [a, b, c]), (a @ b @ c).T)
    with pytest.raises(gett.OptionError, match="3 tensors, 2 were given"):
        gett.cotengra.contract(tree, [a, b])
    with pytest.raises(gett.OptionError, match="attach takes a ContractionTree of cotengra, not str"):
        gett.cotengra.attach("ab")
    assert math.isclose(float(gett.einsum("ab,bc,cd->", a, b, c, optimize=[(0, 1), (0, 1)])), (a @ b @ c).sum())
