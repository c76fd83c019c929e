"""`DistributedPlan`: a sliced contraction whose sums of slices are formed elsewhere.

Owns what is asked of an engine, the `Job`, and what is done with the sums. Knows no engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gett.arrays.kinds import NUMPY, ArrayKind
from gett.arrays.torch import torch_library
from gett.console.formatting import count, printable
from gett.errors import DTypeError, GradientError, OptionError
from gett.ir.tensors import BFLOAT16, dense_strides
from gett.network.path import Path
from gett.network.request import PlanRequest
from gett.network.running import Ending
from gett.network.slicing import Network, Slicing, spread
from gett.plans.contraction_plan import ContractionPlan
from gett.slices.finder import find_plan
from gett.slices.limited import network_of
from gett.slices.recipe import Recipe, added, usual_terms
from gett.slices.sliced_plan import SlicedPlan, Subject
from gett.slices.sums import Node, SumTree, nodes
from gett.slices.views import SliceGrid, view

TASKS = 4  # of each worker, so that one that is late holds the others up for little


@dataclass(frozen=True, slots=True)
class Job:
    """What an engine computes: for each part of the result the sum of its slices.

    Attributes:
        recipe: What workers need.
        grid: The slices.
        flops: Floating-point operations of a slice.
    """

    recipe: Recipe
    grid: SliceGrid
    flops: int

    @property
    def terms(self) -> int:
        """Terms of the sum of each part."""
        return self.recipe.terms

    def numbers(self, node: Node) -> range:
        """Which slices of its part a node sums."""
        return self.recipe.numbers(node.terms(self.terms), self.grid.summed)

    def slices(self, node: Node) -> int:
        """How many slices a node sums."""
        return len(self.numbers(node))

    def tasks(self, workers: int, done: Iterable[Node] = ()) -> list[Node]:
        """The nodes that are left to sum, in order: at least `TASKS` for each worker where there are so many terms."""
        terms, shares = self.terms, max(1, TASKS * workers // self.grid.parts)
        most = max(0, (terms // shares).bit_length() - 1)
        found: list[Node] = []
        known: dict[int, list[range]] = {}
        for node in done:
            known.setdefault(node.part, []).append(node.terms(terms))
        for part in range(self.grid.parts):
            start = 0
            for there in [*sorted(known.get(part, ()), key=lambda r: r.start), range(terms, terms)]:
                found += nodes(part, range(start, there.start), most, terms)
                start = there.stop
        return found

    def shares(self, tasks: Sequence[Node], workers: int) -> list[list[Node]]:
        """Consecutive tasks for each worker, with about as many slices each."""
        found: list[list[Node]] = [[] for _ in range(workers)]
        total, before = sum(map(self.slices, tasks)), 0
        for node in tasks:
            slices = self.slices(node)
            found[min(workers - 1, (2 * before + slices) * workers // (2 * total))].append(node)
            before += slices
        return found


class Totals:
    """The sums of all parts, as sums of nodes come in any order."""

    def __init__(self, job: Job) -> None:
        """Nothing yet."""
        self._trees: dict[int, SumTree] = {}
        self._count = job.terms

    def put(self, node: Node, value: Any) -> tuple[int, Any] | None:
        """Add a node's sum; what it completes, a part with its total, is given back and forgotten."""
        tree = self._trees.setdefault(node.part, SumTree(self._count, added))
        tree.put(node.level, node.index, value)
        total = tree.total
        if total is None:
            return None
        del self._trees[node.part]
        return node.part, total


Engine = Callable[[Job, ArrayKind, Sequence[Any]], Iterable[tuple[int, Any]]]
"""Computes a job from operands of some kind: each part's number with its sum, an array of that kind or of the host."""


