"""The roofline of a plan: the least time that a GPU's arithmetic and memory allow each step, and what it should take.

The roof of a step is the larger of two times: its operations at the rate of the unit that forms its products, and its
bytes at the rate of a copy, each tensor read or written once. Owns these rates; words nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import data_type, planes_of
from gett.network.steps import Step
from gett.schedule.spec.hopper_needs import ARCHS


@dataclass(frozen=True, slots=True)
class Roofline:
    """What one step or several take, and take at least.

    Attributes:
        seconds: Expected by the cost model, or measured where the step was tuned.
        least: What arithmetic and memory allow; of several steps the sum of theirs.
        arithmetic: Whether it is arithmetic that limits all of them.
        flops: Floating-point operations on real numbers.
        bytes: Least traffic.
        measured: Whether all of the time was measured.
    """

    seconds: float
    least: float
    flops: int
    bytes: int
    arithmetic: bool
    measured: bool = False

    @property
    def share(self) -> float:
        """The share of the roofline that is expected: 1 is the roof."""
        return self.least / self.seconds if self.seconds else 0.0


def peak_tflops(facts: ArchFacts, dtype: str, precision: str) -> float:
    """Operations that a GPU forms at most of a dtype at a precision, in TFLOP/s.

    The tensor cores count where they form these products: of float32 in planes, six (three) 16-bit products make one.
    """
    plain = facts.fma_tflops.get(dtype, 0.0)
    planes = planes_of(dtype, precision) if facts.arch in ARCHS else None
    if planes is not None:
        return max(plain, facts.tensor_tflops[planes.tensor.name] / len(planes.products))
    tensor = data_type(data_type(dtype).real).multiplied(precision)
    return plain if tensor is None else max(plain, facts.tensor_tflops.get(tensor.name, 0.0))


def roofline(step: Step, facts: ArchFacts) -> Roofline | None:
    """The roofline of one step on a GPU; None where no time is expected of it."""
    forecast, measured = step.forecast, getattr(step.executable, "measured", None)
    if forecast is None:
        return None
    gemm = step.gemm
    contraction = gemm.contraction
    peak = peak_tflops(facts, contraction.dtype, contraction.precision)
    arithmetic = gemm.flops / peak * 1e-12 if peak and gemm.flops else 0.0
    traffic = gemm.bytes / facts.dram_tbps * 1e-12
    us = forecast.us if measured is None else measured[0]
    return Roofline(
        1e-6 * us, max(arithmetic, traffic), gemm.flops, gemm.bytes, arithmetic > traffic, measured is not None
    )


def total(parts: Sequence[Roofline]) -> Roofline:
    """Several steps, one after the other."""
    return Roofline(
        sum(x.seconds for x in parts),
        sum(x.least for x in parts),
        sum(x.flops for x in parts),
        sum(x.bytes for x in parts),
        all(x.arithmetic for x in parts),
        all(x.measured for x in parts),
    )
