"""What a main loop is to generic code: rules, shared memory, registers, constants, instruction, words for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gett.hw.dtypes import data_type
from gett.hw.tensor_types import TensorType
from gett.ir.gemm import GemmPlan
from gett.schedule.rules.rule import Rule
from gett.schedule.spec.hopper_needs import planes
from gett.schedule.spec.schedule import Schedule, SmemPlan

Constants = Mapping[str, bool | int | str]
"""Constants by name; a string is an enumerator, `"Type::value"`, both of namespace `gett`."""

Smem = Callable[[Schedule, GemmPlan], SmemPlan]
"""Where the parts of shared memory lie, worked out from a schedule's other parts and the lowered plan."""

Fact = tuple[str, str]  # (name, text) of a line of a plan's text; continued lines have no name


def multiply_adds(plan: GemmPlan, schedule: Schedule) -> list[Fact]:
    """What people are told of multiply-adds where planes were asked for."""
    if planes(plan) is None:
        return []
    return [("products", f"fused multiply-adds, at least as accurate as {plan.contraction.precision}")]


def whole_products(plan: GemmPlan, schedule: Schedule) -> list[Fact]:
    """What people are told of products of whole operands: whether these are rounded, and to what."""
    if planes(plan) is not None:
        return multiply_adds(plan, schedule)
    c = plan.contraction
    tensor = data_type(c.dtype).multiplied(c.precision)
    if tensor is None or data_type(c.dtype).exact:
        return []
    return [("products", f"of operands rounded to the nearest {tensor.name}, 2^-11 of each at most; float32 sums")]


@dataclass(frozen=True, kw_only=True)
class MainloopKind:
    """A main loop."""

    words: str  # what it is, for people
    rules: tuple[Rule, ...]  # when a GPU may run a lowered plan by it, in the order in which they are asked
    smem: Smem  # lays out its shared memory
    # Lines that tell people of its products, from the plan as it was made and the schedule.
    products: Callable[[GemmPlan, Schedule], list[Fact]] = whole_products


@dataclass(frozen=True, slots=True)
class WgmmaText:
    """The wgmma of a kernel, whose text depends on the tile."""

    tensor: TensorType  # the type that it multiplies
    columns: tuple[int, ...]  # of the tile, or of its chunks
    majors: tuple[str, ...]  # of the operands that it reads out of shared memory: A's and B's, or B's alone
    # With A in registers: whether a product may be subtracted, and begin a sum; else it is added to one.
    signed: bool = False