class DistributedPlan(SlicedPlan):
    """A sliced contraction whose slices are summed by an engine."""

    __slots__ = ("_engine", "_job", "_terms")

    def __init__(self, request: PlanRequest, subject: Subject, engine: Engine, terms: int | None = None) -> None:
        """Made by `distribute`.

        Args:
            request: What was asked for.
            subject: What is sliced.
            engine: Sums the slices.
            terms: Of the sum of each part; by default as many as any number of workers may need.
        """
        super().__init__(request, subject, find_plan)
        self._engine, self._terms = engine, terms
        self._job: Job | None = None

        def again(changed: PlanRequest, *, keep: bool = True) -> ContractionPlan:
            return DistributedPlan(changed, subject, engine, terms)

        self._replan = again

    def __call__(self, *operands: Any, **options: Any) -> Any:
        """As a call of any plan, but for derivatives, which are not recorded.

        Raises:
            GradientError: PyTorch would record them.
        """
        refuse_derivatives(operands, options)
        return super().__call__(*operands, **options)

    @property
    def job(self) -> Job:
        """What the engine computes; always the same object, by which engines know it."""
        if self._job is None:
            self._job = self._new_job()
        return self._job

    def _new_job(self) -> Job:
        bare = dense_request(self._bare, self.path)
        grid, lengths = self._work.grid, tuple(self.lengths.items())
        terms = usual_terms(grid, self._sums_in.itemsize) if self._terms is None else min(self._terms, grid.summed)
        recipe = Recipe(bare, lengths, bool(self._work.once), self._sums_in.name, self._order, terms)
        return Job(recipe, grid, self._first.flops)

    def _write(self, kind: ArrayKind, device: int, operands: Sequence[Any], ending: Ending) -> None:
        """Write each part of the result when its sum is there."""
        job = self.job
        changed = self._changes(ending)
        for part, total in self._engine(job, kind, operands):
            outer = job.grid.part(part)
            sums = total
            if kind is not NUMPY and isinstance(total, np.ndarray):
                sums = kind.from_host(total)
            if changed:
                self._complete(kind, device, outer, sums, ending)
            kind.copy(view(ending.d, self._output_axes, outer), sums)

    def write_stripped(self, *_: Any, **__: Any) -> Any:
        """Refused.

        Raises:
            OptionError: Engines sum slices without exponents of their own.
        """
        raise OptionError("strip_exponent= is not for several devices or processes: call a plan for one")

    def _changes(self, ending: Ending) -> bool:
        """Whether the result is not just the sums."""
        return ending.c is not None or ending.alpha != 1 or self._request.epilogue is not None

    def __repr__(self) -> str:
        return f"<DistributedPlan {printable(self.subscripts)} on {self.arch}, {count(self.slices, 'slice')}>"


def distribute(plan: ContractionPlan, engine: Engine, least: int) -> DistributedPlan:
    """A plan in at least so many slices, which an engine sums.

    Raises:
        OptionError: It cannot be cut in so many, or has nothing to sum.
        DTypeError: Its dtype does not travel.
    """
    request = plan.request
    if any(x.dtype is BFLOAT16 for x in (*request.operands, plan.result.d)):
        raise DTypeError("bfloat16 arrays do not travel between processes; convert them to float32 or float16")
    network, path = network_of(request, plan.path)
    if 0 in network.extents:
        raise OptionError(f"{plan.subscripts} has a mode of extent 0: there is nothing to distribute")
    way = way_with(plan, network, least)
    if way is None:
        most = math.prod(network.extents[m] for m in {m for t in network.terms for m in t})
        raise OptionError(f"slices={least}: {plan.subscripts} has at most {most}")
    made = replace(request, memory_limit=None)
    return DistributedPlan(made, Subject(without_slices(plan), path, network, way), engine)


def without_slices(plan: ContractionPlan) -> ContractionPlan:
    """The plan that has no slices: itself, or what a sliced one is compared with."""
    return plan.unsliced if isinstance(plan, SlicedPlan) else plan


def way_with(plan: ContractionPlan, network: Network, least: int) -> Slicing | None:
    """The slices of a plan where there are so many, else the best way to cut it further; None if there is none."""
    if not isinstance(plan, SlicedPlan):
        return spread(network, {}, least)
    return spread(network, plan.lengths, least, keeps=plan.once > 0)


def refuse_derivatives(operands: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Refuse a call of which PyTorch would record derivatives.

    Raises:
        GradientError: It would.
    """
    torch = torch_library()
    if torch is not None and torch.modes.records([*operands, *options.values(), *options.get("epilogue_args", ())]):
        raise GradientError(
            "derivatives are not recorded over several devices or processes: call within torch.no_grad(), or on "
            "x.detach()"
        )


def dense_request(bare: PlanRequest, path: Path) -> PlanRequest:
    """A contraction of dense operands along a path, on no device."""
    dense = tuple(replace(x, strides=dense_strides(x.shape, x.dtype.itemsize)) for x in bare.operands)
    return replace(bare, operands=dense, device=None, optimize=path if len(dense) > 2 else True)
