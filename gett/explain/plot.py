"""The roofline of a plan as a picture: matplotlib's, loaded when it is drawn.

Owns the drawing. The numbers are `roofline.py`'s.
"""

from __future__ import annotations

from typing import Any

from gett.errors import MissingPackageError, OptionError
from gett.explain.detail import Plan
from gett.explain.roofline import peak_tflops, roofline
from gett.hw.archs import ArchFacts


def plot_roofline(plan: Plan, facts: ArchFacts | None, ax: Any = None) -> Any:
    """Draw each step of a plan below its GPU's roof and return the axes.

    Args:
        plan: What to draw.
        facts: Of its GPU; None on the CPU, of which no rates are known.
        ax: matplotlib's axes to draw on; by default a new figure's.

    Raises:
        OptionError: The plan is the CPU's, or no step of it multiplies or adds.
        MissingPackageError: matplotlib is not installed.
    """
    if facts is None:
        raise OptionError("plot() draws plans for a GPU: plan with arch='sm_90a', say, which needs no GPU")
    parts = [(step, roofline(step, facts)) for step in plan.steps]
    points = [(step, roof) for step, roof in parts if roof is not None and roof.flops and roof.seconds]
    if not points:
        raise OptionError("plot() has nothing to draw: the plan forms no products and no sums")
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingPackageError("plot() needs matplotlib: pip install matplotlib") from error
    if ax is None:
        _, ax = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    roofs: dict[tuple[str, str], float] = {}
    for step, _ in points:
        c = step.gemm.contraction
        roofs.setdefault((c.dtype, c.precision), peak_tflops(facts, c.dtype, c.precision))
    intensities = [roof.flops / roof.bytes for _, roof in points]
    ridges = [peak / facts.dram_tbps for peak in roofs.values()]
    low, high = min(intensities + ridges) / 4, max(intensities + ridges) * 4
    colours = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    for ((dtype, precision), peak), colour in zip(roofs.items(), colours, strict=False):
        ridge = peak / facts.dram_tbps
        label = f"{peak:.0f} TFLOP/s in {dtype}" + ("" if precision == "ieee" else f", {precision}")
        ax.plot([low, ridge, high], [low * facts.dram_tbps, peak, peak], color=colour, label=label)
    for number, (_, roof) in enumerate(points, 1):
        x, y = roof.flops / roof.bytes, roof.flops / roof.seconds * 1e-12
        ax.plot([x], [y], "o", color="black")
        name = f"{100 * roof.share:.0f} %" if len(points) == 1 else f"{number}: {100 * roof.share:.0f} %"
        ax.annotate(name, (x, y), textcoords="offset points", xytext=(6, -12), fontsize=9)
    ax.set(
        xscale="log", yscale="log", xlabel="FLOP for each byte of the tensors",
        ylabel=f"TFLOP/s; {facts.dram_tbps:.3g} TB/s along the slope",
    )  # fmt: skip
    ax.set_title(f"{plan.subscripts if len(plan.subscripts) < 60 else 'network'} on {facts.name}", fontsize=10)
    ax.margins(y=0.12)
    ax.grid(True, which="major", alpha=0.3)
    ax.legend(fontsize=8, loc="lower right")
    return ax
