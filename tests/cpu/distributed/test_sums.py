"""Sums of terms in a fixed order, and how terms are divided."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gett.slices.sums import Node, SumTree, nodes


@given(st.integers(1, 40), st.integers(0, 6), st.randoms(use_true_random=False), st.data())
def test_a_sum_depends_on_neither_the_nodes_nor_their_order(count, most, random, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, count), max_size=5)) | {0, count})
    found = [n for start, stop in itertools.pairwise(cuts) for n in nodes(0, range(start, stop), most, count)]
    assert [t for n in found for t in n.terms(count)] == [*range(count)]
    assert all(n.level <= most for n in found)
    whole = SumTree(count, lambda x, y: f"({x}+{y})")
    for term in range(count):
        whole.put(0, term, str(term))

    tree = SumTree(count, lambda x, y: f"({x}+{y})")
    random.shuffle(found)
    for node in found:
        assert tree.total is None
        part = SumTree(count, lambda x, y: f"({x}+{y})")
        for term in node.terms(count):
            part.put(0, term, str(term))
        ((_, value),) = part.held.items()
        tree.put(node.level, node.index, value)
    assert tree.total == whole.total
    assert len(tree.held) == 1


def test_neighbours_are_added_first():
    tree = SumTree(5, lambda x, y: f"({x}+{y})")
    for term in (4, 2, 0, 3, 1):
        tree.put(0, term, str(term))
    assert tree.total == "(((0+1)+(2+3))+4)"


@pytest.mark.parametrize("terms", [range(8), range(3, 8), range(5, 6)])
def test_the_fewest_nodes_make_up_terms(terms):
    found = list(nodes(2, terms, 3, 8))
    assert (
        found
        == {
            range(8): [Node(2, 3, 0)],
            range(3, 8): [Node(2, 0, 3), Node(2, 2, 1)],
            range(5, 6): [Node(2, 0, 5)],
        }[terms]
    )
