"""Plans as pictures: the roofline, or the steps of a network in order; matplotlib's, loaded when they are drawn.

Owns the drawing. The numbers are `roofline.py`'s and the plan's.
"""

from __future__ import annotations

from typing import Any

from gett.errors import MissingPackageError, OptionError
from gett.explain.detail import Plan, step_cost
from gett.explain.network import bound_of
from gett.explain.roofline import Roofline, peak_tflops, roofline
from gett.hw.archs import ArchFacts
from gett.network.steps import Step

KINDS = ("roofline", "steps")
MOST_POINTS = 12  # steps that a roofline has room for


def plot_plan(plan: Plan, facts: ArchFacts | None, ax: Any = None, kind: str | None = None) -> Any:
    """Draw a plan and return the axes.

    Args:
        plan: What to draw.
        facts: Of its GPU; None on the CPU, of which no rates are known.
        ax: matplotlib's axes to draw on; by default a new figure's.
        kind: `"roofline"` or `"steps"`; None chooses by the number of steps.

    Raises:
        OptionError: There is no such kind, the plan is the CPU's and has no roofline, or there is nothing to draw.
        MissingPackageError: matplotlib is not installed.
    """
    if kind is None:
        kind = "steps" if len(plan.steps) > MOST_POINTS else "roofline"
    if kind not in KINDS:
        raise OptionError(f"kind={kind!r}; it must be one of {', '.join(map(repr, KINDS))}, or None")
    if kind == "steps":
        if not plan.steps:
            raise OptionError("plot() has nothing to draw: the plan has no steps")
        return _draw_steps(plan, _axes(ax))
    if facts is None:
        raise OptionError("plot() draws plans for a GPU: plan with arch='sm_90a', say, which needs no GPU")
    parts = [(step, roofline(step, facts)) for step in plan.steps]
    points = [(step, roof) for step, roof in parts if roof is not None and roof.flops and roof.seconds]
    if not points:
        raise OptionError("plot() has nothing to draw: the plan forms no products and no sums")
    return _draw_roofline(plan, points, facts, _axes(ax))


def _axes(ax: Any) -> Any:
    """The axes to draw on.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingPackageError("plot() needs matplotlib: pip install matplotlib") from error
    return pyplot.subplots(figsize=(7, 4.5), layout="constrained")[1] if ax is None else ax


def _draw_steps(plan: Plan, ax: Any) -> Any:
    """What each step takes, coloured by what bounds it, and on a second axis the bytes that are held.

    On the CPU no times are known, and the axis has the work that steps are ranked by, as a share of all.
    """
    costs = [step_cost(s) for s in plan.steps]
    bounds = [bound_of(s) for s in plan.steps]
    scale = 1.0 if plan.arch != "cpu" else 100 / (sum(costs) or 1.0)
    numbers = range(1, len(costs) + 1)
    for bound in dict.fromkeys(bounds):
        chosen = [i for i, x in enumerate(bounds) if x == bound]
        heights = [costs[i] * scale for i in chosen]
        ax.plot([numbers[i] for i in chosen], heights, ".", markersize=4, label=bound)
    unit = "us by the cost model" if plan.arch != "cpu" else "% of the work"
    ax.set(xlabel="step", ylabel=unit, yscale="log" if any(costs) else "linear")
    held = ax.twinx()
    held.fill_between(numbers, [x / 2**20 for x in plan.step_bytes], step="mid", color="grey", alpha=0.25, linewidth=0)
    held.set(ylabel="MiB held", ylim=(0, None))
    ax.set_zorder(held.get_zorder() + 1)  # points stand before the grey
    ax.patch.set_visible(False)
    ax.set_title(f"{_name(plan)}, {len(costs)} steps on {plan.arch}", fontsize=10)
    ax.grid(True, which="major", alpha=0.3)
    ax.legend(fontsize=8, title="bound by", title_fontsize=8)
    return ax


def _draw_roofline(plan: Plan, points: list[tuple[Step, Roofline]], facts: ArchFacts, ax: Any) -> Any:
    """Each step below its GPU's roof."""
    from matplotlib import rcParams

    roofs: dict[tuple[str, str], float] = {}
    for step, _ in points:
        c = step.gemm.contraction
        roofs.setdefault((c.dtype, c.precision), peak_tflops(facts, c.dtype, c.precision))
    intensities = [roof.flops / roof.bytes for _, roof in points]
    ridges = [peak / facts.dram_tbps for peak in roofs.values()]
    low, high = min(intensities + ridges) / 4, max(intensities + ridges) * 4
    colours = rcParams["axes.prop_cycle"].by_key()["color"]
    for ((dtype, precision), peak), colour in zip(roofs.items(), colours, strict=False):
        ridge = peak / facts.dram_tbps
        label = f"{peak:.0f} TFLOP/s in {dtype}" + ("" if precision == "ieee" else f", {precision}")
        ax.plot([low, ridge, high], [low * facts.dram_tbps, peak, peak], color=colour, label=label)
    for number, (_, roof) in enumerate(points, 1):
        x, y = roof.flops / roof.bytes, roof.flops / roof.seconds * 1e-12
        ax.plot([x], [y], "o", color="black")
        if len(points) <= MOST_POINTS:
            name = f"{100 * roof.share:.0f} %" if len(points) == 1 else f"{number}: {100 * roof.share:.0f} %"
            ax.annotate(name, (x, y), textcoords="offset points", xytext=(6, -12), fontsize=9)
    ax.set(
        xscale="log", yscale="log", xlabel="FLOP for each byte of the tensors",
        ylabel=f"TFLOP/s; {facts.dram_tbps:.3g} TB/s along the slope",
    )  # fmt: skip
    ax.set_title(f"{_name(plan)} on {facts.name}", fontsize=10)
    ax.margins(y=0.12)
    ax.grid(True, which="major", alpha=0.3)
    ax.legend(fontsize=8, loc="lower right")
    return ax


def _name(plan: Plan) -> str:
    return plan.subscripts if len(plan.subscripts) < 60 else "network"
