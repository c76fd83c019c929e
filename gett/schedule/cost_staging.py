"""How a tile of D is staged on its way to memory, and the clocks that each way takes of a multiprocessor.

Knows a tile's boxes and D's strides; what the whole tile takes is `cost_sm90`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gett.ir.gemm import A, D, GemmPlan
from gett.schedule.cost_copies import CopyModel
from gett.schedule.d_box import SIZE, Dim, Rows, box_stage
from gett.schedule.records import StageSteps
from gett.schedule.sm90_shape import Side, Sm90Shape
from gett.schedule.staging import pairs, stage_steps
from gett.schedule.trade import Traded, trade
from layouts.box import Box

VECTOR_SLOTS, ELEMENT_SLOTS = 80.0, 34.0  # instructions of a warp for one store, look-ups included
ADDED_SLOTS = 8.0  # and for each element of C that is added there (counted, not measured)


@dataclass(frozen=True, slots=True)
class Staging:
    """The two ways of staging a tile of D, what each takes, and which is the cheaper."""

    dense: StageSteps
    padded: StageSteps
    bulk: bool
    clocks: float


class StagingModel(CopyModel):
    """Stagings of one plan's tiles, worked out once per pair of boxes."""

    def __init__(self, plan: GemmPlan) -> None:
        super().__init__(plan)
        self.stagings: dict[tuple[Box, int, Box, int, int, bool, int, bool], Staging] = {}

    def staging(self, shape: Sm90Shape) -> Staging:
        """How a tile of D is staged and what that takes of a multiprocessor, in clocks."""
        m, n, roles = shape.m, shape.n, shape.roles
        key = (m.box, m.run, n.box, n.run, roles.m_blocks, roles.ping_pong, shape.parts, shape.added)
        if key in self.stagings:
            return self.stagings[key]
        order = _order(shape.m, shape.n)
        has_c = self.plan.contraction.c is not None
        by_map = has_c and shape.added and self.follows(shape)
        size = 4 if has_c else self.size_d  # of what is staged where D leaves as vectors
        run = _lead(shape, order) * self.size_d
        vector = max(v for v in (1, 2, 4, 8) if run % (v * self.size_d) == 0 and v * self.size_d <= 16)
        dense = stage_steps(shape.m.box, shape.n.box, order, self.size_d if by_map else size, vector, False)
        padded = stage_steps(shape.m.box, shape.n.box, order, size, vector, True)
        elements = shape.m.box.size * shape.n.box.size
        boxes_n = tuple(d.box for d in shape.n.box.dims)

        def put(steps: StageSteps) -> float:
            paired = pairs(boxes_n, steps.n)
            stores = elements / 32 / (2 if paired else 1) * steps.conflicts
            lead = next((d for d in shape.n.box.dims if d.box > 1), None)
            slots = elements / 32 * (2.0 if lead is not None and lead.box % 8 == 0 else 9.0)
            # Rows of the padding leave warps idle while the others write.
            idle = shape.block[0] * shape.parts / shape.m.box.size
            return (max(stores, slots / 4) + 0.3 * min(stores, slots / 4)) * idle

        slots = (VECTOR_SLOTS if vector > 1 else ELEMENT_SLOTS) + (ADDED_SLOTS * vector if has_c else 0.0)
        vectors = elements / vector / 32 * (slots / 4 + 4 * vector * self.size_d / 16)
        bulk_clocks, plain_clocks = 250 + put(dense), 250 + put(padded) + vectors
        if (by_map or not has_c) and self.size_d == SIZE:
            boxed = box_stage(*self.dims(shape))
            if boxed is not None and boxed[1] * shape.parts < bulk_clocks:
                dense, bulk_clocks, run = boxed[0], boxed[1] * shape.parts, 16
        if by_map:
            bulk_clocks *= 2  # C is read as D is written
        bulk = run % 16 == 0 and (by_map or not has_c) and bulk_clocks <= plain_clocks
        made = Staging(dense, padded, bulk, bulk_clocks if bulk else plain_clocks)
        self.stagings[key] = made
        return made

    def traded(self, shape: Sm90Shape) -> Traded | None:
        """How two blocks may trade halves of the tile, see `trade`."""
        staging = self.staging(shape)
        return trade(shape.m.box, shape.n.box, staging.dense, self.size_d, len(self.plan.l)) if staging.bulk else None

    def dims(self, shape: Sm90Shape) -> tuple[tuple[Dim, ...], Rows, tuple[int, int]]:
        """What `box_stage` asks of a tile."""
        found = []
        for group, side in (("m", shape.m), ("n", shape.n)):
            prefix = 1
            for i, d in enumerate(side.box.dims):
                if d.box > 1:
                    mode = side.modes[d.modes[0]]
                    found.append(Dim(group, i, d.box, mode.extent, mode.strides[D] // self.size_d, prefix))
                prefix *= d.box
            single = [side.modes[m] for d in side.box.dims if d.box == 1 for m in d.modes]
            if any(mode.extent > 1 and mode.strides[D] % 16 for mode in single):
                return (), Rows(1, 1, 1, 1, 0, 0), (0, 0)  # no tensor map steps along them
        found.sort(key=lambda d: d.step)
        chunk = 0
        if not self.major_k[A]:
            unit = next((i for i, s in enumerate(shape.m.modes) if s.strides[A] == self.size), None)
            box = next((d.box for d in shape.m.box.dims if unit in d.modes), 1)
            chunk = next((s for s in (128, 64, 32, 16) if box * self.size % s == 0), 0) // self.size
        groups = 1 if shape.roles.ping_pong else shape.roles.consumers
        if shape.m.run:
            chunk = shape.m.chunk
        box_m = shape.m.box.size // shape.parts
        rows = Rows(shape.roles.m_blocks, groups, box_m, shape.n.box.size, chunk, shape.m.run)
        return tuple(found), rows, (len(shape.m.box.dims), len(shape.n.box.dims))


def _order(m: Side, n: Side) -> list[tuple[str, int]]:
    """Tiled dimensions by D's stride."""
    dims = [
        (min(abs(side.modes[x].strides[D]) for x in d.modes), group, i)
        for group, side in (("m", m), ("n", n))
        for i, d in enumerate(side.box.dims)
        if d.box > 1
    ]
    return [(g, i) for _, g, i in sorted(dims)]


def _lead(shape: Sm90Shape, order: list[tuple[str, int]]) -> int:
    """Elements of D's run along its unit-stride mode."""
    if not order:
        return 1
    group, i = order[0]
    side = shape.m if group == "m" else shape.n
    dim = side.box.dims[i]
    mode = side.modes[dim.modes[0]]
    if len(dim.modes) > 1 or mode.strides[D] not in (1, 2, 4, 8, 16):
        return 1
    return math.gcd(dim.box, mode.extent)
