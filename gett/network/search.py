"""Paths of large networks: opt_einsum's, and the best of its random ones where contracting takes longer than a search.

Owns how long is searched. The paths are opt_einsum's.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

TRIAL = 1 << 24  # products that take as long, on a device between a CPU and a GPU, as a trial does for each tensor
MOST = 32  # trials
LEAST = 8  # tensors: opt_einsum's own paths of fewer are best, or nearly so

Path = Sequence[tuple[int, ...]]
Terms = Sequence[tuple[int, ...]]


class PathCosts(NamedTuple):
    """What a path costs, as opt_einsum counts it: products and additions are an operation each.

    Attributes:
        along: Operations along the path.
        without: Those of one loop over all modes.
        largest: Elements of the largest result of a contraction.
    """

    along: int
    without: int
    largest: int


def searched_path(terms: Terms, output: Sequence[int], extents: Sequence[int], path: Path, times: int = 1) -> Path:
    """The path itself, or one of fewer products: random greedy ones are tried for as long as it would take.

    The same on each run: the trials have seeds, and modes, which are integers, have the same order in sets.

    Args:
        terms: Modes of each tensor.
        output: Modes of the result.
        extents: Of all modes.
        path: What opt_einsum's "auto" found.
        times: How often it is contracted.
    """
    if len(terms) < LEAST:
        return path
    work = products(terms, output, extents, path)
    trials = min(MOST, times * work // (TRIAL * len(terms)))
    if not trials:
        return path
    import opt_einsum

    search = opt_einsum.RandomGreedy(max_repeats=trials + 1)  # the first trial is the greedy path
    state = random.getstate()  # it seeds the generator that all share
    try:
        found: Path = search(list(map(frozenset, terms)), frozenset(output), dict(enumerate(extents)))
    finally:
        random.setstate(state)
    return found if products(terms, output, extents, found) < work else path


def products(terms: Terms, output: Sequence[int], extents: Sequence[int], path: Path) -> int:
    """How many products a path takes in all."""
    return sum(math.prod(extents[m] for m in union) for _, union, _ in _walk(terms, output, path))


def costs(terms: Terms, output: Sequence[int], extents: Sequence[int], path: Path) -> PathCosts:
    """What a path costs; opt_einsum's `PathInfo` takes time in proportion to the square of its length.

    Args:
        terms: Modes of each tensor; a mode may repeat within one.
        output: Modes of the result.
        extents: Of all modes.
        path: Of all tensors.
    """
    along, largest = 0, 0
    for count, union, kept in _walk(terms, output, path):
        each = max(1, count - 1) + (len(kept) < len(union))
        along += each * math.prod(extents[m] for m in union)
        largest = max(largest, math.prod(extents[m] for m in kept))
    every = set().union(*map(set, terms), output)
    each = max(1, len(terms) - 1) + (len(every) > len(output))
    return PathCosts(along, each * math.prod(extents[m] for m in every), largest)


def _walk(terms: Terms, output: Sequence[int], path: Path) -> Iterator[tuple[int, set[int], set[int]]]:
    """Of each contraction of a path how many tensors it takes, their modes, and the modes that are left of these."""
    live = [set(term) for term in terms]
    holders = Counter(m for term in live for m in term)
    holders.update(set(output))
    for positions in path:
        group = [live.pop(i) for i in sorted(positions, reverse=True)]
        union = set().union(*group)
        for term in group:
            holders.subtract(term)
        kept = {m for m in union if holders[m] > 0}
        holders.update(kept)
        live.append(kept)
        yield len(group), union, kept
