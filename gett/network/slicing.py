"""Slices of a network: the labels along which it is cut so that its intermediates fit into memory.

Owns the model of how many elements are held at one time, and the greedy choice of labels. Knows modes, extents and
steps, neither dtypes nor arrays.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gett.network.steps import PathStep

STEP = 1 << 18  # products that take as long as one step of a slice takes in any case
GPU_STEP = 1 << 25  # the same on a GPU: 4 us of 8 TFLOP/s, counted in products
MOVED = 64  # products that take as long as one element that is moved, about: 67 TFLOP/s and 4.25 TB/s of float64
SHARES = (1, 2, 3, 4, 8, 16, 64)  # of the room, that cotengra is asked to keep the largest intermediate to


@dataclass(frozen=True, slots=True)
class Network:
    """What is sliced.

    Attributes:
        terms: Modes along which each operand varies.
        output: Modes of the result.
        extents: Of all modes.
        steps: Pairwise contractions in order.
        new: Whether the result is memory that a call allocates.
        by_size: Whether a limit is one of the largest intermediate, not of all that is held at one time.
        step: Products that take as long as one step of a slice takes in any case.
    """

    terms: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    extents: tuple[int, ...]
    steps: tuple[PathStep, ...]
    new: bool = True
    by_size: bool = False
    step: int = STEP

    @property
    def modes(self) -> dict[int, tuple[int, ...]]:
        """Modes of each operand and of each step's result."""
        return {**dict(enumerate(self.terms)), **{s.output: s.modes for s in self.steps}}


@dataclass(frozen=True, slots=True)
class Slicing:
    """One way to slice a network.

    Attributes:
        lengths: Each sliced mode with the extent that it has in a slice; the last slice may be shorter.
        keeps: Whether steps that depend on no sliced operand run once and their results are kept.
        held: Elements held at each step; with `Network.by_size` those of its result.
        work: Products of all slices, and what their steps take in any case.
    """

    lengths: tuple[tuple[int, int], ...]
    keeps: bool
    held: tuple[int, ...]
    work: int

    @property
    def peak(self) -> int:
        """Most elements that are held at one time."""
        return max(self.held, default=0)


