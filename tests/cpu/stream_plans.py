"""Plans of arrays in several layouts, and of dense tensors that need not fit into memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import GemmPlan, make_gemm_plan
from tests.cpu.helpers import contraction_of


def array(shape: tuple[int, ...], dtype: str, layout: str = "C") -> Any:
    """An array without meaningful values, in a layout: C, F, reversed, gaps (every second element), shifted."""
    if layout == "reversed":
        return np.zeros(shape, dtype)[tuple(slice(None, None, -1) for _ in shape)]
    if layout == "gaps":
        return np.zeros([2 * e for e in shape], dtype)[tuple(slice(None, None, 2) for _ in shape)]
    if layout == "shifted":
        buffer = np.zeros(math.prod(shape) + 16, dtype)
        start = -(buffer.ctypes.data // buffer.itemsize) % 16 + 1  # one element behind a multiple of 16
        return buffer[start : start + math.prod(shape)].reshape(shape)
    buffer = np.zeros(math.prod(shape) + 32, dtype)
    start = -(buffer.ctypes.data // buffer.itemsize) % 32
    dense = buffer[start : start + math.prod(shape)]
    return dense.reshape(shape, order=layout)


def plan_for(
    subscripts: str, shapes: list[tuple[int, ...]], dtype: str, layouts: str = "C", with_c: bool = False,
    shape_d: tuple[int, ...] | None = None,
) -> tuple[GemmPlan, dict[str, int]]:  # fmt: skip
    """A plan and the addresses of its tensors; `layouts` are those of A, B, D and C, the last one repeated."""
    kinds = layouts.split()
    kinds += kinds[-1:] * (4 - len(kinds))
    inputs, output = subscripts.split("->")
    extents: dict[str, int] = {}
    for labels, shape in zip(inputs.split(","), shapes, strict=True):
        extents |= dict(zip(labels, shape, strict=True))
    operands = [array(s, dtype, k) for s, k in zip(shapes, kinds, strict=False)]
    shape_d = shape_d or tuple(extents[x] for x in output)
    d = array(shape_d, dtype, kinds[2])
    c = array(shape_d, dtype, kinds[3]) if with_c else None
    plan = make_gemm_plan(contraction_of(subscripts, operands[0], operands[1] if len(operands) > 1 else None, c, d))
    named = dict(zip("ba" if plan.swapped else "ab", operands, strict=False)) | {"d": d}
    named |= {} if c is None else {"c": c}
    return plan, {name: x.__array_interface__["data"][0] for name, x in named.items()}


def dense(labels: str, extents: dict[str, int], names: str, dtype: str) -> Operand:
    """A C-contiguous operand of any size, without memory."""
    size = np.dtype(dtype).itemsize
    strides: list[int] = []
    for x in reversed(labels):
        strides.insert(0, size)
        size *= extents[x]
    return Operand(tuple(names.index(x) for x in labels), tuple(strides), dtype, 256)


def large(subscripts: str, dtype: str, **extents: int) -> GemmPlan:
    """A plan of dense tensors that need not fit into memory."""
    inputs, output = subscripts.split("->")
    names = "".join(extents)
    operands = [dense(x, extents, names, dtype) for x in inputs.split(",")]
    b = operands[1] if len(operands) > 1 else None
    d = dense(output, extents, names, dtype)
    return make_gemm_plan(Contraction(tuple(names), tuple(extents.values()), operands[0], b, d, None, dtype))
