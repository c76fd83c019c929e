"""Where intermediates and workspaces lie in one piece of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gett.network.running import Turn

ALIGNMENT = 512  # bytes, as CuPy's pool has it
ARENA_LIMIT = 256 << 20  # most bytes that a plan keeps by itself


@dataclass(frozen=True, slots=True)
class Places:
    """Where intermediates and workspaces lie in one piece of memory.

    Attributes:
        tensors: The first byte of each intermediate.
        workspaces: That of each turn's workspace; 0 where it has none.
        nbytes: Of all.
    """

    tensors: dict[int, int]
    workspaces: tuple[int, ...]
    nbytes: int


def places_of(turns: Sequence[Turn], workspaces: Sequence[int], until: Sequence[int] | None = None) -> Places:
    """Places of what turns write, of which those that live at the same time do not overlap.

    What lives when most is alive is placed first, the largest and longest before others, each in the smallest gap
    that holds it. All of 33 networks take what is alive at one time and no more so; placed in order of time they take
    up to a third more, since large tensors do not fit between small ones.

    Args:
        turns: In order.
        workspaces: Bytes that each takes while it runs.
        until: For each the last turn that may begin before it ends; default: the last one of its launch.
    """
    if until is None:
        ends = {turn.launch: n for n, turn in enumerate(turns)}
        until = [ends[turn.launch] for turn in turns]
    made: dict[int, tuple[int, int]] = {}  # of each tensor: the turn that makes it first, its bytes
    read: dict[int, int] = {}  # the last turn beside which it is read
    parts: list[tuple[int, int, int, int]] = []  # bytes, first turn, last turn, tensor; -1 for a workspace
    for n, (turn, workspace) in enumerate(zip(turns, workspaces, strict=True)):
        if not turn.is_last:
            made.setdefault(turn.output, (n, _aligned(turn.nbytes)))
        if workspace:
            parts.append((_aligned(workspace), n, until[n], -1))
        for i in turn.inputs:
            if i in made:
                read[i] = max(read.get(i, n), until[n])
    parts += [(nbytes, first, read.get(i, len(turns) - 1), i) for i, (first, nbytes) in made.items()]
    alive = np.zeros(len(turns), np.int64)
    for nbytes, first, last, _ in parts:
        alive[first : last + 1] += nbytes
    parts.sort(key=lambda part: (-alive[part[1] : part[2] + 1].max(), -part[0] * (part[2] - part[1] + 1)))
    tensors, found = {}, [0] * len(turns)
    placed = np.zeros((len(parts), 4), np.int64)  # first byte, end, first turn, last turn
    for k, (nbytes, first, last, tensor) in enumerate(parts):
        others = placed[:k]
        others = others[(others[:, 2] <= last) & (others[:, 3] >= first)]
        start = _smallest_gap(others[:, :2], nbytes)
        placed[k] = start, start + nbytes, first, last
        if tensor < 0:
            found[first] = start
        else:
            tensors[tensor] = start
    return Places(tensors, tuple(found), int(placed[:, 1].max(initial=0)))


def _aligned(nbytes: int) -> int:
    return -(-max(1, nbytes) // ALIGNMENT) * ALIGNMENT


def _smallest_gap(taken: np.ndarray[Any, Any], nbytes: int) -> int:
    """The first byte of the smallest gap that holds so many bytes, else of what follows all ranges (first, end)."""
    best, gap, start = -1, 0, 0
    for first, end in sorted(taken.tolist()):
        if first - start >= nbytes and (best < 0 or first - start < gap):
            best, gap = start, first - start
        start = max(start, end)
    return best if best >= 0 else start