def count_slices(lengths: Sequence[tuple[int, int]], extents: Sequence[int]) -> int:
    """How many slices there are."""
    return math.prod(-(-extents[m] // n) for m, n in lengths)


def once(network: Network, lengths: Mapping[int, int]) -> frozenset[int]:
    """Tensors that depend on no sliced operand, operands among them."""
    found = {i for i, term in enumerate(network.terms) if not any(m in lengths for m in term)}
    for step in network.steps:
        if all(i in found for i in step.inputs):
            found.add(step.output)
    return frozenset(found)


def slicing(network: Network, lengths: Mapping[int, int], *, keeps: bool = True) -> Slicing:
    """What a way to slice a network holds, and the work that it takes."""
    extents, steps = network.extents, network.steps
    fixed = once(network, lengths) if keeps and lengths else frozenset[int]()
    slices = count_slices(tuple(lengths.items()), extents)
    operands, last = len(network.terms), steps[-1].output
    modes = network.modes

    def size(tensor: int) -> int:
        return math.prod(extents[m] if tensor in fixed else lengths.get(m, extents[m]) for m in modes[tensor])

    kept = _kept(network, fixed)
    result = math.prod(extents[m] for m in network.output) if network.new else 0
    held = [0] * len(steps)
    work = 0
    alive: dict[int, int] = {}
    for done_once in (True, False):
        for n, step in enumerate(steps):
            if (step.output in fixed) is not done_once:
                continue
            if step.output != last:
                alive[step.output] = size(step.output)
            now = sum(alive.values()) + (0 if done_once else result)
            held[n] = now if not network.by_size else alive.get(step.output, 0)
            for i in step.inputs:
                if i >= operands and i not in kept:
                    alive.pop(i, None)
            union = set().union(*(modes[i] for i in step.inputs))
            if done_once:
                work += math.prod(extents[m] for m in union) + network.step
            else:
                others = math.prod(-(-extents[m] // k) for m, k in lengths.items() if m not in union)
                work += math.prod(extents[m] for m in union) * others + network.step * slices
    return Slicing(tuple(sorted(lengths.items())), keeps and bool(kept), tuple(held), work)


def _kept(network: Network, fixed: frozenset[int]) -> frozenset[int]:
    """Results of steps in `fixed` that steps of slices read."""
    operands = len(network.terms)
    read = {i for s in network.steps if s.output not in fixed for i in s.inputs}
    return frozenset(i for i in read if i >= operands and i in fixed)


def slicings(network: Network, lengths: Mapping[int, int]) -> Iterator[Slicing]:
    """Ways to slice a network, each with less held at one time than the last, beginning with some sliced modes.

    Each halves the extent of one mode in a slice: of the modes of what is held where most is, the one that adds the
    least work for what it saves. Where results of steps that run once take much memory, the way without them follows.
    """
    while True:
        now = slicing(network, lengths)
        yield now
        if now.keeps:
            apart = slicing(network, lengths, keeps=False)
            if apart.peak < now.peak:
                yield apart
        further = narrower(network, now)
        if further is None:
            return
        lengths = further


def narrower(network: Network, now: Slicing) -> dict[int, int] | None:
    """Sliced modes by which less is held where most is; None if no mode can be cut further there."""
    lengths, modes = dict(now.lengths), network.modes
    varying = set(itertools.chain.from_iterable(network.terms))
    place = max(range(len(now.held)), key=now.held.__getitem__)
    found: list[tuple[float, int, int]] = []
    for mode in sorted({m for t in _crowd(network, place) for m in modes[t]} & varying):
        extent = lengths.get(mode, network.extents[mode])
        if extent == 1:
            continue
        made = slicing(network, {**lengths, mode: _shorter(network.extents[mode], extent)})
        saved = now.held[place] - made.held[place]
        if saved > 0:
            found.append(((made.work - now.work) / saved, -saved, mode))
    if not found:
        return None
    mode = min(found)[2]
    return {**lengths, mode: _shorter(network.extents[mode], lengths.get(mode, network.extents[mode]))}


def spread(network: Network, lengths: Mapping[int, int], least: int, *, keeps: bool = True) -> Slicing | None:
    """The way with at least so many slices that takes least time in all, beginning with some sliced modes.

    None if there are not so many slices. What slices share counts as work of each, since each process does it. A cut
    of a long mode moves other tensors again for each slice, so moved elements count too, those of sums among them.
    """
    lengths = dict(lengths)
    modes = sorted(set(itertools.chain.from_iterable(network.terms)))
    while count_slices(tuple(lengths.items()), network.extents) < least:
        found = []
        for mode in modes:
            extent = lengths.get(mode, network.extents[mode])
            if extent > 1:
                made = {**lengths, mode: _shorter(network.extents[mode], extent)}
                found.append((cost_of_cut(network, made), -extent, mode))
        if not found:
            return None
        mode = min(found)[-1]
        lengths[mode] = _shorter(network.extents[mode], lengths.get(mode, network.extents[mode]))
    return slicing(network, lengths, keeps=keeps)


def cost_of_cut(network: Network, lengths: Mapping[int, int]) -> int:
    """The work of all slices, where nothing is shared, and what they move, both as products."""
    return slicing(network, lengths, keeps=False).work + MOVED * _moved(network, lengths)


def _moved(network: Network, lengths: Mapping[int, int]) -> int:
    """Elements that the steps of all slices read and write, and those of the partial sums."""
    modes = network.modes

    def size(tensor: int) -> int:
        return math.prod(lengths.get(m, network.extents[m]) for m in modes[tensor])

    each = sum(size(i) for step in network.steps for i in (*step.inputs, step.output))
    return (each + size(network.steps[-1].output)) * count_slices(tuple(lengths.items()), network.extents)


def _shorter(whole: int, extent: int) -> int:
    """An extent of about half as much that cuts the whole evenly, or nearly so."""
    parts = -(-whole // -(-extent // 2))
    return -(-whole // parts)


def _crowd(network: Network, place: int) -> set[int]:
    """Results of steps that may be held while a step runs: its own, and those that it or a later one reads."""
    steps = network.steps
    read = {i for s in steps[place:] for i in s.inputs}
    before = {s.output for s in steps[:place]} & read
    return before | {steps[place].output} | {i for s in steps[place + 1 :] for i in s.inputs if i >= len(network.terms)}


def cotengra_slicings(network: Network, path: Sequence[tuple[int, ...]], room: int) -> Iterator[Slicing]:
    """What cotengra's slicing finds where it is installed, for intermediates of less and less elements; else nothing.

    Args:
        network: What is sliced.
        path: That it follows.
        room: Elements that intermediates may have together.
    """
    if importlib.util.find_spec("cotengra") is None or len(network.terms) < 3:
        return
    from cotengra import ContractionTree

    sizes = {m: network.extents[m] for term in network.terms for m in term}
    output = [m for m in network.output if m in sizes]
    tree = ContractionTree.from_path([list(t) for t in network.terms], output, sizes, path=[list(p) for p in path])
    for share in SHARES:
        try:
            found = tree.slice(target_size=max(1, room // share), seed=0).sliced_inds
        except (RuntimeError, ValueError):  # what it objects to, and slices of everything that are too large still
            continue
        if found:
            yield slicing(network, {m: 1 for m in found if sizes[m] > 1})
