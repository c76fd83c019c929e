"""Paths that are searched for networks that take long."""

from __future__ import annotations

import random
import subprocess
import sys

import opt_einsum
import pytest
from opt_einsum.testing import rand_equation

import gett
from gett.network import search


def lattice(n: int, bond: int) -> tuple[list[tuple[int, ...]], list[int]]:
    """Modes of the tensors of a square lattice, and extents."""
    names: dict[tuple[str, int, int], int] = {}
    terms = []
    for i in range(n):
        for j in range(n):
            bonds = [("r", i, j), ("r", i, j - 1), ("d", i, j), ("d", i - 1, j)]
            inside = [b for b in bonds if 0 <= b[1] < n - (b[0] == "d") and 0 <= b[2] < n - (b[0] == "r")]
            terms.append(tuple(names.setdefault(b, len(names)) for b in inside))
    return terms, [bond] * len(names)


def auto(terms, extents):
    spelled = ["".join(map(opt_einsum.get_symbol, t)) for t in terms]
    shapes = [tuple(extents[m] for m in t) for t in terms]
    return opt_einsum.contract_path(",".join(spelled) + "->", *shapes, shapes=True, optimize="auto")[0]


def test_a_search_finds_fewer_products():
    terms, extents = lattice(6, 8)
    path = auto(terms, extents)
    found = search.searched_path(terms, [], extents, path)
    assert search.products(terms, [], extents, found) < 0.5 * search.products(terms, [], extents, path)


@pytest.mark.parametrize("seed", range(6))
def test_products_are_those_of_opt_einsum(seed):
    spec, shapes = rand_equation(10, 3, n_out=2, d_min=2, d_max=5, seed=seed)
    path, info = opt_einsum.contract_path(spec, *shapes, shapes=True)
    letters = sorted(set(spec) - set(",->"))
    terms = [tuple(map(letters.index, t)) for t in spec.split("->")[0].split(",")]
    extents = [0] * len(letters)
    for term, shape in zip(terms, shapes, strict=True):
        for m, e in zip(term, shape, strict=True):
            extents[m] = e
    found = search.products(terms, list(map(letters.index, spec.split("->")[1])), extents, path)
    sums = [set(step[2].split("->")[0]) - {","} - set(step[2].split("->")[1]) for step in info.contraction_list]
    unions = [set(step[2].split("->")[0]) - {","} for step in info.contraction_list]
    assert len(sums) == len(path)
    size = dict(zip(letters, extents, strict=True))
    want = 0
    for union in unions:
        n = 1
        for x in union:
            n *= size[x]
        want += n
    assert found == want


def test_short_contractions_are_not_searched(monkeypatch):
    monkeypatch.setattr(opt_einsum, "RandomGreedy", lambda **_: pytest.fail("searched"))
    terms, extents = lattice(4, 3)
    path = auto(terms, extents)
    assert search.searched_path(terms, [], extents, path) is path


def test_a_search_leaves_the_generator_of_numbers_alone():
    terms, extents = lattice(6, 8)
    random.seed(5)
    want = random.random()
    random.seed(5)
    search.searched_path(terms, [], extents, auto(terms, extents))
    assert random.random() == want


def test_a_path_is_the_same_on_every_run():
    """Sets of strings have another order in each process."""
    program = (
        "import gett\nfrom test_path_search import lattice\nimport opt_einsum\nterms, extents = lattice(6, 8)\n"
        "spec = ','.join(''.join(map(opt_einsum.get_symbol, t)) for t in terms) + '->'\n"
        "print(gett.plan(spec, *[((8,) * len(t), 'float64') for t in terms]).path)"
    )
    seen = set()
    for seed in "12":
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(x for x in (__file__.rpartition("/")[0], *sys.path) if x)}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1


def test_a_name_that_is_given_is_kept():
    terms, _ = lattice(6, 8)
    spec = ",".join("".join(map(opt_einsum.get_symbol, t)) for t in terms) + "->"
    shapes = [(8,) * len(t) for t in terms]
    plans = {name: gett.plan(spec, *[(s, "float64") for s in shapes], optimize=name) for name in ("auto", "greedy")}
    assert plans["auto"].flops < 0.5 * plans["greedy"].flops
    want = opt_einsum.contract_path(spec, *shapes, shapes=True, optimize="greedy")[0]
    assert [tuple(sorted(p)) for p in plans["greedy"].path] == [tuple(sorted(p)) for p in want]
