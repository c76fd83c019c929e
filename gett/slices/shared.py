"""`Shared`: a contraction in one cut, computed by several devices from arrays and sharded tensors.

Owns where its result goes. What each device does is the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gett.slices.distributed_plan import Job
from gett.slices.engine import DeviceEngine
from gett.slices.links import Link
from gett.slices.sharded import Sharded, even_parts
from gett.slices.views import view


@dataclass(frozen=True, slots=True)
class Shared:
    """One contraction.

    Attributes:
        engine: The devices.
        job: What they sum.
        dtype: Of the result.
        order: Memory order of a new result.
        axis: Along which the result is sharded; None for an array of the first device.
    """

    engine: DeviceEngine
    job: Job
    dtype: np.dtype[Any]
    order: str
    axis: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        grid = self.job.grid
        return tuple(grid.extents[m] for m in grid.output)

    def compute(self, operands: Sequence[Any]) -> Any:
        """The result: an array of the first device, or a sharded tensor."""
        return self._array(operands) if self.axis is None else self._sharded(operands, self.axis)

    def _array(self, operands: Sequence[Any]) -> Any:
        engine, grid = self.engine, self.job.grid
        home = engine.devices[0]
        kind = engine.link.kind_on(home)
        with engine.link.on(home):
            d = kind.empty(self.shape, self.dtype, self.order)
            axes = tuple((i, m) for i, m in enumerate(grid.output) if m in dict(grid.outer))
            for part, sums in engine.sums(self.job, operands):
                kind.copy(view(d, axes, grid.part(part)), sums.on(home))
        return d

    def _sharded(self, operands: Sequence[Any], axis: int) -> Any:
        engine, grid = self.engine, self.job.grid
        link, devices = engine.link, engine.devices
        d = new_sharded(link, self.shape, self.dtype, self.order, devices, axis)

        for part, sums in engine.sums(self.job, operands):
            place = grid.part(part)
            box = tuple(place.get(m, slice(0, grid.extents[m])) for m in grid.output)
            for piece in d.pieces(box):
                device = devices[piece.part]
                share = sums.share(piece.target, device)
                with link.on(device):
                    link.kind_on(device).copy(d.parts[piece.part][piece.inside], share)
        return d


def new_sharded(
    link: Link, shape: Sequence[int], dtype: np.dtype[Any], order: str, devices: Sequence[int], axis: int
) -> Sharded:
    """A sharded tensor without values, a part of about the same extent on each device."""
    parts = []
    for where, device in zip(even_parts(shape[axis], len(devices)), devices, strict=True):
        with link.on(device):
            part = *shape[:axis], where.stop - where.start, *shape[axis + 1 :]
            parts.append(link.kind_on(device).empty(part, dtype, order))
    return Sharded(parts, axis)


def gathered(link: Link, tensor: Any, device: int) -> Any:
    """All of a tensor as an array of one device."""
    if not isinstance(tensor, Sharded):
        return tensor
    box = tuple(slice(0, e) for e in tensor.shape)
    with link.lock:
        link.begin([device], [p for p in map(link.place, tensor.parts) if p is not None])
        with link.on(device):
            whole = tensor.joined(box, link.kind_on(device), lambda part: link.move(part, device))
        link.end([device], device)
    return whole
