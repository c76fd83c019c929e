"""Tiles of D whose rows are short because an operand's rows are long: two blocks trade halves (`dsmem_exchange.cuh`).

An operand's unit mode and D's are two modes of one group, and a tile has room for 16 elements of the one and 8 of the
other. D's rows of 16 bytes then write half a sector each, which takes four times as long as whole ones. Of two tiles
side by side along D's unit mode each block stores one half, in rows of 32 bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gett.schedule.records import StageSteps, Trade
from layouts.box import Box
from layouts.swizzle import CHUNK

SHORT = 16
"""Bytes of the rows that are traded: a vector of shared memory."""


@dataclass(frozen=True, slots=True)
class Traded:
    """A trade and what follows from it.

    Attributes:
        cluster: Blocks along M and N that trade.
        m, n: Boxes of D that each of them stores then.
        trade: The trade.
    """

    cluster: tuple[int, int]
    m: Box
    n: Box
    trade: Trade


def trade(box_m: Box, box_n: Box, stage: StageSteps, size: int, batches: int) -> Traded | None:
    """How two blocks trade halves of a tile, None where they cannot.

    Args:
        box_m: Box of the tile's rows.
        box_n: Of its columns.
        stage: How it is staged.
        size: Bytes of an element of D.
        batches: Modes of D before those of M.
    """
    if stage.row * size != SHORT or stage.span != CHUNK or stage.cut is not None or len(stage.order) < 2:
        return None
    boxes = {"m": box_m, "n": box_n}
    (group, i), (slow, j) = stage.order[0], stage.order[-1]
    row, last = boxes[group].dims[i], boxes[slow].dims[j]
    if len(row.modes) > 1 or len(last.modes) > 1 or row.box != stage.row or last.box % 2:
        return None
    if boxes[group].tiles_per_dim[i] % 2:
        return None
    made = dict(boxes)
    for name, at, extent in ((group, i, 2 * row.box), (slow, j, last.box // 2)):
        dims = made[name].dims
        made[name] = replace(made[name], dims=(*dims[:at], replace(dims[at], box=extent), *dims[at + 1 :]))
    first = {"m": batches, "n": batches + len(box_m.extents)}
    between = math.prod(boxes[group].tiles_per_dim[:i])
    record = Trade(between, (first[group] + row.modes[0], row.box), (first[slow] + last.modes[0], last.box // 2))
    return Traded((1, 2) if group == "n" else (2, 1), made["m"], made["n"], record)
