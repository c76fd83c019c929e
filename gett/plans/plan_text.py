"""`PlanText`: what a plan says of itself to people and programs: text, tables, plain data, charts.

What stands in them is `gett.explain`'s, which is imported late, since few programs look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from gett.console.formatting import count, printable
from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.subscripts import parse
from gett.network.path import Path, path_info
from gett.network.request import PlanRequest
from gett.plans.plan_figures import PlanFigures


class PlanText(PlanFigures):
    """The steps of a plan, and what is told of them.

    Attributes:
        subscripts: The explicit form.
        path: The pairs in which operands are contracted.
    """

    __slots__ = ("path", "subscripts")

    subscripts: str
    path: Path

    if TYPE_CHECKING:

        def settle(self) -> PlanText:
            """The plan with the schedules that run."""

    @property
    def request(self) -> PlanRequest:
        """What was asked for, as plans are made from it."""
        return self._request

    @property
    def path_info(self) -> Any:
        """opt_einsum's `PathInfo` of the path: its text is a table of the contractions with their cost.

        Example:
            >>> import gett
            >>> info = gett.plan("ij,jk->ik", ((3, 4), "float64"), ((4, 5), "float64")).path_info
            >>> info.path, int(info.opt_cost)
            ([(0, 1)], 120)
        """
        shapes = [t.shape for t in self._request.operands]
        return path_info(parse(self._request.spec, list(map(len, shapes))), shapes, self.path)

    def __str__(self) -> str:
        """`explain()`: at most ten lines, forty of a network."""
        return self.explain()

    def explain(self, *, detail: bool = False) -> str:
        """The plan as text, for people.

        At most ten lines: what it is as a matrix product, the kernel, the expected time with its rates and share of the
        roofline, what bounds it, memory and copies, and what would make it faster. Estimates are the cost model's, for
        the GPU that the plan is for; of the CPU there are none. A network takes at most forty: totals, launches, and
        the ten steps that take longest with what bounds each.

        Args:
            detail: Tell everything instead: groups, strides, boxes, loads and stores of every step. Kernels are
                compiled for it where a compiler is installed, so that what is told is what runs.

        Example:
            >>> import gett
            >>> plan = gett.plan("ij,jk->ik", ((256, 512), "float64"), ((512, 128), "float64"))
            >>> print(plan.explain())  # doctest: +ELLIPSIS
            ij,jk->ik on the CPU, float64
              is        gemm M 256 (i) x N 128 (k) x K 512 (j)
              runs as   NumPy: one BLAS call...
        """
        if detail:
            from gett.explain.detail import explain  # late, here and below: few programs look at the text

            return explain(self.settle())
        from gett.explain.summary import summary

        return summary(self, self._told(), self._facts(), self._tried)

    def _repr_html_(self) -> str:
        """`explain()` as a table, which notebooks show."""
        from gett.explain.summary import summary_html

        return summary_html(self, self._told(), self._facts(), self._tried)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, which `json.dumps` takes: what `gett explain --json` prints.

        Example:
            >>> import gett
            >>> gett.plan("ij->ji", ((2, 3), "float32")).to_dict()["shape"]
            [3, 2]
        """
        from gett.explain.record import plan_record

        return plan_record(self)

    def plot(self, ax: Any = None, *, kind: Literal["roofline", "steps"] | None = None) -> Any:
        """Draw the plan with matplotlib: the roofline of its GPU with each step below it, or its steps in order.

        The second has for each step its time by the cost model, coloured by what bounds it, and behind them the bytes
        that are held. On the CPU, of which no times are known, it has each step's share of the work.

        Args:
            ax: Axes to draw on; by default those of a new figure.
            kind: `"roofline"` or `"steps"`; by default the steps where there are more than 12.

        Returns:
            The axes.

        Raises:
            OptionError: `kind` is no such word, the roofline is that of a plan for the CPU, of which no rates are
                known, or there is nothing to draw.
            MissingPackageError: matplotlib is not installed.
        """
        from gett.explain.plot import plot_plan

        return plot_plan(self, self._facts(), ax, kind)

    def _told(self) -> PlanRequest:
        """The request of `steps`."""
        return self._request

    def _facts(self) -> ArchFacts | None:
        """Rates of the GPU that the plan is for: those of the one at hand where it was planned for that."""
        if self.arch == "cpu":
            return None
        if self._request.device is None:
            return arch_facts(self.arch)
        from gett.runtime.device import device_facts

        return device_facts().planning

    def _tried(self, request: PlanRequest) -> PlanText:
        """The plan of a changed request, which the plan cache does not keep."""
        made: PlanText = self._replan(request, keep=False)
        return made

    def __repr__(self) -> str:
        return f"<ContractionPlan {printable(self.subscripts)} on {self.arch}, {count(len(self.steps), 'step')}>"
