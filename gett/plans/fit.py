"""Whether the arrays of a call are plainly those that a plan was made for: what a warm call checks.

Owns the quick look alone. What it does not know takes a closer look, which raises the errors. Calls of these few
microseconds are why it asks arrays for what they have, instead of describing them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from gett.arrays.kinds import ALIGNMENT, CPU, NUMPY, ArrayKind, cupy_kind
from gett.arrays.torch import torch_library
from gett.graphs.seen import LEAST, Seen
from gett.ir.tensors import ALIGNMENT_LIMIT, TensorSpec
from gett.network.request import PlanRequest

_SHAPE = attrgetter("shape")


class Fit:
    """The arrays that a plan takes."""

    __slots__ = ("_home", "_inexact", "_layouts", "_look_closer", "_out", "_seen", "_shapes", "_specs", "_torch_parts")

    def __init__(self, request: PlanRequest, d: TensorSpec) -> None:
        """Those of a request, whose last step writes `d`."""
        self._specs = (*request.operands, request.out or d)
        self._layouts = tuple((t.shape, t.strides, t.dtype, t.alignment) for t in self._specs)
        self._home, self._out, self._inexact = request.device, request.out, d.dtype.kind in "fc"
        # Of a NumPy array nobody sees that it stands for a tensor that is conjugated lazily.
        lazy = request.arch == "cpu" and any(t.conj for t in request.operands)
        self._look_closer = request.c is not None or bool(request.epilogue_args) or lazy
        self._torch_parts: list[Any] | None = None
        self._shapes = [t.shape for t in request.operands]
        self._seen: Seen[bool] = Seen()  # that they fit, but for shapes that were set since

    def kind_of(self, operands: Sequence[Any], out: Any, alpha: Any, beta: Any) -> ArrayKind | None:
        """The arrays' kind if they and the factors are plainly what was planned; if not, they need a closer look.

        Shapes that may have been set since a call had the same arrays are left to `shapes_hold`.
        """
        home = self._home
        if home is None or len(operands) + 1 != len(self._layouts):
            return None
        if beta is not None and (beta.__class__ is not int or beta != 0):
            return None
        if self._look_closer or (out is None and self._out is not None):
            return None
        if alpha.__class__ is int:
            if not 0 <= alpha < 128:  # what every dtype holds
                return None
        elif alpha.__class__ is not float or not self._inexact:
            return None
        cupy = cupy_kind()
        array_type: Any = np.ndarray if home == CPU else None if cupy is None else cupy.type
        things: Sequence[Any] = operands if out is None else (*operands, out)
        layouts, many = self._layouts, home != CPU and len(operands) >= LEAST
        if many and self._seen.known(operands):
            things, layouts = things[len(operands) :], layouts[-1:]
        for x, (shape, strides, dtype, alignment) in zip(things, layouts, strict=False):
            if x.__class__ is not array_type:
                return None if home == CPU else self._kind_of_tensors(things, home)
            if x.shape != shape or x.strides != strides or x.dtype != dtype:
                return None
            if home != CPU:
                data = x.data
                if data.device_id != home or ALIGNMENT[data.ptr % ALIGNMENT_LIMIT] < alignment:
                    return None
        if many and layouts is self._layouts:
            self._seen.note(operands, True)
        return NUMPY if home == CPU else cupy

    def shapes_hold(self, kind: ArrayKind, operands: Sequence[Any]) -> bool:
        """Whether no shape was set since `kind_of` saw the arrays, if they are many and CuPy's: else it looked itself.

        A shape takes CuPy 90 ns. Reading the memory as it was planned is safe whatever the shape is now, so whoever can
        drop a result asks this while the GPU works.
        """
        of_cupy = kind.launch is None and kind is not NUMPY
        return not of_cupy or len(operands) < LEAST or [*map(_SHAPE, operands)] == self._shapes

    def _kind_of_tensors(self, tensors: Sequence[Any], device: int) -> ArrayKind | None:
        torch = torch_library()
        if torch is None:
            return None
        if self._torch_parts is None:
            self._torch_parts = torch.translate(self._specs, device)
        return torch.kind(device) if torch.fit(tensors, self._torch_parts) else None
