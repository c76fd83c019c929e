"""`Recipe`: what another process needs to sum slices of a contraction, and `Worker`, which does.

Owns how a contraction is divided into sums of slices, the digest by which processes compare their plans, and where a
process computes. Knows nothing of how recipes, operands and sums travel.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gett.arrays.kinds import NUMPY, ArrayKind, cupy_kind
from gett.errors import DeviceError
from gett.ir.tensors import ALIGNMENT_LIMIT, TensorSpec, dense_strides
from gett.network.request import PlanRequest
from gett.network.slicing import slicing
from gett.slices.finder import find_plan
from gett.slices.limited import network_of
from gett.slices.sums import Node, SumTree
from gett.slices.views import SliceGrid
from gett.slices.work import SliceWork
from gett.version import __version__

MOST_TERMS = 1024  # of a sum, where its terms take little memory
SUMS_BYTES = 1 << 28  # that all terms of a sum may take where there are more than LEAST_TERMS
LEAST_TERMS = 16


def kind_of(arch: str, device: int) -> ArrayKind:
    """The arrays that a worker computes with: NumPy's, or CuPy's on a device.

    Raises:
        DeviceError: There is no such device here, or it has another architecture.
    """
    if arch == "cpu":
        return NUMPY
    from gett.runtime.device import require_cupy

    count = require_cupy().cuda.runtime.getDeviceCount()
    if not 0 <= device < count:
        raise DeviceError(f"there is no GPU {device} here: there are {count}")
    kind = cupy_kind()
    assert kind is not None
    found = kind.arch(device)
    if found != arch:
        raise DeviceError(f"the contraction is planned for {arch}, but GPU {device} here is {found}")
    return kind


def added(x: Any, y: Any) -> Any:
    """The sum of two arrays, written over the first."""
    x += y
    return x


@dataclass(frozen=True, slots=True)
class Recipe:
    """A contraction whose slices are summed anywhere.

    Attributes:
        bare: The contraction of dense operands, without factors, `c` and epilogue, on no device; its path is explicit.
        lengths: Each sliced mode with its extent in a slice.
        keeps: Whether steps that all slices share run once in each process.
        sums: dtype that sums are kept in.
        order: Memory order of sums.
        terms: Of how many terms, each some slices, the sum of a part consists.
    """

    bare: PlanRequest
    lengths: tuple[tuple[int, int], ...]
    keeps: bool
    sums: str
    order: str
    terms: int

    def numbers(self, terms: range, summed: int) -> range:
        """Which of the slices that are summed into a part make up some consecutive terms."""
        return range(terms.start * summed // self.terms, terms.stop * summed // self.terms)

    def work(self, device: int, operands: tuple[TensorSpec, ...] | None = None) -> SliceWork:
        """The slices, planned for a device of this process.

        Args:
            device: The device.
            operands: The operands as they lie there, where they are not dense.
        """
        bare = replace(self.bare, device=device, operands=self.bare.operands if operands is None else operands)
        network = network_of(bare, bare.optimize)[0]
        return SliceWork(bare, network, slicing(network, dict(self.lengths), keeps=self.keeps), find_plan)


def usual_terms(grid: SliceGrid, itemsize: int) -> int:
    """Terms of a sum that any number of workers may form."""
    nbytes = math.prod(grid.shape(0)) * itemsize
    return min(grid.summed, max(LEAST_TERMS, min(MOST_TERMS, SUMS_BYTES // max(1, nbytes))))


class Worker:
    """Sums slices of some operands on one device.

    Attributes:
        digest: Of the plans: other workers' sums may be added where theirs is the same.
    """

    def __init__(self, recipe: Recipe, device: int) -> None:
        """Plan the slices.

        Raises:
            DeviceError: There is no such device here.
        """
        self._recipe, self._device = recipe, device
        self._kind: Any = kind_of(recipe.bare.arch, device)
        self._work = recipe.work(device)
        self._sums = np.dtype(recipe.sums)
        self.digest = self._digest()
        self._run: Any = None

    def _digest(self) -> str:
        shape = self._work.grid.shape(0)
        alignment = 1 if self._recipe.bare.arch == "cpu" else ALIGNMENT_LIMIT
        spec = TensorSpec(shape, dense_strides(shape, self._sums.itemsize, self._recipe.order), self._sums, alignment)
        plans = [x.plan for x in self._work.once]
        plans += [self._work.part(self._work.lengths, spec, add=add) for add in (False, True)]
        steps = [(s.name, s.inputs, s.shape, repr(s.schedule or s.together)) for p in plans for s in p.steps]
        text = repr((__version__, self._recipe, steps))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def read(self, operands: Sequence[Any]) -> None:
        """Take the operands, arrays of the host; what all slices share is computed here."""
        kind, device = self._kind, self._device
        with kind.on(device) or nullcontext():
            here = list(map(kind.from_host, operands))
            self._run = self._work.reading(kind, device, here)

    def sum(self, node: Node, each: Callable[[], None] = lambda: None) -> Any:
        """The sum of a node's slices, an array of this worker's device; `each` is called before every slice."""
        grid, kind, recipe = self._work.grid, self._kind, self._recipe
        outer = grid.part(node.part)
        shape = grid.shape(node.part)

        def slices(term: int) -> Iterator[int]:
            for number in recipe.numbers(range(term, term + 1), grid.summed):
                each()
                yield number

        tree = SumTree(recipe.terms, added)
        with kind.on(self._device) or nullcontext():
            for term in node.terms(recipe.terms):
                sums = kind.empty(shape, self._sums, recipe.order)
                self._run.sum(outer, slices(term), sums)
                tree.put(0, term, sums)
            ((_, value),) = tree.held.items()
        return value

    def to_host(self, value: Any) -> Any:
        """A sum as an array of the host."""
        return self._kind.to_host(value)

    def from_host(self, array: Any) -> Any:
        """An array of the host as one of this worker's device."""
        with self._kind.on(self._device) or nullcontext():
            return self._kind.from_host(array)
