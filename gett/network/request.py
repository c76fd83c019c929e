"""What a plan is asked for: `PlanRequest`, from which planning starts and by which plans are kept.

Knows no arrays, only their descriptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from gett.arrays.kinds import CPU
from gett.hw.archs import WORKSPACE_LIMIT
from gett.ir.subscripts import Spec
from gett.ir.tensors import Casting, TensorSpec, UsualPrecision
from gett.network.limits import Elements
from gett.network.optimize import Bytes

if TYPE_CHECKING:  # few plans have one
    from gett.epilogue.expression import Expression


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Everything that a plan depends on.

    `conj` has a truth for each operand, of complex dtypes alone: whether it is conjugated. None stands for none.
    `memory_limit` is kept by slices where need be. `sums` says that `out` and `c` may have the type that sums have.
    `complex_factors` says that alpha or beta is complex: a GPU's plan may compute with real ones only. `waits` says
    that calls wait for kernels of the steps' own: no shared ones stand in for them.
    """

    spec: Spec
    operands: tuple[TensorSpec, ...]
    c: TensorSpec | None = None
    out: TensorSpec | None = None
    dtype: npt.DTypeLike | None = None
    order: str | None = "K"
    casting: Casting = "safe"
    optimize: Any = True
    precision: str | UsualPrecision | None = None
    arch: str = "cpu"
    device: int | None = CPU
    epilogue: Expression | None = None
    epilogue_args: tuple[TensorSpec, ...] = ()
    conj: tuple[bool, ...] | None = None
    workspace_limit: int = WORKSPACE_LIMIT
    complex_factors: bool = False
    memory_limit: Bytes | Elements | None = None
    sums: bool = False
    waits: bool = False
