"""Schedules whose loaders visit an operand in an order of their own, or store batches differently, by contraction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gett.codegen.multistage import loading
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.search.select import candidates
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.mainloop import Multistage
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.vectors import operand_dims
from gett.schedule.tile.lane_order import Order, memory_order

Asked = Callable[[GemmPlan, Schedule, int], bool]  # whether a schedule loads an operand in the way that is tested
Shape = tuple[int, ...]


def loader(s: Schedule, tensor: int) -> CpAsync | RegisterStaged:
    return s.multistage.a if tensor == A else s.multistage.b


def order_of(plan: GemmPlan, s: Schedule, tensor: int) -> Order:
    return loading(plan, tensor, loader(s, tensor), s.tiling).walk


def batches_differ(plan: GemmPlan, s: Schedule, tensor: int) -> bool:
    return loading(plan, tensor, loader(s, tensor), s.tiling).spread > 1


def in_memory_order(plan: GemmPlan, s: Schedule, tensor: int) -> bool:
    t, order = s.tiling, order_of(plan, s, tensor)
    dims = operand_dims(plan, tensor, t.m if tensor == A else t.n, t.k, t.l)
    return isinstance(loader(s, tensor), CpAsync) and bool(order) and order == memory_order(dims, t.shape[tensor])


def from_row_to_row(plan: GemmPlan, s: Schedule, tensor: int) -> bool:
    order = order_of(plan, s, tensor)
    return isinstance(loader(s, tensor), CpAsync) and bool(order) and not in_memory_order(plan, s, tensor)


def schedules(plan: GemmPlan, asked: Asked, arch: str) -> Iterator[Schedule]:
    """Those of the search that load an operand so, from the likeliest on."""
    found = (s for s in candidates(plan, arch) if isinstance(s.mainloop, Multistage) and s.split_k == 1)
    return (s for s in found if any(asked(plan, s, tensor) for tensor in (A, B)))


# Name, subscripts, shapes of A and B.
BATCHES = ("batches", "mkl,nkl->lmn", (9, 14, 8), (7, 14, 8))
WIDE = ("wide batches", "mkl,nkl->lmn", (20, 16, 8), (18, 16, 8))
MEMORY = ("memory", "akb,nk->abn", (33, 48, 2), (17, 48))
RAGGED = ("a ragged K", "akb,nk->abn", (33, 45, 2), (17, 45))
PADDED = ("a ragged K in a box smaller than the tile", "abcde,cfadg->gbef", (16, 16, 7, 3, 2), (7, 4, 16, 3, 8))
Case = tuple[str, str, Shape, Shape]
