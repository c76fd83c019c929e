"""Ragged contractions of tensors that lie in any order, and what a kernel's copies reach, by the hardware's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gett.codegen.records import Kernel, TensorMapSpec
from gett.codegen.render import render_kernel
from gett.groups.layouts import arithmetic_of
from gett.groups.ragged import RaggedModes, ragged_modes
from gett.groups.ragged_plans import RaggedPlans, ragged_plans
from gett.groups.ragged_tiles import MOST_PROBLEMS, ragged_schedules
from gett.ir.tensors import TensorSpec, parse_dtype
from gett.schedule.spec.schedule import Schedule


@dataclass(frozen=True)
class RaggedCase:
    """Subscripts, extents, and how the tensors lie: of each its axes from the slowest on, and elements between rows."""

    subscripts: str
    sizes: dict[str, int]
    dtype: str = "float16"
    precision: str | None = None
    orders: tuple[str, str, str] = ("", "", "")
    gap: int = 0

    @property
    def modes(self) -> RaggedModes:
        return ragged_modes(self.subscripts)

    @property
    def count(self) -> int:
        return self.sizes[self.modes.problem]

    @property
    def rows(self) -> int:
        return self.sizes[self.modes.ragged]

    @property
    def tensors(self) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
        made = [self.tensor(term, order or term) for term, order in zip(self.modes.terms, self.orders, strict=True)]
        return made[0], made[1], made[2]

    def tensor(self, term: str, order: str) -> TensorSpec:
        """A tensor whose rows have a gap behind them."""
        dtype = parse_dtype(self.dtype)
        step, strides = dtype.itemsize, {}
        for i, label in enumerate(reversed(order)):
            strides[label] = step
            step = step * self.sizes[label] + (self.gap * dtype.itemsize if i == 0 else 0)
        return TensorSpec(tuple(self.sizes[x] for x in term), tuple(strides[x] for x in term), dtype)

    @property
    def plans(self) -> RaggedPlans | None:
        a, b, d = self.tensors
        return ragged_plans(self.modes, (a, b, d), arithmetic_of(a, b, d, self.precision), self.count)

    def problem_of(self, ends: Sequence[int]) -> NDArray[np.int64]:
        """The problem of each row, the number of problems for those behind the last end."""
        out = np.full(self.rows, self.count)
        for e in reversed(range(self.count)):
            out[: max(0, ends[e])] = e
        return out


def reached(spec: TensorMapSpec, size: int, first: Sequence[int]) -> NDArray[np.int64]:
    """Bytes from the map's address to the elements that a copy moves; `first` are its coordinates.

    An element is moved where its coordinate lies within the map along each dimension (PTX ISA, "Tensors").
    """
    strides = (size, *spec.strides)
    at = np.zeros(1, np.int64)
    for c, box, extent, stride in zip(first, spec.box, spec.extents, strides, strict=True):
        along = c + np.arange(box, dtype=np.int64)
        along = along[(along >= 0) & (along < extent)]
        at = (at[:, None] + along * stride).reshape(-1)
    return at


def indices(tensor: TensorSpec, byte: int) -> tuple[int, ...]:
    """The element at a place of a tensor."""
    out = [0] * len(tensor.shape)
    for axis in sorted(range(len(out)), key=lambda i: -tensor.strides[i]):
        out[axis], byte = divmod(byte, tensor.strides[axis])
    assert byte == 0
    return tuple(out)


def places(tensor: TensorSpec) -> NDArray[np.int64]:
    """Bytes to each element of a tensor."""
    out = np.zeros(tensor.shape, np.int64)
    for axis, stride in enumerate(tensor.strides):
        along = np.arange(tensor.shape[axis]) * stride
        out += along.reshape([-1 if i == axis else 1 for i in range(len(tensor.shape))])
    return out


SIZES = dict(t=700, e=40, k=64, n=136)
FEW = dict(t=300, e=5, k=72, n=200)
PERSISTENT = {
    "rows": RaggedCase("tk,ekn->tn", SIZES),
    "large": RaggedCase("tk,ekn->tn", dict(t=131072, e=64, k=2048, n=4096), "bfloat16"),
    "weights": RaggedCase("tk,enk->tn", FEW),
    "second": RaggedCase("ekn,tk->tn", FEW),
    "inside": RaggedCase("thk,ekn->thn", dict(FEW, h=3)),
    "outside": RaggedCase("thk,ekn->htn", dict(FEW, h=3)),
    "batch": RaggedCase("tbk,ebkn->tbn", dict(FEW, b=2)),
    "split": RaggedCase("tk,ekn->tn", dict(FEW, n=256)),  # a row of matrices is cut into those of a swizzle
    "one": RaggedCase("tk,ekn->tn", dict(FEW, e=1)),
    "gaps": RaggedCase("tk,ekn->tn", FEW, gap=8),
    "few": RaggedCase("tk,ekn->tn", dict(FEW, n=16)),
    "words": RaggedCase("tk,enk->tn", FEW, "float32", "tf32"),
    "fragments": RaggedCase("tk,ekn->tn", FEW, "float32", "tf32"),
}
SUMS = {
    "sums": RaggedCase("tk,tn->ekn", FEW),
    "sums-turned": RaggedCase("tn,tk->ekn", dict(FEW, n=256), orders=("", "", "enk")),
    "sums-inside": RaggedCase("tbk,tbn->ekn", dict(FEW, t=100, b=3)),
    "sums-batch": RaggedCase("tbk,tbn->ebkn", dict(FEW, b=2)),
    "sums-one": RaggedCase("tk,tn->ekn", dict(FEW, e=1)),
    "sums-words": RaggedCase("tk,tn->ekn", FEW, "float32", "tf32"),
    "sums-wide": RaggedCase("tk,tn->ekn", dict(FEW, k=136, n=264), "float32", "tf32"),  # tiles end 3 copies behind it
    "sums-large": RaggedCase("tk,tn->ekn", dict(t=131072, e=64, k=2048, n=4096)),
}
OTHERS = {
    "sums-apart": RaggedCase("tbk,tbn->ekn", dict(FEW, b=3), orders=("btk", "btn", "")),
    "sums-major": RaggedCase("tk,tn->ekn", dict(FEW, t=304), orders=("kt", "", "")),  # rows of A run along the sum
    "columns": RaggedCase("tk,ekn->nt", SIZES),  # D's rows run along the ragged mode, which no map can clip
    "turned": RaggedCase("tk,ekn->tn", dict(FEW, t=304), orders=("kt", "", "")),  # rows of A run along the rows
    "words-turned": RaggedCase("tk,ekn->tn", dict(FEW, t=304), "float32", "tf32", orders=("kt", "", "")),
    "odd": RaggedCase("tk,ekn->tn", dict(SIZES, n=135)),
    "odd-k": RaggedCase("tk,ekn->tn", dict(SIZES, k=63)),
    "ieee": RaggedCase("tk,ekn->tn", SIZES, "float32", "ieee"),
    "double": RaggedCase("tk,ekn->tn", SIZES, "float64"),
    "complex": RaggedCase("tk,ekn->tn", SIZES, "complex64"),
    "single": RaggedCase("tk,ekn->tn", dict(SIZES, t=1)),
    "none": RaggedCase("tk,ekn->tn", dict(SIZES, t=0)),
    "many": RaggedCase("tk,ekn->tn", dict(SIZES, e=MOST_PROBLEMS + 1)),
    "long": RaggedCase("tk,ekn->tn", dict(SIZES, t=2**31 - 1)),
}
ALL = PERSISTENT | SUMS
ALL_ENDS = (
    (0, 70, 70, 201, 260),
    (1, 2, 130, 131, 300),
    (0, 0, 0, 0, 0),
    (0, 0, 0, 0, 300),
    (-7, 40, 41, 290, 1 << 30),  # kept within the tensors
)


def schedules(case: RaggedCase, ends: str = "int32") -> list[Schedule]:
    plans = case.plans
    return [] if plans is None else ragged_schedules(plans, "sm_90a", ends)


def kernel_of(case: RaggedCase, schedule: Schedule) -> Kernel:
    assert case.plans is not None
    return render_kernel(case.plans.whole, schedule)
