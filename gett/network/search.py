"""Paths of large networks: opt_einsum's, and the best of its random ones where contracting takes longer than a search.

Owns how long is searched. The paths are opt_einsum's.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

TRIAL = 1 << 24  # products that take as long, on a device between a CPU and a GPU, as a trial does for each tensor
MOST = 32  # trials
LEAST = 8  # tensors: opt_einsum's own paths of fewer are best, or nearly so

Path = Sequence[tuple[int, ...]]
Terms = Sequence[tuple[int, ...]]


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
    live = [set(term) for term in terms]
    holders = Counter(m for term in live for m in term)
    holders.update(set(output))
    total = 0
    for positions in path:
        group = [live.pop(i) for i in sorted(positions, reverse=True)]
        union = set().union(*group)
        total += math.prod(extents[m] for m in union)
        for term in group:
            holders.subtract(term)
        kept = {m for m in union if holders[m] > 0}
        holders.update(kept)
        live.append(kept)
    return total
